"""The corpus behind the scoreboard: which runs are trained, on which side of the split, and where their logs lie.

    python -m tests.lab.corpus DIR [--jobs 2]

A seed is on one side only, and faults are injected into other tasks there. Sound runs of the training side's tasks
are on the other sides too, with other seeds, beside tasks that the training side has not. What the development side
misses is read, and rules are mended by it. The held-out side was trained when they had been, with seeds and tasks of
its own: no rule was made, and no weight was set, with a run of it in view. Once its misses are read it is a development
side, and another one has to be trained. A run that exists already is not trained again, so that an interrupted corpus
goes on; folders that are not of the plan are not looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from .dialects import WRITERS, write
from .faults import FAULTS
from .faults.registry import onset
from .presets import TASK_FREE_DIALECTS, base_config, dialect_task
from .settings import Setup, Stages, Task
from .train import run

Split = Literal["training", "development", "held-out"]
SPLITS: tuple[Split, ...] = ("training", "development", "held-out")

#: What a task is like: changes to the sound configuration, made before a fault is injected.
VARIANTS: Mapping[Task, Mapping[str, Mapping[str, Any]]] = {
    "control": {
        "plain": {},
        "annealed to zero": {"anneal_lr": True},
        "strict target_kl": {"target_kl": 0.02},
        "not whitened": {"normalize": "none"},
        "whitened per batch": {"normalize": "batch"},
        "small batches": {"num_envs": 4, "num_steps": 32},
        "large batches": {"num_envs": 16, "num_steps": 128},
        "ten epochs": {"epochs": 10, "learning_rate": 5e-4},
        "two minibatches": {"num_minibatches": 2},
        "entropy bonus": {"ent_coef": 0.02},
        "tiny gradient norm": {"max_grad_norm": 0.05},
        "no gradient clipping": {"max_grad_norm": None},
        "wide clip": {"clip_range": 0.3},
        "monte carlo": {"gae_lambda": 1.0},
        "wide net": {"hidden": (64, 64)},
        "one hidden layer": {"hidden": (32,)},
        "value clipping": {"clip_range_vf": 0.2},
        "real-valued": {"continuous": True},
    },
    "language": {
        "plain": {},
        "annealed to zero": {"anneal_lr": True},
        "two minibatches": {"num_minibatches": 2},
        "slow": {"learning_rate": 2e-3},
        "tiny gradient norm": {"max_grad_norm": 0.05},
        "wide net": {"hidden": (96,)},
        "narrow net": {"hidden": (24,)},
        "wide clip": {"clip_range": 0.3},
    },
}
#: Sound tasks that the training side has not.
UNSEEN: Mapping[Task, Mapping[str, Mapping[str, Any]]] = {
    "control": {
        "eight minibatches": {"num_minibatches": 8},
        "two epochs": {"epochs": 2, "learning_rate": 2e-3},
        "short horizon": {"gamma": 0.95, "gae_lambda": 0.9},
        "three layers": {"hidden": (32, 32, 32)},
        "tiny adam eps": {"adam_eps": 1e-8},
        "loose gradient norm": {"max_grad_norm": 10.0},
        "few environments": {"num_envs": 2, "num_steps": 256},
        "fast": {"learning_rate": 2e-3},
        "narrow clip": {"clip_range": 0.1},
        "real-valued, entropy bonus": {"continuous": True, "ent_coef": 0.005},
    },
    "language": {
        "two epochs": {"epochs": 2},
        "two layers": {"hidden": (48, 48)},
        "loose gradient norm": {"max_grad_norm": 10.0},
        "KL to the reference": {"kl_coef": 0.02},
        "fast": {"learning_rate": 8e-3},
        "narrow clip": {"clip_range": 0.1},
    },
}
#: Tasks of the held-out side alone.
NEW: Mapping[Task, Mapping[str, Mapping[str, Any]]] = {
    "control": {
        "six epochs": {"epochs": 6},
        "deep and narrow": {"hidden": (24, 24, 24)},
        "long horizon": {"gamma": 0.995, "gae_lambda": 0.97},
        "value loss weighed less": {"vf_coef": 0.25},
        "many environments": {"num_envs": 32, "num_steps": 16},
        "gamma near one": {"gamma": 0.999},
    },
    "language": {
        "three epochs": {"epochs": 3},
        "middling net": {"hidden": (72,)},
        "clip a quarter": {"clip_range": 0.25},
        "two layers, one wide": {"hidden": (64, 32)},
    },
}
#: Tasks of sound runs alone, trained when two alarms on the held-out side had been mended: a seed each.
AFTERWARDS: Mapping[Task, Mapping[str, Mapping[str, Any]]] = {
    "control": {
        "myopic": {"gamma": 0.9},
        "eight epochs": {"epochs": 8},
        "sixteen minibatches": {"num_minibatches": 16},
        "one wide layer": {"hidden": (128,)},
        "narrower clip, entropy bonus": {"clip_range": 0.15, "ent_coef": 0.005},
        "short horizon of advantages": {"gae_lambda": 0.8},
    },
    "language": {
        "slender net": {"hidden": (36,)},
        "five epochs": {"epochs": 5},
        "narrower clip": {"clip_range": 0.15},
        "five thousandths": {"learning_rate": 5e-3},
    },
}
#: The variants that faults are injected into, by side of the split. The k-th seed of a side takes the k-th variant.
FAULTY_IN: Mapping[Split, Mapping[Task, tuple[str, ...]]] = {
    "training": {
        "control": ("plain", "annealed to zero", "small batches"),
        "language": ("plain", "two minibatches", "wide net"),
    },
    "development": {
        "control": ("wide net", "whitened per batch", "two minibatches", "entropy bonus", "short horizon"),
        "language": ("narrow net", "annealed to zero", "wide clip", "loose gradient norm", "KL to the reference"),
    },
    "held-out": {
        "control": ("six epochs", "deep and narrow", "long horizon"),
        "language": ("three epochs", "middling net", "clip a quarter"),
    },
}
SEEDS: Mapping[Split, tuple[int, ...]] = {
    "training": (0, 1, 2),
    "development": (101, 102, 103, 701, 702),
    "held-out": (2001, 2002, 2003),
}
SEVERITIES = (1, 2, 3)
#: Sound runs in rounds over all tasks, a seed for each round: so many that a third of all runs is healthy or benign.
SOUND_SEEDS: Mapping[Split, tuple[int, ...]] = {
    "training": (10, 30, 50, 70, 210, 230),
    "development": (110, 710),
    "held-out": (2010, 2030, 2050, 2070),
}
UNSEEN_SEEDS: Mapping[Split, tuple[int, ...]] = {
    "training": (),
    "development": (410,),
    "held-out": (2210, 2230, 2250, 2270),
}
#: What only looks like a failure goes over all tasks that the training side has not: from this seed on, one each.
BENIGN_SEED = 2601
AFTERWARDS_SEED = 2801
UPDATES = 60
QUICK_UPDATES = 40
#: First dialect of a group → faults of its few short runs.
QUICK: Mapping[str, tuple[str, ...]] = {
    "canonical": (
        "old-policy-aliased",
        "epochs-not-executed",
        "grad-clip-starves",
        "advantage-sign-flipped",
    ),
    "trl-grpo": (
        "adv-exactly-zero",
        "lr-zero",
        "token-misalignment",
        "group-std-zero-partial",
    ),
    "sb3": ("lr-too-high", "target-kl-stops-early", "reward-pipeline-broken", "nan-inf"),
    "cleanrl": (
        "old-logp-resynced-per-minibatch",
        "optimizer-orphaned-params",
        "entropy-explosion",
        "critic-worse-than-mean",
    ),
    "trl-ppo": (
        "kl-penalty-too-strong",
        "ref-model-wrong",
        "whiten-amplifies-noise",
        "truncation-dominates",
    ),
    "trl-ppo-legacy": (
        "adam-eps-dominates",
        "bf16-swallowed-update",
        "weights-not-synced",
        "late-collapse",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training run; its log is written in each of `dialects`."""

    fault: str
    split: Split
    dialects: tuple[str, ...]
    variant: str
    severity: int
    seed: int
    updates: int = UPDATES

    @property
    def task(self) -> Task:
        """The task that its dialects are of."""
        return dialect_task(self.dialects[0])

    def folder(self, root: Path, dialect: str) -> Path:
        """Return where the log of one dialect lies."""
        variant = self.variant.replace(" ", "-")
        return root / self.split / self.fault / f"{dialect}.{variant}.{self.severity}-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One log with the truth about it."""

    fault: str
    cause: str
    split: Split
    dialect: str
    variant: str
    severity: int
    seed: int
    log: Path


