"""Data for the benchmarks, made by a generator: the same bytes for the same sizes on every machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

#: What a PPO run logs, under the names that our own log format has.
METRICS = [
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
    *("learning_rate", "grad_norm", "explained_variance", "episode_return", "ratio_std"),
]
CONFIG = {"ppo_epochs": 4, "num_minibatches": 4, "clip_range": 0.2}


def names(columns: int) -> list[str]:
    """Return `columns` metric names: those of a run, then what else its authors log."""
    return [*METRICS, *(f"extra/metric_{number}" for number in range(columns))][:columns]


def every_name() -> list[str]:
    """Return all canonical metrics that a trainer can log."""
    from ppo_doctor.model.metrics import METRICS as VOCABULARY
    from ppo_doctor.model.metrics import loggable

    return [name for name in VOCABULARY if loggable(name)]


def values(keys: list[str], seed: int) -> Iterator[dict[str, float]]:
    """Yield records of sound-looking numbers for ever, with all their digits."""
    numbers = random.Random(seed)
    while True:
        yield {key: numbers.uniform(0.01, 0.9) for key in keys}


def jsonl(path: Path, records: int, columns: int | list[str], *, seed: int = 0, dirt: str = "") -> Path:
    """Write a canonical log of so many columns, or of those that are named.

    `dirt`: "nan" (every tenth record), "torn" (every hundredth line), "mixed" key sets.
    """
    keys = names(columns) if isinstance(columns, int) else columns
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"ppo_doctor": 1, "config": CONFIG}) + "\n")
        for step, record in zip(range(records), values(keys, seed), strict=False):
            line = json.dumps({"step": step, **_dirty(record, step, dirt)})
            torn = dirt == "torn" and step % 100 == 50
            file.write((line[: len(line) // 2] if torn else line) + "\n")
    return path


def _dirty(record: dict[str, float], step: int, dirt: str) -> dict[str, float]:
    if dirt == "nan" and step % 10 == 5:
        return {key: float("nan") if place % 4 == 0 else value for place, (key, value) in enumerate(record.items())}
    if dirt == "mixed":
        return {key: value for place, (key, value) in enumerate(record.items()) if place % 7 != step % 7}
    return record


def csv(path: Path, records: int, columns: int, *, resumed: bool) -> Path:
    """Write a CSV as Stable-Baselines3 does; `resumed` repeats the header in the middle."""
    header = ",".join(["time/total_timesteps", *(f"train/metric_{number}" for number in range(columns - 3))])
    header += ",train/approx_kl,train/clip_fraction"
    numbers = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(header + "\n")
        for step in range(records):
            if resumed and step == records // 2:
                file.write(header + "\n")
            row = [str(step * 2048), *(repr(numbers.uniform(0.01, 0.9)) for _ in range(columns - 1))]
            file.write(",".join(row) + "\n")
    return path


def runs(folder: Path, count: int, records: int = 500) -> Path:
    """Write `count` logs, each in a folder of its own as seeds of a sweep are."""
    for number in range(count):
        place = folder / f"seed-{number:05d}"
        place.mkdir(parents=True, exist_ok=True)
        jsonl(place / "run.jsonl", records, len(METRICS), seed=number)
    return folder


def dump(path: Path, tokens: int) -> Path:
    """Write float32 log-probs and advantages of sound training, a tenth of them padding behind a mask."""
    import numpy as np

    chance = np.random.default_rng(0)
    old = -chance.standard_exponential(tokens, dtype=np.float32)
    new = old + np.float32(0.05) * chance.standard_normal(tokens, dtype=np.float32)
    mask = np.arange(tokens) % 10 < 9
    advantages = chance.standard_normal(tokens, dtype=np.float32)
    np.savez(path, log_probs=new, old_log_probs=old, advantages=advantages, response_mask=mask)
    return path
