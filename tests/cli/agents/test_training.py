"""Training scripts that an agent may have run: below the roots, for so many updates, and never longer than the call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import anyio
from mcp import Client

from ppo_doctor.cli.agents import training
from ppo_doctor.cli.agents.server import server
from tests.record.script.stage import Stage

ROOT = Path(__file__).resolve().parents[3]
STEPS = "import torch\nfor _ in range(99):\n    torch.step()\nopen('trained', 'w').write('to its end')\n"
#: Writes the numbers of its process and of one that it starts, and goes on for a minute.
SLOW = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open('part', 'w').write(f'{os.getpid()} {child.pid}')\n"
    "os.replace('part', 'started')\n"
    "time.sleep(60)\n"
)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.fixture
def stage(tmp_path, samples, monkeypatch):
    stage = Stage(tmp_path, samples / "sick" / "lr-zero.canonical" / "run.jsonl")
    for name, value in stage.variables.items():
        monkeypatch.setenv(name, value)
    return stage


def asked(agent, stage, **arguments):
    """Return the text of the answer of the tool and whether it is an error."""

    async def called():
        async with Client(server([stage.work], allow_run=True)) as client:
            return await client.call_tool("run", {"script": "train.py", "out": "seen.jsonl", **arguments})

    result = agent.run(called)
    return result.content[0].text if result.is_error else result.structured_content, result.is_error


def test_a_script_is_run_for_so_many_updates_and_diagnosed(agent, stage):
    stage.write("train.py", STEPS)
    answer, is_error = asked(agent, stage, updates=3, arguments=["--out", "x"])
    assert not is_error, answer
    assert answer["diagnosis"]["verdict"] == "unhealthy"
    assert stage.seen.read_text().startswith("3 ")
    assert not (stage.work / "trained").exists()
    assert agent.asks(stage.work, "why", source="seen.jsonl")["cause"] == answer["diagnosis"]["causes"][0]["id"]


def test_without_the_option_there_is_no_such_tool(agent, stage):
    async def names():
        async with Client(server([stage.work])) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert "run" not in agent.run(names)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"script": "../env/torch/__init__.py"}, ".."),
        ({"script": "link.py"}, "outside"),
        ({"script": "notes.txt"}, "no Python program"),
        ({"script": "."}, "no Python program"),
        ({"script": "missing.py"}, "no such file"),
        ({"out": "/seen.jsonl"}, "outside"),
        ({"out": "train.py"}, "no place"),
        ({"out": "link.jsonl"}, "no place"),
        ({"out": "full.jsonl"}, "no place"),
        ({"out": "a\0.jsonl"}, "no place"),
        ({"updates": 0}, "updates"),
    ],
)
def test_nothing_is_run_or_written_outside_the_roots_or_over_other_files(agent, stage, tmp_path, arguments, says):
    stage.write("train.py", "open('ran', 'w')")
    stage.write("notes.txt", "")
    stage.write("full.jsonl", '{"step": 1}\n')
    (tmp_path / "other.py").write_text("open('ran', 'w')")
    (stage.work / "link.py").symlink_to(tmp_path / "other.py")
    (stage.work / "link.jsonl").symlink_to(tmp_path / "new.jsonl")
    text, is_error = asked(agent, stage, **arguments)
    assert is_error
    assert says in text
    assert not (stage.work / "ran").exists()
    assert (stage.work / "full.jsonl").read_text() == '{"step": 1}\n'


def test_a_script_without_updates_is_an_error_that_says_why(agent, stage):
    stage.write("train.py", "print('trained')")
    text, is_error = asked(agent, stage)
    assert is_error
    assert "torch" in text


def test_a_script_that_takes_too_long_is_ended(agent, stage, monkeypatch):
    monkeypatch.setattr(training, "LONGEST", 5.0)
    stage.write("train.py", SLOW)
    text, is_error = asked(agent, stage)
    assert is_error
    assert "not done within" in text
    assert_ended(stage)


def test_a_call_that_is_cancelled_ends_the_script_and_what_it_started(agent, stage):
    stage.write("train.py", SLOW)

    async def cancelled():
        async with Client(server([stage.work], allow_run=True)) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "run", {"script": "train.py", "out": "seen.jsonl"})
            with anyio.fail_after(30):
                while not (stage.work / "started").exists():
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()

    agent.run(cancelled)
    assert_ended(stage)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_the_server_ends_the_script(stage, number):
    stage.write("train.py", SLOW)
    command = [sys.executable, "-m", "ppo_doctor", "mcp", "--root", str(stage.work), "--allow-run"]
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "run", "arguments": {"script": "train.py", "out": "seen.jsonl"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, cwd=ROOT) as server:
        try:
            server.stdin.writelines(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
            server.stdin.flush()
            until = time.monotonic() + 30
            while not (stage.work / "started").exists():
                assert time.monotonic() < until
                time.sleep(0.05)
            server.send_signal(number)
            assert server.wait(10) == 128 + number
            assert_ended(stage)
        finally:
            server.kill()


def assert_ended(stage):
    """Assert that the processes of SLOW end at once, if they have not."""
    until = time.monotonic() + 10
    for number in map(int, (stage.work / "started").read_text().split()):
        while _runs(number):
            assert time.monotonic() < until
            time.sleep(0.05)


def _runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_scripts_are_not_run_over_http(cli, tmp_path):
    outcome = cli("mcp", "--root", str(tmp_path), "--http", "8765", "--allow-run")
    assert outcome.code == 2
    assert "--allow-run" in outcome.err
