"""Does a generation batch hold a whole number of groups? Trainers that compare answers in groups refuse another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ppo_doctor.frameworks.domains import COMPARE_GROUPS

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import ConfigValue, Setting

#: How launchers name the number of processes.
PROCESSES = ("num_processes", "world_size", "nproc_per_node", "num_gpus", "n_gpus", "nproc")
#: Processes that people start; seven beside one that generates.
USUAL_PROCESSES, BESIDE_A_SAMPLER = (1, 2, 3, 4, 6, 8), 7
SAMPLER = ("use_vllm", "vllm_mode")


def broken_groups(observations: Observations) -> Iterator[tuple[Setting, str]]:
    """Yield the group size that no batch of the configuration holds a whole number of, and what is wrong in words.

    A batch is what is told as one, else the answers of a device times its steps per generation and the processes.
    """
    run = observations.run
    size = observations.number("num_generations")
    if run.framework not in COMPARE_GROUPS or not observations.configured("num_generations") or not size or size < 1:
        return
    told = _whole(run.config_raw, "generation_batch_size")
    batch, words = (told[1], f"{told[0]} = {told[1]}") if told is not None else _of_a_device(observations)
    if batch is None:
        return
    setting, needed = run.config["num_generations"], int(size) // math.gcd(int(size), batch)
    if needed == 1 or (told is None and not _refused(needed, run.config_raw)):
        return
    unless = "" if told is not None else f", unless processes are a multiple of {needed}"
    yield (
        setting,
        f"{setting.key} = {size:g}, {words}: a batch is no whole number of groups{unless}; the trainer refuses it",
    )


def _refused(needed: int, raw: Mapping[str, ConfigValue]) -> bool:
    """Tell whether no number of processes that is told, or else usual, is a multiple of what the groups need."""
    told = next((found for name in PROCESSES if (found := _whole(raw, name)) is not None), None)
    if told is not None:
        return told[1] % needed != 0
    apart = any(raw.get(name) not in (None, False) for name in SAMPLER)
    return all(number % needed for number in (*USUAL_PROCESSES, *((BESIDE_A_SAMPLER,) if apart else ())))


def _of_a_device(observations: Observations) -> tuple[int | None, str]:
    """Return the answers that one device makes per generation, and in words how; None where nothing tells."""
    if not observations.configured("minibatch_size"):
        return None, ""
    parts: list[tuple[str, int]] = []
    steps = "steps_per_generation" if observations.configured("steps_per_generation") else "gradient_accumulation_steps"
    for name in ("minibatch_size", steps):
        value = observations.number(name)
        if not observations.configured(name):
            continue
        if value is None or value < 1 or not value.is_integer():
            return None, ""
        parts.append((observations.run.config[name].key, int(value)))
    return math.prod(value for _, value in parts), ", ".join(f"{key} = {value}" for key, value in parts)


def _whole(raw: Mapping[str, ConfigValue], name: str) -> tuple[str, int] | None:
    """Return a setting that holds a whole number from 1 on, by the last part of its key."""
    for key, value in raw.items():
        if key.rpartition(".")[2] == name and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return key, value
    return None
