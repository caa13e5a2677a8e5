"""The application that commands register with, and `--version`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ppo_doctor import __version__

app = typer.Typer(
    name="ppo-doctor",
    help="Reads what a PPO run left behind and says what is wrong, how it knows, and what to do first.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would triple the start-up of --help
)
rules_app = typer.Typer(help="List and test rules.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rules_app, name="rules")


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"ppo-doctor {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    del version
