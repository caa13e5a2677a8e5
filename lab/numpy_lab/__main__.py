"""Command line of the NumPy lab, `python -m lab.numpy_lab`; without a command it regenerates the sample logs."""

from __future__ import annotations

import argparse
from pathlib import Path

from .catalogue import regenerate
from .dialects import RECORDED, WRITERS, write
from .faults import FAULTS
from .measures import measure
from .selfcheck import selfcheck
from .train import run


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.command == "run":
        _run(arguments)
    elif arguments.command == "selfcheck":
        selfcheck(tuple(arguments.seeds))
    elif arguments.command == "faults":
        for fault in FAULTS.values():
            print(f"{fault.name:32s} {fault.description}\n{'':32s} severity: {fault.severities}")
    else:
        regenerate(arguments.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.numpy_lab", description="Regenerate the sample logs.")
    parser.add_argument("--out", type=Path, default=Path("sample_logs"))
    commands = parser.add_subparsers(dest="command")
    one = commands.add_parser("run", help="train once and write one log")
    one.add_argument("fault", choices=sorted(FAULTS))
    one.add_argument("--task", choices=("control", "language"), default="control")
    one.add_argument("--dialect", choices=sorted({**WRITERS, **RECORDED}), default="canonical")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--severity", type=int, choices=(1, 2, 3))
    one.add_argument("--updates", type=int, default=80)
    one.add_argument("--out", type=Path, required=True, dest="directory", help="folder of the log")
    check = commands.add_parser("selfcheck", help="assert the physics of every fault")
    check.add_argument("--seeds", type=int, nargs="*", default=[0])
    commands.add_parser("faults", help="list the faults")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    record = run(
        arguments.fault,
        task=arguments.task,
        seed=arguments.seed,
        severity=arguments.severity,
        updates=arguments.updates,
        dialect=arguments.dialect,
    )
    print(write(record, arguments.dialect, arguments.directory))
    print(measure(record).line())


if __name__ == "__main__":
    main()
