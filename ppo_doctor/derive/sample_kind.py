"""What kind of run it is, by several witnesses: the trainer, settings, the environment, keys and values of the log.

An environment, a switch or a value that only one kind can have outweighs the trainer that the log looks like, and that
one name that others use for other things: `response_length` on Pendulum is the length of an episode.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of
from ppo_doctor.derive.foreign import OF_COMPLETIONS, OF_CRITICS, OF_ENGINES, OF_STEPS, WITHOUT_CRITIC
from ppo_doctor.frameworks import domains
from ppo_doctor.model import CONDITION, Fact
from ppo_doctor.model.kinds import FACETS, Facet, SampleKind, Witness

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import ConfigValue, Series

#: How strong a witness is; see `Witness`.
NAME, TRAINER, DECIDES = 1, 2, 3
#: Words of keys and settings that only language models have, and those of engines that generate for them.
_TEXT = frozenset({"tokenizer", "prompt", "prompts", "completions", "lora", "llm"})
_ENGINES = frozenset({"vllm", "sglang"})
#: Words of keys and settings that no language model has.
_WORLD = frozenset({"timestep", "timesteps", "gym", "obs", "observation", "observations"})
#: Words of a key that holds what an episode brought.
_EPISODE, _OUTCOME = ("episode", "episodes", "ep"), ("reward", "rewards", "rew", "return", "returns", "length", "len")
#: Settings that name the environment; a bare "env" or "task" does so where its value is written as one.
_ENVIRONMENT = frozenset({"env_id", "gym_id"})
_MAYBE_ENVIRONMENT = frozenset({"env", "env_name", "environment", "task", "task_name", "task_id", "env_task"})
_AS_ENVIRONMENT = r"[\w.:/@-]+-v\d+"
#: Environments of Gymnasium → the actions to choose from, 0 where there is an action for each real number; first fit.
_ACTIONS: tuple[tuple[str, int], ...] = (
    (r"continuous|pendulum|bipedalwalker|halfcheetah|hopper|walker2?d|\bant\b|humanoid|swimmer|reacher|pusher", 0),
    (r"bullet|carracing", 0),
    (r"cartpole|blackjack", 2),
    (r"acrobot|mountaincar", 3),
    (r"lunarlander|frozenlake|cliffwalking", 4),
    (r"taxi", 6),
    (r"minigrid", 7),
    (r"procgen", 15),
    (r"\bale/|noframeskip|minatar", 18),
)
#: A Gaussian of deviation 1 has this entropy in nats for each action; how near the first entropy has to lie to a level.
_UNIT_GAUSSIAN, _NEAR = 0.5 * math.log(2 * math.pi * math.e), 0.005
#: Records whose entropy is so small a share of the highest: a density's would pass 0.
_SEVERAL, _SPENT = 5, 0.03
#: Choices of a usual discrete action, and numbers in a usual Gaussian one.
_CHOICES, _DIMENSIONS = range(2, 19), range(1, 9)
#: Entropy (nats) below 0 that no rounding makes.
_NEGATIVE = -1e-4
#: Trainers of language models that are built around an engine, and those that generate with the policy itself.
_WITH_ENGINE = frozenset({"areal", "nemo-rl", "open-instruct", "openrlhf", "prime-rl", "roll", "slime", "verl"})
_WITHOUT_ENGINE = frozenset({"llama-factory", "torchtune", "trl-ppo", "trl-ppo-legacy", "trlx"})


def sample_kind(observations: Observations) -> SampleKind:
    """Return what kind of run it is; ask `Observations.kind`, which computes it once."""
    samples = Facet(name="samples", witnesses=tuple(_samples(observations)))
    return SampleKind(
        samples=samples,
        actions=Facet(name="actions", witnesses=tuple(_actions(observations, samples))),
        critic=Facet(name="critic", witnesses=tuple(_critic(observations))),
        rollout_engine=Facet(name="rollout_engine", witnesses=tuple(_engine(observations, samples))),
    )


def completions(observations: Observations) -> Fact | None:
    """Return 1 where the samples are completions of a language model, 0 where they are steps of episodes."""
    facet = observations.kind.samples
    return None if facet.value is None else _told(facet, float(facet.value == "completions"), "completions", CONDITION)


def _facet(name: str) -> Callable[[Observations], Fact | None]:
    def told(observations: Observations) -> Fact | None:
        facet = observations.kind.facet(name)
        return None if facet.value is None else _told(facet, facet.value, name)

    return told


samples = _facet("samples")
actions = _facet("actions")
critic = _facet("critic")
rollout_engine = _facet("rollout_engine")


def _told(facet: Facet, value: ConfigValue, name: str, unit: str = "") -> Fact:
    first, kind = facet.speaking[0], FACETS[facet.name][facet.value or ""]
    says = f"{facet.says}: {'samples are ' if facet.name == 'samples' else ''}{kind}"
    return Fact(name=name, value=value, how="observed", unit=unit, source=first.source, says=says)


def _samples(observations: Observations) -> Iterator[Witness]:
    run = observations.run
    if run.framework not in domains.OF_EITHER:
        kind = "completions" if run.framework in domains.OF_COMPLETIONS else "episodes"
        yield Witness(value=kind, says=f"the log is that of {run.framework}", strength=TRAINER)
    dumped = run.facts.get("completions")
    if dumped is not None:
        yield Witness(value="completions", says=dumped.says, strength=DECIDES, source=dumped.source)
    for key in _keys_with(observations, _TEXT | _ENGINES)[:2]:
        yield Witness(value="completions", says=f"{key} is there", strength=DECIDES)
    for key in _keys_with(observations, _WORLD)[:1]:
        yield Witness(value="episodes", says=f"{key} is there")
    for key, value in _environments(observations):
        yield Witness(value="episodes", says=f"{key} = {value}", strength=DECIDES)
    if _spread(observations) is not None or _differential(observations) is not None:
        yield Witness(value="episodes", says="the policy is a Gaussian", strength=DECIDES)
    for key in run.keys:
        if not _words(key).isdisjoint(_EPISODE) and not _words(key).isdisjoint(_OUTCOME):
            yield Witness(value="episodes", says=f"{key} is logged")
    for names, value in ((OF_COMPLETIONS, "completions"), (OF_STEPS - {"action_std"}, "episodes")):
        yield from _held(observations, names, value)


def _actions(observations: Observations, samples: Facet) -> Iterator[Witness]:
    if samples.value == "completions":
        yield Witness(value="discrete", says="a token is chosen among many", strength=samples.strength)
        return
    spread, entropy = _spread(observations), _differential(observations)
    if spread is not None:
        yield Witness(value="continuous", says=f"{spread.raw} is a number", strength=DECIDES, source=spread.source())
    if entropy is not None:
        says = f"{entropy.raw} is below 0, as only a differential entropy is"
        yield Witness(value="continuous", says=says, strength=DECIDES, source=entropy.source())
    yield from _of_environment(observations)
    yield from _of_settings(observations)
    if samples.value == "episodes":
        yield from _of_first_entropy(observations)


def _of_environment(observations: Observations) -> Iterator[Witness]:
    """Yield what an environment's name says of its actions, and an entropy beyond what its choices allow."""
    entropy = observations.run.series.get("entropy")
    for key, value in _environments(observations):
        count = next((n for pattern, n in _ACTIONS if re.search(pattern, value.lower())), None)
        if count is None:
            continue
        yield Witness(value="discrete" if count else "continuous", says=f"{key} = {value}", strength=DECIDES)
        most = float(np.max(finite_of(entropy.values), initial=0.0)) if entropy is not None else 0.0
        if entropy is not None and count and most > math.log(count) * (1 + _NEAR):
            says = f"{entropy.raw} reaches {most:.3g} nats, {count} actions allow {math.log(count):.3g}"
            yield Witness(value="continuous", says=says, strength=DECIDES, source=entropy.source())


