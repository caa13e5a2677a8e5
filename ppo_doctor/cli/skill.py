"""The command `skill`: the page that tells an agent how to work with this tool."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.output import write

#: The folder of the skill within a folder of skills, and the name of its page: what clients look for.
FOLDER, PAGE = "ppo-doctor", "SKILL.md"


@app.command()
def skill(
    install: Annotated[
        Path | None, typer.Option(help="Write it below this folder of skills, as ppo-doctor/SKILL.md.")
    ] = None,
) -> None:
    """Print the page that tells an agent when to ask which command, and how to read the answer."""
    text = files("ppo_doctor.cli").joinpath("skill.md").read_text(encoding="utf-8")
    if install is None:
        write(text, None)
        return
    place = install / FOLDER / PAGE
    place.parent.mkdir(parents=True, exist_ok=True)
    write(text, place)
    write(f"{place}\n", None)
