"""The suite under each kernel of OpenBLAS that this processor runs: `python -m tests.kernels [TEST …]`.

Kernels sum in different orders, so that what is trained differs in its last bits, and after some updates in all.
"""

from __future__ import annotations

import os
import subprocess
import sys

KERNELS = ("Prescott", "Sandybridge", "Haswell", "Zen", "SkylakeX")
#: NumPy's BLAS as it says itself, after a product that a processor without the kernel's instructions dies of.
IN_FORCE = """
import numpy, threadpoolctl
numpy.ones((64, 64), "f4") @ numpy.ones((64, 64), "f4")
print(*(f"{pool['architecture']} x {pool['num_threads']}" for pool in threadpoolctl.threadpool_info()))
"""


def main(tests: list[str]) -> int:
    """Print a line per kernel and number of threads, and return 1 where a test failed."""
    seen: set[str] = set()
    codes = [_suite(kernel, threads, tests, seen) for threads in ("1", "2") for kernel in KERNELS]
    return int(any(codes))


def _suite(kernel: str, threads: str, tests: list[str], seen: set[str]) -> int:
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OMP_NUM_THREADS": threads}
    probe = _run("-c", IN_FORCE, environment=environment)
    told = f"{kernel} x {threads}: "
    if probe.returncode < 0:
        print(f"{told}this processor does not run it", flush=True)
        return 0
    if probe.stdout in seen:
        print(f"{told}is {probe.stdout.strip()}, which ran", flush=True)
        return 0
    seen.add(probe.stdout)
    command = ["-m", "pytest", "-q", "-rfE", "--numprocesses", "auto", "--dist", "worksteal", *tests]
    suite = _run(*command, environment=environment)
    failed = [line for line in suite.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(
        *failed, f"{told}{(suite.stdout or suite.stderr).splitlines()[-1]} ({probe.stdout.strip()} in force)", sep="\n"
    )
    sys.stdout.flush()
    return suite.returncode


def _run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
