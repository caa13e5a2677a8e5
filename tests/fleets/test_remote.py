"""Runs behind a URL: found by names alone, fetched, judged as the same files on a disk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest

from ppo_doctor.fleets import remote
from ppo_doctor.fleets.remote import fetched, units_at
from ppo_doctor.fleets.unit import StorageError, Unit
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import is_url
from tests.fleets.fleets import FLEETS, analyzed, judged, many, told
from tests.runs.folders import as_csv, sb3_rows, write

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")


@pytest.fixture
def memory():
    """Return a function that copies files to a memory file system, and its URL there."""
    place = f"memory://{uuid.uuid4().hex}"
    storage = fsspec.filesystem("memory")

    def put(files):
        for name, content in files.items():
            storage.pipe(f"{place}/{name}", content if isinstance(content, bytes) else content.encode())
        return place

    yield put
    storage.store.clear()
    storage.pseudo_dirs[:] = [""]


@pytest.fixture
def impatient(monkeypatch):
    pauses = []
    monkeypatch.setattr(remote.time, "sleep", pauses.append)
    return pauses


@pytest.mark.parametrize("name", FLEETS)
def test_a_layout_is_judged_alike_from_a_disk_from_a_storage_and_by_analyze(name, tmp_path, memory):
    folder, url = write(tmp_path / "runs", FLEETS[name]), memory(FLEETS[name])
    expected = analyzed(folder)
    assert expected
    _, local = judged([folder], tmp_path / "local.parquet")
    assert told(local) == expected
    _, stored = judged([url], tmp_path / "stored.parquet")
    assert told(stored, folder, url) == expected
    assert [row["status"] for row in stored] == [row["status"] for row in local]
    _, again = judged([f"file://{folder}"], tmp_path / "file.parquet")
    assert told(again, folder, f"file://{folder}") == expected


def test_only_what_changed_in_a_storage_is_judged_again(tmp_path, memory):
    url = memory(FLEETS["nested, settings above"])
    done, _ = judged([url], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged) == (4, 0)
    memory({"exp1/seed1/progress.csv": as_csv(sb3_rows(30)), "exp3/progress.csv": as_csv(sb3_rows())})
    done, rows = judged([url], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged, len(rows)) == (2, 3, 5)


def test_a_file_and_a_pattern_behind_a_url(memory):
    url = memory({f"{name}/progress.csv": as_csv(sb3_rows()) for name in ("a1", "a2", "b1")})
    assert [unit.key for unit in units_at(f"{url}/a1/progress.csv")] == [f"{url}/a1"]
    assert {unit.key for unit in units_at(f"{url}/a*")} == {f"{url}/a1", f"{url}/a2"}


@pytest.mark.parametrize("url", ["memory://nothing/here", "memory://nothing/*.csv"])
def test_what_is_not_there_is_said(url):
    with pytest.raises(DoctorError, match=r"no such file|no file matches"):
        list(units_at(url))


@pytest.mark.parametrize("key", ["a/../../../out.csv", "a//out.csv", "./out.csv", "a/.."])
def test_a_name_that_leads_out_of_the_folder_is_not_fetched(key, memory, monkeypatch):
    url = memory({"notes.dat": as_csv(sb3_rows())})  # whose files are all fetched, for their names tell nothing
    storage = fsspec.filesystem("memory")
    found = storage.find

    def find(path, **options):
        held = found(path, **options)
        base = url.removeprefix("memory:/")
        return {**held, f"{base}/{key}": next(iter(held.values()))} if options.get("detail") else held

    monkeypatch.setattr(type(storage), "find", lambda _, *args, **options: find(*args, **options))
    units = list(units_at(url))
    assert [unit.files for unit in units] == [("notes.dat",)]


@pytest.mark.usefixtures("impatient")
def test_a_name_that_is_a_file_and_a_folder_is_an_error_of_the_storage(memory):
    url = memory({"progress.csv": as_csv(sb3_rows())})
    unit = Unit(url, None, "", 0.0, 1, url=url, files=("progress.csv", "progress.csv/config.json"))
    with pytest.raises(StorageError, match="cannot be read"), fetched(unit):
        pass


@pytest.mark.parametrize("url", ["https://user:secret@127.0.0.1:1/x", "s3://key:secret@bucket/x"])
def test_a_password_in_a_url_is_refused_and_not_printed(url):
    with pytest.raises(DoctorError, match="password") as raised:
        list(units_at(url))
    assert raised.value.code == 2
    assert "secret" not in f"{raised.value.message} {raised.value.hint}"


def test_an_unknown_protocol_and_a_client_that_lacks_are_usage_errors(monkeypatch):
    with pytest.raises(DoctorError) as unknown:
        list(units_at("nonsense://x/y"))
    assert unknown.value.code == 2
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(known, "s3", raising=False)  # as in a process that has not used it
    with pytest.raises(DoctorError) as lacking:
        list(units_at("s3://bucket/runs"))
    assert (lacking.value.hint, lacking.value.code) == ("pip install 'ppo-doctor[s3]'", 2)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DoctorError) as without:
        list(units_at("memory://x"))
    assert "ppo-doctor[fleet]" in without.value.hint


@pytest.mark.parametrize(("text", "url"), [("s3://b/x", True), ("C:\\runs", False), ("runs/*", False), ("gs://", True)])
def test_what_is_a_url(text, url):
    assert is_url(text) is url


class Failing:
    """Makes accesses of the memory file system fail, so many times."""

    def __init__(self, monkeypatch, times):
        self.left = times
        storage = type(fsspec.filesystem("memory"))
        for name in ("find", "get_file"):
            monkeypatch.setattr(storage, name, self._failing(getattr(storage, name)))

    def _failing(self, access):
        def fails(*args, **kwargs):
            if self.left:
                self.left -= 1
                raise ConnectionResetError("the storage is down")
            return access(*args, **kwargs)

        return fails


def test_a_storage_that_fails_for_a_while_is_asked_again(tmp_path, memory, monkeypatch, impatient):
    url = memory(FLEETS["two of rllib"])
    Failing(monkeypatch, 5)
    done, _ = judged([url], tmp_path / "t.parquet")
    assert (done.rows, done.errors) == ({"judged": 2}, [])
    assert sum(impatient) > 10


def test_runs_of_a_storage_that_fails_for_good_are_failed_rows_and_tried_by_the_next_call(
    tmp_path, memory, monkeypatch, impatient
):
    url = memory(FLEETS["two of rllib"])
    units = list(units_at(url))
    monkeypatch.setattr("ppo_doctor.fleets.run.units_at", lambda _: iter(units))
    with monkeypatch.context() as patch:
        Failing(patch, 10_000)
        done, rows = judged([url], tmp_path / "t.parquet")
    assert done.rows == {"failed": 2}
    assert all("the storage is down" in row["error"] and row["again"] for row in rows)
    assert sum(impatient) > 60
    done, rows = judged([url], tmp_path / "t.parquet")
    assert [row["status"] for row in rows] == ["judged", "judged"]
    done, _ = judged([url], tmp_path / "t.parquet")
    assert done.unchanged == 2


@pytest.mark.usefixtures("impatient")
def test_a_storage_that_cannot_be_listed_is_an_error(memory, monkeypatch):
    url = memory(FLEETS["two of rllib"])
    Failing(monkeypatch, 10_000)
    with pytest.raises(DoctorError, match="cannot be listed"):
        list(units_at(url))


def test_a_run_of_too_many_bytes_is_not_fetched(tmp_path, memory, monkeypatch):
    url = memory(FLEETS["two of rllib"])
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    _, rows = judged([url], tmp_path / "t.parquet")
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert all("not fetched" in row["error"] and not row["again"] for row in rows)


def test_checkpoints_are_not_fetched(memory):
    files = {
        "a/progress.csv": as_csv(sb3_rows()),
        "a/policy.pt": b"x" * 9000,
        "a/model_1.zip": b"1",
        "a/model_2.zip": b"2",
    }
    (unit,) = units_at(memory(files))
    assert set(unit.files) == {"a/progress.csv", "a/model_2.zip"}
    with fetched(unit) as (source,):
        assert [Path(log).name for log in source.logs] == ["progress.csv"]
        assert Path(source.log).is_file()
    assert not Path(source.log).exists()


def copied(folder):
    """Return the files below a folder by their paths."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class ByName:
    """Lets the memory file system find by the beginning of names, as clients of S3 do; counts both."""

    def __init__(self, monkeypatch, *, by_name):
        self.found, self.listed = [], 0
        storage = type(fsspec.filesystem("memory"))
        find, ls = storage.find, storage.ls

        def counted(storage, path, **options):
            held = find(storage, path, **options)
            self.found.append(len(held))
            return held

        def with_prefix(storage, path, prefix="", **options):
            start = f"{storage._strip_protocol(path)}/{prefix}"
            held = {name: each for name, each in find(storage, path, **options).items() if name.startswith(start)}
            self.found.append(len(held))
            return held

        def counted_ls(storage, path, **options):
            self.listed += 1
            return ls(storage, path, **options)

        monkeypatch.setattr(storage, "find", with_prefix if by_name else counted)
        monkeypatch.setattr(storage, "ls", counted_ls)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_listing_is_of_few_runs_at_a_time_and_gives_the_same_units(tmp_path, memory, monkeypatch, by_name):
    many(tmp_path / "runs", 24)
    files = copied(tmp_path / "runs") | {"config.yaml": b"n_epochs: 3\n", "sb3x.yaml": b"gamma: 1\n"}
    below = {f"deep/er/{'ab'[number % 2]}/{name}": held for number, (name, held) in enumerate(sorted(files.items()))}
    url = memory({name: held for name, held in (files | below).items() if by_name or "deep" not in name})
    units = {}
    for most in (1000, 5, 1, 0):
        with monkeypatch.context() as patch:
            patch.setattr(remote, "MOST_PARTS", most)
            asked = ByName(patch, by_name=by_name)
            units[most] = {unit.key: unit.fingerprint for unit in units_at(url)}
    assert len(units[0]) >= 24
    assert units[1000] == units[5] == units[1] == units[0]
    assert len(asked.found) > 6


