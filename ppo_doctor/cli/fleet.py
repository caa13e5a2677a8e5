"""The command `fleet`: judge any number of runs and put a row for each into a table."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    Debug,
    Formats,
    Framework,
    Ignore,
    NoColor,
    RuleFolders,
    Select,
    Settings,
    load_rules,
    request_of,
)
from ppo_doctor.cli.output import write
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.fleets.engines import Engine

#: Formats of a fleet.
FLEET_FORMATS = ("text", "json", "html")


@app.command()
def fleet(
    sources: Annotated[list[str], typer.Argument(help="Folders, globs, or URLs such as s3://bucket/runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The table: runs.parquet. A later call adds to it.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="local (processes of this machine) or ray.")] = "local",
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Of a cluster; without it a local one.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each processor.")] = None,
    format: Formats = None,
    framework: Framework = None,
    settings: Settings = None,
    alias: Aliases = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Judge any number of runs: which are broken, of what, since when, and what the broken ones have in common."""
    del no_color
    places = _places(format)
    request = request_of(framework, None, settings, None, select, ignore, debug, alias)
    pack = load_rules(rules, request)
    with TemporaryDirectory(prefix="ppo-doctor-") as temporary:
        from ppo_doctor.fleets.run import judge_fleet
        from ppo_doctor.fleets.table import Table

        table = Table(out or Path(temporary) / "runs.parquet")
        done = judge_fleet(sources, request, pack, _engine(engine, ray_address, jobs), table)
        for name, path in places:
            del name
            write(f"{done}\n", path)


def _engine(name: str, address: str | None, jobs: int | None) -> Engine:
    from ppo_doctor.cli.judge import processors
    from ppo_doctor.fleets.engines import LocalEngine

    if name == "ray":
        from ppo_doctor.fleets.ray_engine import RayEngine

        return RayEngine(address, jobs)
    if name != "local":
        raise DoctorError(f"--engine {name}: no such engine", hint="local, ray", code=ExitCode.USAGE)
    return LocalEngine(jobs or processors())


def _places(formats: Sequence[str] | None) -> list[tuple[str, Path | None]]:
    found: list[tuple[str, Path | None]] = []
    for text in formats or ["text"]:
        name, equals, file = text.partition("=")
        if name not in FLEET_FORMATS:
            hint = ", ".join(FLEET_FORMATS)
            raise DoctorError(f"no format '{name}' for a fleet", hint=hint, code=ExitCode.USAGE)
        found.append((name, Path(file) if equals else None))
    return found
