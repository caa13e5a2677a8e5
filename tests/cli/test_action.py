"""The composite action: its published schema, and both its steps in a real shell, for every exit code."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from tests.cli.test_ci_docs import ACTION, ROOT, SAMPLES, judge, shell

bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
REPORTS = {"report.json", "report.md", "report.sarif", "report.xml"}
#: A Python in which a bug of ours happens in the middle of a judgement.
BUG = """#!/bin/sh
shift 3
exec '{python}' -c '
import sys
import ppo_doctor.cli.gate
def run_gate(*args, **kwargs):
    raise RuntimeError("a bug")
ppo_doctor.cli.gate.run_gate = run_gate
from ppo_doctor.cli.application import run
sys.exit(run())
' "$@"
"""


@pytest.fixture
def project(tmp_path):
    """Return a project with a run for each outcome."""
    for name, sample in {
        "sound": "healthy/healthy.sb3",
        "sick run": "sick/lr-zero.sb3",
        "short": "broken/three-records.canonical",
        "empty": "broken/empty.canonical",
    }.items():
        shutil.copytree(SAMPLES / sample, tmp_path / "runs" / name)
    (tmp_path / "wrong.toml").write_text('fail-onn = "high"\n', encoding="utf-8")
    return tmp_path


OUTCOMES = {
    0: {"runs": "runs/sound"},
    1: {"runs": "runs/sick*", "fail-on": "critical"},
    2: {"runs": "runs/sound", "policy": "wrong.toml"},
    3: {"runs": "runs/empty"},
    4: {"runs": "runs/short"},
    70: {"runs": "runs/sound"},
}


@bash
@pytest.mark.parametrize("code", OUTCOMES)
def test_every_exit_code_of_the_judging_step(project, code):
    python = project / "python"
    if code == 70:
        python.write_text(BUG.format(python=sys.executable), encoding="utf-8")
        python.chmod(0o755)
    chosen = {"PYTHON": str(python)} if code == 70 else {}
    done, output = judge(project, **OUTCOMES[code], **chosen)
    assert done.returncode == code, done.stdout + done.stderr
    assert output == {"exit-code": str(code), "reports": "ppo-doctor"}
    assert "Traceback" not in done.stdout + done.stderr
    if code in (0, 1, 4):
        assert {path.name for path in (project / "ppo-doctor").iterdir()} == REPORTS
        assert (project / "github_step_summary").stat().st_size
        assert ("::error file=" in done.stdout) == (code == 1)
    if code in (2, 3):  # whoever reads the report rather than the job's colour finds out, too
        assert json.loads((project / "ppo-doctor" / "report.json").read_text())["error"]["code"] == code
        assert "::error" in done.stdout


@bash
@pytest.mark.parametrize(("runs", "code"), [(("short", "sick*"), 1), (("sound", "nope"), 3)])
def test_of_several_runs_the_worst_counts(project, runs, code):
    done, output = judge(project, runs="\n".join(f"runs/{name}" for name in runs))
    assert (done.returncode, output["exit-code"]) == (code, str(code)), done.stdout + done.stderr


def test_the_action_meets_the_published_schema():
    found = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "github-actions.json"
    schema = json.loads(found.read_text(encoding="utf-8"))
    validator = Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(ACTION)] == []
    broken = {**ACTION, "runs": {**ACTION["runs"], "using": "bash"}}
    assert list(validator.iter_errors(broken)), "a schema that accepts everything shows nothing"


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of what the action's own folder holds."""
    folder = tmp_path / "action"
    for name in ("ppo_doctor", "rules", "sample_logs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "action.yml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def install(project, **variables):
    """Run the install step; return the Python that it names."""
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "install")
    done = shell(step["run"], project, GITHUB_OUTPUT=str(project / "installed"), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return (project / "installed").read_text(encoding="utf-8").strip().removeprefix("python=")


@bash
def test_the_install_step_installs_what_the_judging_step_runs(checkout, project, tmp_path_factory):
    """Offline: dependencies come from this environment, and nothing asks an index; nothing is installed into it."""
    place = tmp_path_factory.mktemp("place") / "ppo-doctor"
    packages = sysconfig.get_paths()["purelib"]
    ours = sorted(path.name for path in Path(packages).iterdir())
    variables = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_COMPILE": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_IGNORE_INSTALLED": "1",
        "PYTHONPATH": packages,  # what builds the wheel
    }
    python = install(project, INPUT_VERSION="", ACTION_PATH=str(checkout), PLACE=str(place), **variables)
    assert sorted(path.name for path in Path(packages).iterdir()) == ours
    site = next(place.glob("lib/python*/site-packages"))
    # Without *.pth files of ours: an editable install there would be found before what the step installs.
    (site / "borrowed.pth").write_text(packages + "\n", encoding="utf-8")
    # What lies in the job's folder is not taken for a part of it.
    (project / "ppo_doctor.py").write_text("raise RuntimeError", encoding="utf-8")
    where = shell(f"'{python}' -I -c 'import ppo_doctor; print(ppo_doctor.__file__)'", project)
    assert where.stdout.startswith(str(site)), where.stdout + where.stderr
    judged, output = judge(project, PYTHON=python, **OUTCOMES[1])
    assert (judged.returncode, output["exit-code"]) == (1, "1"), judged.stdout + judged.stderr


#: A Python that makes an environment of itself, and tells what it was asked to do.
ASKED = """#!/bin/sh
echo "$@" >> asked
if [ "$2" = venv ]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi
"""


@bash
def test_the_install_step_asks_for_the_version_that_was_chosen(project):
    """What pip makes of a version is pip's affair."""
    stub = project / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(ASKED, encoding="utf-8")
    stub.chmod(0o755)
    path = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"
    place = project / "a place"
    python = install(project, PATH=path, INPUT_VERSION="==1.2", ACTION_PATH="nowhere", PLACE=str(place))
    assert python == str(place / "bin" / "python")
    venv, pip = (project / "asked").read_text(encoding="utf-8").splitlines()
    assert venv.startswith("-m venv")
    assert pip.startswith("-m pip install")
    assert pip.split()[-1] == "ppo-doctor==1.2"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"] == "ppo-doctor"
