"""A script under `ppo-doctor run` does what it does without: streams, exit codes, signals, processes, imports."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from ppo_doctor.record.script.attach import is_first_rank, project_of, with_script
from ppo_doctor.record.script.launch import _run_with_handlers
from ppo_doctor.record.script.options import WatchOptions, options_from_json

from .stage import LONGEST

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")

#: What scripts do that go on → their text, functions of one script.
GOES_ON = """
import atexit, multiprocessing, os, pickle, signal, subprocess, sys, threading, warnings
from concurrent.futures import ProcessPoolExecutor

class Policy: pass

class Task:
    def __init__(self, number): self.number = number

def work(queue, task):
    torch.step()
    queue.put((task.number, __name__, sys.argv))

def forked():
    torch.step(); print("child", flush=True); raise SystemExit(4)

def double(number): return 2 * number

def fail(): raise RuntimeError("in a thread")

def names():
    print(sys.argv, sys.orig_argv[1:], __name__, __file__, __spec__, sys.path, os.getcwd(), sys.executable)
    print(sys.flags, sys.warnoptions, len(sys.meta_path), vars(torch.__loader__).keys())
    print(pickle.dumps(Policy()), Policy.__module__)

def process():
    print([signal.getsignal(number) for number in sorted(signal.valid_signals())])
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.listdir("/dev/fd")))
    print(os.getpgrp() == os.getpgid(os.getppid()), os.getpriority(os.PRIO_PROCESS, 0))

def streams():
    print(sys.stdin.readline(), sys.stdin.isatty(), input(), flush=True)
    sys.stdout.buffer.write(bytes(range(10, 120)))
    warnings.warn("old"); warnings.warn("older", DeprecationWarning)

def signals():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("saved")
    signal.signal(signal.SIGTERM, lambda *_: print("saved"))
    os.kill(os.getpid(), signal.SIGTERM)
    print(signal.getsignal(signal.SIGTERM).__name__, flush=True)

def children():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, Task(3)))
    child.start(); print(queue.get()); child.join(); print(child.exitcode, flush=True)
    child = multiprocessing.get_context("fork").Process(target=forked)
    child.start(); child.join(); print(child.exitcode, flush=True)
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(double, range(4))))

def threads():
    for function in (lambda: print(threading.current_thread().name, threading.active_count()), fail):
        thread = threading.Thread(target=function, name="w"); thread.start(); thread.join()

def neighbours():
    from neighbour import NAME; import folder.inner; print(NAME, folder.inner.__file__, flush=True)
    os.chdir("folder")
    print(subprocess.run([sys.executable, "-c", "import inner, torch; torch.step(); print(inner)"]).returncode)

if __name__ == "__main__":
    atexit.register(print, "last"); atexit.register(lambda: torch.step())
    for function in (names, process, streams, signals, children, threads, neighbours):
        function()
