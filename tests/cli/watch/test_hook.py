"""`--on-finding`: the command gets the cause as JSON, has its time, and its failures are told and never fatal."""

from __future__ import annotations

import json
import sys
import time

import pytest

import ppo_doctor
from ppo_doctor.cli.watch.command import Hook
from ppo_doctor.model.errors import DoctorError, ExitCode

from .conftest import SICK


@pytest.fixture(scope="module")
def diagnosis(samples):
    return ppo_doctor.analyze(samples.joinpath(*SICK))


def python(code):
    """Return a command line that runs some Python."""
    return f"{sys.executable} -c '{code}'"


def run(command, diagnosis, **options):
    """Run a command for a cause."""
    hook = Hook(command, **options)
    hook.start(diagnosis, diagnosis.causes[0], 80)
    return hook


def test_the_command_gets_the_cause_as_json(diagnosis, tmp_path):
    out = tmp_path / "out.json"
    hook = run(
        python(f'import sys; open("{out}", "w").write(sys.stdin.read())'),
        diagnosis,
    )
    assert hook.drain() == []
    told = json.loads(out.read_text())
    assert told["cause"]["id"] == "lr-zero"
    assert (told["event"], told["step"], told["verdict"]) == ("cause", 80, "unhealthy")
    assert told["checks"]
    fired = {e["check"] for side in ("for", "against") for e in told["cause"][side] if e["answer"] == "yes"}
    assert {finding["name"] for finding in told["checks"]} == fired


def test_no_shell_reads_the_command(diagnosis, tmp_path):
    marker = tmp_path / "marker"
    hook = run(f"{sys.executable} -c pass ; touch {marker} && echo $HOME", diagnosis)
    assert hook.drain() == []
    assert not marker.exists()


def test_a_shell_may_be_given(diagnosis, tmp_path):
    marker = tmp_path / "marker"
    hook = run(f"sh -c 'cat > {marker} && exit 0'", diagnosis)
    assert hook.drain() == []
    assert json.loads(marker.read_text())["cause"]["id"] == "lr-zero"


def test_a_failure_is_told_with_its_last_words(diagnosis):
    hook = run(python('import sys; sys.stderr.write("first\\nno such channel\\n"); sys.exit(7)'), diagnosis)
    (told,) = hook.drain()
    assert told.kind == "problem"
    assert "exit code 7: no such channel" in told.text


def test_a_command_that_does_not_exist_is_told(diagnosis):
    hook = run("/no/such/command --now", diagnosis)
    assert ["No such file" in event.text for event in hook.drain()] == [True]


def test_a_command_that_hangs_is_stopped_with_what_it_started(diagnosis, tmp_path):
    alive = tmp_path / "alive"
    command = f"sh -c 'sleep 600 & echo $! > {alive}; wait'"
    hook = run(command, diagnosis, longest=1.0)
    for _ in range(200):
        if alive.exists() and alive.read_text().strip():
            break
        time.sleep(0.05)
    (told,) = hook.drain()
    assert "stopped after 1 s" in told.text
    child = int(alive.read_text())
    assert ended(child)
    assert hook.poll() == []


def ended(process):
    """Tell whether a process is gone, or a zombie that nobody has asked after."""
    for _ in range(100):
        try:
            with open(f"/proc/{process}/stat") as file:  # noqa: PTH123
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_watching_goes_on_while_a_command_runs(diagnosis):
    hook = run(python("import time; time.sleep(0.5)"), diagnosis)
    assert hook.poll() == []
    assert hook.drain() == []


@pytest.mark.parametrize("command", ["", "   ", "echo 'unfinished"])
def test_what_is_no_command_is_wrong_usage(command):
    with pytest.raises(DoctorError) as caught:
        Hook(command)
    assert caught.value.code == ExitCode.USAGE


def test_a_confirmed_cause_starts_the_command_once(watching, samples, tmp_path):
    out = tmp_path / "out"
    code = f'import sys; open("{out}", "a").write("x")'
    watched = watching(samples.joinpath(*SICK), hook=Hook(python(code)))
    watched.look(5)
    watched.session.finish()
    assert out.read_text() == "x"
