"""Compute the metrics of one update from its observed steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.record.script.indices import off_prompts
from ppo_doctor.record.script.places import Place
from ppo_doctor.record.script.ratios import ONE
from ppo_doctor.record.script.steps import RatioSeen, Step, clipped_early, masked_apart, temperature
from ppo_doctor.record.update import of_minibatches

if TYPE_CHECKING:
    from ppo_doctor.record.script.aliases import Alias

#: Share of different inputs from which samples are told apart by their inputs.
DISTINCT = 0.9
#: A factor of the numbers of inputs, to which those of value targets are added.
TARGET = 0x9E3779B97F4A7C1
#: Fewest pairs from which a correlation is computed.
FEWEST = 16
#: Samples and log-probs stand in the same order if this share of samples has the same old log-prob in two passes, and
#: old log-probs spread by at least this.
SAME_ORDER, SPREAD = 0.95, 1e-3
#: Distance from which a rollout's inputs are distributed otherwise than a batch; bootstrap values add some to its own.
APART = 0.03
#: Smallest batch whose order is looked at, and correlations of what belongs to other samples and to the same.
LEAST_BATCH, UNRELATED, RELATED = 64, 0.4, 0.8
#: How many times the samples of a minibatch a rollout has at least if it is not one minibatch.
WHOLE = 1.5


@dataclass(frozen=True, slots=True)
class Batch:
    """What an update trained on: inputs, each with how often, and the value targets; whether the weights moved."""

    inputs: Mapping[int, int] = field(default_factory=dict)
    targets: frozenset[int] = frozenset()
    moved: bool = False


@dataclass(frozen=True)
class UpdateSeen:
    """The observed steps of one update, and what was known of the script when it ended.

    Shares are of weights: `matched` of the policy's that an optimizer holds, `ungraded` of an optimizer's that ran
    without getting a gradient, `frozen` of the policy's forward pass that require none.
    """

    steps: Sequence[Step]
    entries: set[int]
    #: the parameters that the ratio depends on
    policy: frozenset[int]
    moved: Mapping[str, float]
    matched: float | None
    ungraded: float | None
    frozen: float | None
    alias: Alias | None
    #: of the observed updates, from 1
    number: int
    #: what the observed update before this one trained on
    before: Batch
    #: the inputs of the rollouts before this update's, the latest last
    rollouts: tuple[frozenset[int], ...]
    #: whether its end was seen
    whole: bool = True
    #: whether the first value that was no number is a standard deviation of a single one
    of_one: bool = False
    #: the line that leaves a loop around the optimizer step in its first iteration
    left: Place | None = None

    def ratios(self) -> list[RatioSeen]:
        """Return the ratios of all minibatches."""
        return [each for step in self.steps for each in step.ratios if each.row is not None]

    def samples(self, step: Step) -> np.ndarray[Any, Any]:
        """Return a number for each sample trained on, equal for equal samples of this update.

        It is the place in the batch where samples were taken by index, else what the inputs and the value targets show.
        """
        if not self.by_index:
            rows = self.rows(step, graded=True)
            return rows * TARGET + step.targets[0] if self.by_target and len(rows) else rows
        entry, widths = self.entry
        chosen = [each.index for each in step.trained if each.weight == entry and each.width in widths]
        return np.concatenate([each for each in chosen if each is not None]) if chosen else np.zeros(0, np.int64)

    @cached_property
    def singles(self) -> np.ndarray[Any, Any] | None:
        """Return the inputs that were one sample each in the rollout, None if it had others or samples have places.

        A rollout may run the network on each sample more than once, but on an input of several more often still.
        """
        told = not self.steps or self.by_index or self.by_target
        entered = Counter([] if told else self.rows(self.steps[0], graded=False).tolist())
        rows = {row for step in self.steps for row in self.rows(step, graded=True).tolist()}
        counts = Counter(entered[row] for row in rows if row in entered)
        common = [count for count, often in counts.items() if often >= (1 - DISTINCT) * counts.total()]
        if counts.total() < 0.5 * len(rows) or not common:
            return None
        return np.asarray([row for row, often in entered.items() if often == min(common)])

    def told(self, step: Step) -> np.ndarray[Any, Any]:
        """Return the numbers of the samples of a step that cannot be taken for others."""
        samples = self.samples(step)
        return samples if self.singles is None else samples[np.isin(samples, self.singles)]

    @cached_property
    def by_index(self) -> bool:
        """Return whether all samples were taken by index."""
        entry, widths = self.entry
        entered = [
            each for step in self.steps for each in step.trained if each.weight == entry and each.width in widths
        ]
        return bool(entered) and all(each.index is not None for each in entered)

    @cached_property
    def by_target(self) -> bool:
        """Return whether inputs repeat, and all have value targets that were computed before the first step."""
        trained = [(step, rows) for step in self.steps if len(rows := self.rows(step, graded=True))]
        if not trained or _all_distinct(np.concatenate([rows for _, rows in trained]), len(self.steps)):
            return False
        made = [step.targets_made for step in self.steps if step.targets_made is not None]
        again = any(not each.graded for step in self.steps[1:] for each in step.inputs)
        complete = all(step.targets and len(step.targets[0]) == len(rows) for step, rows in trained)
        return complete and (max(made) <= self.steps[0].number if made else not again)

    @cached_property
    def entry(self) -> tuple[int | None, set[int]]:
        """Return the main entry, and the sizes of the samples that enter there in training."""
        entry = self.main_entry()
        return entry, {each.width for step in self.steps for each in step.trained if each.weight == entry}

    def main_entry(self) -> int | None:
        """Return the parameter by which most training data enter the policy, or any network if it is unknown.

        Of several by which as many enter, such as the branches of a network, it is the one with most different inputs.
        """
        entries = self.entries & self.policy or self.entries
        entered = [each for step in self.steps for each in step.trained if each.weight in entries]
        counts = Counter(each.weight for each in entered)
        first = {each.weight: each.rows for each in reversed(entered)}
        return max(counts, key=lambda each: (counts[each], len(np.unique(first[each]))), default=None)

    def rows(self, step: Step, *, graded: bool) -> np.ndarray[Any, Any]:
        """Return the inputs of one step that entered by the main entry, one number per sample.

        Sequences of another length than those trained on, such as tokens that are generated one by one, are left out.
        """
        entry, widths = self.entry
        chosen = [each for each in step.inputs if each.weight == entry and each.graded == graded]
        rows = [each.rows for each in chosen if each.width in widths]
        return np.concatenate(rows) if rows else np.zeros(0, np.int64)

    @cached_property
    def batch(self) -> Batch:
        """Return what the update trained on."""
        rows = [row for step in self.steps for row in self.rows(step, graded=True).tolist()]
        targets = (each.tolist() for step in self.steps for each in step.targets)
        moved = bool(self.moved.get("update_norm"))
        return Batch(Counter(rows), frozenset(chain.from_iterable(targets)), moved)

    def rollout_rows(self) -> frozenset[int]:
        """Return the inputs of the passes without gradients before the first step."""
        return frozenset(self.rows(self.steps[0], graded=False).tolist()) if self.steps else frozenset()


def numbers_of(seen: UpdateSeen) -> dict[str, float]:
    """Return the metrics of an update."""
    numbers = _of_ratios(seen) | _of_steps(seen) | _of_samples(seen)
    measured = sum(any(each.row is not None for each in step.ratios) for step in seen.steps)
    if seen.whole or measured > 1:  # of a first step alone, the ratio is 1 however the weights move
        numbers |= seen.moved
    broken = any(not np.isfinite(numbers.get(name, 0.0)) for name in ("loss", "advantages_mean"))
    numbers["deviation_of_one"] = float(seen.of_one and broken)
    shares = {
        "optimizer_params_matched": seen.matched,
        "weights_unheld": None if seen.matched is None else 1 - seen.matched,
        "weights_without_gradient": seen.ungraded,
        "weights_frozen": seen.frozen,
    }
    return numbers | {name: value for name, value in shares.items() if value is not None}


def _of_ratios(seen: UpdateSeen) -> dict[str, float]:
    ratios = seen.ratios()
    numbers: dict[str, float] = {
        "ratio_without_gradient": _share(seen.steps, lambda s: bool(s.dead_clamps) and not s.ratios)
    }
    if not ratios:
        return numbers if numbers["ratio_without_gradient"] else {}
    rows = np.stack([each.row.cpu().double().numpy() for each in ratios])
    clipped = all(each.nodes.bounds for each in ratios)
    numbers |= of_minibatches(rows, _epoch_starts(seen), clipped=clipped, advantages=True)
    later = [each.largest for step in seen.steps[1:] for each in step.ratios if each.largest is not None]
    if later:
        numbers["repeated_ratio_dev"] = max(later)
    pulls = [each.pull for each in ratios if each.pull is not None]
    if pulls and not any(each.nodes.both_graded for each in ratios):
        numbers["policy_pull"] = float(np.median(pulls))
    numbers["old_log_prob_with_gradient"] = float(np.mean([each.nodes.both_graded for each in ratios]))
    larger = [taken for each in ratios if (taken := _takes_larger(each)) is not None]
    if larger:
        numbers["surrogate_takes_larger"] = float(np.mean(larger))
    numbers["surrogate_broadcast"] = float(np.median([each.broadcast for each in ratios]))
    bounds = [each.nodes.bounds for each in ratios if each.nodes.bounds is not None]
    numbers["clip_bounds_swapped"] = float(np.mean([low > high for low, high in bounds])) if bounds else 0.0
    numbers["clip_unused"] = _share(seen.steps, lambda s: bool(s.unused_clamps))
    if bounds:
        numbers["clip_range"] = float(np.median([high - 1 for _, high in bounds]))
    same = float(np.mean([each.same_memory for each in ratios]))
    numbers["old_policy_shared"] = max(same, float(_aliased(seen)))
    return numbers


def _aliased(seen: UpdateSeen) -> bool:
    """Return whether old log-probs are computed again by the policy itself, under another name."""
    return seen.alias is not None and any(_recomputed(step, each) for step in seen.steps[1:] for each in step.ratios)


def _recomputed(step: Step, each: RatioSeen) -> bool:
    return each.origin is not None and each.origin.last == step.number and not each.origin.graded


def _takes_larger(each: RatioSeen) -> bool | None:
    if each.takes_larger is not None or each.nodes.selection is None:
        return each.takes_larger
    larger = each.nodes.selection.name().startswith(("Max", "Amax"))
    turned = bool((each.nodes.flips + (each.sign == -1)) % 2)
    return bool(larger != turned)


def _share(steps: Sequence[Step], holds: Callable[[Step], bool]) -> float:
    return sum(map(holds, steps)) / len(steps) if steps else 0.0


def _of_steps(seen: UpdateSeen) -> dict[str, float]:
    steps = seen.steps
    numbers: dict[str, float] = {"optimizer_steps": float(len(steps))}
    losses = [loss for step in steps for loss in step.losses]
    if losses:
        numbers["loss"] = float(np.mean(losses))
    norms = [step.grad_norm for step in steps if step.grad_norm is not None]
    if norms:
        numbers["grad_norm"] = float(np.mean(norms))
    kept = [min(1.0, step.bound / step.grad_norm) for step in steps if step.bound is not None and step.grad_norm]
    if kept:
        numbers["gradient_kept"] = float(np.median(kept))
    rates = [step.learning_rate for step in steps if step.learning_rate is not None]
    if rates:
        numbers["learning_rate"] = rates[-1]
    rounded = [step.rounded for step in steps if step.rounded is not None]
    if rounded:
        numbers["weights_rounded_away"] = float(np.median(rounded))
    after = [clipped_early(later) and not step.clipped_before for step, later in pairwise(steps)]
    if after:
        numbers["clip_after_step"] = sum(after) / len(after)
    gaps = [step.reference_gap for step in steps[:1] if step.reference_gap is not None]
    if gaps and seen.before.moved:
        numbers["reference_shared"] = float(max(gaps) <= ONE)
    elif seen.before.moved and seen.alias is not None and seen.alias.reference and steps[0].equal_at:
        numbers["reference_shared"] = 1.0
    numbers["loop_left_early"] = float(seen.left is not None)
    numbers["gradients_left_over"] = _share(steps[1:], lambda s: s.leftover)
    numbers["policy_gradient_cut"] = max(step.cut for step in steps)
    numbers["value_target_with_gradient"] = _share(steps, lambda s: s.value_target_graded)
    numbers["value_broadcast"] = max(step.value_broadcast for step in steps)
    return numbers


def _of_samples(seen: UpdateSeen) -> dict[str, float]:
    """Return what the inputs of network passes show about samples: passes, their age, dropout, temperature."""
    numbers: dict[str, float] = {}
    active, still = (sum(step.dropout[kind] for step in seen.steps) for kind in (True, False))
    if active or still:
        numbers["dropout_active"] = float(active > 0)
    modes = [set().union(*(step.batch_norm[kind] for step in seen.steps)) for kind in (True, False)]
    if all(modes):
        numbers["modes_differ"] = float(modes[0] != modes[1])
    divisor = temperature(seen.steps)
    if divisor is not None:
        numbers["sampling_temperature"] = divisor[0]
    if masked_apart(seen.steps) is not None:
        numbers["logits_masked_apart"] = float(bool(masked_apart(seen.steps)))
    strangers = _off_prompts(seen)
    if strangers is not None:
        numbers["advantages_off_prompts"] = strangers
    return numbers | _of_this_batch(seen) | _of_other_batches(seen)


def _of_this_batch(seen: UpdateSeen) -> dict[str, float]:
    """Return how often the samples of an update were trained on, and whether minibatches and advantages repeat."""
    if not _told_apart(seen):
        return {}
    numbers: dict[str, float] = {}
    trained = [samples for step in seen.steps if len(samples := seen.told(step))]
    counts = Counter(np.concatenate(trained).tolist())
    often = float(np.median(list(counts.values())))
    changed = not seen.by_index and any(step.normalised_at for step in seen.steps)  # samples look new in each pass
    if seen.whole and not changed and sum(count == often for count in counts.values()) >= DISTINCT * len(counts):
        numbers["passes"] = often / _per_step(seen)
    if seen.by_index:
        batch = max(each.batch for step in seen.steps for each in step.trained)
    else:
        batch = len(seen.rollout_rows() if seen.singles is None else seen.singles)
    alike = _alike(trained, max(batch, len(counts)))
    if alike is not None:
        numbers["minibatches_alike"] = alike
    found = {"advantage_repeat_corr": _advantage_correlation(seen), "advantages_transposed": _transposed(seen)}
    return numbers | {name: value for name, value in found.items() if value is not None}


def _of_other_batches(seen: UpdateSeen) -> dict[str, float]:
    """Return how samples trained on and inputs of rollouts agree, where inputs are different for different samples."""
    inputs = [each for step in seen.steps if len(each := seen.rows(step, graded=True))]
    if not inputs:
        return {}
    numbers: dict[str, float] = {}
    distinct = _all_distinct(np.concatenate(inputs), len(seen.steps))
    trained, rollout = set(np.concatenate(inputs).tolist()), seen.rollout_rows()
    tokens = any(each.tokens for step in seen.steps for each in step.trained)
    if rollout and len(trained & rollout) > 0.5 * len(trained):
        if seen.whole and distinct:
            numbers["rollout_trained"] = len(trained & rollout) / len(rollout)
        numbers["rollouts_behind"] = 0.0
    elif rollout and not tokens and (distinct or len(trained) >= FEWEST):
        lags = [n for n, each in enumerate(reversed(seen.rollouts), 1) if len(trained & each) > 0.5 * len(trained)]
        if lags:
            numbers["rollouts_behind"] = float(lags[0])
        numbers["inputs_unseen"] = 1 - len(trained & rollout.union(*seen.rollouts)) / len(trained)
    if distinct:
        numbers["samples_trained_before"] = len(trained & seen.before.inputs.keys()) / len(trained)
    elif _same_batch(seen):
        numbers["samples_trained_before"] = 1.0
    return numbers


def _same_batch(seen: UpdateSeen) -> bool:
    """Return whether an update trained on the batch of the update before, though its rollout had other inputs.

    It did if each input is there as often as then, and most value targets are the same numbers.
    """
    batch, before = seen.batch, seen.before
    if batch.inputs != before.inputs or len(batch.targets) < FEWEST:
        return False
    rollout = Counter(seen.rows(seen.steps[0], graded=False).tolist())
    if not rollout or _distance(rollout, batch.inputs) < APART:
        return False
    return len(batch.targets & before.targets) > 0.5 * len(batch.targets)


def _distance(first: Mapping[int, int], second: Mapping[int, int]) -> float:
    """Return the total variation distance of two distributions, by how often they hold what."""
    sizes = sum(first.values()), sum(second.values())
    shares = (first.get(each, 0) / sizes[0] - second.get(each, 0) / sizes[1] for each in {*first, *second})
    return 0.5 * sum(map(abs, shares))


def _all_distinct(rows: np.ndarray[Any, Any], steps: int) -> bool:
    """Return whether inputs repeat only as passes over the batch repeat them: alike, and at most once per step."""
    counts = np.unique(rows, return_counts=True)[1]
    often, alike = Counter(counts.tolist()).most_common(1)[0]
    return len(counts) > 1 and often <= steps and alike >= DISTINCT * len(counts)


def _alike(trained: Sequence[np.ndarray[Any, Any]], rollout: int) -> float | None:
    """Return the share of minibatches with the samples of the one before, None if a minibatch is the whole batch."""
    sets = [set(rows.tolist()) for rows in trained]
    if len(sets) < 2 or rollout < WHOLE * max(map(len, sets)):
        return None
    return sum(a == b for a, b in pairwise(sets)) / (len(sets) - 1)


def _per_step(seen: UpdateSeen) -> float:
    """Return how often a sample enters the network by the main entry in one step, at most once per call."""
    entry = seen.main_entry()
    found = []
    for step in seen.steps:
        counts = Counter(seen.told(step).tolist())
        calls = sum(each.weight == entry for each in step.trained)
        found += [max(min(np.median(list(counts.values())), calls), 1)] if counts else []
    return float(np.median(found or [1]))


def _told_apart(seen: UpdateSeen) -> bool:
    """Return whether samples are told apart: by index, or by inputs that differ in the largest minibatch."""
    rows = max((seen.told(step) for step in seen.steps), key=len, default=np.zeros(0))
    return seen.by_index or (len(rows) > 1 and len(set(rows.tolist())) * _per_step(seen) >= DISTINCT * len(rows))


def _epoch_starts(seen: UpdateSeen) -> list[int]:
    """Return the first minibatches of passes after the first; a minibatch is a place in the list of ratios."""
    if not _told_apart(seen):
        return []
    found, place, current = [], 0, set[int]()
    for step in seen.steps:
        rows = set(seen.told(step).tolist())
        if rows and rows & current:
            found += [place] if step.ratios else []
            current = set()
        current |= rows
        place += sum(each.row is not None for each in step.ratios)
    return [each for each in found if each < place]


def _advantage_correlation(seen: UpdateSeen) -> float | None:
    """Return the correlation of the advantages of the same samples in two passes, None if their order is unknown."""
    pairs: dict[str, list[tuple[float, float]]] = {"advantages": [], "old_log_probs": []}
    known: dict[int, tuple[float, float]] = {}
    told = set(np.concatenate([seen.told(step) for step in seen.steps]).tolist())
    for step in seen.steps:
        rows = seen.samples(step)
        for each in step.ratios[:1]:
            adv, old = each.advantages, each.old_log_probs
            if adv is None or old is None or not len(adv) == len(old) == len(rows):
                return None
            for row, value, log_prob in zip(rows.tolist(), adv.tolist(), old.tolist(), strict=True):
                if row not in told:
                    continue
                if row in known:
                    pairs["advantages"].append((known[row][0], value))
                    pairs["old_log_probs"].append((known[row][1], log_prob))
                else:
                    known[row] = (value, log_prob)
    stored = np.asarray(pairs["old_log_probs"])
    if (
        len(stored) < FEWEST
        or stored.std() < SPREAD
        or float(np.mean(np.abs(stored[:, 0] - stored[:, 1]) < ONE)) < SAME_ORDER
    ):
        return None
    return _correlation(pairs["advantages"])


def _transposed(seen: UpdateSeen) -> float | None:
    """Return whether the first pass has advantages in the order of the transposed batch, None if this is unknown.

    Advantages go with the errors of the values, except where they are those of other samples.
    """
    pairs: dict[int, tuple[float, float]] = {}
    for step in seen.steps if seen.by_index else ():
        rows, errors = seen.samples(step), step.value_errors
        advantages = step.ratios[0].advantages if step.ratios else None
        if advantages is None or errors is None or not len(advantages) == len(errors) == len(rows):
            return None
        if not pairs.keys().isdisjoint(rows.tolist()):
            break
        pairs.update(zip(rows.tolist(), zip(advantages.tolist(), errors.tolist(), strict=True), strict=True))
    if len(pairs) < LEAST_BATCH or set(pairs) != set(range(len(pairs))):
        return None
    values, errors = np.asarray([pairs[place] for place in range(len(pairs))]).T
    lengths = [each for each in range(1, len(pairs)) if not len(pairs) % each]
    orders = [_correlation(list(zip(values, errors.reshape(each, -1).T.reshape(-1), strict=True))) for each in lengths]
    own, *others = [0.0 if each is None else each for each in orders]
    return float(own < UNRELATED and max(others, default=0.0) > RELATED)


def _off_prompts(seen: UpdateSeen) -> float | None:
    """Return the share of prompts over whose sequences advantages do not sum to 0, though they do over groups."""
    ratios = (each for step in seen.steps for each in step.ratios)
    computed = next((each.computed[0] for each in ratios if each.computed is not None), np.zeros(0))
    found = _first_pass(seen, len(computed))
    return None if found is None else off_prompts(*found, computed)


def _first_pass(seen: UpdateSeen, length: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    """Return the first sequences trained on and the advantage of each, None if they are fewer, or have several."""
    sequences, advantages = list[np.ndarray[Any, Any]](), list[float]()
    for step in seen.steps:
        entered = [each.sequences for each in step.trained if each.weight == seen.entry[0]]
        for rows, ratio in zip(entered, step.ratios, strict=False):
            values = ratio.advantages if ratio.advantages is not None else np.zeros(0)
            if len(entered) != len(step.ratios) or rows is None or not len(values) or len(values) % len(rows):
                return None
            values = values.reshape(len(rows), -1)
            if len(advantages) == length or np.ptp(values, axis=1).any():
                break
            sequences.append(rows)
            advantages += values[:, 0].tolist()
    if not length or len(advantages) != length:
        return None
    shortest = min(rows.shape[1] for rows in sequences)
    return np.concatenate([rows[:, :shortest] for rows in sequences]), np.asarray(advantages, np.float32)


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    if len(pairs) < FEWEST:
        return None
    table = np.asarray(pairs)
    if not np.isfinite(table).all() or table.std(0).min() <= 0:
        return None
    return float(np.corrcoef(table.T)[0, 1])
