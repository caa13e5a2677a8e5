"""Evaluations and saved models of Stable-Baselines3."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.errors import DoctorError
from tests.readers.conftest import read_back

STEPS = [1000, 2000, 3000]
REWARDS = [[1.0, 3.0], [2.0, 4.0], [float("nan"), 1.0]]


def evaluations(**more):
    stream = io.BytesIO()
    arrays = {"timesteps": STEPS, "results": REWARDS, "ep_lengths": [[10, 20], [10, 10], [5, 5]], **more}
    np.savez(stream, **arrays)
    return stream.getvalue()


class Bomb:
    """What an unpickled object could do."""

    ran = False

    def __reduce__(self):
        return (setattr, (Bomb, "ran", True))


MODEL = {
    "policy_class": {":type:": "<class 'abc.ABCMeta'>", ":serialized:": "gAWV", "__module__": "x"},
    "n_steps": 2048,
    "learning_rate": 0.0003,
    "target_kl": None,
    "normalize_advantage": True,
    "num_timesteps": 4096,
    "_n_updates": 20,
    "clip_range": {
        ":type:": "<class 'FloatSchedule'>",
        ":serialized:": "gAWV",
        "value_schedule": "ConstantSchedule(val=0.2)",
    },
    "lr_schedule": {":type:": "<class 'function'>", ":serialized:": "gAWV"},
}


def model(data=None):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data", json.dumps(MODEL) if data is None else data)
        archive.writestr("policy.pth", pickle.dumps(Bomb()))
        archive.writestr("_stable_baselines3_version", "2.7.0")
    return stream.getvalue()


def test_the_means_of_evaluations(reading):
    read = reading(evaluations())
    assert read.container == "npz-evaluations"
    assert [record["time/total_timesteps"] for record in read.records] == STEPS
    assert [record["eval/mean_reward"] for record in read.records][:2] == [2, 3]
    assert np.isnan(read.records[2]["eval/mean_reward"])
    assert [record["eval/mean_ep_length"] for record in read.records] == [15, 10, 5]
    assert read.lines == [1, 2, 3]


def test_successes_are_a_rate(reading):
    read = reading(evaluations(successes=np.array([[True, False]] * 3)))
    assert [record["eval/success_rate"] for record in read.records] == [0.5] * 3


def test_objects_are_not_unpickled(reading):
    Bomb.ran = False
    ragged = np.array([Bomb(), Bomb(), Bomb()], dtype=object)
    read = reading(evaluations(results=ragged))
    assert not Bomb.ran
    assert read.says("results.npy")
    assert [record["eval/mean_ep_length"] for record in read.records] == [15, 10, 5]


def test_a_member_that_is_an_archive_itself_is_no_array(reading):
    inner = evaluations()
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(inner)) as held, zipfile.ZipFile(stream, "w") as archive:
        for name in held.namelist():
            archive.writestr(name, inner[1:] if name == "ep_lengths.npy" else held.read(name))
        archive.writestr("successes.npy", inner)
    read = reading(stream.getvalue())
    assert [note.text for note in read.notes if "cannot be read" in note.text][1:]
    assert len(read.records) == len(STEPS)


def test_compressed_evaluations(reading):
    stream = io.BytesIO()
    np.savez_compressed(stream, timesteps=STEPS, results=REWARDS)
    assert len(reading(stream.getvalue()).records) == 3


def test_settings_of_a_model(reading):
    read = reading(model())
    assert read.container == "sb3-zip"
    assert read.configs[0].values == {
        "n_steps": 2048,
        "learning_rate": 0.0003,
        "target_kl": None,
        "normalize_advantage": True,
        "num_timesteps": 4096,
        "clip_range": 0.2,
    }
    assert not Bomb.ran
    assert read.notes == []


@pytest.mark.parametrize("data", ["{broken", "[1, 2]", "", "[" * 100_000])
def test_a_model_without_settings(reading, data):
    assert reading(model(data)).configs == []


def test_members_before_the_cut_are_read(reading):
    whole = evaluations()
    lengths = whole.index(b"ep_lengths.npy")
    read = reading(whole[: lengths - 30])
    assert [record["eval/mean_reward"] for record in read.records][:2] == [2, 3]
    assert "eval/mean_ep_length" not in read.records[0]
    assert read.says("cut off")
    whole = model()
    assert reading(whole[: whole.index(b"policy.pth") - 30]).configs[0].values["n_steps"] == 2048


@pytest.mark.parametrize("kind", ["npz-evaluations", "sb3-zip"])
def test_every_truncation(kind):
    whole = evaluations() if kind == "npz-evaluations" else model()
    for cut in range(1, len(whole)):
        read = read_back(whole[:cut], kind)
        assert read.notes


@given(st.data())
def test_flipped_bits(data):
    kind = data.draw(st.sampled_from(["npz-evaluations", "sb3-zip"]))
    raw = bytearray(evaluations() if kind == "npz-evaluations" else model())
    for bit in data.draw(st.lists(st.integers(0, 8 * len(raw) - 1), min_size=1, max_size=5)):
        raw[bit // 8] ^= 1 << bit % 8
    try:
        read = read_back(bytes(raw), kind)
    except DoctorError as error:
        assert error.message
    else:
        for record in read.records:
            reward = record.get("eval/mean_reward", 2.0)
            assert np.isnan(reward) or reward in (2, 3)
    assert not Bomb.ran


def test_a_member_that_unpacks_to_gigabytes_is_refused(reading, monkeypatch):
    monkeypatch.setattr("ppo_doctor.readers.sb3_files.LARGEST_MEMBER", 1 << 20)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", b" " * (8 << 20))
    read = reading(stream.getvalue())
    assert read.configs == []
    assert read.says("larger than 1 MiB")
