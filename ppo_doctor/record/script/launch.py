"""Run a command so that every Python process in it attaches the observer, and wait for its end.

The command runs in a process of its own, as a shell would start it: `sys.argv`, `__main__`, tracebacks and exit codes
are Python's. The observer comes in through the environment (see `startup/sitecustomize`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ppo_doctor.record.script.options import NOTES, OPTIONS, WatchOptions

STARTUP = Path(__file__).resolve().parent / "startup"
#: Signals that end a process or that a script may handle, and that are sent to us although the script is meant.
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
#: Value of `si_code` on Linux for a signal of the kernel, such as Ctrl-C, which the whole process group receives.
SI_KERNEL = 0x80
PR_SET_PDEATHSIG = 1


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the command line of `train.py ARGS…`, `-m MODULE ARGS…` or `-- COMMAND…`."""
    return list(arguments[1:]) if arguments[0] == "--" else [sys.executable, *arguments]


def environment(options: WatchOptions, notes: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command whose Python processes attach the observer."""
    rest = base.get("PYTHONPATH")
    path = f"{STARTUP}{os.pathsep}{rest}" if rest else str(STARTUP)
    return {**base, "PYTHONPATH": path, OPTIONS: options.to_json(), NOTES: str(notes)}


def notes_in(folder: Path) -> list[str]:
    """Return the notes of all processes, each once: `started`, `torch`, `failed WHY`, or a reason as a sentence."""
    path = folder / "notes"
    if not path.exists():
        return []
    return list(dict.fromkeys(path.read_bytes().decode("utf-8", "replace").splitlines()))


def run_command(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command until it ends; return its exit code, negative for the signal that ended it.

    Signals to this process are passed on. If this process is killed, so is the command (on Linux).

    Raises:
        OSError: the command cannot be started.
    """
    numbers = {getattr(signal, name) for name in FORWARDED if hasattr(signal, name)}
    numbers = {number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN}
    if not hasattr(signal, "sigwaitinfo"):
        return _run_with_handlers(command, variables, numbers)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*numbers, signal.SIGCHLD})
    try:
        # Inherited descriptors stay open, as they do in a command that a shell starts.
        process = subprocess.Popen(  # noqa: S603 - the command is the user's; there is no other thread yet
            command,
            env=dict(variables),
            close_fds=False,
            preexec_fn=_in_child(before),  # noqa: PLW1509 - no thread runs yet
        )
        while (code := process.poll()) is None:
            received = signal.sigwaitinfo({*numbers, signal.SIGCHLD})
            if received.si_signo in numbers and received.si_code != SI_KERNEL:
                process.send_signal(received.si_signo)
        return code
    finally:
        _discard(numbers)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_child(mask: set[int]) -> Callable[[], None]:
    """Return a function that prepares the new process before it becomes the command."""
    prctl: Callable[[int, int], int] | None = None
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


def _discard(numbers: set[int]) -> None:
    """Drop signals that arrived when the command had ended: they were meant for it."""
    while numbers & signal.sigpending():
        signal.sigwait(numbers)


def _run_with_handlers(command: Sequence[str], variables: Mapping[str, str], numbers: set[int]) -> int:
    """Run a command where the origin of a signal is unknown: Ctrl-C in the foreground is taken for the terminal's."""
    early: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: types.FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif not (number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _in_foreground()):
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        process = subprocess.Popen(command, env=dict(variables), close_fds=False)  # noqa: S603 - as above
        for number in early:
            process.send_signal(number)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Return whether the terminal sends its signals to this process and those that it started."""
    if os.name == "nt":
        return True
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def die_of(number: int) -> None:
    """End this process by the signal that ended the command, so that a shell sees the same; return if it survives."""
    if os.name == "nt":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's own core is the one of interest
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
