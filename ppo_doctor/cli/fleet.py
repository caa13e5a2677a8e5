"""The command `fleet`: judge any number of runs and put a row for each into a table."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    Debug,
    Framework,
    Ignore,
    NoColor,
    RuleFolders,
    Select,
    Settings,
    load_rules,
    request_of,
)
from ppo_doctor.cli.output import places, write
from ppo_doctor.model.errors import worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.fleets.run import Progress
    from ppo_doctor.fleets.summary import FleetSummary, Record
    from ppo_doctor.fleets.table import Table

#: Seconds between two lines of progress on a terminal, and in the file of a job.
OFTEN, SELDOM = 0.2, 30.0
#: Sources that were left out and are named.
MOST_SKIPPED = 5
#: Formats of a fleet.
FLEET_FORMATS = ("text", "json", "html")
FORMATS_HELP = "text, json, html; also FORMAT=FILE, as html=fleet.html. Repeatable."
FleetFormats = Annotated[list[str] | None, typer.Option("--format", "-f", help=FORMATS_HELP)]


@app.command()
def fleet(
    sources: Annotated[list[str], typer.Argument(help="Folders, globs, or URLs such as s3://bucket/runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The table: runs.parquet. A later call adds to it.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="local (processes of this machine) or ray.")] = "local",
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Of a cluster; without it a local one.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each processor.")] = None,
    formats: FleetFormats = None,
    reports: Annotated[Path | None, typer.Option(help="Write each run's HTML report here; the page links it.")] = None,
    framework: Framework = None,
    settings: Settings = None,
    alias: Aliases = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Judge any number of runs: which are broken, of what, and what they have in common."""
    chosen = places(formats, None, FLEET_FORMATS)
    request = request_of(framework, None, settings, None, select, ignore, debug, alias)
    pack = load_rules(rules, request)
    if reports is not None:
        reports = reports.resolve()  # workers may be in another folder
        reports.mkdir(parents=True, exist_ok=True)
    from ppo_doctor.fleets.engines import engine_named
    from ppo_doctor.fleets.folders import temporary
    from ppo_doctor.fleets.run import judge_fleet
    from ppo_doctor.fleets.summary import COLUMNS, summarize
    from ppo_doctor.fleets.table import Table

    with temporary() as folder:
        table = Table(out or folder / "runs.parquet")
        telling = _Telling()
        judging = engine_named(engine, ray_address, jobs)
        done = judge_fleet(sources, request, pack, judging, table, telling, reports=reports)
        telling.end(done, out)
        summary = summarize(table.rows(COLUMNS))
        for name, path in chosen:
            write(_rendered(name, path, summary, table, reports, color=False if no_color else None), path, name)
    if done.errors:
        raise typer.Exit(worst([error.code for error in done.errors]))


class _Telling:
    """Says on stderr what a call has done: now and then on a terminal, and at its end."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = time.monotonic()

    def __call__(self, done: Progress) -> None:
        if time.monotonic() - self._last > (OFTEN if self._live else SELDOM):
            sys.stderr.write(f"\r\x1b[K{_so_far(done)}" if self._live else f"{_so_far(done)}\n")
            sys.stderr.flush()
            self._last = time.monotonic()

    def end(self, done: Progress, out: Path | None) -> None:
        from ppo_doctor.report.escape import plain

        start = "\r\x1b[K" if self._live else ""
        where = f": {plain(str(out))}" if out is not None else ""
        sys.stderr.write(f"{start}{_so_far(done)}{where}\n")
        left = [*done.skipped, *(error.message for error in done.errors)]
        for each in left[:MOST_SKIPPED]:
            sys.stderr.write(f"ppo-doctor: {plain(each)}\n")
        if len(left) > MOST_SKIPPED:
            sys.stderr.write(f"ppo-doctor: and {len(left) - MOST_SKIPPED} more\n")


def _so_far(done: Progress) -> str:
    counts = {"judged": done.rows["judged"], "failed": done.rows["failed"], "unchanged": done.unchanged}
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number or word == "judged")


def _rendered(
    name: str, path: Path | None, summary: FleetSummary, table: Table, reports: Path | None, *, color: bool | None
) -> str:
    """Return a fleet in one format."""
    if name == "html":
        from ppo_doctor.fleets.page import render
        from ppo_doctor.fleets.page_data import COLUMNS, GRAVE, columns_of, limit_of

        limit = limit_of(table.rows(GRAVE), summary.runs)
        return render(summary, columns_of(table.rows(COLUMNS), _links(reports, path), limit))
    from ppo_doctor.fleets.text import as_json, as_text
    from ppo_doctor.report import RenderOptions

    return as_json(summary) if name == "json" else as_text(summary, RenderOptions(color=color))


def _links(reports: Path | None, page: Path | None) -> Callable[[Record], str]:
    """Return a function that tells where the report of a run lies, seen from the page, and "" where none is."""
    if reports is None:
        return lambda _: ""
    from urllib.parse import quote

    from ppo_doctor.fleets.reports import report_name

    there = {each.name for each in reports.iterdir()}
    start = page.parent if page is not None else Path()
    folder = quote(Path(os.path.relpath(reports, start.resolve())).as_posix())

    def link(row: Record) -> str:
        name = report_name(row["fingerprint"], row["run"])
        return f"{folder}/{name}" if name in there else ""

    return link
