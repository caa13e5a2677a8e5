"""Compute the optimizer steps per rollout batch (K) with the formula of each framework, and find planned lengths.

Formulas differ in kind (ceil, floor, dropped tails, wrap-around), so a profile names one function and maps settings to
its arguments. Arguments are positive numbers; the result is fractional if sizes do not divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.model.run import Fact, SourceRef
from ppo_doctor.trainers.names import parse
from ppo_doctor.trainers.profiles import UPDATES_PER_BATCH, UpdateFormula

if TYPE_CHECKING:
    from ppo_doctor.model.run import Setting
    from ppo_doctor.model.words import ConfigValue, How
    from ppo_doctor.trainers.profiles import Profile


def direct(updates: float) -> float:
    """Return K itself, for configurations that contain it."""
    return updates


def epochs_times_minibatches(epochs: float, minibatches: float) -> float:
    """Return K of rsl_rl, skrl and Brax, which split the batch into a fixed number of minibatches in every epoch."""
    return epochs * minibatches


def epochs_times_batches(epochs: float, rollout: float, minibatch: float) -> float:
    """Return K of torchtune and trlX, which require that the minibatch size divides the rollout."""
    return epochs * rollout / minibatch


def epochs_times_ceil(epochs: float, rollout: float, minibatch: float) -> float:
    """Return K if the last, partial minibatch of an epoch is kept, as in Stable-Baselines3."""
    return epochs * math.ceil(rollout / minibatch)


def epochs_times_floor(epochs: float, rollout: float, minibatch: float) -> float:
    """Return K of ppo1, ML-Agents and torchrl's examples, which drop the tail of an epoch, so that K may be 0."""
    return epochs * math.floor(rollout / minibatch)


def epochs_times_floor_or_one(epochs: float, rollout: float, minibatch: float) -> float:
    """Return K of RLlib's old stack and Tianshou, which drop or merge the tail but use a batch that is too small."""
    return epochs * max(1, math.floor(rollout / minibatch))


def sb3(epochs: float, steps: float, envs: float, minibatch: float) -> float:
    """Return K of Stable-Baselines3, whose rollout has n_steps of n_envs environments."""
    return epochs_times_ceil(epochs, steps * envs, minibatch)


def cleanrl(epochs: float, steps: float, envs: float, minibatches: float) -> float:
    """Return K of CleanRL: the minibatch size is rollout // num_minibatches, and a tail becomes one more minibatch."""
    rollout = steps * envs
    return epochs_times_ceil(epochs, rollout, max(1, math.floor(rollout / minibatches)))


def rl_games(epochs: float, steps: float, envs: float, minibatch: float) -> float:
    """Return K of rl_games, which refuses a minibatch that does not divide the rollout of all actors."""
    return epochs_times_batches(epochs, steps * envs, minibatch)


def rllib_cyclic(epochs: float, rollout: float, minibatch: float) -> float:
    """Return K of RLlib's new stack: full minibatches wrap around the batch until it is covered `epochs` times."""
    return math.ceil(epochs * rollout / minibatch)


def pufferlib(epochs: float, rollout: float, minibatch: float, largest: float) -> float:
    """Return K of PufferLib 3: segments are drawn at random, and minibatches above the largest size accumulate."""
    draws = math.floor(epochs * rollout / min(minibatch, largest))
    return draws // max(1, math.floor(minibatch / largest))


def trl_grpo(iterations: float, steps_per_generation: float, accumulation: float) -> float:
    """Return K of TRL's GRPO: `iterations` passes over a generation batch, `accumulation` micro-steps per update."""
    return iterations * steps_per_generation / accumulation


def trl_ppo(epochs: float, minibatches: float, accumulation: float) -> float:
    """Return K of TRL's PPOTrainer, which steps every `accumulation` micro-batches, whatever a minibatch is.

    A minibatch is ceil(accumulation / minibatches) micro-batches; optimizer steps counted with TRL 1.12.
    """
    return epochs * minibatches * math.ceil(accumulation / minibatches) / accumulation


def trl_ppo_filled(minibatches: float, accumulation: float) -> float:
    """Return the share of TRL's PPO statistics that is filled; the rest stays 0 and lowers the mean.

    Each of `accumulation` micro-batches has a cell, but a minibatch fills only ceil(accumulation / minibatches).
    """
    return math.ceil(accumulation / minibatches) / accumulation


def trl_legacy(epochs: float, batch: float, minibatch: float, accumulation: float) -> float:
    """Return K of TRL up to 0.11, which steps every `accumulation` minibatches."""
    return epochs * batch / (minibatch * accumulation)


def verl(epochs: float, prompts: float, minibatch: float) -> float:
    """Return K of verl, which counts train batch and minibatch in prompts, so that completions per prompt cancel.

    A partial last minibatch is kept, and a minibatch size above that of the batch gives one minibatch.
    """
    return epochs_times_ceil(epochs, prompts, minibatch)


def completions_over_batch(epochs: float, prompts: float, completions: float, batch: float) -> float:
    """Return K of OpenRLHF and NeMo-RL: the rollout is prompts times completions, `batch` counts completions."""
    return epochs * prompts * completions / batch


def single_pass(prompts: float, completions: float, batch: float) -> float:
    """Return K of slime, which passes over the rollout once."""
    return completions_over_batch(1, prompts, completions, batch)


def rollout_over_batch(rollout: float, batch: float) -> float:
    """Return K of NeMo-Aligner, which passes over the rollout once in global batches."""
    return rollout / batch