def _of_settings(observations: Observations) -> Iterator[Witness]:
    for key, value in observations.run.config_raw.items():
        words = _words(key)
        if isinstance(value, bool) and "continuous" in words:
            yield Witness(value="continuous" if value else "discrete", says=f"{key} = {value}", strength=DECIDES)
        elif isinstance(value, str) and (found := re.search(r"categorical|gaussian", value.lower())):
            kind = "discrete" if found.group() == "categorical" else "continuous"
            yield Witness(value=kind, says=f"{key} = {value}", strength=TRAINER)
        elif isinstance(value, int | float) and {"std", "init"} <= words:
            yield Witness(value="continuous", says=f"{key} = {value}")


def _of_first_entropy(observations: Observations) -> Iterator[Witness]:
    """Yield what the entropy of an untrained policy says: that of a free choice, or of a Gaussian of deviation 1."""
    entropy, spread = observations.run.series.get("entropy"), observations.run.series.get("action_std")
    if spread is not None and len(spread) and not np.isfinite(spread.values).any():
        yield Witness(value="discrete", says=f"{spread.raw} is never a number", source=spread.source())
    values = finite_of(entropy.values) if entropy is not None else np.empty(0)
    if entropy is None or not len(values):
        return
    first, most = float(values[0]), float(values.max())
    choices = next((n for n in _CHOICES if abs(first / math.log(n) - 1) < _NEAR), None)
    dimensions = next((d for d in _DIMENSIONS if abs(first / (_UNIT_GAUSSIAN * d) - 1) < _NEAR), None)
    if choices is not None and dimensions is not None:  # ln 17 and two Gaussians
        return
    if choices is not None and most <= math.log(choices) * (1 + _NEAR):
        says = f"{entropy.raw} starts at {first:.4g} = ln {choices} nats and never exceeds it"
        yield Witness(value="discrete", says=says, source=entropy.source())
    elif np.count_nonzero((values >= 0) & (values < _SPENT * most)) >= _SEVERAL:
        says = f"{entropy.raw} stays next to 0 and never passes it"
        yield Witness(value="discrete", says=says, source=entropy.source())
    elif dimensions is not None:
        says = f"{entropy.raw} starts at {first:.4g} nats, that of {dimensions} Gaussians of deviation 1"
        yield Witness(value="continuous", says=says, source=entropy.source())


