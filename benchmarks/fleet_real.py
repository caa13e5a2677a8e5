"""A fleet with real parts: a server of S3 and a cluster of Ray on this machine, both failing on the way.

`python -m benchmarks.fleet_real [--runs N] [--added N]` prints figures; it needs `pip install --group fleet`.
Runs of six formats are judged by `analyze`, from the disk by processes of which one is killed, and from the bucket
by Ray, of which a worker is killed and for which the server is down for ten seconds. Then runs are added.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from ppo_doctor.fleets.engines import LocalEngine
from tests.fleets.fleets import analyzed, files_of, judged, many, told
from tests.fleets.servers import s3_server

DOWN = 10.0


@contextmanager
def timed(what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - start:.1f} s", flush=True)


def kill_a_process() -> None:
    multiprocessing.active_children()[0].kill()
    print("  a process was killed", flush=True)


def kill_a_worker_of_ray() -> None:
    """Kill a process that judges, as its title says, as soon as there is one."""
    for _ in range(1000):
        for place in Path("/proc").glob("[0-9]*"):
            try:
                title, owner = (place / "cmdline").read_bytes(), place.stat().st_uid
            except OSError:
                continue
            if title.startswith(b"ray::_judge_shard") and owner == os.getuid():
                os.kill(int(place.name), signal.SIGKILL)
                print("  a worker of Ray was killed", flush=True)
                return
        time.sleep(0.01)
    print("  NO worker of Ray was there to be killed", flush=True)


class Harm:
    """Does harm once when a share of the units is done."""

    def __init__(self, *harms: tuple[int, Callable[[], None]]) -> None:
        self.harms = list(harms)

    def __call__(self, done: object) -> None:
        count = sum(done.rows.values())  # type: ignore[attr-defined]
        while self.harms and count >= self.harms[0][0]:
            self.harms.pop(0)[1]()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=2_000)
    options.add_argument("--added", type=int, default=50)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ppo-doctor-fleet-") as scratch, s3_server() as server:
        measure(Path(scratch), server, given.runs, given.added)


def measure(scratch: Path, server, count: int, added: int) -> None:
    os.environ.update(server.environment)
    runs, url = scratch / "runs", "s3://fleet/runs"
    storage = server.storage()
    storage.mkdir("fleet")
    with timed(f"{count} runs written"):
        many(runs, count)
    with timed("copied into the bucket"):
        storage.put(str(runs), "fleet/runs", recursive=True)
    with timed("analyze, one process"):
        expected = analyzed(runs)

    local = scratch / "local.parquet"
    with timed("processes, from the disk"):
        harm = Harm((count // 3, kill_a_process))
        done, rows = judged([runs], local, engine=LocalEngine(2), tell=harm)
    report("processes", done, told(rows) == expected, rows, count)

    def down() -> None:
        server.stop()
        print(f"  the server is down for {DOWN:g} s", flush=True)
        Thread(target=lambda: (time.sleep(DOWN), server.go_on())).start()

    with timed("Ray started"):
        from ppo_doctor.fleets.ray_engine import RayEngine

        engine = RayEngine(processes=2)
    remote = scratch / "remote.parquet"
    with timed("Ray, from the bucket"):
        harm = Harm((count // 3, Thread(target=kill_a_worker_of_ray).start), (count // 2, down))
        done, rows = judged([url], remote, engine=engine, tell=harm)
    report("Ray", done, told(rows, runs, url) == expected, rows, count)

    many(runs, added, first=count)
    for name in (name for number in range(count, count + added) for name in files_of(number)):
        storage.put_file(str(runs / name), f"fleet/runs/{name}")
    expected = analyzed(runs)
    for name, source, table, worker in (("processes", runs, local, LocalEngine(2)), ("Ray", url, remote, engine)):
        with timed(f"{name}, {added} more"):
            done, rows = judged([source], table, engine=worker)
        place = None if source is runs else url
        report(name, done, told(rows, runs, place) == expected, rows, count + added)


def report(name: str, done, same: bool, rows: list, count: int) -> None:
    failed = sum(row["status"] == "failed" for row in rows)
    keys = len({(row["key"], row["run"]) for row in rows})
    print(
        f"{name}: {dict(done.rows)}, {done.unchanged} unchanged, {len(rows)} rows of {keys} runs ({count} expected), "
        f"{failed} failed, as analyze: {'yes' if same else 'NO'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
