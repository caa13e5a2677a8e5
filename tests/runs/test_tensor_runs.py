"""From files of tensors to a diagnosis: what they prove is named, what they do not show is not claimed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.diagnosis.analyze import load_run, runs_of
from ppo_doctor.model.arrays import beside
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.dumps.contents import with_roles
from ppo_doctor.runs.tensor_runs import SCOPE

POLICIES = Path(__file__).resolve().parent / "dumps" / "fixtures" / "policies"


FOUR_EPOCHS = ("--set", "ppo_epochs=4", "--set", "num_minibatches=4")


def dump(path, *, seed=0, change=None, rows=32, length=40):
    """Write the tensors of one sound minibatch, or of one with a fault; ratios have mean 1."""
    chance = np.random.default_rng(seed)
    old = -chance.exponential(size=(rows, length))
    advantages = chance.normal(size=(rows, 1))
    noise = chance.normal(scale=0.03, size=old.shape)
    held = {
        "log_probs": old + noise - noise.var() / 2 + 0.005 * advantages,
        "old_log_probs": old,
        "advantages": (advantages - advantages.mean()) / advantages.std(),
        "response_mask": np.arange(length) < chance.integers(25, length, (rows, 1)),
    }
    if change:
        change(held)
    np.savez(path, **{name: value for name, value in held.items() if value is not None})
    return path


def checkpoint(path, **tensors):
    """Write float32 arrays as safetensors, by the format's description."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.asarray(values, "<f4")
        place = [len(data), len(data) + raw.nbytes]
        header[name] = {"dtype": "F32", "shape": list(raw.shape), "data_offsets": place}
        data += raw.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def judged(cli, *arguments):
    outcome = cli("analyze", *arguments, "--format", "json")
    report = json.loads(outcome.out)
    told = [f for f in report["checks"] if f["answer"] == "yes" and f["severity"] != "info"]
    fired = {finding["name"] for finding in told}
    assert not [finding for finding in report["checks"] if finding["answer"] == "errored"]
    return report, fired


def leaders(report):
    first = report["causes"][0]
    return {first["id"], *first["level_with"]}


def test_a_dump_becomes_series_with_their_origin(tmp_path):
    run = load_run(dump(tmp_path / "update_7.npz"))
    assert run.steps == (7, 7)
    kl = run.series["approx_kl"]
    assert (kl.how, kl.estimator, kl.raw) == ("computed", "k3", "log_probs, old_log_probs")
    assert str(kl.source()) == str(tmp_path / "update_7.npz")
    assert 0 < run.series["effective_sample_size"].values[0] < 1
    assert "clip_fraction" not in run.series, "nobody told the clip range"
    assert any(note.text == SCOPE for note in run.notes)


def test_a_metric_that_one_dump_lacks_is_matched_with_the_others_by_dump(tmp_path):
    for number in range(20):
        lacking = (lambda held: held.pop("advantages")) if number == 7 else None
        dump(tmp_path / f"update_{number:02}.npz", seed=number, change=lacking)
    series = load_run(tmp_path).series
    places = [beside(series["approx_kl"], series[name]).axis.steps for name in ("ratio_mean", "advantages_mean")]
    assert [len(steps) for steps in places] == [20, 20]
    known = np.isfinite(beside(series["approx_kl"], series["advantages_mean"]).values)
    assert np.flatnonzero(~known).tolist() == [7]


def test_a_clip_range_that_was_told_is_counted(tmp_path):
    run = load_run(dump(tmp_path / "d.npz"), settings={"clip_range": 0.05})
    assert 0 < run.series["clip_fraction"].values[0] < 0.5


def swapped(name, value):
    return lambda held: held.update({name: value(held) if callable(value) else value})


def broken_token(held):
    held["log_probs"][3, 2] = math.nan


