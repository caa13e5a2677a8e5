"""Metrics of a dump of samples: the way from the arrays of a file to a record of canonical metrics.

A dump is read in four steps: `contents.with_roles` says what each array is (its role), `batches.updates_of` divides a
file that holds several updates, `measure` computes the metrics of one update or a part of it, and `with_update_metrics`
adds those that need all files of an update, or two updates. r is exp(log_prob - old_log_prob), d its logarithm, A the
advantages; all are taken over the samples where the mask is not 0. Arrays
are streamed and sums kept in float64; (head) marks metrics that are computed from the first rows only.

| arrays (roles) | metrics | formula | function |
|---|---|---|---|
| log_prob, old_log_prob | ratio_mean, _std, _min, _max | moments of r | ratio_statistics |
| | ratio_p01, ratio_median, ratio_p99 | quantiles of r | ratio_statistics |
| | approx_kl_k1, approx_kl_k2, approx_kl | mean of -d, d^2/2, r - 1 - d | ratio_statistics |
| | effective_sample_size | (sum r)^2 / (n sum r^2) | ratio_statistics |
| | ratio_one_share, ratio_distinct | share of r = 1, count of different r | ratio_statistics |
| | ratio_mean_errors | abs(mean(r) - 1) in standard errors | ratio_statistics |
| | log_probs_nonfinite, tokens_in_loss | counts | ratio_statistics |
| with clip_range | clip_fraction, _low, _high | share of r outside of the range | ratio_statistics |
| with advantages | clip_fraction_negative, _positive, _dual | the same, where A < 0, A > 0 | ratio_statistics |
| | logratio_advantage_corr, advantage_follow | corr(d, A), times sqrt(n) | ratio_statistics |
| | surrogate_gain | mean(r A) - mean(A) | ratio_statistics |
| log_prob, old_log_prob (head) | log_prob_shift_gain | correlation at another offset | shift_gain |
| with epoch, minibatch | epoch_start_ratio_dev, within_epoch_ratio_dev | max abs(r - 1) | sums_by_cell |
| | kl_first_epoch_share, kl_step_corr | mean r - 1 - d by minibatch | through_epochs |
| | old_log_prob_drift | mean old log-prob by epoch | through_epochs |
| | epoch_change_corr (head) | correlation of successive changes | change_correlation |
| | start_logratio_std | std of d before any optimizer step | passes_metrics |
| rollout_log_prob, old_log_prob | rollout_kl, rollout_ratio_* | as above | ratio_statistics |
| | sampler_logratio_std | std of old less rollout | passes_metrics |
| the worse of these two pairs | passes_* | how both passes differ | compare_passes |
| with tokens, group | passes_repeat_share (head) | variance within equal prefixes | repeat_share |
| with tokens, prompts | sampler_moved (head) | RMS change since the first update | rms_change |
| ref_log_prob, log_prob | ref_kl | mean of r - 1 - d | ratio_statistics |
| advantages, returns, values, rewards | *_mean, _std, _min, _max | moments | describe |
| with group, or with values | advantages_* (head) | stored against recomputed | recomputed_advantages |
| version, trained_version | policy_lag | difference of versions | _policy_lag |
| kept_mass | kept_mass_mean | mean | describe |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.tensors.tensor import same_memory
from ppo_doctor.runs.dumps.batches import batch_of, cells_of, sums_by_cell, through_epochs
from ppo_doctor.runs.dumps.passes import passes_metrics
from ppo_doctor.runs.dumps.recompute import recomputed_advantages
from ppo_doctor.runs.dumps.same_tokens import (
    change_correlation,
    joined_updates,
    rms_change,
    sampler_log_probs,
    shift_gain,
)
from ppo_doctor.runs.dumps.statistics import RatioStatistics, describe, ratio_statistics

if TYPE_CHECKING:
    from ppo_doctor.readers.tensors.tensor import Archive, Tensor
    from ppo_doctor.runs.dumps.batches import Batch, Cell, Cells, CellSums
    from ppo_doctor.runs.dumps.same_tokens import SamplerLogProbs

#: A file with a tensor of one of these roles is a dump of samples; others are checkpoints.
SAMPLE_ROLES = frozenset({"log_prob", "old_log_prob", "rollout_log_prob", "advantages", "advantages_raw"})
#: Metrics that samples from before any optimizer step determine; the others describe a ratio that is 1 there anyway.
_AT_START = frozenset(
    {"old_policy_shared", "log_probs_nonfinite", "tokens_in_loss", "policy_loss", "log_prob_shift_gain"}
)
#: Role → the prefix of metrics computed from it, and their suffixes.
_MOMENTS = {
    "advantages": ("advantages", "mean std min max abs_max"),
    "advantages_raw": ("advantages_raw", "std"),
    "returns": ("returns", "mean std min max"),
    "values": ("values", "mean min max"),
    "rewards": ("reward", "mean std min max"),
}
#: Prefix of a metric's name → the roles that it is computed from; the first match counts, else it is the ratio's.
_ORIGINS = {
    "advantages_recomputed": ("advantages", "rewards", "token_rewards", "values", "group"),
    "advantages_reordered": ("advantages", "rewards", "token_rewards", "values", "group"),
    "advantages_other_groups": ("advantages", "rewards", "group"),
    "advantages_group": ("advantages", "group"),
    "advantages": ("advantages", "advantages_raw"),
    "passes": ("log_prob", "old_log_prob", "rollout_log_prob"),
    "sampler": ("old_log_prob", "rollout_log_prob"),
    "kept_mass": ("kept_mass",),
    "policy_lag": ("version", "trained_version"),
    "returns": ("returns",),
    "values": ("values",),
    "reward": ("rewards",),
    "rollout": ("rollout_log_prob", "old_log_prob"),
    "ref_kl": ("ref_log_prob", "log_prob"),
    "": ("log_prob", "old_log_prob"),
}
#: A number on its own, or after a word that counts: dump_12, step12, but not bf16 or fp32.
_COUNTED = re.compile(
    r"(?:(?<![A-Za-z0-9.])|(?<=step)|(?<=update)|(?<=iter)|(?<=epoch)|(?<=dump)|(?<=ckpt))(\d+)", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the configuration says: the clip range as (below, above), gamma and lambda, one step per batch."""

    clip: tuple[float, float] | None = None
    dual_clip: float | None = None
    gamma: float | None = None
    gae_lambda: float | None = None
    single_update: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Canonical metrics of one record: a dump, or a pair of checkpoints; `step` is None if it is unknown.

    `raw` says for each metric from which tensors it was computed. Metrics that cannot be computed are left out. `epoch`
    and `minibatch` are those of a dump that holds only one. `sums` are the sums of each minibatch of an epoch, and
    `sampler` the sampler's log-probs; `with_update_metrics` combines both over files.
    """

    path: str
    container: str
    step: int | None
    values: Mapping[str, float]
    raw: Mapping[str, str]
    notes: tuple[Note, ...] = ()
    epoch: int | None = None
    minibatch: int | None = None
    sums: Mapping[Cell, CellSums] = field(default_factory=dict)
    sampler: SamplerLogProbs | None = None


def is_dump(archive: Archive) -> bool:
    """Return whether a file holds samples, by the roles of its tensors."""
    return any(archive.roles[name] in SAMPLE_ROLES for name in archive.tensors)


def measure(archive: Archive, known: Known | None = None) -> Measured:
    """Return the metrics of a dump of samples; its shares are over samples in the loss.

    Raises:
        DoctorError: its data cannot be read.
    """
    known = known or Known()
    batch = batch_of(archive)
    mask = batch.get("mask", "sample_mask")
    numbers = _whole_numbers(archive)
    base = batch.get("log_prob", "old_log_prob")
    cells = cells_of(batch, base.shape[0] if base is not None and base.shape else 1, numbers)
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    sums = {} if cells is None else sums_by_cell(new, old, cells, mask)
    found = _ratio(batch, cells, mask, known, sums)
    found |= passes_metrics(batch, cells, mask, single_update=known.single_update)
    found |= _sampler(batch, mask) | _reference(batch, mask) | _moments(batch, mask)
    found |= _policy_lag(batch, numbers) | _advantages(batch, cells, known)
    values = {name: value for name, value in found.items() if not math.isnan(value) or name == "policy_loss"}
    notes = [*archive.notes, *batch.notes]
    if not values:
        notes.append(Note(text="nothing in this dump can be computed", source=SourceRef(path=archive.path)))
    single = cells is not None and len(cells.epochs) == len(cells.minibatches) == 1
    return Measured(
        path=archive.path,
        container=archive.container,
        step=_step(archive),
        values=values,
        raw={name: _origin(batch, name) for name in values},
        notes=tuple(notes),
        epoch=int(cells.epochs[0]) if cells and single else None,
        minibatch=int(cells.minibatches[0]) if cells and single else None,
        sums=sums,
        sampler=sampler_log_probs(batch, cells, mask),
    )


def with_update_metrics(records: Sequence[Measured]) -> list[Measured]:
    """Return the records, with what all files of an update show together added to its last record.

    An update is the records of one step; a record without a step is an update of its own. A sampler that receives new
    weights gives other log-probs to the same tokens in a later update than in the first one.
    """
    updates: dict[object, list[int]] = {}
    for at, record in enumerate(records):
        updates.setdefault(at if record.step is None else record.step, []).append(at)
    result = list(records)
    first: SamplerLogProbs | None = None
    for places in updates.values():
        found = through_epochs(records[at].sums for at in places)
        samplers = [sampler for at in places if (sampler := records[at].sampler) is not None]
        if samplers:
            now = joined_updates(samplers)
            apart = max(records[at].values.get("passes_logratio_std", 0.0) for at in places)
            moved = rms_change(first, now) / apart if first is not None and apart > 0 else math.nan
            found |= {} if math.isnan(moved) else {"sampler_moved": moved}
            first = first or now
        if found:
            last = result[places[-1]]
            origin = last.raw.get("log_probs_nonfinite", "old log-probs")
            raw = {**last.raw, **dict.fromkeys(found, origin)}
            result[places[-1]] = replace(last, values={**last.values, **found}, raw=raw)
    return result


def _ratio(
    batch: Batch, cells: Cells | None, mask: Tensor | None, known: Known, sums: Mapping[Cell, CellSums]
) -> dict[str, float]:
    new, old, advantages = batch.get("log_prob"), batch.get("old_log_prob"), batch.get("advantages")
    if new is None or old is None:
        return {}
    stats = ratio_statistics(new, old, mask=mask, advantages=advantages, clip=known.clip, dual_clip=known.dual_clip)
    found = _ratio_metrics(stats)
    gain = shift_gain(new, old, mask)
    found |= {} if gain is None else {"log_prob_shift_gain": gain}
    if cells is None:
        return found
    if not cells.first.all() and batch.shows_memory:
        found["old_policy_shared"] = float(same_memory(new, old))
    if cells.starts.all():
        found = {name: value for name, value in found.items() if name in _AT_START}
    change = change_correlation(new, old, cells, mask)
    found |= {} if change is None else {"epoch_change_corr": change}
    return found | _departures(sums)


def _ratio_metrics(stats: RatioStatistics) -> dict[str, float]:
    """Return the metrics of the ratio; without a single finite pair, only the counts."""
    total = stats.samples + stats.nonfinite
    found = {"log_probs_nonfinite": float(stats.nonfinite), "tokens_in_loss": float(total)}
    if stats.nonfinite:
        found["policy_loss"] = math.nan  # whatever its formula: a sum with one such term
    if not stats.samples:
        return found if total else {"tokens_in_loss": 0.0}
    return found | {
        "ratio_mean": stats.ratio.mean,
        "ratio_std": stats.ratio.std,
        "ratio_min": stats.ratio.low,
        "ratio_max": stats.ratio.high,
        "ratio_one_share": stats.one_share,
        "approx_kl": stats.k3,
        "approx_kl_k1": stats.k1,
        "approx_kl_k2": stats.k2,
        "ratio_mean_errors": stats.deviations if math.isfinite(stats.deviations) else math.nan,
        "ratio_distinct": float(stats.distinct),
        "ratio_p01": stats.quantiles[0.01],
        "ratio_median": stats.quantiles[0.5],
        "ratio_p99": stats.quantiles[0.99],
        "effective_sample_size": stats.ess,
        "clip_fraction": stats.clipped_low + stats.clipped_high,
        "clip_fraction_low": stats.clipped_low,
        "clip_fraction_high": stats.clipped_high,
        "clip_fraction_negative": stats.effective_low,
        "clip_fraction_positive": stats.effective_high,
        "clip_fraction_dual": stats.dual,
        "logratio_advantage_corr": stats.advantage_corr,
        "surrogate_gain": stats.gain,
        "advantage_follow": stats.advantage_corr * math.sqrt(stats.samples),
    }


def _departures(sums: Mapping[Cell, CellSums]) -> dict[str, float]:
    """Return the largest |ratio - 1| where later epochs begin, and after the first minibatch of any epoch."""
    sampled = {cell: part for cell, part in sums.items() if part.samples}
    groups = {
        "epoch_start_ratio_dev": [part for (epoch, number), part in sampled.items() if epoch > 0 and number == 0],
        "within_epoch_ratio_dev": [part for (_, number), part in sampled.items() if number > 0],
    }
    return {
        name: max(exp(max(part.high for part in parts)) - 1, 1 - exp(min(part.low for part in parts)))
        for name, parts in groups.items()
        if parts
    }


def exp(value: float) -> float:
    """Return the exponential of a number, infinite where it overflows."""
    return math.exp(value) if value < 709.7 else math.inf


def _sampler(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    """Return how far the sampler's log-probs are from the trainer's at the start of the update."""
    rollout, trainer = batch.get("rollout_log_prob"), batch.get("old_log_prob", "log_prob")
    if rollout is None or trainer is None:
        return {}
    stats = ratio_statistics(trainer, rollout, mask=mask)
    return {
        "rollout_kl": stats.k3,
        "rollout_ratio_mean": stats.ratio.mean,
        "rollout_ratio_min": stats.ratio.low,
        "rollout_ratio_max": stats.ratio.high,
    }


def _reference(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    """Return k3 of KL(policy || reference) on the policy's samples."""
    reference, policy = batch.get("ref_log_prob"), batch.get("log_prob", "old_log_prob")
    if reference is None or policy is None:
        return {}
    return {"ref_kl": ratio_statistics(reference, policy, mask=mask).k3}