def trainings(splits: Iterable[Split] = SPLITS) -> Iterator[Training]:
    """Yield the whole plan in a fixed order."""
    for split in splits:
        for fault in sorted(FAULTS):
            for dialects in _shared():
                yield from (_sound if fault == "healthy" else _faulty)(split, fault, dialects)
                if split == "held-out" and sound(fault):
                    yield from _beyond(fault, dialects)


def quick() -> dict[str, list[Training]]:
    """Return a few short runs for each group of dialects, under the name of its first; their seeds are nowhere else."""
    told: dict[str, list[Training]] = {}
    for place, dialects in enumerate(_shared()):
        base = Training(
            fault="healthy",
            split="held-out",
            dialects=dialects,
            variant="plain",
            severity=2,
            seed=901 + place,
            updates=QUICK_UPDATES,
        )
        calm = [*UNSEEN[base.task]][place % 3 : place % 3 + 1]
        told[dialects[0]] = [
            *(replace(base, fault=fault) for fault in QUICK[dialects[0]]),
            *(replace(base, variant=variant, seed=base.seed + 10) for variant in calm),
        ]
    return told


def _shared() -> list[tuple[str, ...]]:
    """Return the dialects that are written of one training: those whose conventions are the same."""
    free = tuple(dialect for dialect in WRITERS if dialect in TASK_FREE_DIALECTS)
    grpo = tuple(dialect for dialect in WRITERS if dialect.startswith("trl-grpo"))
    return [free, grpo, *((dialect,) for dialect in WRITERS if dialect not in (*free, *grpo))]


