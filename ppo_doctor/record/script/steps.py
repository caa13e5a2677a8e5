"""What was observed between two optimizer steps of the policy."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from ppo_doctor.record.script.graph import RatioNodes
from ppo_doctor.record.script.places import Stack
from ppo_doctor.record.script.ring import Origin

Array = np.ndarray[Any, np.dtype[Any]]
#: Largest |ratio - 1| of the first minibatch that may be rounding.
AWAY = 1e-3
#: Clamps that are kept until a loss is known to use them; each keeps a graph alive.
MOST_CLAMPS = 64


@dataclass(slots=True, eq=False)
class RatioSeen:
    """One ratio of one minibatch: its values, the loss's gradient by it, and where it comes from.

    `pull` is the cosine of the loss's pull on the new log-probs with the advantages, None if their sign is unknown.
    """

    nodes: RatioNodes
    row: Any = None
    gradient: Any = None
    pull: float | None = None
    largest: float | None = None
    #: whether the surrogate takes the larger gain, as its gradient shows; None if it does not
    takes_larger: bool | None = None
    origin: Origin | None = None
    same_memory: bool = False
    #: the line that took the old log-probs from the new ones of this pass
    detached: Stack = ()
    place: Stack = ()
    sign: int | None = None
    #: the operations that made the factor of the ratio in this training pass, the last first, with their frames
    made_by: tuple[tuple[str, Stack], ...] = ()
    #: the line that gave the advantages their shape of a column
    column: Stack = ()
    #: one value per sample, to compare passes
    advantages: Array | None = None
    #: all results of the call that computed them, and its frames, where sequences are trained on
    computed: tuple[Array, Stack] | None = None
    old_log_probs: Array | None = None
    broadcast: float = 1.0


@dataclass(slots=True, eq=False)
class Inputs:
    """Inputs of the network from outside, as one number per sample."""

    weight: int
    rows: Array
    graded: bool
    place: Stack
    tokens: bool
    #: the size of a sample, and the memory and number of values of the data
    width: int
    memory: tuple[int, int]
    #: the first operation that made them in this training pass, such as indexing
    taken: Stack = ()
    #: the samples' places in the batch, where they were taken from it by index
    index: Array | None = None
    batch: int = 0
    sequences: Array | None = None


@dataclass(slots=True, eq=False)
class Step:
    """The calls of a training script from one optimizer step of the policy to the next."""

    number: int
    ratios: list[RatioSeen] = field(default_factory=list)
    inputs: list[Inputs] = field(default_factory=list)
    sampled: bool = False
    sampled_at: Stack = ()
    losses: list[float] = field(default_factory=list)
    #: clamps of a ratio: with and without gradient
    clamps: deque[tuple[Any, Stack]] = field(default_factory=lambda: deque(maxlen=MOST_CLAMPS))
    dead_clamps: list[Stack] = field(default_factory=list)
    #: what computed the log-probs of a ratio without gradient
    dead_made: Stack = ()
    unused_clamps: list[Stack] = field(default_factory=list)
    #: "clip", "backward", "load_state_dict" in order, with their lines
    events: list[tuple[str, Stack]] = field(default_factory=list)
    leftover: bool = False
    #: whether a backward pass reached the policy's weights
    reached: bool = False
    #: an operation whose derivative is infinite at a value of this minibatch
    steep: Stack = ()
    #: largest distance between the log-probs of a reference model and the old ones, and the lines that subtract them
    #: and, where they are equal, computed those of the reference
    reference_gap: float | None = None
    reference_place: Stack = ()
    reference_made: Stack = ()
    #: where results of networks without gradients were subtracted that are all equal
    equal_at: Stack = ()
    dropout: Counter[bool] = field(default_factory=Counter)
    dropout_place: Stack = ()
    dropout_rates: set[float] = field(default_factory=set)
    #: the line that normalised inputs otherwise than in the rollout, or changed the statistics for that
    normalised_at: Stack = ()
    #: modes of batch normalisation, by whether gradients are on
    batch_norm: dict[bool, set[bool]] = field(default_factory=lambda: {True: set(), False: set()})
    #: (number of classes, divisor) of logits, by whether gradients are on
    divisors: dict[bool, dict[tuple[int, float], Stack]] = field(default_factory=lambda: {True: {}, False: {}})
    #: number of classes → where logits with excluded ones were normalised, none if never; by whether gradients are on
    masked: dict[bool, dict[int, Stack]] = field(default_factory=lambda: {True: {}, False: {}})
    #: size of the last dimension of logits that the training pass normalised
    logits: int | None = None
    #: numbers of classes and where the training pass normalised logits; frames of others that normalise divided ones
    scored: list[tuple[int, Stack]] = field(default_factory=list)
    scaled: set[tuple[CodeType, int]] = field(default_factory=set)
    #: where values minus their mean were all 0, and whether each was its own mean
    zeroed: Stack = ()
    zeroed_alone: bool = False
    learning_rate: float | None = None
    grad_norm: float | None = None
    #: the largest norm that clipping lets through
    bound: float | None = None
    clipped_before: bool = False
    #: of how many inputs those that a loss depends on were told from others
    told: int = 0
    #: share of the weights that the value loss trains and the ratio does not, as something was detached, and where
    cut: float = 0.0
    cut_at: Stack = ()
    value_target: Stack = ()
    value_error: Stack = ()
    value_target_graded: bool = False
    #: the bits of value targets, and the number of steps after which they were computed last, None if that is unknown
    targets: list[Array] = field(default_factory=list)
    targets_made: int | None = None
    #: value targets less predictions, one per sample
    value_errors: Array | None = None
    value_broadcast: float = 1.0
    value_place: Stack = ()
    compiled: bool = False
    rounded: float | None = None
    backward_place: Stack = ()
    has_loss: bool = False

    def release(self) -> None:
        """Let go of the graphs of this step's losses."""
        self.clamps.clear()
        for each in self.ratios:
            each.nodes.release()
            each.gradient = None

    def compared(self, stack: Stack, *, equal: bool) -> None:
        """Note a difference of two results of networks; with adapters one network gives both."""
        if equal and "peft" not in sys.modules:
            self.equal_at = self.equal_at or stack

    def mark(self, used: set[tuple[int, int]]) -> None:
        """Tell the data that a loss depends on from those of other passes with gradients on, such as a rollout."""
        chosen = {(each.weight, each.memory): each for each in self.inputs if each.memory in used}  # the latest of each
        if not chosen:
            return
        for each in self.inputs[self.told :]:
            each.graded = False
        self.told = len(self.inputs)
        for each in chosen.values():
            each.graded = True

    def passes(self, entries: set[int]) -> float:
        """Return how often data entered the network per time that they did with gradients on."""
        graded = sum(each.weight in entries for each in self.inputs if each.graded)
        return sum(each.weight in entries for each in self.inputs) / max(graded, 1)

    @property
    def trained(self) -> tuple[Inputs, ...]:
        """Return the inputs on which the network ran with gradients."""
        return tuple(each for each in self.inputs if each.graded)


