"""Make runs of the real trainers: `python -m tests.lab.real DIR [--dialect sb3] [--fault lr-zero]`.

Each trainer needs its dependency group (real-sb3, real-trl); one that is not installed is left out, with a line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from .cases import Plan, chosen, make

TRAINERS = {"sb3": "sb3", "trl-grpo": "grpo", "trl-ppo": "trl_ppo"}


def available(dialects: list[str]) -> Iterator[tuple[str, Plan]]:
    """Yield (trainer with its version, plan) of what is installed."""
    for dialect in dialects or TRAINERS:
        try:
            module = import_module(f".{TRAINERS[dialect]}", __package__)
        except (ImportError, RuntimeError) as error:  # TRL wraps what its parts fail to import
            sys.stderr.write(f"{dialect} is left out: {str(error).splitlines()[-1]}\n")
            continue
        for plan in module.plans():
            yield module.TRAINER, plan


def main() -> None:
    """Make what is asked for; what is there already stays."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--dialect", action="append", choices=tuple(TRAINERS), default=[])
    options.add_argument("--fault", action="append", default=[])
    given = options.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    seconds = runs = 0.0
    for trainer, plan in available(given.dialect):
        if any(chosen([plan], (), given.fault)):
            done = make(given.folder, plan, trainer)
            seconds, runs = seconds + done.seconds, runs + 1
            sys.stdout.write(
                f"{done.dialect:<9}{done.fault:<26}{done.variant:<14}{done.seconds:6.1f} s  {done.ended}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{runs:.0f} runs, {seconds:.0f} s of processor time\n")


if __name__ == "__main__":
    main()