def _faulty(split: Split, fault: str, dialects: tuple[str, ...]) -> Iterator[Training]:
    """Severities in turn, each with a seed and a task of its own; on the training side severity 2 twice."""
    variants = FAULTY_IN[split][dialect_task(dialects[0])]
    for index, seed in enumerate(SEEDS[split]):
        first = index % len(SEVERITIES)
        turned = SEVERITIES[first:] + SEVERITIES[:first]
        for severity in turned[: 2 if split == "training" and index == 0 else 1]:
            yield Training(
                fault=fault, split=split, dialects=dialects, variant=variants[index], severity=severity, seed=seed
            )


def _sound(split: Split, fault: str, dialects: tuple[str, ...]) -> Iterator[Training]:
    task = dialect_task(dialects[0])
    unseen = (*UNSEEN[task], *(NEW[task] if split == "held-out" else ()))
    for seeds, variants in ((SOUND_SEEDS[split], tuple(VARIANTS[task])), (UNSEEN_SEEDS[split], unseen)):
        for seed in seeds:
            for place, variant in enumerate(variants):
                severity = SEVERITIES[(place + seed) % 3]
                yield Training(
                    fault=fault, split=split, dialects=dialects, variant=variant, severity=severity, seed=seed + place
                )


def _beyond(fault: str, dialects: tuple[str, ...]) -> Iterator[Training]:
    task = dialect_task(dialects[0])
    seen = () if fault == "healthy" else (*UNSEEN[task], *NEW[task])
    for first, variants in ((BENIGN_SEED, seen), (AFTERWARDS_SEED, tuple(AFTERWARDS[task]))):
        for place, variant in enumerate(variants):
            yield Training(
                fault=fault,
                split="held-out",
                dialects=dialects,
                variant=variant,
                severity=SEVERITIES[place % 3],
                seed=first + place,
            )