def test_a_thousand_folders_are_found_by_the_beginnings_of_their_names(memory, monkeypatch):
    names = [*(f"run-{at}" for at in range(300)), "run-1-x", "other", "run"]
    url = memory({f"{name}/{file}": b"" for name in names for file in ("run.jsonl", "config.json")} | {"run.yaml": b""})
    monkeypatch.setattr(remote, "MOST_PARTS", 50)
    asked = ByName(monkeypatch, by_name=True)
    assert {unit.key for unit in units_at(url)} == {f"{url}/{name}" for name in names}
    assert max(asked.found) <= 2 * 50 + 1
    assert len(asked.found) < 40


def test_folders_of_many_folders_are_listed_one_by_one(memory, monkeypatch):
    url = memory({f"{a}/{b}/run-{at}/run.jsonl": b"" for a in "ab" for b in "xy" for at in range(30)})
    monkeypatch.setattr(remote, "MOST_PARTS", 20)
    asked = ByName(monkeypatch, by_name=True)
    assert len(list(units_at(url))) == 120
    assert max(asked.found) <= 20


GCS = """
import os
import socket
import subprocess
import sys
import gcsfs
from tests.fleets.fleets import judged, told
from pathlib import Path

if __name__ == "__main__":
    storage = gcsfs.GCSFileSystem(token="anon")
    storage.mkdir("fleet")
    runs, path = sys.argv[1:]
    for file in Path(runs).rglob("*"):
        if file.is_file():
            storage.pipe(f"fleet/runs/{file.relative_to(runs).as_posix()}", file.read_bytes())
    done, rows = judged(["gs://fleet/runs"], Path(path))
    again, _ = judged(["gs://fleet/runs"], Path(path))
    print((done.rows, again.unchanged, told(rows, runs, "gs://fleet/runs")))
"""


def test_objects_of_google_s_storage_are_judged_as_on_a_disk(tmp_path):
    pytest.importorskip("gcsfs")
    servers = pytest.importorskip("gcp_storage_emulator.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    runs = many(tmp_path / "runs", 6)
    place = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "FSSPEC_GS_TOKEN": "anon"}
    # its newest way to tell kinds of buckets speaks a protocol that the server does not
    place |= {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
    server = servers.create_server("127.0.0.1", port, in_memory=True)
    server.start()
    try:
        command = [sys.executable, "-c", GCS, str(runs), str(tmp_path / "runs.parquet")]
        made = subprocess.run(
            command, env={**os.environ, **place}, capture_output=True, text=True, check=False, timeout=200
        )
    finally:
        server.stop()
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == str((Counter(judged=6), 6, analyzed(runs)))
