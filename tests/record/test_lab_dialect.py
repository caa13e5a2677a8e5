"""The lab's training goes through the real recorder: its numbers are the lab's own, and causes are told apart."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppo_doctor.rulepack import load_pack
from tests.lab.dialects import write
from tests.lab.faults import FAULTS
from tests.lab.judge import judge
from tests.lab.sound_runs import recorded_runs
from tests.lab.train import run

#: Rows of the decision table that trainers' own logs leave level; the whole table is swept by `tests.lab.sweep`.
APART = (
    "old-policy-aliased",
    "old-logp-resynced-per-epoch",
    "optimizer-orphaned-params",
    "no-grad-path",
    "amp-step-skipped",
    "loss-mask-empty",
)


@pytest.mark.parametrize("fault", APART)
def test_what_logs_leave_level_is_first_and_alone(fault):
    record = run(fault, seed=11, updates=30, dialect="recorder")
    first = judge(record, "recorder", load_pack()).causes[0]
    assert (first.id, first.confidence, first.leader) == (FAULTS[fault].cause, "established", True)
    assert not set(first.level_with) - {"old-logp-resynced-per-minibatch"}


@pytest.mark.parametrize("seed", [0, 2])
def test_a_sync_at_every_epoch_is_told_from_one_in_every_minibatch(seed):
    """With flat groups most late updates move nothing, and with one minibatch per epoch the two would be one."""
    told = {"task": "language", "dialect": "recorder-grpo", "num_minibatches": 2}
    record = run("old-logp-resynced-per-epoch", seed=seed, severity=2, updates=60, **told)
    first = judge(record, "recorder-grpo", load_pack()).causes[0]
    assert (first.id, first.confidence, first.level_with) == ("old-logp-resynced-per-epoch", "established", ())


def test_a_policy_synced_by_value_has_memory_of_its_own(tmp_path):
    lines = write(run("old-logp-resynced-per-minibatch", updates=3), "recorder", tmp_path).read_text().splitlines()
    assert [json.loads(line)["old_policy_shared"] for line in lines[1:]] == [0, 0, 0]


def test_the_recorders_numbers_are_those_of_the_lab(tmp_path):
    record = run("healthy", seed=12, updates=4, dialect="recorder")
    lines = write(record, "recorder", tmp_path).read_text().splitlines()[1:]
    for update, line in zip(record.updates, lines, strict=True):
        told = json.loads(line)
        cells = update.minibatches
        assert told["approx_kl"] == pytest.approx(np.mean([cell.k3 for cell in cells]), rel=1e-3, abs=1e-7)
        assert told["ratio_max"] == pytest.approx(max(cell.ratio_max for cell in cells), rel=1e-5)
        assert told["clip_fraction"] == pytest.approx(np.mean([cell.clip_fraction for cell in cells]), abs=1e-6)
        assert told["grad_norm"] == pytest.approx(np.mean([cell.grad_norm for cell in cells]), rel=1e-5)
        assert told["update_norm"] == pytest.approx(update.update_norm, rel=1e-4)
        assert told["changed_fraction"] == pytest.approx(update.changed_fraction)
        assert told["probe_kl"] == pytest.approx(update.probe_kl, rel=1e-3, abs=1e-7)
        assert (told["optimizer_steps"], told["skipped_steps"]) == (16, 0)
        assert told["optimizer_params_matched"] == 1
        assert told["loss_ratio_std"] == pytest.approx(told["ratio_std"], rel=0.2)
        # two float32 log-probs of about one nat differ by as much as 2**-20 where they should be the same
        assert told["batch_start_ratio_dev"] <= 2**-20 < told["epoch_start_ratio_dev"]


def test_steps_that_are_too_large_are_no_mismatch():
    record = run("lr-too-high", seed=13, severity=3, updates=30, dialect="recorder")
    leaders = [cause.id for cause in judge(record, "recorder", load_pack()).causes if cause.leader]
    assert leaders[0] == "lr-too-high"
    assert not {"temperature-mismatch", "token-misalignment", "weights-not-synced", "staleness-async"} & set(leaders)


@pytest.mark.parametrize("fault", ["temperature-mismatch", "weights-not-synced"])
def test_a_mismatch_is_there_before_the_first_step(fault):
    record = run(fault, seed=14, severity=3, updates=30, dialect="recorder")
    diagnosis = judge(record, "recorder", load_pack())
    assert diagnosis.causes[0].complaint == "ratio-wrong-at-start"
    assert "batch-starts-away-from-one" in {f.rule for f in diagnosis.findings if f.status == "fired"}


@pytest.mark.parametrize("sound", recorded_runs()[::12], ids=lambda sound: f"{sound.dialect} {sound.name}")
def test_sound_runs_raise_no_alarm(sound):
    causes = judge(sound.record(), sound.dialect, load_pack()).causes
    assert not [c.id for c in causes if c.leader and not c.benign and c.confidence != "suspected"]
