"""The application that commands register with, and `--version`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ppo_doctor import __version__


class _Commands(TyperGroup):
    """The commands; typer takes an `EOFError` for somebody's Ctrl-D, and ends with the code of a sick run."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer keeps its contexts to itself
        """Run a command."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError(f"EOFError: {error}") from error


app = typer.Typer(
    cls=_Commands,
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
    from ppo_doctor import inputs

    inputs.keep_track()
