"""The commands `explain` and `frameworks`."""

from __future__ import annotations

from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import complete_name
from ppo_doctor.cli.output import write

#: Most columns of a page.
WIDEST = 120


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A rule, cause, framework or metric.", autocompletion=complete_name)],
) -> None:
    """Print the manual page of a rule, a cause, a framework or a metric."""
    from ppo_doctor.cli.pages import page

    write(_for_terminal(page(name)), None)


@app.command()
def frameworks() -> None:
    """List the frameworks whose logs we know, with the keys that give them away."""
    from ppo_doctor.trainers.detection import profiles

    for profile in sorted(profiles().values(), key=lambda profile: profile.name):
        prints = "; ".join(" + ".join(group) for group in profile.fingerprint.any_of)
        write(f"{profile.name:<16}  {profile.title}\n{'':<16}  {prints}\n", None)


def _for_terminal(markdown: str) -> str:
    """Return Markdown laid out for the width, encoding and colours of standard output."""
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    from ppo_doctor.report.layout import ascii_only

    class WholeCells(TableElement):
        # By default rich cuts a word that is longer than the column of its table.
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                for column in part.columns if isinstance(part, Table) else ():
                    column.overflow = "fold"
                yield part

    class Page(Markdown):
        elements = Markdown.elements | {"table_open": WholeCells}

    console = Console()
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        console.print(Page(markdown, code_theme="bw"))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    return ascii_only(text.replace("•", "*")) if console.options.ascii_only else text
