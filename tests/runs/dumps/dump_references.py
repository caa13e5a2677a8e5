"""Plain references for every metric that is made of whole dumps and checkpoints."""

# ruff: noqa: ARG005 - references of one table take the same columns, whether they need them or not

from __future__ import annotations

import math

import numpy as np

from ppo_doctor.runs.dumps.passes import MOVED
from tests.runs.dumps.references import (
    LONG,
    PASSES,
    RATIO,
    correlation,
    deviations,
    k3,
    mean,
    quantile,
    share,
    slope,
    std,
)

# Whole dumps: each metric that is made of tensors alone

TIME, GROUPS, SIZE, EPOCHS = 5, 8, 6, 3
SAMPLES = GROUPS * SIZE


def dump(seed, scale, extreme):
    """Return arrays of one update: every sample once in each epoch, in three minibatches, groups of six rows."""
    chance = np.random.default_rng(seed)
    sampled = -chance.exponential(size=(SAMPLES, TIME)) * (1e3 if extreme else 1)
    old = sampled + scale * chance.normal(size=sampled.shape)
    rewards = chance.normal(size=SAMPLES).astype(np.float32).astype(np.float64)
    group = np.arange(SAMPLES) // SIZE
    centred = rewards - rewards.reshape(GROUPS, SIZE).mean(axis=1)[group]
    scaled = centred / rewards.reshape(GROUPS, SIZE).std(axis=1, ddof=1)[group]
    mask = chance.random((SAMPLES, TIME)) < 0.9
    mask[:, 0] = True
    step = chance.normal(size=sampled.shape) * 0.01
    order = np.concatenate([chance.permutation(SAMPLES) for _ in range(EPOCHS)])
    epoch, minibatch = np.repeat(np.arange(EPOCHS), SAMPLES), np.tile(np.arange(SAMPLES) // (SAMPLES // 3), EPOCHS)
    done = epoch * 3 + minibatch
    new = old[order] + (step[order] + 0.003 * chance.normal(size=(len(order), TIME))) * done[:, None]
    new[done == 0] += scale * 0.1 * chance.normal(size=new[done == 0].shape)
    return {
        "log_probs": new,
        "old_log_probs": old[order] + 1e-3 * epoch[:, None],
        "rollout_log_probs": sampled[order],
        "advantages": scaled[order] + 1e-3 * seed,
        "rewards": rewards[order],
        "group_ids": group[order],
        "response_mask": mask[order],
        "responses": chance.integers(0, 2, (SAMPLES, TIME))[order],
        "kept_mass": 1 - chance.random((len(order), TIME)) * 0.3,
        "policy_version": np.full(len(order), 3),
        "current_version": np.full(len(order), 5),
        "epoch": epoch,
        "minibatch": minibatch,
    }


def inside(h, rows=slice(None)):
    """Return new and old log-probs of the tokens in the loss."""
    keep = h["response_mask"][rows]
    return h["log_probs"][rows][keep], h["old_log_probs"][rows][keep]


def first_pass(h):
    """Return log-probs before any step, padding, places and tokens of the pair that differs more."""
    start = (h["epoch"] == 0) & (h["minibatch"] == 0)
    pairs = [
        (h["log_probs"], h["old_log_probs"], start),
        (h["old_log_probs"], h["rollout_log_probs"], h["epoch"] == 0),
    ]

    def of(one, other, at):
        keep = h["response_mask"] & at[:, None]
        padding = (TIME - h["response_mask"].sum(axis=1))[:, None] + np.zeros((1, TIME))
        place = np.arange(TIME) + np.zeros((len(keep), 1))
        return one[keep], other[keep], padding[keep], place[keep], std(one[keep] - other[keep]), (one, other, at)

    return of(*pairs[0]), of(*pairs[1])


def worse(h):
    return max(first_pass(h), key=lambda found: found[4])


def of_passes(name):
    def reference(h):
        x, y, padding, _, _, _ = worse(h)
        return PASSES[name](x, y, padding)

    return reference


def one_sided(h):
    x, y = worse(h)[:2]
    above, below = share(x - y > MOVED), share(x - y < -MOVED)
    return (abs(above - below) / (above + below) if above + below > 0 else math.nan), 0


def over_rounding(h):
    x, y, padding = worse(h)[:3]
    return std(x - y) / PASSES["rounding"](x, y, padding)[0], 0


def excess(h):
    x, y = worse(h)[:2]
    (one, scale), (other, back) = slope(x, y), slope(y, x)
    return max(one, other) - 1, max(scale, back) + 1


def repeat_share(h):
    """Return the variance within equal prefixes by a dict of prefixes."""
    one, other, at = worse(h)[5]
    held = {}
    for row in range(len(one)):
        for place in range(TIME):
            if h["response_mask"][row, place] and at[row]:
                prefix = (h["group_ids"][row], *h["responses"][row, : place + 1])
                held.setdefault(prefix, []).append(one[row, place] - other[row, place])
    repeated = [values for values in held.values() if len(values) > 1]
    count = sum(map(len, repeated))
    if count < 16:
        return None, 0
    whole = std(np.concatenate(repeated)) ** 2
    if whole == 0:
        return None, 0
    inner = sum(((LONG(values) - mean(values)) ** 2).sum() for values in repeated)
    return inner / (count - len(repeated)) / whole, 0


def departure(rows):
    def reference(h):
        new, old = inside(h, rows(h))
        r = np.exp(new - old)
        return max(r.max() - 1, 1 - r.min()), 1e-2 * (1 + r.max())

    return reference


def drift(h):
    means = [(mean(old), std(old)) for old in (inside(h, h["epoch"] == e)[1] for e in range(EPOCHS))]
    return max(abs(m - means[0][0]) for m, _ in means[1:]) / means[0][1], abs(means[0][0] / means[0][1]) * 10


def change_corr(h):
    """Return the correlation of successive changes, sample by sample through the epochs."""
    new, keep = h["log_probs"], h["response_mask"]
    place = [{h["sample"][row]: row for row in np.flatnonzero(h["epoch"] == e)} for e in range(EPOCHS)]
    pairs = [
        (new[place[1][s]][keep[row]] - new[row][keep[row]], new[place[2][s]][keep[row]] - new[place[1][s]][keep[row]])
        for s, row in place[0].items()
    ]
    one, other = (LONG(np.concatenate(part)) for part in zip(*pairs, strict=True))
    if len(one) < 200:
        return None, 0
    return (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()), 1


def shift_gain(h):
    new, old, keep = (h[name].reshape(-1) for name in ("log_probs", "old_log_probs", "response_mask"))

    def at(k):
        size = len(new) - abs(k)
        a, b = max(0, -k), max(0, k)
        both = keep[a : a + size] & keep[b : b + size]
        return correlation(new[a : a + size][both], old[b : b + size][both]) if both.sum() >= 200 else None

    others = [found for size in (1, 2, 3, 4) for k in (size, -size) if (found := at(k)) is not None]
    here = at(0)
    return (None, 0) if here is None or not others else (max(others) - here, 1)


def cell_kl(h):
    return [
        mean(k3(np.subtract(*inside(h, (h["epoch"] == e) & (h["minibatch"] == m)))))
        for e in range(EPOCHS)
        for m in range(3)
    ]


def kl_share(h):
    first, last = (mean(k3(np.subtract(*inside(h, h["epoch"] == e)))) for e in (0, EPOCHS - 1))
    return first / last, 0


def kl_corr(h):
    return correlation(np.sqrt(np.array(cell_kl(h))), np.arange(EPOCHS * 3)), 1


def whole_groups(h):
    """Return advantages, rewards, groups of the first epoch."""
    rows = h["epoch"] == 0
    return h["advantages"][rows], h["rewards"][rows], h["group_ids"][rows]


def by_group(values, group):
    return [LONG(values[group == g]) for g in range(GROUPS)]


def recomputed(rewards, group, scaled):
    found = np.zeros(len(rewards), LONG)
    for g in np.unique(group):
        own = LONG(rewards[group == g]) - mean(rewards[group == g])
        spread = np.sqrt((own**2).sum() / (len(own) - 1)) + LONG(1e-4) if scaled else LONG(1)
        found[group == g] = own / spread
    return found


def variants(rewards, group):
    return [recomputed(rewards, group, False), recomputed(rewards, group, True), LONG(rewards)]


def recomputed_corr(h):
    a, r, g = whole_groups(h)
    return max((correlation(a, v) for v in variants(r, g)), key=abs), 1


def reordered(h):
    a, r, g = whole_groups(h)
    gaps = []
    for v in variants(r, g):
        ranked = [np.sort((LONG(x) - mean(x)) / std(x)) for x in (a, v)]
        gaps.append(abs(ranked[0] - ranked[1]).max())
    return min(gaps), 10


def other_groups(h):
    a, r, g = whole_groups(h)
    rows = np.arange(len(a))
    others = [other for other in (rows // SIZE, rows % GROUPS) if len({*zip(other, g, strict=True)}) > GROUPS]
    found = [max((correlation(a, v) for v in variants(r, other)), key=abs) for other in others]
    return (max(found) if found else None), 1


def group_mean(h):
    a, _, g = whole_groups(h)
    return max(abs(mean(own) - mean(a)) for own in by_group(a, g)) / std(a), 10


def group_bound(h):
    a, _, g = whole_groups(h)
    spreads = [np.sqrt(((own - mean(own)) ** 2).sum() / (SIZE - 1)) for own in by_group(a, g)]
    return abs(a).max() / (np.median(np.array(spreads, LONG)) * (SIZE - 1) / np.sqrt(LONG(SIZE))), 0


def odd_group(h):
    a, _, g = whole_groups(h)
    off = np.array([abs(mean(own)) / std(a) for own in by_group(a, g)])
    return (off.max() if np.quantile(off, 0.6) < 5e-3 else None), 10


def of_ratio(name):
    def reference(h):
        new, old = inside(h)
        advantages = (h["advantages"][:, None] + np.zeros((1, TIME)))[h["response_mask"]]
        return RATIO[name](new, old, advantages)

    return reference


def follow(h):
    corr, _ = of_ratio("advantage_corr")(h)
    return corr * np.sqrt(LONG(h["response_mask"].sum())), 100


def of_quantile(q):
    return lambda h: (np.exp(quantile(np.subtract(*inside(h)), q)), 1e3)


def errors(h):
    r = np.exp(np.subtract(*inside(h)))
    return deviations(r), 1e3 * math.sqrt(r.size) / std(r)


OF_DUMPS = {
    "ratio_one_share": of_ratio("one_share"),
    "ratio_mean_errors": errors,
    "ratio_distinct": of_ratio("distinct"),
    "ratio_p01": of_quantile(0.01),
    "ratio_median": of_quantile(0.5),
    "ratio_p99": of_quantile(0.99),
    "log_probs_nonfinite": lambda h: (0, 0),
    "log_prob_shift_gain": shift_gain,
    "start_logratio_std": lambda h: (first_pass(h)[0][4], 0),
    "sampler_logratio_std": lambda h: (first_pass(h)[1][4], 0),
    "passes_logratio_std": lambda h: (worse(h)[4], 0),
    "passes_over_rounding": over_rounding,
    "passes_correlation": of_passes("correlation"),
    "passes_slope_excess": excess,
    "passes_moved_share": lambda h: (share(abs(np.subtract(*worse(h)[:2])) > MOVED), 0),
    "passes_one_sided": one_sided,
    "passes_asymmetry": lambda h: (abs(2 * of_passes("rising")(h)[0] - 1), 0),
    "passes_padding_corr": of_passes("padding"),
    "passes_least_padded": of_passes("least_padded"),
    "passes_position_corr": lambda h: (correlation(abs(np.subtract(*worse(h)[:2])), worse(h)[3]), 1),
    "passes_repeat_share": repeat_share,
    "kept_mass_mean": lambda h: (mean(h["kept_mass"][h["response_mask"]]), 0),
    "old_log_prob_drift": drift,
    "kl_first_epoch_share": kl_share,
    "kl_step_corr": kl_corr,
    "epoch_change_corr": change_corr,
    "within_epoch_ratio_dev": departure(lambda h: h["minibatch"] > 0),
    "surrogate_gain": of_ratio("gain"),
    "advantage_follow": follow,
}
OF_FIELD = {
    "correlation": ("advantages_recomputed_corr", recomputed_corr),
    "reordered": ("advantages_reordered_gap", reordered),
    "std": ("advantages_recomputed_std", lambda h: (std(recomputed(*whole_groups(h)[1:], False)), 0)),
    "other_groups": ("advantages_other_groups_corr", other_groups),
    "group_mean": ("advantages_group_mean", group_mean),
    "group_bound": ("advantages_group_bound", group_bound),
    "odd_group": ("advantages_odd_group", odd_group),
}
OF_DUMPS |= dict(OF_FIELD.values())
#: Logged metrics that dumps hold as well.
LOGGED = {
    "approx_kl": of_ratio("k3"),
    "approx_kl_k1": of_ratio("k1"),
    "approx_kl_k2": of_ratio("k2"),
    "effective_sample_size": of_ratio("ess"),
    "clip_fraction_low": of_ratio("clipped_low"),
    "clip_fraction_high": of_ratio("clipped_high"),
    "clip_fraction_negative": of_ratio("effective_low"),
    "clip_fraction_positive": of_ratio("effective_high"),
    "clip_fraction_dual": of_ratio("dual"),
    "logratio_advantage_corr": of_ratio("advantage_corr"),
    "epoch_start_ratio_dev": departure(lambda h: (h["minibatch"] == 0) & (h["epoch"] > 0)),
    "policy_lag": lambda h: (2, 0),
    "tokens_in_loss": lambda h: (h["response_mask"].sum(), 0),
}
#: Of checkpoints: whole shares of the tensors below, told in `test_metrics_of_checkpoints_agree`.
OF_CHECKPOINTS = {
    "old_policy_changed": 3 / 8,
    "reference_changed": 1.0,
    "snapshot_changed": 0.5,
    "weights_nonfinite": 2.0,
    "adapters_zero": 0.5,
    "optimizer_state_share": 0.5,
    "optimizer_moving": 0.5,
    "optimizer_state_fitting": 0.5,
    "swallowed_fraction": 0.75,
}
#: Held against a log, by `test_tensor_runs`, and against an earlier dump, by `test_sampler`.
OF_LOGS = {"log_dump_gap", "sampler_moved"}