def possible(training: Training) -> bool:
    """Tell whether a fault can be injected into this kind of training."""
    setup = Setup(replace(base_config(training.task, training.dialects[0]), updates=UPDATES), Stages())
    try:
        FAULTS[training.fault].inject(setup, training.severity)
    except ValueError:  # this fault is of the other task
        return False
    return True


def sound(fault: str, dialect: str | None = None) -> bool:
    """Tell whether nothing may be alarmed of under a fault: health, and what only looks like a failure."""
    return FAULTS[fault].sound(dialect)


def begins(fault: str, severity: int) -> float:
    """Return the share of a run after which a fault begins; 0 from the start."""
    if fault in _BEGINS:
        return _BEGINS[fault][severity]
    late = "onset" in FAULTS[fault].inject.__code__.co_names
    return onset(severity) if late else 0.0


#: Faults with a clock of their own; the others begin at once, or with their severity's `onset`.
_BEGINS: Mapping[str, Mapping[int, float]] = {
    "late-collapse": {1: 0.7, 2: 0.62, 3: 0.55},
    "nan-inf": {1: 0.75, 2: 0.5, 3: 0.25},
}


def overrides(training: Training) -> Mapping[str, Any]:
    """Return what the variant changes of the sound configuration."""
    tasks = (VARIANTS, UNSEEN, NEW, AFTERWARDS)
    return next(found[training.task][training.variant] for found in tasks if training.variant in found[training.task])


def train(root: Path, training: Training) -> int:
    """Train one run and write it in each of its dialects; return the number of logs that are there now."""
    wanted = [dialect for dialect in training.dialects if not _done(training.folder(root, dialect))]
    if not wanted:
        return len(training.dialects)
    if not possible(training):
        return 0
    record = run(
        training.fault,
        task=training.task,
        seed=training.seed,
        severity=training.severity,
        updates=training.updates,
        dialect=training.dialects[0],
        **overrides(training),
    )
    return sum(_written(root, training, dialect, record) for dialect in wanted)


def _written(root: Path, training: Training, dialect: str, record: Any) -> bool:
    folder = training.folder(root, dialect)
    try:
        log = write(record, dialect, folder)
    except ValueError:  # this dialect is of another algorithm
        return False
    truth = asdict(training) | {"dialect": dialect, "cause": FAULTS[training.fault].cause_in(dialect), "log": log.name}
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    return True


def _done(folder: Path) -> bool:
    return (folder / "truth.json").is_file()


def cases(root: Path, plan: Iterable[Training] | None = None) -> list[Case]:
    """Return the logs of a plan that a corpus holds, each with its truth, in a fixed order."""
    asked = [training for training in (trainings() if plan is None else plan) if possible(training)]
    folders = {training.folder(root, dialect) for training in asked for dialect in training.dialects}
    return [_case(path) for path in sorted(root.glob("*/*/*/truth.json")) if path.parent in folders]


def _case(path: Path) -> Case:
    truth = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: truth[name] for name in ("fault", "split", "dialect", "variant", "severity", "seed")}
    cause = FAULTS[kept["fault"]].cause_in(kept["dialect"])
    return Case(**kept, cause=cause, log=path.parent / truth["log"])


def make(root: Path, plan: Iterable[Training], *, jobs: int) -> int:
    """Train what is not there yet; return the number of logs."""
    if jobs == 1:
        return sum(train(root, training) for training in plan)
    with ProcessPoolExecutor(jobs) as pool:
        return sum(pool.map(partial(train, root), plan, chunksize=4))


def main() -> None:
    """Make a corpus."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    plan = [training for training in trainings() if possible(training)]
    logs = make(given.folder, plan, jobs=given.jobs)
    calm = sum(sound(training.fault) for training in plan)
    sys.stdout.write(f"{len(plan)} runs, {calm} of them healthy or benign; {logs} logs in {given.folder}\n")


if __name__ == "__main__":
    main()
