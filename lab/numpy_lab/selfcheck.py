"""Assertions on the physics of every fault, on raw records and on written logs."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .agent import Agent
from .dialects import write
from .faults import FAULTS
from .measures import Measures, cells, measure
from .presets import base_config, dialect_task
from .records import MinibatchRecord, RunRecord
from .settings import Task
from .train import configured_steps, run

Check = Callable[[RunRecord, Measures], None]
_TRAINED_AS = ("sb3", "trl-grpo", "trl-ppo", "trl-ppo-legacy")
_UPDATES: dict[Task, int] = {"control": 80, "language": 60}
_ROUNDING = 2.0**-20
"""What float32 arithmetic leaves of a zero, whatever the order of its sums: eight times its resolution at 1."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _nothing(*values: float) -> bool:
    return all(abs(value) <= _ROUNDING for value in values)


def _one(cell: MinibatchRecord) -> bool:
    return _nothing(cell.ratio_min - 1, cell.ratio_max - 1)


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records hold the same names and, up to what rounding grows to in some updates, numbers."""
    numbers = [name for name, value in one.items() if isinstance(value, int | float)]
    first, second = (np.array([record[name] for name in numbers], float) for record in (one, other))
    return one.keys() == other.keys() and bool(np.allclose(first, second, rtol=1e-3, atol=1e-5, equal_nan=True))


def _healthy(record: RunRecord, seen: Measures) -> None:
    least = 5 * seen.score_first if record.task == "control" else 0.35 + seen.score_first
    require(seen.score_last > least, f"it learns: {seen.score_first:.3f} → {seen.score_last:.3f}")
    require(1e-4 < seen.k3 < 2e-2, f"KL {seen.k3:.2e} is usual")
    require(seen.clip_fraction < 0.3, f"clip fraction {seen.clip_fraction:.2f} is usual")
    require(seen.steps_mean == configured_steps(record.config), "every configured step is executed")
    first = [update.minibatches[0] for update in record.updates]
    require(all(_one(cell) for cell in first), "each update starts at ratio 1")


def _benign(record: RunRecord, seen: Measures) -> None:
    require(seen.steps_mean == 1 == configured_steps(record.config), "one step, as configured")
    require(_nothing(seen.k3_max, seen.ratio_deviation_max), "ratio 1 by construction")
    require(seen.probe_kl > 1e-4 and seen.score_last > 2 * seen.score_first, "the policy moves and learns")


def _zero_advantages(record: RunRecord, seen: Measures) -> None:
    require(_nothing(seen.policy_loss_max), "policy loss is 0")
    require(seen.grad_norm == 0 == seen.update_norm, "no gradient, no update")
    require(_nothing(seen.k3_max, seen.probe_kl), "KL is 0")
    require(all(update.learning_rate > 0 for update in record.updates), "the learning rate is alive")


def _zero_rate(record: RunRecord, seen: Measures) -> None:
    require(all(update.learning_rate == 0 for update in record.updates), "the learning rate is exactly 0")
    require(_nothing(seen.k3_max, seen.ratio_deviation_max), "KL is 0 in every record")
    require(seen.grad_norm > 0 == seen.update_norm, "gradient without update")


def _tight_clip(_record: RunRecord, seen: Measures) -> None:
    require(seen.clip_fraction > 0.4, f"clip fraction {seen.clip_fraction:.2f} is high")
    require(seen.k3 < 5e-3, f"KL {seen.k3:.1e} stays small")


def _early_stop(record: RunRecord, seen: Measures) -> None:
    require(seen.steps_mean < 0.5 * configured_steps(record.config), f"{seen.steps_mean} steps: most are cut")
    require(seen.k3_max > 1e-5 and seen.probe_kl > 0, "the policy moves")


def _self_ratio(record: RunRecord, seen: Measures) -> None:
    require(_nothing(seen.k3_max, seen.ratio_deviation_max), "the ratio is 1 in every minibatch")
    require(seen.update_norm > 1e-2 and seen.probe_kl > 1e-3, "while the policy moves")
    require(abs(seen.entropy_last - seen.entropy_first) > 0.1, "and entropy moves")
    require(seen.steps_mean == configured_steps(record.config) > 1, "in several steps per rollout")


def _missing_epochs(record: RunRecord, seen: Measures) -> None:
    require(4 * seen.steps_mean == configured_steps(record.config), "a quarter of the configured steps is executed")
    require(seen.probe_kl > 0, "the policy moves")


def _broken_numbers(record: RunRecord, _seen: Measures) -> None:
    lost = [not math.isfinite(update.minibatches[-1].grad_norm) for update in record.updates]
    first = lost.index(True)
    require(first >= 0.4 * len(lost), f"numbers break midway, at {first}")
    require(all(lost[first:]), "and stay broken")


def _never_moves(record: RunRecord, seen: Measures) -> None:
    late = record.updates[len(record.updates) * 2 // 3 :]
    require(all(update.update_norm < 1e-3 * max(seen.grad_norm, 1) for update in late), "the late updates hardly move")


def _starved(_record: RunRecord, seen: Measures) -> None:
    require(seen.k3 < 1e-6 and seen.grad_norm > 0, f"KL {seen.k3:.1e} is rounding, the gradient is alive")


def _no_gradient(record: RunRecord, _seen: Measures) -> None:
    require(record.updates[-1].minibatches[-1].grad_norm == 0, "no gradient at the end")
    require(record.updates[-1].update_norm < 1e-3, "no movement at the end")


def _overflow(_record: RunRecord, seen: Measures) -> None:
    require(math.isinf(seen.grad_norm) and seen.steps_mean == 0, "every step overflows and is skipped")


def _held_in_place(_record: RunRecord, seen: Measures) -> None:
    require(abs(seen.score_last - seen.score_first) < 0.05, "the reward stays where it was")


def _copied(record: RunRecord, _seen: Measures) -> None:
    late = [u.rollout.completions for u in record.updates[len(record.updates) // 2 :]]
    require(all(c is not None and c.frac_reward_zero_std == 1 for c in late), "every group is one text, and earns one")
    require(record.updates[-1].minibatches[-1].entropy > 0.1, "of a policy that could say other things")


def _foreseen(record: RunRecord, _seen: Measures) -> None:
    told = [update.rollout for update in record.updates]
    require(all(r.explained_variance > 0.99 for r in told), "the critic knows the returns")
    require(all(r.advantages_raw_std < 0.1 * r.returns_std for r in told), "and leaves next to nothing")


def _masked_out(record: RunRecord, _seen: Measures) -> None:
    told = [update.rollout.importance for update in record.updates]
    few = sum(ratios is not None and ratios[0] < 0.5 and ratios[1] == 0 for ratios in told)
    require(few > 0.5 * len(told), f"most sequences are masked in {few} of {len(told)} batches")


def _resynced(record: RunRecord, _seen: Measures) -> None:
    later = [cell for update in record.updates for cell in update.minibatches if cell.minibatch == 0]
    require(all(_one(cell) for cell in later), "each epoch starts at ratio 1")
    require(record.updates[-1].update_norm > 1e-3, "while the policy moves")


def _stale_sampler(record: RunRecord, seen: Measures) -> None:
    require(_nothing(seen.clip_fraction, seen.k3_max), "the ratio is 1")
    require(max(update.rollout_kl or 0.0 for update in record.updates) > 0.02, "the sampler is far behind")


def _noise(_record: RunRecord, seen: Measures) -> None:
    require(seen.k3 > 1e-6 and seen.ratio_deviation_max > 1e-3, "the ratio has a spread")


def _no_ratio(_record: RunRecord, seen: Measures) -> None:
    require(_nothing(seen.k3_max) and seen.probe_kl > 1e-4, "ratio 1 by definition, and the policy moves")


def _controlled(record: RunRecord, _seen: Measures) -> None:
    require(record.updates[-1].learning_rate == 1e-5, "the controller ends at its lower bound")


def _decayed(record: RunRecord, _seen: Measures) -> None:
    require(record.updates[-1].learning_rate < 0.05 * record.updates[0].learning_rate, "the schedule decays")


CHECKS: Mapping[str, Check] = {
    # decision table
    "lr-too-small": _starved,
    "duplicate-generations": _copied,
    "baseline-absorbs-signal": _foreseen,
    "is-mask-discards-batch": _masked_out,
    "grad-clip-starves": _starved,
    "adam-eps-dominates": _starved,
    "bf16-swallowed-update": _starved,
    "loss-mask-empty": _no_gradient,
    "no-grad-path": _no_gradient,
    "critic-warmup-actor-frozen": _no_gradient,
    "optimizer-orphaned-params": _never_moves,
    "amp-step-skipped": _overflow,
    "kl-penalty-too-strong": _held_in_place,
    "kl-coef-runaway": _held_in_place,
    "lr-controller-saturated": _controlled,
    "old-logp-resynced-per-epoch": _resynced,
    "idle-clip": _stale_sampler,
    "placebo-ratio-noise": _noise,
    "loss-has-no-ratio": _no_ratio,
    "benign-schedule": _decayed,
    "healthy": _healthy,
    "benign-single-update": _benign,
    "adv-exactly-zero": _zero_advantages,
    "lr-zero": _zero_rate,
    "clip-range-too-small": _tight_clip,
    "target-kl-stops-early": _early_stop,
    "old-policy-aliased": _self_ratio,
    "old-logp-resynced-per-minibatch": _self_ratio,
    "epochs-not-executed": _missing_epochs,
    "nan-inf": _broken_numbers,
}


def selfcheck(seeds: tuple[int, ...] = (0,)) -> None:
    """Raise AssertionError where a fault does not do what it says."""
    require(set(CHECKS) <= set(FAULTS), f"a check without its fault: {set(CHECKS) - set(FAULTS)}")
    check_batch_invariance()
    for dialect in _TRAINED_AS:
        for seed in seeds:
            check_physics(dialect, seed)
            check_switches(dialect, seed)
    check_twins()
    check_written_logs()
    print("selfcheck passed")


def check_physics(dialect: str, seed: int, updates: int | None = None) -> None:
    task = dialect_task(dialect)
    for fault, check in CHECKS.items():
        try:
            record = run(fault, task=task, dialect=dialect, seed=seed, updates=updates or _UPDATES[task])
        except ValueError:  # this fault and this dialect do not go together
            continue
        try:
            check(record, measure(record))
        except AssertionError as error:
            raise AssertionError(f"{fault} as {dialect}, seed {seed}: {error}") from None
        print(f"{fault:32s} {dialect:15s} seed {seed}  {measure(record).line()}")


def check_switches(dialect: str, seed: int, updates: int | None = None) -> None:
    """Every fault without a check of its own at least changes what is recorded or how it is written."""
    task = dialect_task(dialect)
    lasting = updates or _UPDATES[task]
    sound = run("healthy", task=task, dialect=dialect, seed=seed, severity=2, updates=lasting)
    for fault in sorted(set(FAULTS) - set(CHECKS)):
        try:
            record = run(fault, task=task, dialect=dialect, seed=seed, updates=lasting)
        except ValueError:  # this fault and this dialect do not go together
            continue
        changed = (record.config, repr(record.updates)) != (sound.config, repr(sound.updates))
        require(changed, f"{fault} as {dialect} changes nothing")


def check_batch_invariance() -> None:
    """A row has one log-prob, whatever the batch: a ratio of 1 then means that the weights are the same."""
    rng = np.random.default_rng(0)
    agent = Agent(base_config("control", None), 4, 2, rng)
    inputs, actions = rng.normal(size=(512, 4)).astype(np.float32), rng.integers(0, 2, 512)
    whole = agent.log_prob(inputs, actions)
    for size in (1, 7, 8, 128, 512):
        chosen = rng.permutation(512)[:size]
        part = agent.log_prob(inputs[chosen], actions[chosen])
        require(_nothing(*(part - whole[chosen])), f"log-probs differ in a batch of {size}")


def check_twins() -> None:
    """Aliased and re-synced old log-probs are two implementations of one effect."""
    one, other = (run(name, updates=10) for name in ("old-policy-aliased", "old-logp-resynced-per-minibatch"))
    alike = [_alike(asdict(a), asdict(b)) for a, b in zip(cells(one), cells(other), strict=True)]
    require(all(alike), "the twins give the same records")


def check_written_logs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _check_repeats(Path(folder))
        _check_sb3(Path(folder))
        _check_determinism(Path(folder))


def _check_repeats(folder: Path) -> None:
    """Self-ratio without a minibatch split: the loss repeats bitwise within a generation, the gradient moves."""
    history = _history(folder / "aliased", "old-policy-aliased")
    batches = [list(group) for _, group in groupby(history, key=lambda step: (step["step"] - 1) // 4)]
    require(all(len({step["loss"] for step in batch}) == 1 for batch in batches), "the loss repeats bitwise")
    require(all(len({step["grad_norm"] for step in batch}) == 4 for batch in batches), "while the gradient moves")
    sound = _history(folder / "sound", "healthy")
    require(sum(a["loss"] == b["loss"] for a, b in pairwise(sound)) == 0, "not in a sound run")
    require([step["step"] for step in sound if "reward" in step] == list(range(1, len(sound) + 1, 4)), "K = 4")
    dropped = _history(folder / "dropped", "epochs-not-executed")
    require(all("reward" in step for step in dropped), "without epochs every step is a generation step")


def _history(folder: Path, fault: str) -> list[dict[str, Any]]:
    record = run(fault, task="language", dialect="trl-grpo", updates=20)
    state = json.loads(write(record, "trl-grpo", folder).read_text(encoding="utf-8"))
    history: list[dict[str, Any]] = state["log_history"][:-1]
    return history


def _check_sb3(folder: Path) -> None:
    record = run("lr-zero", dialect="sb3", updates=12)
    header, *rows = write(record, "sb3", folder / "sb3").read_text(encoding="utf-8").splitlines()
    table = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    require(len(table) == 12 and table[0]["train/approx_kl"] == "", "the first row has no training yet")
    require(_nothing(*(float(row["train/approx_kl"]) for row in table[1:])), "KL is 0")
    require([row["train/n_updates"] for row in table[1:3]] == ["4", "8"], "n_updates counts epochs")


def _check_determinism(folder: Path) -> None:
    logs = [write(run("healthy", updates=5), "canonical", folder / str(i)) for i in range(2)]
    one, other = ([json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[1:]] for log in logs)
    require(all(_alike(a, b) for a, b in zip(one, other, strict=True)), "the same seed gives the same log")
