"""The statistics of minibatches, against what NumPy says of the whole update at once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.record import measures
from ppo_doctor.record import update as updates
from ppo_doctor.record.recorder import Recorder


def update(seed: int, *, spread: float = 0.3, rows: int = 24, length: int = 5):
    made = np.random.default_rng(seed)
    new = made.normal(-2, 0.5, (rows, length))
    old = new - made.normal(0, spread, (rows, length))
    return new, old, made.normal(0.3, 2, rows), made.random((rows, length)) < 0.7


@given(st.integers(0, 10_000), st.lists(st.integers(1, 23), max_size=4, unique=True))
def test_an_update_in_parts_has_the_statistics_of_the_whole(seed, cuts):
    new, old, advantages, mask = update(seed)
    bounds = (np.log(0.8), np.log(1.2))
    parts = zip(*(np.split(each, sorted(cuts)) for each in (new, old, advantages, mask)), strict=True)
    rows = np.stack([measures.row(n, o, a, m, bounds) for n, o, a, m in parts])
    found = updates.of_minibatches(rows, (), clipped=True, advantages=True)
    log_ratio, adv = (new - old)[mask], np.broadcast_to(advantages[:, None], new.shape)[mask]
    ratio = np.exp(log_ratio)
    head = np.s_[: min(cuts, default=len(new))]
    at_first = np.abs(np.exp((new - old)[head][mask[head]]) - 1)
    told = {
        "tokens_in_loss": mask.sum(),
        "ratio_mean": ratio.mean(),
        "ratio_std": ratio.std(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "approx_kl_k1": -log_ratio.mean(),
        "approx_kl_k2": (log_ratio**2).mean() / 2,
        "clip_fraction": ((ratio < 0.8) | (ratio > 1.2)).mean(),
        "clip_fraction_low": (ratio < 0.8).mean(),
        "clip_fraction_high": (ratio > 1.2).mean(),
        "clip_fraction_positive": ((ratio > 1.2) & (adv > 0)).mean(),
        "clip_fraction_negative": ((ratio < 0.8) & (adv < 0)).mean(),
        "advantages_mean": adv.mean(),
        "advantages_std": adv.std(),
        "advantages_min": adv.min(),
        "advantages_max": adv.max(),
        "advantages_abs_max": np.abs(adv).max(),
        "logratio_advantage_corr": np.corrcoef(log_ratio, adv)[0, 1],
        **({"batch_start_ratio_dev": at_first.max()} if at_first.size else {}),
    }
    assert found == pytest.approx(told, rel=1e-9, abs=1e-12)


def test_equal_log_probs_give_exactly_one():
    new, _, advantages, mask = update(1)
    found = updates.of_minibatches(
        measures.row(new, new, advantages, mask, (-0.1, 0.1))[None], (), clipped=True, advantages=True
    )
    assert (found["ratio_mean"], found["ratio_std"], found["ratio_min"], found["ratio_max"]) == (1, 0, 1, 1)
    assert (found["approx_kl"], found["approx_kl_k1"], found["clip_fraction"]) == (0, 0, 0)
    assert "logratio_advantage_corr" not in found


def test_an_empty_mask_counts_no_token_and_breaks_nothing():
    new, old, advantages, mask = update(2)
    rows = np.stack([measures.row(new, old, advantages, mask), measures.row(new, old, advantages, mask * 0)])
    whole = updates.of_minibatches(rows[:1], (), clipped=False, advantages=True)
    assert updates.of_minibatches(rows, (), clipped=False, advantages=True) == whole
    assert updates.of_minibatches(rows[1:], (0,), clipped=False, advantages=True) == {"tokens_in_loss": 0}


def test_epoch_starts_take_the_largest_departure_of_the_chosen_minibatches():
    zero = np.zeros(4)
    rows = np.stack([measures.row(zero + x, zero) for x in (0.0, 0.5, 0.0, -0.1)])
    assert updates.of_minibatches(rows, (2,), clipped=False, advantages=False)["epoch_start_ratio_dev"] == 0
    found = updates.of_minibatches(rows, (2, 3), clipped=False, advantages=False)["epoch_start_ratio_dev"]
    assert found == pytest.approx(1 - np.exp(-0.1))


@pytest.mark.parametrize("sequences", [False, True])
def test_the_gradient_holds_the_ratio_that_the_loss_used(sequences):
    """Gradient by a log-prob = -advantage · ratio / samples, and 0 where clipped."""
    new, old, advantages, mask = update(3, spread=0.05)
    adv = np.broadcast_to(advantages[:, None], new.shape)
    ratio = np.exp(new - old)
    lengths = mask.sum(1, keepdims=True) if sequences else 1
    clipped = ((adv > 0) & (ratio > 1.05)) | ((adv < 0) & (ratio < 0.95))
    used = np.where(mask & ~clipped, -adv * ratio / lengths, 0)
    constant = np.where(mask, -adv / lengths, 0)
    shape = (slice(None),) if sequences else (-1,)
    pick = (lambda a: a) if sequences else (lambda a: np.ascontiguousarray(a).reshape(*shape))
    spread = updates.of_loss_ratio(measures.loss_ratio_row(pick(used), pick(adv), pick(mask))[None])["loss_ratio_std"]
    nothing = updates.of_loss_ratio(measures.loss_ratio_row(pick(constant), pick(adv), pick(mask))[None])
    assert nothing["loss_ratio_std"] < 1e-12
    assert 0.02 < spread < 0.06


def test_a_loss_that_ignores_stored_log_probs_has_the_ratio_one():
    stored = {"ratio_std": 0.1, "ratio_mean": 1.01, "approx_kl": 0.005, "clip_fraction": 0.1, "policy_loss": 0.2}
    kept = updates.as_in_the_loss({**stored, "loss_ratio_std": 0.08}, stored["ratio_std"])
    assert kept == {**stored, "loss_ratio_std": 0.08, "stored_ratio_std": 0.1}
    ignored = updates.as_in_the_loss({**stored, "loss_ratio_std": 1e-7}, stored["ratio_std"])
    assert (ignored["ratio_std"], ignored["ratio_mean"], ignored["approx_kl"], ignored["clip_fraction"]) == (0, 1, 0, 0)
    assert (ignored["stored_ratio_std"], ignored["policy_loss"]) == (0.1, 0.2)


@pytest.mark.parametrize(
    ("used", "stored", "told"), [(0.0, 2e-5, 0), (0.0, 5e-6, 5e-6), (2e-6, 1e-4, 1e-4), (2e-6, 3e-4, 0)]
)
def test_small_steps_at_the_end_of_a_schedule_are_held_against_rounding(used, stored, told):
    """Of 100 times the rounding on, a spread that the loss does not have is real, however small."""
    found = updates.as_in_the_loss({"ratio_std": stored, "loss_ratio_std": used}, stored)
    assert (found["ratio_std"], found["stored_ratio_std"]) == (told, stored)


def test_a_batch_that_has_not_moved_proves_nothing():
    still = {"ratio_std": 1e-8, "loss_ratio_std": 0.0, "ratio_mean": 1.0 + 1e-8}
    assert updates.as_in_the_loss(still, still["ratio_std"])["ratio_mean"] == 1.0 + 1e-8


def test_numbers_that_are_not_finite_are_told(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.start_update()
    recorder.minibatch(new_log_prob=np.array([0.0, np.nan]), old_log_prob=np.zeros(2), advantages=np.ones(2))
    found = recorder.end_update()
    assert not recorder.quiet
    assert np.isnan(found["ratio_mean"])
    assert np.isnan(found["approx_kl"])


def test_no_library_is_imported_that_is_not_in_use(tmp_path):
    script = (
        "import sys, numpy as np\n"
        "from ppo_doctor.record import Recorder\n"
        f"r = Recorder({str(tmp_path / 'run.jsonl')!r})\n"
        "r.start_update()\n"
        "r.minibatch(new_log_prob=np.zeros(3), old_log_prob=np.zeros(3))\n"
        "r.optimizer_step(grad_norm=0.5)\n"
        "assert r.end_update(probe=lambda: (np.zeros(3), np.zeros(3)))['probe_kl'] == 0\n"
        "heavy = {'torch', 'jax', 'pandas', 'typer', 'rich', 'orjson', 'transformers', 'stable_baselines3'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_minibatch_that_an_early_stop_rejects_proves_nothing_of_the_loss(tmp_path):
    """The first minibatch is at 1 and in the loss; the second departs, and no gradient comes back from it."""
    recorder, advantages = Recorder(tmp_path / "run.jsonl"), np.array([1.0, -1.0, 2.0])
    recorder.start_update()
    first = {"new_log_prob": np.zeros(3), "old_log_prob": np.zeros(3), "advantages": advantages}
    recorder.minibatch(**first, log_prob_gradient=-advantages)
    recorder.minibatch(**{**first, "new_log_prob": np.array([0.1, -0.1, 0.0])})
    found = recorder.end_update()
    assert (found["loss_ratio_std"], found["stored_ratio_std"]) == (0, 0)
    assert found["ratio_max"] > 1
    assert found["approx_kl"] > 0
