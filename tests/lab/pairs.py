"""Hold `compare` to lab pairs: `python -m tests.lab.pairs [--pairs 100] [--seeds 3] [--updates 60]`.

Two seeds of one setting must not differ in at least 95 of 100 pairs. Of two runs that differ in one setting, that
setting must be named, and with it the step from which a metric on which it acts parts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_doctor.compare import ACTS_ON, Comparison, Side, compare, side_of
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import Pack, load_pack

from .dialects import write
from .presets import dialect_task
from .train import run

#: Share of pairs of two seeds in which nothing may differ.
SAME = 0.95
DIALECTS = ("sb3", "trl-grpo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One setting made different: how, and the canonical names under which a log's configuration may show it."""

    setting: str
    overrides: Mapping[str, Any]
    shown_as: tuple[str, ...]


def _vary(setting: str, *shown_as: str, **overrides: Any) -> Variation:
    return Variation(setting=setting, overrides=overrides, shown_as=shown_as or (setting,))


_BATCH = ("minibatch_size", "num_minibatches", "steps_per_generation", "updates_per_batch")
VARIATIONS: Mapping[str, tuple[Variation, ...]] = {
    "control": (
        _vary("learning_rate", learning_rate=3e-3),
        _vary("clip_range", clip_range=0.05),
        _vary("ppo_epochs", epochs=10),
        _vary("gamma", gamma=0.9),
        _vary("minibatch_size", *_BATCH, num_minibatches=16),
        _vary("ent_coef", ent_coef=0.05),
        _vary("target_kl", target_kl=0.001),
    ),
    "language": (
        _vary("learning_rate", learning_rate=2e-2),
        _vary("clip_range", clip_range=0.05),
        _vary("ppo_epochs", "ppo_epochs", "num_iterations", epochs=10),
        _vary("minibatch_size", *_BATCH, num_minibatches=4),
        _vary("num_generations", "num_generations", "minibatch_size", num_generations=4),
        _vary("kl_coef", "kl_coef", "kl_loss_coef", kl_coef=0.1),
    ),
}


def made(
    dialect: str,
    seed: int,
    updates: int,
    pack: Pack,
    *,
    fault: str = "healthy",
    severity: int | None = None,
    **overrides: Any,
) -> Side:
    """Train, write, read and judge one run, as a side of a comparison."""
    record = run(
        fault, task=dialect_task(dialect), seed=seed, severity=severity, updates=updates, dialect=dialect, **overrides
    )
    with tempfile.TemporaryDirectory() as folder:
        read = read_run(str(write(record, dialect, Path(folder))), Request())
    return side_of([(read, diagnose(read, pack))])


def same_pairs(dialect: str, pairs: int, updates: int, pack: Pack) -> Iterator[Comparison]:
    """Compare two seeds of one setting, each seed once."""
    for pair in range(pairs):
        yield compare(*(made(dialect, 2 * pair + side, updates, pack) for side in (0, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a comparison of two runs that differ in one setting said."""

    variation: Variation
    comparison: Comparison

    @property
    def named(self) -> bool:
        """Whether the setting is among those that differ."""
        return any(difference.canonical in self.variation.shown_as for difference in self.comparison.differences)

    @property
    def explained(self) -> bool:
        """Whether the setting, and no other, is said to explain best what parts."""
        first = self.comparison.explanations[:1]
        return any(explanation.difference.canonical in self.variation.shown_as for explanation in first)

    @property
    def step(self) -> int | None:
        """The first step at which a metric parts on which the setting acts."""
        acted = {metric for name in self.variation.shown_as for metric in ACTS_ON.get(name, ())}
        return min((d.step for d in self.comparison.divergences or () if d.metric in acted), default=None)

    @property
    def stepped(self) -> bool:
        """Whether there is such a step."""
        return self.step is not None


def different_pairs(dialect: str, seeds: Sequence[int], updates: int, pack: Pack) -> Iterator[Told]:
    """Compare runs that differ in one setting; the seeds differ too, as they do in life."""
    for variation in VARIATIONS[dialect_task(dialect)]:
        for seed in seeds:
            base = made(dialect, seed, updates, pack)
            other = made(dialect, seed + 1000, updates, pack, **variation.overrides)
            yield Told(variation=variation, comparison=compare(base, other))


def main() -> None:
    """Print both figures; exit with 1 if seeds differ too often or a setting is not named."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", type=int, default=100, help="pairs of seeds, over all dialects")
    options.add_argument("--seeds", type=int, default=3, help="pairs per setting and dialect")
    options.add_argument("--updates", type=int, default=60)
    options.add_argument("--dialects", nargs="*", default=list(DIALECTS))
    given = options.parse_args()
    pack = load_pack(installed=False)
    good = [_same(given, pack), _different(given, pack)]
    sys.exit(0 if all(good) else 1)


def _same(given: argparse.Namespace, pack: Pack) -> bool:
    per_dialect = given.pairs // len(given.dialects)
    quiet = 0
    for dialect in given.dialects:
        found = list(same_pairs(dialect, per_dialect, given.updates, pack))
        alike = sum(not comparison.different for comparison in found)
        quiet += alike
        loud = Counter(d.metric for comparison in found for d in comparison.divergences or ())
        print(f"{dialect:<12} two seeds: no difference in {alike} of {len(found)}  {_counted(loud)}", flush=True)
    total = per_dialect * len(given.dialects)
    print(f"two seeds of one setting: no difference in {quiet} of {total}\n", flush=True)
    return bool(quiet >= SAME * total)


def _counted(loud: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in loud.most_common())


def _different(given: argparse.Namespace, pack: Pack) -> bool:
    found: list[Told] = []
    for dialect in given.dialects:
        for told in different_pairs(dialect, range(500, 500 + given.seeds), given.updates, pack):
            found.append(told)
            print(f"{dialect:<12} {_line(told)}", flush=True)
    print(f"one setting: named in {_share(found, 'named')}, with a step in {_share(found, 'stepped')}", end=", ")
    print(f"first among explanations in {_share(found, 'explained')}")
    return all(told.named for told in found)


def _share(found: Sequence[Told], what: str) -> str:
    return f"{sum(getattr(told, what) for told in found)} of {len(found)}"


def _line(told: Told) -> str:
    named = "named" if told.named else "MISSED"
    step = "no step" if told.step is None else f"from step {told.step}"
    first = next((e.difference.key for e in told.comparison.explanations), "nothing")
    return f"{told.variation.setting:<16} {named:<7} {step:<16} explained by {first}"


if __name__ == "__main__":
    main()
