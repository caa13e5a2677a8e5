"""Pictures of the real program for the README, as SVG: `python -m benchmarks.demo [--out docs/images] [NAME …]`.

The interactive report is driven by keys, as a person drives it, and its screen is exported; `watch --plain` follows a
log that this script writes. Pictures load no font and hold no script.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.analyze import cases_of
from ppo_doctor.cli.interactive.app import ReportApp
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.request import Request
from ppo_doctor.report import RenderOptions

ROOT = Path(__file__).resolve().parent.parent
FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
MOST_BYTES = 300_000
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(frozen=True)
class Scene:
    """What to open, how large, and which keys to press; a key of several letters is a named key, "=text" is typed."""

    logs: tuple[str, ...]
    size: tuple[int, int]
    keys: tuple[str, ...] = ()


SCENES = {
    "interactive-story": Scene(("sick/clip-range-too-small.sb3/progress.csv",), (160, 42)),
    "interactive-small": Scene(("sick/old-policy-aliased.sb3/progress.csv",), (80, 24)),
    "interactive-metrics": Scene(("sick/nan-inf.sb3/progress.csv",), (160, 34), ("3", "/", "=loss", "enter")),
    "interactive-what-if": Scene(
        ("healthy/healthy.canonical/run.jsonl",),
        (110, 30),
        ("4", "/", "=ppo_ep", "enter", "enter", "ctrl+u", "=16", "enter"),
    ),
    "interactive-source": Scene(("sick/nan-inf.sb3/progress.csv",), (110, 30), ("5",)),
}


def interactive(scene: Scene) -> str:
    """Return the screen of the interactive report after the keys of a scene."""
    request, pack = Request(), load_pack()
    runs = [read_run(f"sample_logs/{log}", request) for log in scene.logs]
    app = ReportApp(cases_of([(run, diagnose(run, pack, request)) for run in runs], request, pack), RenderOptions())

    async def main() -> str:
        async with app.run_test(size=scene.size) as pilot:
            for key in scene.keys:
                await pilot.press(*(key[1:] if key.startswith("=") else [key]))
                await pilot.pause(0.3)
            await pilot.pause(1.0)
            return app.export_screenshot(title=f"ppo-doctor analyze {scene.logs[0].partition('/')[2]} -i")

    return asyncio.run(main())


def watching() -> str:
    """Return what `watch --plain` prints about a run that breaks half way, while it is being written."""
    lines = (ROOT / "sample_logs/sick/nan-inf.canonical/run.jsonl").read_text(encoding="utf-8").splitlines()
    command = [sys.executable, "-m", "ppo_doctor", "watch", "run.jsonl", "--plain"]
    command += ["--interval", "500ms", "--fail-on", "high", "--until-idle", "12s"]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
        with (Path(folder) / "run.jsonl").open("w", encoding="utf-8") as log:
            for line in lines:
                if process.poll() is not None:
                    break
                log.write(line + "\n")
                log.flush()
                time.sleep(0.1)
        printed = process.communicate(timeout=60)[0]
    shown = f"$ ppo-doctor watch run.jsonl --plain --fail-on high\n{printed}$ echo $?\n{process.returncode}"
    return drawn(shown, "ppo-doctor watch --plain", 132)


def drawn(text: str, title: str, width: int) -> str:
    """Return plain lines of a terminal as a picture."""
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True, color_system="standard")
    for line in text.splitlines():
        words = Text(line)
        if line.startswith("$ "):
            words.stylize("bold")
        console.print(words, markup=False, highlight=False, emoji=False)
    return console.export_svg(title=title, unique_id="ppo-doctor-watch")


def cleaned(svg: str) -> str:
    """Return a picture without its web fonts: nothing is fetched.

    Raises:
        ValueError: it is too large for a page, or still names something to load.
    """
    svg = _FONT_FACE.sub("", svg).replace("Fira Code, monospace", FONTS).replace("Fira Code", FONTS)
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    if len(svg.encode()) > MOST_BYTES:
        raise ValueError(f"{len(svg.encode())} bytes, more than {MOST_BYTES}")
    if re.search(r"<script|@import|url\(['\"]?(?!#)|href=", svg):
        raise ValueError("the picture would load something")
    return svg


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args(arguments)
    made: dict[str, Callable[[], str]] = {name: (lambda s=scene: interactive(s)) for name, scene in SCENES.items()}
    made["watch-plain"] = watching
    os.chdir(ROOT)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or made:
        target = options.out / f"{name}.svg"
        target.write_text(cleaned(made[name]()), encoding="utf-8", newline="\n")
        print(f"{target}  {target.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
