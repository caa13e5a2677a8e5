"""What dumps say of passes, epochs and advantages; `test_statistics` has plain references of the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps.batches import Batch, Cells, chosen, sums_by_cell, through_epochs
from ppo_doctor.runs.dumps.passes import compare_passes, padding_of, passes_metrics
from ppo_doctor.runs.dumps.recompute import estimated, recomputed_advantages
from ppo_doctor.runs.dumps.same_tokens import change_correlation, repeat_share


def tensor(values, dtype=np.float64):
    return Tensor.of("t", np.asarray(values, dtype=dtype))


def batch(**named):
    return Batch(tensors={k: tensor(v, np.asarray(v).dtype) for k, v in named.items()}, names={k: k for k in named})


@pytest.mark.parametrize("values", [[], [math.nan], [-math.inf, math.nan]])
def test_passes_without_a_finite_pair_tell_nothing(values):
    got = compare_passes(tensor(values), tensor(values))
    assert got.samples == 0
    assert math.isnan(got.std)


def test_a_temperature_is_a_slope_and_noise_is_not():
    chance = np.random.default_rng(0)
    logits = chance.normal(size=(4000, 10)) * 3
    picked = chance.integers(0, 10, 4000)

    def log_prob(z):
        whole = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return whole[np.arange(4000), picked]

    new = log_prob(logits)
    cooled = compare_passes(tensor(new), tensor(log_prob(logits / 0.6)))
    noisy = compare_passes(tensor(new), tensor(log_prob(logits + chance.normal(size=logits.shape))))
    assert max(cooled.slope, cooled.slope_back) > 1.4
    assert max(noisy.slope, noisy.slope_back) < 1.1


def test_the_rounding_of_half_precision_is_told_from_a_difference():
    chance = np.random.default_rng(1)
    exact = -chance.exponential(size=2000)
    half = compare_passes(tensor(exact.astype(np.float16), np.float16), tensor(exact))
    assert 0.3 < half.std / half.rounding < 3
    apart = compare_passes(
        tensor(exact.astype(np.float16), np.float16), tensor(exact + 0.05 * chance.normal(size=2000))
    )
    assert apart.std / apart.rounding > 20


@pytest.mark.parametrize("noise", ["float32", "float16"])
def test_noise_below_that_of_its_type_leaves_stored_numbers_nearly_equal(noise):
    chance = np.random.default_rng(2)
    exact = -chance.exponential(size=20000)
    off = exact * (1 + 2.0 ** {"float32": -24, "float16": -11}[noise] * chance.uniform(-1, 1, 20000))
    found = compare_passes(tensor(exact.astype(np.float16), np.float16), tensor(off.astype(np.float16), np.float16))
    assert (found.std / found.rounding > 8) == (noise == "float16")


def padded(sizes, first, chance, rows=40, time=10):
    """Return |d| that is a height plus a slope times the padding of its row, and that padding."""
    padding = first + np.arange(rows) % 8
    d = (sizes[0] + sizes[1] * padding)[:, None] * chance.uniform(0.5, 1.5, (rows, time))
    return compare_passes(
        tensor(d.ravel()), tensor(np.zeros(d.size)), padding=tensor(np.repeat(padding, time).astype(float))
    )


@pytest.mark.parametrize(
    ("sizes", "first", "low", "high"),
    [
        ((0.0, 0.1), 0, 0.0, 0.0),
        ((0.0, 0.1), 2, -0.1, 0.2),
        ((0.5, 0.0), 2, 0.8, 1.2),
        ((0.3, 0.03), 2, 0.5, 0.9),
        ((0.0, 0.1), 20, math.nan, math.nan),
    ],
)
def test_rows_without_padding_are_told_from_the_others(sizes, first, low, high):
    found = padded(sizes, first, np.random.default_rng(3)).least_padded
    assert math.isnan(found) if math.isnan(low) else low <= found <= high


def test_a_first_minibatch_of_few_prompts_leaves_padding_to_the_first_epoch():
    chance = np.random.default_rng(4)
    padding = 1 + np.arange(48) % 6
    minibatch = np.repeat([0, 1], 24)
    padding[:24] = 5
    attention = (np.arange(16) >= padding[:, None]).astype(np.int64)
    old = -chance.exponential(size=(48, 6))
    new = old + 0.1 * padding[:, None] * chance.choice([-1, 1], (48, 6))
    held = batch(log_prob=new, old_log_prob=old, attention_mask=attention)
    cells = Cells(epochs=np.zeros(48, np.int64), minibatches=minibatch)
    found = passes_metrics(held, cells, None, single_update=False)
    assert found["passes_least_padded"] == pytest.approx(0, abs=0.1)
    assert found["start_logratio_std"] == pytest.approx(0.5, abs=0.02)


def test_padding_comes_from_the_attention_mask_or_the_lengths_or_the_mask():
    base = tensor(np.zeros((3, 4)))
    attention = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0]])
    wanted = [[0.0] * 4, [1.0] * 4, [2.0] * 4]

    def found(**named):
        return padding_of(batch(**named), base)

    assert found(attention_mask=attention).array().tolist() == wanted
    assert found(prompt_lengths=np.array([5, 4, 3])).array().tolist() == wanted
    assert found(mask=np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])).array().tolist() == wanted
    assert found(mask=np.ones((3, 4))) is None


def repeated(noise, chance):
    """Return d of shape [rows, time], its tokens and groups: a value per prefix, and noise of each token."""
    tokens = chance.integers(0, 3, (60, 5))
    group = np.arange(60) // 10
    shift = np.zeros((60, 5))
    for row in range(60):
        for at in range(5):
            shift[row, at] = np.random.default_rng([group[row], at, *tokens[row, : at + 1]]).normal()
    return shift + noise * chance.normal(size=shift.shape), tokens, group


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 0.0, 1e-12), (30.0, 0.7, 1.3)])
def test_equal_tokens_differ_by_noise_alone(noise, low, high):
    d, tokens, group = repeated(noise, np.random.default_rng(2))
    share = repeat_share(tensor(d), tensor(np.zeros_like(d)), tensor(tokens), tensor(group))
    assert low <= share <= high


def test_prefixes_of_other_prompts_are_no_repeats():
    tokens = np.arange(40).reshape(40, 1)
    group = np.arange(40)[::-1]
    zeros = np.zeros((40, 1))
    assert (
        repeat_share(
            tensor(np.random.default_rng(0).normal(size=(40, 1))), tensor(zeros), tensor(tokens), tensor(group)
        )
        is None
    )


def epochs_of(change, rows=40, time=12, epochs=4):
    """Return cells, new and old log-probs of epochs over the same shuffled samples."""
    chance = np.random.default_rng(3)
    old = -chance.exponential(size=(rows, time))
    order = [chance.permutation(rows) for _ in range(epochs)]
    new = np.concatenate([(old + change(epoch, chance, old.shape))[order[epoch]] for epoch in range(epochs)])
    cells = Cells(
        epochs=np.repeat(np.arange(epochs), rows),
        minibatches=np.tile(np.arange(rows) // (rows // 2), epochs),
    )
    return cells, new, np.concatenate([old[o] for o in order])


def test_learning_moves_on_and_noise_moves_to_and_fro():
    direction = np.random.default_rng(9).normal(size=(40, 12))
    cells, new, old = epochs_of(lambda epoch, _c, _s: 0.1 * epoch * direction)
    assert change_correlation(tensor(new), tensor(old), cells) == pytest.approx(1)
    cells, new, old = epochs_of(lambda _e, chance, shape: chance.normal(size=shape))
    assert change_correlation(tensor(new), tensor(old), cells) == pytest.approx(-0.5, abs=0.1)
    assert (
        change_correlation(
            tensor(new[:80]), tensor(old[:80]), Cells(epochs=cells.epochs[:80], minibatches=cells.minibatches[:80])
        )
        is None
    )


def test_old_log_probs_drift_only_when_they_change():
    cells, _, old = epochs_of(lambda *_: 0)

    def drift(values, rows=slice(None)):
        part = Cells(epochs=cells.epochs[rows], minibatches=cells.minibatches[rows])
        return through_epochs([sums_by_cell(None, tensor(values[rows]), part, None)]).get("old_log_prob_drift")

    assert drift(old) == 0
    moved = drift(old + 0.01 * cells.epochs[:, None])
    assert moved == pytest.approx(0.03 / old[:40].std(), rel=1e-6)
    assert drift(old, slice(40)) is None


def test_rows_are_chosen_within_the_mask():
    base = tensor(np.zeros((3, 2)))
    mask = tensor([[1, 0], [1, 1], [0, 0]], np.bool_)
    rows = np.array([True, True, False])
    assert chosen(base, rows, mask).array().tolist() == [[True, False], [True, True], [False, False]]
    assert chosen(base, np.array([False, False, True]), mask) is None


def plain_estimates(rewards, values, lengths, gamma, decay):
    found = np.zeros_like(rewards)
    for row, length in enumerate(lengths):
        for start in range(length):
            total = 0.0
            for at in range(start, length):
                following = values[row, at + 1] if at + 1 < length else 0.0
                total += (gamma * decay) ** (at - start) * (rewards[row, at] + gamma * following - values[row, at])
            found[row, start] = total
    return found


@pytest.mark.parametrize(("gamma", "decay"), [(1.0, 0.95), (0.9, 0.9), (0.99, 1.0)])
def test_estimates_are_those_of_the_definition(gamma, decay):
    chance = np.random.default_rng(4)
    rewards, values = chance.normal(size=(20, 7)), chance.normal(size=(20, 7))
    lengths = chance.integers(1, 8, 20)
    keep = np.arange(7) < lengths[:, None]
    ours = estimated(np.where(keep, rewards, 0), np.where(keep, values, 0), keep, gamma, decay)
    np.testing.assert_allclose(ours, plain_estimates(rewards, values, lengths, gamma, decay), rtol=1e-9, atol=1e-12)


def grouped(change=None, size=6, groups=8):
    chance = np.random.default_rng(5)
    rewards = chance.normal(size=(groups, size)) + chance.normal(size=(groups, 1))
    used = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4)
    flat = used.ravel() if change is None else change(used, rewards, chance)
    named = {
        "advantages": np.repeat(flat.reshape(-1, 1), 3, axis=1),
        "rewards": rewards.ravel(),
        "group": np.repeat(np.arange(groups), size),
    }
    return recomputed_advantages(batch(**named), None, (None, None))


def test_group_advantages_are_recomputed_up_to_scale():
    for change in (
        None,
        lambda used, _r, _c: 3 * used.ravel() + 1,
        lambda _u, r, _c: (r - r.mean(1, keepdims=True)).ravel(),
    ):
        found = grouped(change)
        assert found.correlation == pytest.approx(1)
        assert found.group_mean < 1e-9
    assert grouped(lambda used, _r, _c: -used.ravel()).correlation == pytest.approx(-1)


def test_advantages_in_another_order_are_the_same_set():
    found = grouped(lambda used, _r, chance: chance.permutation(used.ravel()))
    assert abs(found.correlation) < 0.6
    assert found.reordered < 1e-6
    assert found.group_mean > 0.1


def test_advantages_of_other_groups_are_found_out():
    def strided(_used, rewards, _chance):
        mixed = rewards.ravel().reshape(6, 8).T
        centred = (mixed - mixed.mean(axis=1, keepdims=True)) / (mixed.std(axis=1, ddof=1, keepdims=True) + 1e-4)
        return centred.T.ravel()

    found = grouped(strided)
    assert found.other_groups == pytest.approx(1)
    assert found.correlation < 0.99


def test_zero_advantages_beside_rewards_that_differ_are_told():
    found = grouped(lambda used, _r, _c: 0 * used.ravel())
    assert math.isnan(found.correlation)
    assert found.std > 0


def test_parts_of_groups_are_not_recomputed():
    named = {"advantages": np.ones((20, 2)), "rewards": np.arange(20.0), "group": np.arange(20) // 3}
    assert recomputed_advantages(batch(**named), None, (None, None)) is None


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 0.0, 1e-9), (1.0, 0.5, 1.5)])
def test_few_repeats_in_the_first_minibatch_leave_them_to_those_of_the_first_epoch(noise, low, high):
    chance = np.random.default_rng(5)
    minibatch = np.repeat([0, 1, 2], [12, 40, 40])
    group = np.where(minibatch == 0, np.arange(92), 100 + np.arange(92) % 4)  # prompts of the first come but once
    tokens = chance.integers(0, 2, (92, 5))
    prefix = np.cumsum(tokens * 2 ** np.arange(5), axis=1)
    moved = 0.3 * minibatch[:, None] * np.cos(prefix)  # by the steps between the minibatches
    d = np.sin(prefix + group[:, None] + 7 * np.arange(5)) + moved + noise * chance.normal(size=prefix.shape)
    old = np.zeros(d.shape)
    held = batch(log_prob=d, old_log_prob=old, tokens=tokens, group=group)
    cells = Cells(epochs=np.zeros(92, np.int64), minibatches=minibatch)
    found = passes_metrics(held, cells, None, single_update=False)
    assert low <= found["passes_repeat_share"] <= high
