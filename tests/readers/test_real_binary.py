"""Event files and W&B runs of other people: as many records as an expert counted, and settings where they hold some.

The logs are no part of this repository; without them these tests are skipped.
"""

import csv
import os
from pathlib import Path

import pytest

from ppo_doctor.readers import read
from tests.readers.conftest import gather

DEFAULT = Path(__file__).parents[2] / ".." / "shared" / "real-logs"
ROOT = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", DEFAULT)).resolve()
#: Where we count otherwise: by how many, and why.
DIFFERENT = {
    "reddyn12__Sb3Test__flat_logs_f62e636": (7, "seven of its files hold a single record each"),
    "HyLora__CACLAvsCleanRL__wandb_swwj8mgr_ppo": (1, "its steps run from 0 to 872"),
    "480284856__RLHF_Training__wandb_offline": (16, "the expert had no decoder for it"),
}


def files_of(run):
    found = [*(ROOT / run).rglob("*tfevents*"), *(ROOT / run).rglob("*.wandb")]
    # A link that was checked out as text, and Unity's own file beside an event file, are none.
    return [path for path in found if path.is_file() and path.suffix != ".meta" and b"\0" in path.read_bytes()[:64]]


def runs():
    manifest = ROOT / "manifest.csv"
    if not manifest.exists():
        return []
    with manifest.open(encoding="utf-8") as stream:
        return [(row["id"], int(row["n_records"] or 0)) for row in csv.DictReader(stream) if files_of(row["id"])]


@pytest.mark.skipif(not ROOT.exists(), reason="the real logs are not here")
def test_real_logs_are_there_in_number():
    assert len(runs()) > 40


@pytest.mark.parametrize(("run", "expected"), runs())
def test_as_many_records_as_an_expert_counted(run, expected):
    readings = [gather(*read(path)) for path in files_of(run)]
    more, _ = DIFFERENT.get(run, (0, ""))
    assert sum(len(reading.records) for reading in readings) == expected + more
    assert sum(reading.skipped for reading in readings) == (run == "480284856__RLHF_Training__wandb_offline")


@pytest.mark.parametrize(
    ("run", "setting"),
    [
        ("HyLora__CACLAvsCleanRL__ppo_1762362740", ("update_epochs", 10)),
        ("HyLora__CACLAvsCleanRL__wandb_swwj8mgr_ppo", ("update_epochs", 10)),
        ("ssshammi__mlagents__3DBallHard", ("hyperparameters.num_epoch", 3)),
    ],
)
def test_settings_inside_of_the_file(run, setting):
    if not files_of(run):
        pytest.skip("the real logs are not here")
    (config,) = gather(*read(files_of(run)[0])).configs
    assert setting in config.values.items()