def clipped_early(step: Step) -> bool:
    """Return whether gradients were clipped before the first backward pass of a step, so after the step before."""
    names = [name for name, _ in step.events]
    return "clip" in names and ("backward" not in names or names.index("clip") < names.index("backward"))


def temperature(steps: Sequence[Step]) -> tuple[float, Stack, int] | None:
    """Return the divisor of logits that only the passes without gradients have, its line and the number of classes.

    It is the inverse of one that only training has where the first ratios are away from 1, and 1 where both are alike.
    """
    sides = [{key: place for step in steps for key, place in step.divisors[graded].items()} for graded in (False, True)]
    sizes = {size for step in steps for each in step.ratios for size in (step.logits,) if size}
    only = [
        [(divisor, place, size) for (size, divisor), place in side.items() if (size, divisor) not in other]
        for side, other in (sides, sides[::-1])
    ]
    outside, inside = ([each for each in side if each[2] in sizes] for side in only)
    if outside:
        return outside[0]
    if inside and steps[0].sampled and starts_away(steps[0]):
        return 1 / inside[0][0], *inside[0][1:]
    return (1.0, (), 0) if any(sides) else None


def starts_away(step: Step) -> bool:
    """Return whether the ratios of a step, the first one of an update, are not 1."""
    return any(each.largest is not None and each.largest > AWAY for each in step.ratios)


def masked_apart(steps: Sequence[Step]) -> Stack | None:
    """Return where classes are excluded if that is only with gradients, or only without; None if one was not seen."""
    size = next((step.logits for step in steps if step.logits and step.ratios), 0)
    found = [[each[size] for step in steps if size in (each := step.masked[kind])] for kind in (True, False)]
    if not all(found):
        return None
    training, other = (next(filter(None, each), ()) for each in found)
    return () if training and other else training or other
