"""The commands `demo` (judge a sick and a sound run) and `selftest` (test the rules, the demo and the environment)."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from ppo_doctor import __version__
from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import Debug, NoColor
from ppo_doctor.cli.output import write
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

#: Runs of the demo, which hatch_build.py puts into a wheel → the verdict on each, with its leading cause.
DEMO: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "sick/old-policy-aliased.sb3": ("unhealthy", "old-policy-aliased"),
        "healthy/healthy.sb3": ("healthy", ""),
    }
)
#: Failed cases that are printed, and columns for the names of the parts.
MOST_FAILED, WIDTH = 10, 14
_NEEDS = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?[^;]*(?:;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")


def demo_folder() -> Path:
    """Return the folder of the runs of the demo, in an installed copy or in a checkout.

    Raises:
        DoctorError: neither has them (exit code 70).
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_demo", package.parent / "sample_logs"):
        if all((folder / run).is_dir() for run in DEMO):
            return folder
    raise DoctorError("the runs of the demo are missing", hint="reinstall ppo-doctor", code=ExitCode.BUG)


def judge_demo(*, debug: bool = False) -> Iterator[tuple[str, Run, Diagnosis]]:
    """Yield the runs of the demo with their diagnoses.

    Raises:
        DoctorError: they are missing (exit code 70).
    """
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import diagnose, read_run
    from ppo_doctor.model.request import Request

    folder, pack, request = demo_folder(), load_pack(), Request(debug=debug)
    for name in DEMO:
        run = read_run(str(folder / name), request)
        yield name, run, diagnose(run, pack, request)


@app.command()
def demo(no_color: NoColor = False, debug: Debug = False) -> None:
    """Judge a sick and a sound run that come with ppo-doctor, and print both reports."""
    from ppo_doctor.report import RenderOptions, render

    options = RenderOptions(color=False if no_color else None)
    for number, (_, run, diagnosis) in enumerate(judge_demo(debug=debug)):
        write(("\n" if number else "") + render(diagnosis, run, options), None)
    write("\nOn your own run: ppo-doctor analyze LOG\nWhat finding 1 rests on: ppo-doctor show LOG 1\n", None)


@frozen
class Part:
    """A part of the self-test: its name, what was found, and whether that is as it has to be."""

    name: str
    says: str
    passed: bool = True
    failures: tuple[str, ...] = ()


@app.command()
def selftest(debug: Debug = False) -> None:
    """Test this installation: the cases of every rule, the runs of the demo, what is installed."""
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.escape import prose
    from ppo_doctor.report.terminal import page_for, paint

    parts = [_environment(), _dependencies(), _extras(), _rules(), _demo(debug=debug)]
    passed = all(part.passed for part in parts)
    says = "passed" if passed else "reinstall ppo-doctor, or report it with this output"
    options = RenderOptions(color=False)
    page = page_for(options)
    for part in (*parts, Part(name="result", says=says, passed=passed)):
        page.labelled(part.name, f"{'' if part.passed else 'FAILED: '}{prose(part.says)}", 0, WIDTH)
        for line in part.failures[:MOST_FAILED]:
            page.labelled("", prose(line), 2, WIDTH - 2)
    write(paint(page, options), None)
    raise typer.Exit(ExitCode.OK if passed else ExitCode.SICK)


def _environment() -> Part:
    where = Path(__file__).resolve().parent.parent
    system = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Part(name="ppo-doctor", says=f"{__version__} in {where}, {system}")


def _dependencies() -> Part:
    versions = {name: _version(name) for name, extra in _needs() if not extra}
    missing = [name for name, version in versions.items() if not version]
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lacking = tuple(f"{name} is missing: pip install {name}" for name in missing)
    return Part(
        name="dependencies", says=known or "unknown: not installed by pip", passed=not missing, failures=lacking
    )


def _extras() -> Part:
    """Return which extras can be used; one that is not installed is no failure."""
    extras: dict[str, list[str]] = {}
    for name, extra in _needs():
        if extra and name != "ppo-doctor":
            extras.setdefault(extra, []).append(name)
    there, missing = [], []
    for extra, names in extras.items():
        lacking = [name for name in names if not _version(name)]
        there += [] if lacking else [extra]
        missing += [f"{extra} ({', '.join(lacking)})"] if lacking else []
    says = f"{', '.join(there) or 'none'} installed"
    return Part(name="extras", says=f"{says}; not installed: {', '.join(missing)}" if missing else says)


def _needs() -> Iterator[tuple[str, str]]:
    """Yield the distributions that ppo-doctor asks for, each with its extra, "" for one that is always needed."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("ppo-doctor") or []
    except PackageNotFoundError:  # run from a folder of sources
        lines = []
    for line in lines:
        if match := _NEEDS.fullmatch(line):
            yield match["name"], match["extra"] or ""


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _rules() -> Part:
    from ppo_doctor.checks.cases import run_cases
    from ppo_doctor.checks.rulepack import load_pack

    rules = load_pack().rules
    results = run_cases(rules)
    failed = tuple(str(result) for result in results if result.problems)
    says = f"{len(results)} cases of {len(rules)} rules, {len(failed)} failed"
    return Part(name="rules", says=says, passed=not failed, failures=failed)


def _demo(*, debug: bool) -> Part:
    found = {name: _judgement(diagnosis) for name, _, diagnosis in judge_demo(debug=debug)}
    wrong = [f"{name}: expected {_words(DEMO[name])}" for name, judged in found.items() if judged != DEMO[name]]
    says = "; ".join(f"{name}: {_words(judged)}" for name, judged in found.items())
    return Part(name="demo", says=says, passed=not wrong, failures=tuple(wrong))


def _judgement(diagnosis: Diagnosis) -> tuple[str, str]:
    leaders = (cause.id for cause in diagnosis.causes if cause.leader and not cause.benign)
    return diagnosis.verdict, next(leaders, "")


def _words(judged: Sequence[str]) -> str:
    return ", ".join(filter(None, judged))
