"""Fleets in Python: a frame, and batches of Ray Data."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ppo_doctor
from ppo_doctor.model.errors import DoctorError
from tests.fleets.fleets import analyzed, many, told

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def runs(tmp_path):
    return many(tmp_path / "runs", 6)


def records(frame):
    return frame.to_dict("records")


def test_a_fleet_is_a_frame_with_a_row_for_each_run(runs, tmp_path):
    frame = ppo_doctor.fleet(runs, jobs=1)
    assert told(records(frame)) == analyzed(runs)
    assert isinstance(frame["settings"].iloc[0], dict)
    both = ppo_doctor.fleet([runs / "sb3", str(runs / "jsonl")], jobs=1, out=tmp_path / "t.parquet")
    assert len(both) == 2
    more = ppo_doctor.fleet(runs, jobs=1, out=tmp_path / "t.parquet")
    assert told(records(more)) == analyzed(runs)
    assert [file.name for file in tmp_path.glob("*t.parquet*")] == ["t.parquet"]


def test_settings_and_framework_are_those_of_all_runs(runs):
    frame = ppo_doctor.fleet(runs / "sb3", jobs=1, settings={"n_epochs": 7}, framework="sb3")
    assert frame["settings"].iloc[0]["n_epochs"] == "7"


def test_a_source_that_lacks_an_engine_that_does_not_exist(runs):
    with pytest.raises(DoctorError, match="no such file"):
        ppo_doctor.fleet([runs, runs / "nowhere"], jobs=1)
    with pytest.raises(DoctorError, match="no such engine"):
        ppo_doctor.fleet(runs, engine="spark")


def test_a_batch_is_judged_to_a_table_with_the_columns_of_a_fleet(runs):
    table = ppo_doctor.judge_batch({"path": [str(runs / "sb3/000001"), runs / "wandb", "/no/where"]})
    assert table.schema.names == ppo_doctor.fleet(runs / "sb3", jobs=1).columns.tolist()
    rows = table.to_pylist()
    assert [row["status"] for row in rows] == ["judged", "judged", "failed"]
    assert "no such file" in rows[2]["error"]
    again = ppo_doctor.judge_batch({"place": [str(runs)]}, column="place")
    assert told(again.to_pylist()) == analyzed(runs)


@pytest.mark.parametrize(
    ("lacking", "call", "extra"),
    [
        ("pyarrow", "ppo_doctor.fleet('.', jobs=1)", "fleet"),
        ("fsspec", "ppo_doctor.fleet('memory://x', jobs=1)", "fleet"),
        ("s3fs", "ppo_doctor.fleet('s3://bucket/x', jobs=1)", "s3"),
        ("gcsfs", "ppo_doctor.fleet('gs://bucket/x', jobs=1)", "gcs"),
        ("ray", "ppo_doctor.fleet('.', engine='ray')", "ray"),
    ],
)
def test_what_is_not_installed_is_named_with_its_command(lacking, call, extra):
    lines = (
        f"import sys; sys.modules['{lacking}'] = None; import ppo_doctor",
        f"try: {call}",
        "except Exception as error: print(error.hint, int(error.code))",
    )
    made = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert made.stdout == f"pip install 'ppo-doctor[{extra}]' 2\n"


def test_nothing_optional_is_imported_for_what_needs_it_not(runs):
    code = (
        "import sys, ppo_doctor; ppo_doctor.analyze(sys.argv[1]); "
        "print([m for m in ('pyarrow', 'fsspec', 'ray', 's3fs', 'ppo_doctor.fleets') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(runs / "jsonl/000000/run.jsonl")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("batch_format", ["default", "numpy", "pandas", "pyarrow"])
def test_batches_of_ray_data_are_judged_as_analyze_does(cluster, tmp_path, batch_format):
    runs = many(tmp_path / "runs", 4)
    paths = [*(str(path) for path in runs.iterdir()), str(tmp_path / "nowhere")]
    given = cluster.data.from_items([{"path": path} for path in paths])
    rows = given.map_batches(ppo_doctor.judge_batch, batch_format=batch_format).take_all()
    assert sorted(row["status"] for row in rows) == ["failed", *["judged"] * 4]
    assert told(rows) == analyzed(runs)