def _moments(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for role, (prefix, suffixes) in (_MOMENTS | {"kept_mass": ("kept_mass", "mean")}).items():
        tensor = batch.get(role)
        if tensor is None:
            continue
        summary = describe(tensor, mask if mask is not None and mask.size == tensor.size else None)
        if summary.count:
            moments = {"mean": summary.mean, "std": summary.std, "min": summary.low, "max": summary.high}
            moments["abs_max"] = max(abs(summary.low), abs(summary.high))
            found |= {f"{prefix}_{suffix}": moments[suffix] for suffix in suffixes.split()}
    return found


def _policy_lag(batch: Batch, numbers: Mapping[str, int]) -> dict[str, float]:
    """Return the mean number of versions between the policy that sampled and the one that is trained."""
    sampled, trained = batch.get("version"), batch.get("trained_version")
    now = numbers.get("trained_version") if trained is None else describe(trained).high
    then = numbers.get("version") if sampled is None else describe(sampled).mean
    return {} if now is None or then is None else {"policy_lag": float(now) - float(then)}


def _advantages(batch: Batch, cells: Cells | None, known: Known) -> dict[str, float]:
    """Return how stored advantages agree with those recomputed from rewards.

    They are compared by group only if the dump holds whole passes over the samples; a minibatch holds parts of groups.
    """
    whole = cells is None or len(cells.epochs) > 1
    rows = cells.first_epoch if cells is not None and len(cells.epochs) > 1 else None
    found = recomputed_advantages(batch, rows, (known.gamma, known.gae_lambda), grouped=whole)
    if found is None:
        return {}
    return {
        "advantages_recomputed_corr": found.correlation,
        "advantages_recomputed_std": found.std,
        "advantages_reordered_gap": found.reordered,
        "advantages_other_groups_corr": found.other_groups,
        "advantages_group_mean": found.group_mean,
        "advantages_group_bound": found.group_bound,
        "advantages_odd_group": found.odd_group,
    }


def _whole_numbers(archive: Archive) -> dict[str, int]:
    """Return the single whole numbers of a dump by their role: epoch, minibatch, versions."""
    return {
        role: int(number)
        for name, value in archive.scalars.items()
        if (role := archive.roles[name]) and (number := _number(value)) is not None and number == int(number)
    }


def _number(value: object) -> float | None:
    """Return a setting as a finite number, or None; safetensors hold theirs as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _origin(batch: Batch, metric: str) -> str:
    """Return the names of the tensors that a metric was computed from."""
    roles = next(roles for prefix, roles in _ORIGINS.items() if metric.startswith(prefix))
    return ", ".join(batch.names[role] for role in roles if role in batch.names) or metric


def _step(archive: Archive) -> int | None:
    """Return the step of a dump: the number in it, else the one in its file's name."""
    for name, value in archive.scalars.items():
        if archive.roles[name] in ("step", "update"):
            number = _number(value)
            return None if number is None else int(number)
    return number_in(archive.path)


def number_in(path: str) -> int | None:
    """Return the last number in a file's name that counts something, else in its folder's name, else None."""
    file = Path(path)
    numbers = _COUNTED.findall(file.stem) or _COUNTED.findall(file.parent.name)
    return int(numbers[-1][:15]) if numbers else None
