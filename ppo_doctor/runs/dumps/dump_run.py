"""Compute canonical metrics from a dump of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.tensors.tensor import same_memory
from ppo_doctor.runs.dumps.batches import Batch, Cells, batch_of, cells_of, chosen, drift, per_epoch
from ppo_doctor.runs.dumps.moments import Summary, describe, pooled
from ppo_doctor.runs.dumps.passes import of_kept_mass, of_passes, of_versions
from ppo_doctor.runs.dumps.recompute import recomputed_advantages
from ppo_doctor.runs.dumps.same_tokens import (
    SamplerLogProbs,
    change_correlation,
    joined_updates,
    rms_change,
    sampler_log_probs,
    shift_gain,
)
from ppo_doctor.runs.dumps.statistics import (
    Cell,
    Kl,
    Measured,
    RatioStatistics,
    growth,
    joined,
    kl_by_cell,
    number_in,
    ratio_statistics,
)

if TYPE_CHECKING:
    from ppo_doctor.readers.tensors.tensor import Archive, Tensor

#: Roles of which one makes a file a dump of samples rather than a checkpoint.
TELLING = frozenset({"log_prob", "old_log_prob", "rollout_log_prob", "advantages", "advantages_raw"})


def is_dump(archive: Archive) -> bool:
    """Tell whether a file holds samples, by what its tensors are."""
    return any(archive.roles[name] in TELLING for name in archive.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the configuration tells: the clip range as (below, above), gamma and lambda, one step per batch."""

    clip: tuple[float, float] | None = None
    dual_clip: float | None = None
    gamma: float | None = None
    gae_lambda: float | None = None
    single_update: bool = False


def measure(archive: Archive, known: Known | None = None) -> Measured:
    """Return what a dump of samples says; its shares are over samples in the loss.

    Raises:
        DoctorError: its data cannot be read.
    """
    known = known or Known()
    batch = batch_of(archive)
    mask = batch.get("mask", "sample_mask")
    counted = _counted(archive)
    cells = _cells(batch, counted)
    found = _of_update(batch, cells, mask, known)
    found |= of_passes(batch, cells, mask, single_update=known.single_update)
    found |= _of_sampler(batch, mask) | _of_reference(batch, mask) | _of_signal(batch, mask)
    found |= of_versions(batch, counted) | of_kept_mass(batch, mask) | _of_advantages(batch, cells, known)
    kept = {name: value for name, value in found.items() if not math.isnan(value) or name == "policy_loss"}
    notes = [*archive.notes, *batch.notes]
    if not kept:
        notes.append(Note(text="nothing in this dump can be computed", source=SourceRef(path=archive.path)))
    single = cells is not None and len(cells.epochs) == len(cells.minibatches) == 1
    return Measured(
        path=archive.path,
        container=archive.container,
        step=_step(archive),
        values=kept,
        raw={name: _origin(batch, name) for name in kept},
        notes=tuple(notes),
        epoch=int(cells.epochs[0]) if cells and single else None,
        minibatch=int(cells.minibatches[0]) if cells and single else None,
        cells=None if cells is None else cells.count,
        old=_old_by_epoch(batch, cells, mask),
        kls=_kl_by_cell(batch, cells, mask),
        sampler=sampler_log_probs(batch, cells, mask),
    )


def with_epochs(records: Sequence[Measured]) -> list[Measured]:
    """Return the records of dumps, each update's last one with what its epochs say together.

    The old log-probs of an update are those of its samples at sampling: an epoch holds the same ones as the first. Its
    KL grows from minibatch to minibatch. A sampler that gets the weights of the updates says other things of the same
    tokens in a later one.
    """
    updates: dict[object, list[int]] = {}
    for at, record in enumerate(records):
        updates.setdefault(at if record.step is None else record.step, []).append(at)
    found = list(records)
    first: SamplerLogProbs | None = None
    for places in updates.values():
        epochs: dict[int, list[Summary]] = {}
        for at in places:
            for epoch, summary in records[at].old.items():
                epochs.setdefault(epoch, []).append(summary)
        value = drift([pooled(epochs[epoch]) for epoch in sorted(epochs)])
        told = {} if math.isnan(value) else {"old_log_prob_drift": value}
        told |= growth(joined(records[at].kls for at in places))
        parts = [one for at in places if (one := records[at].sampler) is not None]
        if parts:
            here = joined_updates(parts)
            told |= {} if first is None else _sampler_moved(first, here, [records[at] for at in places])
            first = first or here
        if told:
            last = found[places[-1]]
            raw = {**last.raw, **dict.fromkeys(told, last.raw.get("log_probs_nonfinite", "old log-probs"))}
            found[places[-1]] = replace(last, values={**last.values, **told}, raw=raw)
    return found


def _sampler_moved(first: SamplerLogProbs, here: SamplerLogProbs, records: Sequence[Measured]) -> dict[str, float]:
    """Return how far the sampler moved since the first update, over how far it is from the trainer in this one."""
    apart = max((record.values.get("passes_logratio_std", 0.0) for record in records), default=0.0)
    value = rms_change(first, here) / apart if apart > 0 else math.nan
    return {} if math.isnan(value) else {"sampler_moved": value}


def _kl_by_cell(batch: Batch, cells: Cells | None, mask: Tensor | None) -> dict[Cell, Kl]:
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    return {} if new is None or old is None or cells is None else kl_by_cell(new, old, cells, mask)