FAULTS = {
    "shifted by one": (swapped("log_probs", lambda h: np.roll(h["log_probs"], 1, axis=1)), "token-misalignment"),
    "interleaved": (swapped("log_probs", lambda h: np.roll(h["log_probs"], 8).reshape(32, 40)), "token-misalignment"),
    "a NaN": (broken_token, "nan-inf"),
    "an empty mask": (swapped("response_mask", lambda h: h["response_mask"] & False), "loss-mask-empty"),
    "zero advantages": (swapped("advantages", lambda h: h["advantages"] * 0), "adv-exactly-zero"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_single_dump_proves_is_named(fault, seed, tmp_path, cli):
    change, cause = FAULTS[fault]
    report, _ = judged(cli, dump(tmp_path / "d.npz", seed=seed, change=change), *FOUR_EPOCHS)
    assert cause in leaders(report)
    assert report["causes"][0]["confidence"] == "established"


def test_a_ratio_of_one_is_a_theorem_where_k_is_one(tmp_path, cli):
    same = dump(tmp_path / "d.npz", change=swapped("log_probs", lambda h: h["old_log_probs"]))
    _, fired = judged(cli, same, *FOUR_EPOCHS)
    assert "ratio-identically-one" in fired
    _, fired = judged(cli, same, "--set", "ppo_epochs=1", "--set", "num_minibatches=1")
    assert "ratio-identically-one" not in fired


def test_sound_dumps_raise_no_alarm(tmp_path, cli):
    for seed in range(20):
        dump(tmp_path / f"update_{seed}.npz", seed=seed)
    report, _ = judged(cli, tmp_path, "--set", "clip_range=0.2", *FOUR_EPOCHS)
    assert report["run"]["steps"] == [0, 19]
    assert [cause for cause in report["causes"] if not cause["benign"]] == []
    one, fired = judged(cli, tmp_path / "update_3.npz")
    assert (one["verdict"], fired) == ("inconclusive", set()), "one dump is no sound run"


def test_advantages_per_sequence_and_ragged_rows_are_spread_over_tokens(tmp_path):
    whole = load_run(dump(tmp_path / "whole.npz"))
    held = dict(np.load(tmp_path / "whole.npz"))
    keep = held["response_mask"]
    rows = [
        {
            "log_probs": list(new[m]),
            "old_log_probs": list(old[m]),
            "advantages": float(a[0]),
        }
        for new, old, a, m in zip(held["log_probs"], held["old_log_probs"], held["advantages"], keep, strict=True)
    ]
    path = tmp_path / "train_data_step3.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    from ppo_doctor.readers.tensors import read_archive
    from ppo_doctor.runs.dumps import dump_run

    ragged = dump_run.measure(*with_roles([read_archive(path)]))
    for name in ("approx_kl", "ratio_std", "logratio_advantage_corr", "tokens_in_loss"):
        assert ragged.values[name] == pytest.approx(float(whole.series[name].values[0]), rel=1e-9), name
    assert ragged.step == 3


def stacked(folder, layout):
    """Write three dumps, and the same in one file."""
    held = [dict(np.load(dump(folder / "apart" / f"update_{n}.npz", seed=n))) for n in (3, 5, 9)]
    if layout == "by row":
        joined = {name: np.concatenate([one[name] for one in held]) for name in held[0]}
        joined["update"] = np.repeat([3, 5, 9], [len(one["log_probs"]) for one in held])
    else:
        joined = {name: np.stack([one[name] for one in held]) for name in held[0]} | {"update": np.array([3, 5, 9])}
    np.savez(folder / "all.npz", **joined)


@pytest.mark.parametrize("layout", ["by row", "leading axis"])
def test_updates_in_one_file_are_those_of_several(layout, tmp_path):
    (tmp_path / "apart").mkdir()
    stacked(tmp_path, layout)
    apart, whole = load_run(tmp_path / "apart"), load_run(tmp_path / "all.npz")
    assert set(whole.series) == set(apart.series)
    for name, series in whole.series.items():
        np.testing.assert_allclose(series.values, apart.series[name].values, rtol=1e-12, err_msg=name)
        assert list(series.axis.steps) == [3, 5, 9]


def test_updates_whose_rows_are_mixed_are_refused(tmp_path, cli):
    held = dict(np.load(dump(tmp_path / "d.npz")))
    np.savez(tmp_path / "mixed.npz", **held, update=np.arange(len(held["log_probs"])) % 3)
    outcome = cli("analyze", tmp_path / "mixed.npz")
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE
    assert "update" in outcome.err


CHECKPOINTS = {
    "aliased": "old-policy-aliased",
    "orphaned": "optimizer-orphaned-params",
    "half": "bf16-swallowed-update",
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_a_checkpoint_proves_is_named(name, cli):
    report, _ = judged(cli, POLICIES / f"{name}.pt", *FOUR_EPOCHS)
    assert CHECKPOINTS[name] in leaders(report)


def test_copies_are_equal_and_not_aliased(cli):
    _, fired = judged(cli, POLICIES / "copies.pt", *FOUR_EPOCHS)
    assert fired == {"old-policy-equals-policy", "old-policy-is-a-copy"}
    _, fired = judged(cli, POLICIES / "copies.pt", "--set", "ppo_epochs=1", "--set", "num_minibatches=1")
    assert "old-policy-equals-policy" not in fired


def test_an_optimizer_that_stepped_its_own_is_no_finding(cli):
    report, fired = judged(cli, POLICIES / "stepped.pt")
    assert (fired, report["causes"]) == (set(), [])


def test_two_files_are_compared_by_their_names(tmp_path, cli):
    policy = checkpoint(tmp_path / "policy.safetensors", w=[1.0, 2.0], b=[0.5])
    old = checkpoint(tmp_path / "old_policy.safetensors", w=[1.0, 2.5], b=[0.5])
    report, fired = judged(cli, policy, old, *FOUR_EPOCHS)
    assert fired == set()
    assert any("b" in note and "bit for bit" in note for note in report["run"]["notes"]), "frozen tensors are named"
    same = checkpoint(tmp_path / "prev_policy.safetensors", w=[1.0, 2.0], b=[0.5])
    _, fired = judged(cli, policy, same, *FOUR_EPOCHS)
    assert fired == {"old-policy-equals-policy"}


def test_snapshots_are_taken_in_the_order_of_their_numbers(tmp_path, cli):
    for step, value in ((10, 3.0), (2, 2.0), (1, 1.0)):
        checkpoint(tmp_path / f"step_{step}.safetensors", w=[value, 7.0])
    run = load_run(tmp_path)
    changed = run.series["snapshot_changed"]
    assert list(changed.axis.steps) == [2, 10]
    assert list(changed.values) == [0.5, 0.5]
    for step in (1, 2, 10):
        checkpoint(tmp_path / f"step_{step}.safetensors", w=[1.0, 7.0])
    report, fired = judged(cli, tmp_path)
    assert fired == {"snapshots-are-equal"}
    assert {"lr-zero", "optimizer-orphaned-params"} & {cause["id"] for cause in report["causes"]}


def test_a_reference_that_follows_the_policy_is_wrong(tmp_path, cli):
    files = [
        checkpoint(tmp_path / name, w=w)
        for name, w in (
            ("step_1.safetensors", [1.0, 2.0]),
            ("step_2.safetensors", [3.0, 4.0]),
            ("ref_model.safetensors", [3.0, 4.0]),
        )
    ]
    report, _ = judged(cli, *files)
    assert leaders(report) == {"ref-model-wrong"}
    checkpoint(files[2], w=[1.0, 2.0])
    _, fired = judged(cli, *files)
    assert "reference-equals-policy" not in fired


def test_broken_weights_are_named_even_without_a_pair(tmp_path, cli):
    report, _ = judged(cli, checkpoint(tmp_path / "m.safetensors", w=[1.0, math.nan]))
    assert leaders(report) == {"nan-inf"}


def test_adapters_that_never_left_zero(tmp_path, cli):
    lora = {"q.lora_A.weight": [[1.0]], "q.lora_B.weight": [[0.0]]}
    _, fired = judged(cli, checkpoint(tmp_path / "adapter.safetensors", **lora))
    assert fired == {"adapters-still-zero"}


def test_checkpoints_named_with_a_log_add_what_only_they_show(tmp_path, cli):
    log = tmp_path / "run.jsonl"
    log.write_text("".join(f'{{"step": {n}, "approx_kl": 0.01, "entropy": {2 - n / 99}}}\n' for n in range(20)))
    broken = checkpoint(tmp_path / "step_19.safetensors", w=[1.0, math.nan])
    report, fired = judged(cli, log)
    assert "tensors-not-finite" not in fired
    report, fired = judged(cli, log, broken)
    assert "tensors-not-finite" in fired
    assert leaders(report) == {"nan-inf"}
    assert report["run"]["steps"] == [0, 19]


def test_names_are_given_by_hand(tmp_path, cli):
    held = dict(np.load(dump(tmp_path / "d.npz")))
    np.savez(tmp_path / "own.npz", now=held["log_probs"], frozen=held["old_log_probs"])
    unread = cli("analyze", tmp_path / "own.npz")
    assert unread.code == ExitCode.NOTHING_TO_JUDGE
    assert all(word in unread.err for word in ("now", "frozen", "--map"))
    outcome = cli("analyze", tmp_path / "own.npz", "--map", "log_prob=now", "--map", "old_log_prob=frozen")
    assert outcome.code == ExitCode.OK
    wrong = cli("analyze", tmp_path / "own.npz", "--map", "nonsense=now")
    assert wrong.code == ExitCode.USAGE
    assert "nonsense" in wrong.err


def test_what_is_not_understood_beside_what_is_is_told(tmp_path, cli):
    held = dict(np.load(dump(tmp_path / "d.npz")))
    np.savez(tmp_path / "own.npz", **held, zorgs=held["log_probs"])
    notes = json.loads(cli("analyze", tmp_path / "own.npz", "--format", "json").out)["run"]["notes"]
    assert any("zorgs" in note and "--map" in note for note in notes)


def test_files_that_say_nothing_are_nothing_to_judge(tmp_path, cli):
    np.savez(tmp_path / "d.npz", observations=np.ones(3))
    outcome = cli("analyze", tmp_path / "d.npz")
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE
    assert "observations" in outcome.err


def test_damage_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 cut off")
    (source,), _ = gather([str(tmp_path / "d.npz")])
    with pytest.raises(DoctorError, match=r"d\.npz") as caught:
        runs_of(source, Request())
    assert caught.value.code == ExitCode.NOTHING_TO_JUDGE


def test_a_dump_of_one_dimension_with_its_mask_is_read(tmp_path):
    rng = np.random.default_rng(0)
    old = rng.normal(-2, 0.5, 400)
    arrays = {
        "old_log_probs": old,
        "log_probs": old + rng.normal(0, 0.01, 400),
        "advantages": rng.normal(0, 1, 400),
        "response_mask": np.arange(400) % 5 > 0,
    }
    np.savez(tmp_path / "flat.npz", **arrays)
    run = load_run(str(tmp_path / "flat.npz"))
    assert run.series["tokens_in_loss"].values.tolist() == [320.0]