"""
#: What each script does → its text, after `import torch` and a step of its optimizer.
SCRIPTS = {
    "goes on": GOES_ON,
    "exit code": "raise SystemExit(7)",
    "exit text": "raise SystemExit('no environment')",
    "os._exit": "import os, sys; print('unflushed'); sys.stdout.flush(); os._exit(5)",
    "exception": """
        def update(batch):
            return batch["advantages"]
        try:
            update({})
        except KeyError as error:
            raise ValueError("no advantages") from error
        """,
    "exception in a step": "torch.steps.append(lambda: 1 / 0); torch.step()",
    "syntax error of a neighbour": "import broken",
    "interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('not reached')",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "fork": """
        import os
        number = os.fork()
        if number == 0:
            raise SystemExit(6)
        print(os.waitpid(number, 0)[1])
        """,
    "closed streams": "import sys, os; sys.stderr.write('half'); os.close(2); os.close(1)",
    "import without torch": "import sys; print(sorted(sys.modules.keys() & {'numpy', 'json', 'typing'}))",
}
NO_TORCH = {"import without torch"}
#: Scripts whose process ends without running what waits for its end.
UNFINISHED = {"os._exit", "terminated", "killed"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_the_same_as_without(stage, name):
    start = "" if name in NO_TORCH else "import torch\ntorch.step()\n"
    stage.write("train.py", start + textwrap.dedent(SCRIPTS[name]))
    stage.records.write_text("")  # judging takes most of the time
    stage.write("neighbour.py", "NAME = __name__")
    stage.write("broken.py", "def f(:")
    stage.write("folder/inner.py", "")
    arguments = ("train.py", "--lr", "3", "--updates=2", "-m", "--", "x y")
    code, out, err = stage.plain(*arguments, stdin="one\ntwo\n")
    seen = stage.observed("--quiet", *arguments, stdin="one\ntwo\n")
    assert seen[:2] == (code, out)
    assert seen[2].startswith(err)
    assert "ppo-doctor" not in out + err
    why = "never imported torch" if name in NO_TORCH else "no ratio of new to old policy"
    assert f"nothing observed: the script {why}" in seen[2] or f"nothing observed: {why}" in seen[2]
    assert name in NO_TORCH or stage.seen.exists() or name in UNFINISHED


def test_a_module_is_run_as_python_does_it(stage):
    stage.write("package/__init__.py", "")
    stage.write("package/losses.py", "CLIP = 0.2")
    stage.write(
        "package/train.py",
        "import sys, torch\nfrom .losses import CLIP\nprint(CLIP, sys.argv, sys.path, __spec__.name, __package__)",
    )
    stage.write("package/__main__.py", "import sys, torch\ntorch.step()\nprint(__name__, __file__)\nsys.exit(3)")
    for arguments in (("-m", "package.train", "-m", "x", "--for", "1s"), ("-m", "package"), ("-m", "missing")):
        code, out, err = stage.plain(*arguments)
        seen = stage.observed("--every", "2", *arguments)
        assert seen[:2] == (code, out)
        assert seen[2].startswith(err)
    assert str(stage.work / "package") in stage.seen.read_text()


def test_a_torch_that_fails_to_import_fails_with_the_same_traceback(stage):
    stage.write("train.py", "import torch\n")
    code, out, err = stage.plain("train.py", BROKEN="1")
    seen = stage.observed("train.py", BROKEN="1")
    assert (seen[:2], code) == ((1, out), 1)
    assert seen[2].startswith(err)


@pytest.mark.parametrize("fault", ["init", "start", "finish"])
def test_a_fault_of_the_observer_is_one_line_and_training_goes_on(stage, fault):
    stage.write("train.py", "import torch\ntorch.step()\nprint('trained')\nraise SystemExit(3)")
    code, out, err = stage.observed("--quiet", "train.py", FAULT=fault)
    assert (code, out) == (3, "trained\n")
    assert "Traceback" not in err
    reason = {"init": "no room", "start": "no hooks", "finish": "no end"}[fault]
    assert reason in err.splitlines()[0]


def test_a_command_is_observed_in_the_process_that_trains(stage):
    stage.write("train.py", "import torch, sys\ntorch.step()\nprint(sys.argv)")
    line = f"{sys.executable} -c 'import torch' && exec {sys.executable} train.py --lr 3"
    code, out, err = stage.observed("--", "sh", "-c", line)
    assert (code, out) == (0, "['train.py', '--lr', '3']\n")
    assert "learning rate" in err
    assert [line.split()[0] for line in stage.seen.read_text().splitlines()] == ["0", "1"]


def test_only_the_first_rank_reports(stage):
    stage.write("train.py", "import torch, os\ntorch.step()\nprint(os.environ['RANK'])")
    line = " ".join(f"RANK={rank} {sys.executable} train.py;" for rank in (1, 0, 2))
    code, out, _ = stage.observed("--", "sh", "-c", line)
    assert (code, out) == (0, "1\n0\n2\n")
    assert len(stage.seen.read_text().splitlines()) == 1
    assert "rank 0 reports" in stage.observed("train.py", RANK="1")[2]


def test_an_interpreter_without_ppo_doctor_is_observed(stage, tmp_path):
    import numpy as np

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    # Folders of PYTHONPATH are searched for packages, and their .pth files, such as ours, are not read.
    path = os.pathsep.join([str(stage.env), str(Path(np.__file__).parent.parent)])
    without = "import importlib.util as u; print(u.find_spec('ppo_doctor'))"
    stage.write("train.py", f"{without}\nimport torch, sys\ntorch.step()\nprint(sys.path)")
    code, out, _ = stage._end(stage.start(python, "train.py", env={"PYTHONPATH": path}), "")
    assert (code, out.splitlines()[0]) == (0, "None")
    seen = stage.observed("--", python, "train.py", PYTHONPATH=f"{path}")
    assert seen[:2] == (code, out)
    assert "learning rate" in seen[2]


WAITING = """
import torch, signal, sys, time
torch.step()
def handle(number, _):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, handle)
print("ready", flush=True)
for line in sys.stdin:
    print("end", flush=True)
    sys.exit(9)
