"""Start-up: what a command imports decides how fast it answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_doctor.cli.application import COMMANDS

LOG = Path(__file__).resolve().parent.parent / "sample_logs" / "sick" / "lr-zero.canonical" / "run.jsonl"
_LINE = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$", re.MULTILINE)
#: What only some commands or reports need.
HEAVY = {"pandas", "torch", "textual", "ppo_doctor.cli.interactive", "rich.markdown", "rich.syntax", "markdown_it"}


@pytest.fixture(scope="module", autouse=True)
def _filled_caches() -> None:
    """Compile rules and profiles, which a command does the first time that it needs them."""
    subprocess.run([sys.executable, "-m", "ppo_doctor", "analyze", str(LOG)], capture_output=True, check=True)


def imported(*command: str) -> set[str]:
    """Return the modules and packages that a command imports in a fresh interpreter whose caches are filled."""
    run = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=False)
    modules = set(_LINE.findall(run.stderr))
    assert modules, run.stderr[-500:]
    assert run.returncode == 0, run.stderr[-500:]
    return modules | {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("-c,import ppo_doctor", {"numpy", "rich", "typer", "click", "orjson"}),
        ("-c,import ppo_doctor.cli.pytest_plugin", {"numpy", "rich", "typer", "click", "orjson", "ppo_doctor.model"}),
        ("-m,ppo_doctor,--version", {"numpy", "rich", "typer", "click", "orjson"}),
        ("-m,ppo_doctor,--help", {"numpy", "ppo_doctor.model.run", "ppo_doctor.checks"}),
        ("-m,ppo_doctor,rules,list", {"numpy"}),
        # NumPy has threads, beside which a process must not be forked
        ("-m,ppo_doctor,run,--help", {"numpy"}),
        ("-m,ppo_doctor,frameworks", {"numpy"}),
        (f"-m,ppo_doctor,analyze,{LOG}", {"tomllib", "yaml"}),
        (f"-m,ppo_doctor,analyze,{LOG},--format,json", {"tomllib", "yaml", "rich", "zipfile", "pickletools"}),
    ],
    ids=["package", "plugin", "version", "help", "rules list", "run", "frameworks", "analyze", "analyze as JSON"],
)
def test_a_start_imports_only_what_it_needs(command, without):
    assert imported(*command.split(",")) & (HEAVY | without) == set()


def test_the_table_of_commands_says_of_each_what_it_says_itself():
    code = (
        "import sys; from ppo_doctor.cli.application import app, register; register();"
        "sys.argv[1:] = ['--help']; app(prog_name='ppo-doctor')"
    )
    whole = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    named = subprocess.run([sys.executable, "-m", "ppo_doctor", "--help"], capture_output=True, text=True, check=True)
    assert named.stdout.replace("python -m ppo_doctor", "ppo-doctor") == whole.stdout
    assert whole.stdout.count("\n  ") > len(COMMANDS)
