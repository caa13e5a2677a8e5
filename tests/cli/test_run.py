"""The command `run`: its options, what it reports and where, and its exit codes."""

from __future__ import annotations

import json
import os

import pytest

from ppo_doctor.cli.run import _start_of_command, why_nothing
from tests.record.script.stage import Stage

STEP = "import torch\ntorch.step()\nprint('trained')\n"
posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.fixture
def stage(tmp_path, samples):
    return Stage(tmp_path, samples / "sick" / "lr-zero.canonical" / "run.jsonl")


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("train.py --updates 3", "train.py"),
        ("--updates 3 train.py -m x", "train.py"),
        ("--updates=3 --live -m package.train --live", "-m"),
        ("--out run.jsonl -- torchrun --out x", "--"),
        ("--live", None),
    ],
)
def test_options_end_where_the_script_begins(line, script):
    arguments = line.split()
    start = _start_of_command(arguments, {"--updates", "--out"})
    assert start == (arguments.index(script) if script else len(arguments))


@posix
def test_reports_and_observations_go_where_they_are_wanted(stage, validate):
    stage.write("train.py", STEP)
    options = ("--out", "run.jsonl", "--format", "json=report.json", "--format", "text")
    code, out, err = stage.observed(*options, "train.py")
    assert (code, out) == (0, "trained\n")
    assert err.startswith("UNHEALTHY  train.py\n")
    report = json.loads((stage.work / "report.json").read_text())
    validate(report)
    assert (report["verdict"], report["run"]["id"]) == ("unhealthy", "train.py")
    assert (stage.work / "run.jsonl").read_bytes() == stage.records.read_bytes()
    stage.records.write_text(stage.records.read_text().splitlines()[0] + "\n")
    assert stage.observed("--out", "run.jsonl", "train.py")[0] == 0
    assert (stage.work / "run.jsonl").read_bytes() == stage.records.read_bytes(), "an earlier file is replaced"


@posix
@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [(STEP, "never", 0), (STEP, "high", 1), (STEP + "raise SystemExit(6)", "high", 6), ("print('trained')", "high", 3)],
)
def test_the_exit_code_is_the_scripts_unless_it_is_0_and_a_severity_is_given(stage, text, fail_on, code):
    stage.write("train.py", text)
    assert stage.observed("--quiet", "--fail-on", fail_on, "train.py")[:2] == (code, "trained\n")


@posix
def test_a_log_is_judged_together_with_what_was_observed(stage, samples):
    log = samples / "sick" / "lr-zero.canonical" / "run.jsonl"
    stage.write("train.py", STEP + f"open('log.jsonl', 'w').write(open({str(log)!r}).read())")
    stage.records.write_text('{"ppo_doctor": 1, "config": {"n_epochs": 4}}\n{"step": 1, "grad_norm": 0.5}\n')
    code, _, err = stage.observed("--log", "log.jsonl", "--format", "json=report.json", "train.py")
    report = json.loads((stage.work / "report.json").read_text())
    assert (code, len(report["run"]["sources"])) == (0, 2), err


@posix
def test_the_script_can_be_ended_by_the_observer(stage):
    stage.write("train.py", "import torch\nfor number in range(9):\n    torch.step()\n    print(number)")
    assert stage.observed("--updates", "3", "--stop", "train.py")[:2] == (0, "0\n1\n")
    assert stage.observed("--updates", "3", "train.py")[1].endswith("8\n")


def test_why_nothing_was_observed(tmp_path):
    file, script = tmp_path / "observed.jsonl", ["--", "python", "train.py"]

    def why(*notes):
        error = why_nothing(file, notes, script)
        return error and error.message

    assert "PYTHONPATH" in why()
    assert "never imported torch" in why("started")
    assert "rank 0" in why("started", "torch", "rank")
    assert "no ratio" in why("started", "torch")
    assert why("started", "torch", "no room for copies").endswith("no room for copies")
    assert why("started", "failed Python 3.9").endswith(": Python 3.9")
    file.write_text('{"ppo_doctor": 1, "unseen": {"ratio": "the loss is compiled"}}\n')
    assert why("started", "torch").endswith("the loss is compiled")
    file.write_text('{"ppo_doctor": 1, "step": 1}\n')
    assert why("started", "torch") is None


@posix
def test_an_environment_without_torch_is_told_which_python_to_use(stage, tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("")
    other.chmod(0o755)
    stage.write("train.py", "print('trained')")
    (stage.env / "torch" / "__init__.py").unlink()
    (stage.env / "torch").rmdir()
    if _has_torch():
        pytest.skip("torch is installed here")
    _, _, err = stage.observed("train.py", PATH=f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert f"ppo-doctor run -- {other} train.py" in err


def _has_torch():
    from importlib.util import find_spec

    return find_spec("torch") is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "missing.py: no such script"),
        (["sh"], "ppo-doctor run -- sh"),
        (["-m"], "no module"),
        (["--"], "no command"),
        (["--", "no-such-command"], "No such file"),
        (["--out", "train.py", "train.py"], "holds something else"),
        (["--out", "missing/run.jsonl", "train.py"], "no folder"),
        (["--memory", "3X", "train.py"], "no amount of memory"),
        (["--for", "3", "train.py"], "no duration"),
        (["--fail-on", "x", "train.py"], "no such severity"),
        (["--format", "x", "train.py"], "no format"),
        (["--every", "-1", "train.py"], "--every"),
    ],
)
def test_wrong_usage_starts_nothing(cli, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('started', 'w')")
    outcome = cli("run", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "started").exists()