def _critic(observations: Observations) -> Iterator[Witness]:
    run = observations.run
    if run.algorithm in WITHOUT_CRITIC:
        yield Witness(value="no", says=f"the algorithm is {run.algorithm}", strength=TRAINER)
    named = run.config.get("advantage_estimator")
    if named is not None and isinstance(named.value, str):
        kind = "yes" if named.value.lower() == "gae" else "no"
        strength = NAME if named.how == "default" else DECIDES
        yield Witness(value=kind, says=f"{named.key} = {named.value}", strength=strength, source=named.source)
    for name in sorted(OF_CRITICS & run.series.keys()):
        series = run.series[name]
        sure = run.keys.get(series.raw) == "mapped" and name not in ("returns_mean", "returns_std")
        strength = DECIDES if sure else NAME
        yield Witness(value="yes", says=f"{series.raw} is logged", strength=strength, source=series.source())


def _engine(observations: Observations, samples: Facet) -> Iterator[Witness]:
    run = observations.run
    for name in sorted(OF_ENGINES & run.series.keys()):
        series = run.series[name]
        yield Witness(value="yes", says=f"{series.raw} is logged", strength=DECIDES, source=series.source())
    for key, value in run.config_raw.items():
        words = _words(key)
        if _ENGINES & words and words & {"use", "engines"} and isinstance(value, int | float):
            yield Witness(value="yes" if value else "no", says=f"{key} = {value}", strength=DECIDES)
        elif isinstance(value, str) and value.lower() in _ENGINES and not _ENGINES & words:
            yield Witness(value="yes", says=f"{key} = {value}", strength=DECIDES)
    if run.framework in _WITH_ENGINE | _WITHOUT_ENGINE:
        value = "yes" if run.framework in _WITH_ENGINE else "no"
        yield Witness(value=value, says=f"the log is that of {run.framework}", strength=TRAINER)
    if samples.value == "episodes":
        yield Witness(value="no", says="samples are steps of episodes", strength=samples.strength)


def _held(observations: Observations, names: frozenset[str], value: str) -> Iterator[Witness]:
    """Yield a witness for each metric and setting of `names` that the run holds."""
    run = observations.run
    for name in sorted(names & observations.held):
        if name in run.series:
            series = run.series[name]
            yield Witness(value=value, says=f"{series.raw} is logged", source=series.source())
        else:
            setting = run.config[name]
            yield Witness(value=value, says=f"{setting.key} = {setting.value}", source=setting.source)


def _spread(observations: Observations) -> Series | None:
    """Return the deviation of a Gaussian policy where it is a number."""
    spread = observations.run.series.get("action_std")
    return spread if spread is not None and np.isfinite(spread.values).any() else None


def _differential(observations: Observations) -> Series | None:
    """Return the entropy where it is below 0, as the entropy of a choice never is."""
    entropy = observations.run.series.get("entropy")
    values = finite_of(entropy.values) if entropy is not None else np.empty(0)
    return entropy if len(values) and float(values.min()) < _NEGATIVE else None


def _environments(observations: Observations) -> list[tuple[str, str]]:
    """Return the settings that name an environment."""
    named = observations.run.config_raw.items()
    return [(key, value) for key, value in named if isinstance(value, str) and value and _names_one(key, value)]


def _names_one(key: str, value: str) -> bool:
    tail = key.rpartition(".")[2].lower()
    known = tail in _MAYBE_ENVIRONMENT and re.fullmatch(_AS_ENVIRONMENT, value)
    return tail in _ENVIRONMENT or bool(known)


def _keys_with(observations: Observations, words: frozenset[str]) -> list[str]:
    """Return the keys of the log and its settings that hold one of the words."""
    run = observations.run
    keys: Mapping[str, object] = {**run.keys, **{key: None for key, v in run.config_raw.items() if v not in (None, "")}}
    return [key for key in keys if words & _words(key)]


def _words(key: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()))