"""


def waiting(stage, text=WAITING, **more):
    stage.write("train.py", text)
    process = stage.start(sys.executable, "-m", "ppo_doctor", "run", "--quiet", "train.py", **more)
    if process.stdout:
        assert process.stdout.readline() == "ready\n"
    return process


def test_a_signal_reaches_the_script_once(stage):
    process = waiting(stage)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP"):
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
    out, err = process.communicate("go\n", timeout=LONGEST)
    assert (process.returncode, out) == (9, "end\n")
    assert "learning rate" in err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_the_script_dies_of_ends_us_alike_after_the_report(stage, name):
    number = getattr(signal, name)
    process = waiting(stage, "import torch, time\ntorch.step()\nprint('ready', flush=True)\ntime.sleep(60)")
    process.send_signal(number)
    _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in err) == (name == "SIGINT")
    assert "learning rate" in err


def test_a_script_dies_with_us(stage):
    process = waiting(
        stage, "import os, torch, time\nprint('ready', flush=True)\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    child = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=LONGEST)
    end = time.monotonic() + LONGEST
    while Path(f"/proc/{child}/stat").exists() and time.monotonic() < end:
        if ") Z " in Path(f"/proc/{child}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}/stat").exists()


def test_ctrl_c_on_a_terminal_reaches_the_script_once(stage):
    ours, theirs = pty.openpty()
    process = waiting(
        stage,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(theirs)
    text = b""

    def until(words):
        nonlocal text
        end = time.monotonic() + LONGEST
        while words not in text and time.monotonic() < end:
            text += os.read(ours, 1024)
        assert words in text

    until(b"ready")
    os.write(ours, b"\x03")
    until(b"SIGINT")
    os.write(ours, b"go\n")
    until(b"learning rate")
    assert process.wait(timeout=LONGEST) == 9
    assert text.count(b"SIGINT") == 1
    os.close(ours)


def test_an_ignored_interrupt_stays_ignored(stage):
    stage.write("train.py", "import signal, torch\ntorch.step()\nprint(signal.getsignal(signal.SIGINT))")
    process = stage.start("sh", "-c", f"trap '' INT; exec {sys.executable} -m ppo_doctor run --quiet train.py")
    out, _ = process.communicate(timeout=LONGEST)
    assert (process.returncode, out) == (0, "1\n")


def test_without_the_origin_of_signals_they_are_passed_on_by_handlers(tmp_path):
    ready, before = tmp_path / "ready", signal.getsignal(signal.SIGTERM)
    text = f"""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        open({str(ready)!r}, "w").close()
        time.sleep({LONGEST})
        """

    def send():
        end = time.monotonic() + LONGEST
        while not ready.exists() and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    command = [sys.executable, "-c", textwrap.dedent(text)]
    assert _run_with_handlers(command, os.environ, {signal.SIGTERM}) == 7
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_options_survive_the_environment():
    options = WatchOptions("run.jsonl", "a b.py", "", 3, 1.5, 2, 1 << 20, live=True, stop=True)
    assert options_from_json(options.to_json()) == options


def test_the_users_code_is_the_project_of_the_script(tmp_path, monkeypatch):
    script = tmp_path / "repo" / "scripts" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    assert project_of(script) == script.parent
    (tmp_path / "repo" / "pyproject.toml").write_text("")
    assert project_of(script) == tmp_path / "repo"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    found = with_script(WatchOptions("o", "", ""))
    assert (found.script, found.folder) == (str(script), str(tmp_path / "repo"))
    assert with_script(WatchOptions("o", "s.py", "f")) == WatchOptions("o", "s.py", "f")


@pytest.mark.parametrize(
    ("variables", "first"),
    [({}, True), ({"RANK": "0"}, True), ({"RANK": "8", "LOCAL_RANK": "0"}, False), ({"LOCAL_RANK": "1"}, False)],
)
def test_the_rank_is_that_of_the_launcher(monkeypatch, variables, first):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_rank() == first
