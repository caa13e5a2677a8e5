"""From a dump of samples to canonical metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.alignment import shift_gain
from ppo_doctor.tensors.batches import Batch, batch_of
from ppo_doctor.tensors.measured import Measured, number_in
from ppo_doctor.tensors.moments import describe
from ppo_doctor.tensors.naming import role
from ppo_doctor.tensors.statistics import RatioStatistics, ratio_statistics

if TYPE_CHECKING:
    from ppo_doctor.tensors.tensor import Archive, Tensor

#: Roles of which one makes a file a dump of samples rather than a checkpoint.
TELLING = frozenset({"log_prob", "old_log_prob", "rollout_log_prob", "advantages", "advantages_raw"})


def is_dump(archive: Archive, overrides: Mapping[str, str] | None = None) -> bool:
    """Tell whether a file holds samples, by the names of its tensors."""
    return any(role(name, overrides) in TELLING for name in archive.tensors)


def measure(
    archive: Archive,
    *,
    overrides: Mapping[str, str] | None = None,
    clip: tuple[float, float] | None = None,
    dual_clip: float | None = None,
) -> Measured:
    """Return what a dump of samples says; its shares are over samples in the loss.

    Raises:
        DoctorError: its data cannot be read.
    """
    batch = batch_of(archive, overrides)
    mask = batch.get("mask", "sample_mask")
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    found: dict[str, float] = {}
    notes = [*archive.notes, *batch.notes]
    if new is not None and old is not None:
        stats = ratio_statistics(
            new, old, mask=mask, advantages=batch.get("advantages"), clip=clip, dual_clip=dual_clip
        )
        found |= _of_ratio(stats) | _shift(new, old, mask)
    found |= _of_sampler(batch, mask) | _of_reference(batch, mask) | _of_signal(batch, mask)
    kept = {name: value for name, value in found.items() if not math.isnan(value) or name == "policy_loss"}
    if not kept:
        notes.append(Note(text="nothing in this dump can be computed", source=SourceRef(path=archive.path)))
    return Measured(
        path=archive.path,
        container=archive.container,
        step=_step(archive),
        values=kept,
        raw={name: _origin(batch, name) for name in kept},
        notes=tuple(notes),
    )


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
        "effective_sample_size": stats.ess,
        "clip_fraction": stats.clipped_low + stats.clipped_high,
        "clip_fraction_low": stats.clipped_low,
        "clip_fraction_high": stats.clipped_high,
        "clip_fraction_dual": stats.dual,
        "logratio_advantage_corr": stats.advantage_corr,
    }


def _shift(new: Tensor, old: Tensor, mask: Tensor | None) -> dict[str, float]:
    found = shift_gain(new, old, mask)
    return {} if found is None else {"log_prob_shift_gain": found[0]}


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
    for known, names in _SIGNALS.items():
        tensor = batch.get(known)
        if tensor is None:
            continue
        usable = mask if mask is not None and mask.size == tensor.size else None
        summary = describe(tensor, usable)
        if summary.count:
            told = {"mean": summary.mean, "std": summary.std, "min": summary.low, "max": summary.high}
            told["abs_max"] = max(abs(summary.low), abs(summary.high))
            found |= {name: told[name.removeprefix(f"{stem}_")] for stem, ends in names for name in _full(stem, ends)}
    return found


def _full(stem: str, ends: str) -> list[str]:
    return [f"{stem}_{end}" for end in ends.split()]


#: Role → metrics that are taken of it.
_SIGNALS = {
    "advantages": (("advantages", "mean std min max abs_max"),),
    "advantages_raw": (("advantages_raw", "std"),),
    "returns": (("returns", "mean std min max"),),
    "values": (("values", "mean min max"),),
    "rewards": (("reward", "mean std min max"),),
}
#: What a metric is computed of, by the beginning of its name.
_ORIGINS = {
    "advantages": ("advantages", "advantages_raw"),
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
        if role(name) in ("step", "update") and isinstance(value, int | float) and not isinstance(value, bool):
            return int(value) if math.isfinite(value) else None
    return number_in(archive.path)
