"""Ray's machines judge as this one does, and a storage that is a server is read by both."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from threading import Thread

import pytest

from ppo_doctor.diagnosis.processes import ENDED
from ppo_doctor.fleets.engines import LocalEngine
from ppo_doctor.fleets.ray_engine import RayEngine
from ppo_doctor.model.errors import DoctorError
from tests.fleets.deadly import judge, unit
from tests.fleets.fleets import analyzed, judged, many, told
from tests.fleets.servers import s3_server

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")
# Ray's own modules warn, and leave sockets and files to the collector.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with s3_server() as server:
        before = dict(os.environ)
        os.environ.update(server.environment)  # before Ray starts, whose processes inherit it
        yield server
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def engine(request):
    with suppress(pytest.skip.Exception):
        request.getfixturevalue("server")
    yield RayEngine(processes=2)
    ray.shutdown()


def rows_of(engine, names):
    found = list(engine.map(map(unit, names), judge))
    assert sorted(unit.key for unit, _ in found) == sorted(names)
    return {unit.key: rows[0] for unit, rows in found}


def test_ray_judges_as_analyze_does(engine, tmp_path):
    runs = many(tmp_path / "runs", 12)
    done, rows = judged([runs], tmp_path / "t.parquet", engine=engine)
    assert done.rows == {"judged": 12}
    assert told(rows) == analyzed(runs)


def test_workers_that_die_cost_no_unit_and_a_unit_that_kills_is_a_failed_row(engine, tmp_path):
    names = ["kills", *map(str, range(40)), f"once:{tmp_path / 'a'}"]
    rows = rows_of(engine, names)
    failed = [name for name, row in rows.items() if row.status == "failed"]
    assert failed == ["kills"]
    assert rows["kills"].error == ENDED


def test_a_machine_without_this_package_is_an_error(engine):
    with pytest.raises(DoctorError, match="a task of Ray failed"):
        list(engine.map(iter([unit("a")]), Missing()))


class Missing:
    def __call__(self, _):
        raise ModuleNotFoundError("No module named 'ppo_doctor'")


def test_a_cluster_that_is_not_there_is_a_usage_error():
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(DoctorError) as error:
        RayEngine("127.0.0.1:1")
    assert error.value.code == 2


def test_objects_in_a_bucket_are_judged_alike_by_both_engines_though_the_server_fails(server, tmp_path):
    runs = many(tmp_path / "runs", 12)
    storage = server.storage()
    storage.mkdir("fleet")
    storage.put(str(runs), "fleet/runs", recursive=True)
    expected = analyzed(runs)
    for name, make in (("local", lambda: LocalEngine(1)), ("ray", lambda: RayEngine(processes=2))):
        pause = Thread(target=_down_for, args=(server, 3.0))
        pause.start()
        done, rows = judged(["s3://fleet/runs"], tmp_path / f"{name}.parquet", engine=make())
        pause.join()
        assert (done.rows, done.errors) == ({"judged": 12}, [])
        assert told(rows, runs, "s3://fleet/runs") == expected
    ray.shutdown()


def _down_for(server, seconds):
    time.sleep(1.0)
    server.stop()
    time.sleep(seconds)
    server.go_on()