def roll(
    epochs: float, prompts: float, completions: float, ranks: float, minibatch: float, accumulation: float
) -> float:
    """Return K of ROLL: each data-parallel rank passes over its share in steps of micro-batch times accumulation."""
    return epochs * (prompts * completions / ranks) / (minibatch * accumulation)


def deepspeed_chat(epochs: float, batches: float, generated: float, trained: float, accumulation: float) -> float:
    """Return K of DeepSpeed-Chat, which collects generation batches until `batches` of them are trained on."""
    return epochs * batches * generated / (trained * accumulation)


def llama_factory(epochs: float, buffer: float) -> float:
    """Return K of LLaMA-Factory, the legacy TRL trainer on a buffer of `ppo_buffer_size` optimizer batches."""
    return epochs * buffer


def minimind(epochs: float, batch: float, minibatch: float, accumulation: float) -> float:
    """Return K of minimind: partial minibatches are kept, and gradients of several of them accumulate."""
    return epochs * math.ceil(batch / minibatch) / accumulation


_ALL = (
    direct,
    epochs_times_minibatches,
    epochs_times_batches,
    epochs_times_ceil,
    epochs_times_floor,
    epochs_times_floor_or_one,
    sb3,
    cleanrl,
    rl_games,
    rllib_cyclic,
    pufferlib,
    trl_grpo,
    trl_ppo,
    trl_ppo_filled,
    trl_legacy,
    verl,
    completions_over_batch,
    single_pass,
    rollout_over_batch,
    roll,
    deepspeed_chat,
    llama_factory,
    minimind,
)

FUNCTIONS: Mapping[str, Callable[..., float]] = MappingProxyType({function.__name__: function for function in _ALL})


#: Concepts of units of a run's length, of words that may accompany them, and of a decay of the learning rate.
UNITS = frozenset({"step", "epoch", "iteration", "update", "episode"})
WHOLE = frozenset({"total", "max", "count"})
DECAY = frozenset({"learning_rate", "decay"})

_WEAKEST: tuple[How, ...] = ("default", "observed")


def configured_updates(profile: Profile, settings: Mapping[str, Setting]) -> Fact | None:
    """Return K by the framework's formula, None if an argument is missing.

    `how` is the weakest of its arguments: default, observed, configured.
    """
    facts = [fact for formula in _formulas(profile) if (fact := _apply(formula, settings, profile))]
    return min(facts, key=lambda fact: fact.how == "default", default=None)


def deciding_setting(profile: Profile, known: Iterable[str]) -> str:
    """Return the native key, for `--set`, of the setting that would decide K together with the known ones.

    If several are missing, it is the key of K itself.
    """
    given = set(known)
    lacking = [set(formula.arguments.values()) - given for formula in profile.updates]
    single = (name for names in lacking if len(names) == 1 for name in names)
    one = next((name for name in single if name != UPDATES_PER_BATCH), UPDATES_PER_BATCH)
    return profile.config.get(one, (one,))[0]


def _formulas(profile: Profile) -> tuple[UpdateFormula, ...]:
    """Return the formulas of a profile, after one for K itself."""
    return (UpdateFormula(function="direct", arguments={"updates": UPDATES_PER_BATCH}), *profile.updates)


def _apply(formula: UpdateFormula, settings: Mapping[str, Setting], profile: Profile) -> Fact | None:
    used = {argument: settings.get(name) for argument, name in formula.arguments.items()}
    numbers = {argument: _positive(setting) for argument, setting in used.items()}
    if any(number is None for number in numbers.values()):
        return None
    value = FUNCTIONS[formula.function](**numbers)
    hows = {setting.how for setting in used.values() if setting}
    first = next(setting for setting in used.values() if setting)
    keys = ", ".join(_written(profile, name, settings[name]) for name in formula.arguments.values() if name in settings)
    return Fact(
        name="updates_configured",
        value=value,
        how=next((how for how in _WEAKEST if how in hows), "configured"),
        unit="optimizer steps per batch",
        source=SourceRef(path=first.source.path, line=first.source.line, key=keys),
        says=f"{formula.function}({keys})",
    )


def _written(profile: Profile, name: str, setting: Setting) -> str:
    """Return the key of a setting as written, or the framework's native key for a default."""
    return setting.key if setting.how != "default" else profile.config.get(name, (name,))[0]


def _positive(setting: Setting | None) -> float | None:
    """Return a setting as a number from 1e-12 to 1e12, where quotients and products stay finite, else None."""
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    number = float(setting.value)
    return number if 1e-12 < number < 1e12 else None


def planned_length(key: str, settings: Mapping[str, ConfigValue]) -> tuple[str, float] | None:
    """Return name and value of the longest planned length of a run in the unit of a setting, None without one.

    For `lr_decay_epochs` these are `epoch` and `max_epochs`, for `lr_decay_steps` they are `total_steps` and `steps`.
    """
    unit = UNITS & _words(key)
    lengths = [
        (name, float(value))
        for name, value in settings.items()
        if isinstance(value, int | float) and unit and unit <= _words(name) <= unit | WHOLE
    ]
    return max(lengths, key=lambda length: length[1], default=None)


def decay_is_off(settings: Mapping[str, ConfigValue]) -> bool:
    """Return whether a switch turns the decay of the learning rate off."""
    return any(value is False and _words(name) >= DECAY for name, value in settings.items())


def _words(key: str) -> frozenset[str]:
    return parse(key.rpartition(".")[2]).concepts