def _cells(batch: Batch, counted: dict[str, int]) -> Cells | None:
    base = batch.get("log_prob", "old_log_prob")
    rows = base.shape[0] if base is not None and base.shape else 1
    return cells_of(batch, rows, counted)


def _old_by_epoch(batch: Batch, cells: Cells | None, mask: Tensor | None) -> dict[int, Summary]:
    old = batch.get("old_log_prob")
    return {} if old is None or cells is None else dict(per_epoch(old, cells, mask))


def _of_update(batch: Batch, cells: Cells | None, mask: Tensor | None, known: Known) -> dict[str, float]:
    """Return the metrics of the ratio; not of minibatches alone that come before any step, where it is 1 anyway."""
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    if new is None or old is None:
        return {}
    advantages = batch.get("advantages")
    stats = ratio_statistics(new, old, mask=mask, advantages=advantages, clip=known.clip, dual_clip=known.dual_clip)
    found = _of_ratio(stats)
    gain = shift_gain(new, old, mask)
    found |= {} if gain is None else {"log_prob_shift_gain": gain}
    if cells is None:
        return found
    if not cells.first.all() and batch.shows_memory:
        found["old_policy_shared"] = float(same_memory(new, old))
    if (cells.first | cells.later_starts).all():
        found = {name: value for name, value in found.items() if name in _AT_START}
    change = change_correlation(new, old, cells, mask)
    found |= {} if change is None else {"epoch_change_corr": change}
    return found | _departures(new, old, cells, mask)


def _departures(new: Tensor, old: Tensor, cells: Cells, mask: Tensor | None) -> dict[str, float]:
    """Return the largest |ratio - 1| where later epochs begin, and behind the first minibatch of any epoch."""
    found = {}
    for name, rows in (("epoch_start_ratio_dev", cells.later_starts), ("within_epoch_ratio_dev", cells.within)):
        keep = chosen(new, rows, mask)
        stats = None if keep is None else ratio_statistics(new, old, mask=keep)
        if stats is not None and stats.samples:
            found[name] = max(stats.ratio.high - 1, 1 - stats.ratio.low)
    return found


#: What samples at the start of an epoch say where a dump holds no others: not the ratio, which is 1 before any step.
_AT_START = frozenset(
    {"old_policy_shared", "log_probs_nonfinite", "tokens_in_loss", "policy_loss", "log_prob_shift_gain"}
)


def _of_advantages(batch: Batch, cells: Cells | None, known: Known) -> dict[str, float]:
    """Return how stored advantages agree with those recomputed from what they are made of.

    Groups and whole passes over the samples are needed: a minibatch of its own holds only parts of groups.
    """
    whole = cells is None or len(cells.epochs) > 1
    rows = cells.epochs == cells.epochs.min() if cells is not None and len(cells.epochs) > 1 else None
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


def _counted(archive: Archive) -> dict[str, int]:
    """Return single whole numbers of a dump by their role: epoch, minibatch, versions."""
    return {
        known: int(number)
        for name, value in archive.scalars.items()
        if (known := archive.roles[name]) and (number := _number(value)) is not None and number == int(number)
    }


def _number(value: object) -> float | None:
    """Return a setting as a finite number; safetensors keep theirs as words."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _of_ratio(stats: RatioStatistics) -> dict[str, float]:
    """Return the metrics of the ratio; without a single finite pair only the count of what is not."""
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


def _of_sampler(batch: Batch, mask: Tensor | None) -> dict[str, float]:
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


def _of_reference(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    """Return k3 of KL(policy || reference) on the policy's samples."""
    reference, policy = batch.get("ref_log_prob"), batch.get("log_prob", "old_log_prob")
    if reference is None or policy is None:
        return {}
    return {"ref_kl": ratio_statistics(reference, policy, mask=mask).k3}


def _of_signal(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for known, (stem, ends) in _SIGNALS.items():
        tensor = batch.get(known)
        if tensor is None:
            continue
        usable = mask if mask is not None and mask.size == tensor.size else None
        summary = describe(tensor, usable)
        if summary.count:
            told = {"mean": summary.mean, "std": summary.std, "min": summary.low, "max": summary.high}
            told["abs_max"] = max(abs(summary.low), abs(summary.high))
            found |= {f"{stem}_{end}": told[end] for end in ends.split()}
    return found


#: Role → the beginning of metrics that are taken of it, and their ends.
_SIGNALS = {
    "advantages": ("advantages", "mean std min max abs_max"),
    "advantages_raw": ("advantages_raw", "std"),
    "returns": ("returns", "mean std min max"),
    "values": ("values", "mean min max"),
    "rewards": ("reward", "mean std min max"),
}
#: What a metric is computed of, by the beginning of its name.
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
}


def _origin(batch: Batch, metric: str) -> str:
    start = next((known for known in _ORIGINS if metric.startswith(known)), "")
    roles = _ORIGINS.get(start, ("log_prob", "old_log_prob"))
    return ", ".join(batch.names[known] for known in roles if known in batch.names) or metric


def _step(archive: Archive) -> int | None:
    """Return the step that a dump names: as a number in it, else in its file's name."""
    for name, value in archive.scalars.items():
        if archive.roles[name] in ("step", "update"):
            number = _number(value)
            return None if number is None else int(number)
    return number_in(archive.path)
