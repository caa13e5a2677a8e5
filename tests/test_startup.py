"""What is imported decides how fast we start: each command loads only what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
LOG = SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl"
_LINE = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$", re.MULTILINE)


def imported(*command: str, warm: bool = True) -> set[str]:
    """Return the top-level packages that a command imports in a fresh interpreter."""
    if warm:  # the first run of a checkout also fills the cache
        subprocess.run([sys.executable, *command], capture_output=True, check=False)
    run = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=False)
    modules = set(_LINE.findall(run.stderr))
    assert modules, run.stderr[-500:]
    assert run.returncode == 0, run.stderr[-500:]
    return modules | {name.partition(".")[0] for name in modules}


NO_NUMBERS = (
    ["--version"],
    ["--help"],
    ["analyze", "--help"],
    ["rules", "list"],
    ["explain", "adv-exactly-zero"],
    ["frameworks"],
)


@pytest.mark.parametrize("arguments", NO_NUMBERS, ids=" ".join)
def test_commands_without_a_run_import_no_numpy(arguments):
    assert imported("-m", "ppo_doctor", *arguments) & {"numpy", "pandas", "torch"} == set()


def test_the_version_imports_nothing_but_the_standard_library():
    assert imported("-m", "ppo_doctor", "--version") & {"typer", "click", "rich", "orjson", "numpy"} == set()


def test_json_needs_neither_pandas_nor_rich():
    modules = imported("-m", "ppo_doctor", "analyze", str(LOG), "--format", "json")
    assert modules & {"pandas", "torch", "rich"} == set()
    assert modules & {"numpy.ma", "hashlib", "tomllib", "zipfile", "pickletools", "yaml"} == set()
    assert "numpy" in modules


def test_a_command_prepares_no_other():
    code = (
        "import sys; from ppo_doctor.cli.application import register; register('analyze');"
        "print(*sorted(name for name in sys.modules if name.startswith('ppo_doctor.cli.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [f"ppo_doctor.cli.{name}" for name in ("analyze", "application", "options", "output")]


def test_the_table_of_commands_holds_each_that_is_registered():
    code = (
        "from ppo_doctor.cli.application import COMMANDS, app, register; register('--help');"
        "names = [c.name or c.callback.__name__ for c in app.registered_commands];"
        "groups = [g.name for g in app.registered_groups];"
        "print(sorted(COMMANDS) == sorted(names + groups), [n for n in COMMANDS if n not in groups] == names)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True"]


def test_text_needs_no_pandas():
    assert imported("-m", "ppo_doctor", "analyze", str(LOG)) & {"pandas", "torch"} == set()


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["analyze", str(LOG)]], ids=len)
def test_the_interactive_report_is_imported_by_nobody_else(arguments):
    modules = imported("-m", "ppo_doctor", *arguments)
    assert modules & {"textual", "ppo_doctor.tui", "ppo_doctor.whatif"} == set()


def test_a_second_start_parses_no_toml():
    assert "tomllib" not in imported("-m", "ppo_doctor", "analyze", str(LOG), "--format", "json")


def test_import_of_the_package_is_light():
    heavy = {"numpy", "pandas", "torch", "rich", "typer", "click", "orjson"}
    assert imported("-c", "import ppo_doctor") & heavy == set()


def test_a_read_only_cache_is_no_obstacle(tmp_path):
    file = tmp_path / "not-a-folder"
    file.write_text("", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "ppo_doctor", "rules", "list"],
        env=os.environ | {"PPO_DOCTOR_CACHE": str(file / "below")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "learning-rate-zero" in run.stdout
