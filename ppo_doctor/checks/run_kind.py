"""Determine the kind of run, and which metrics a run of this kind never logs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.statistics import statistic, ways
from ppo_doctor.model.arrays import GAUSSIAN_ENTROPY, finite_of
from ppo_doctor.model.kinds import FACETS, Facet, SampleKind, Witness
from ppo_doctor.model.run import CONDITION, Fact
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Series
    from ppo_doctor.model.words import ConfigValue

#: Metrics and settings of runs on steps of episodes, which runs on completions do not have.
OF_STEPS = frozenset(
    {
        *("episode_return", "episode_return_min", "episode_return_max", "episode_length", "env_steps"),
        *("total_env_steps", "action_std", "num_envs", "rollout_steps"),
    }
)
#: Metrics and settings of runs on completions, which runs on steps of episodes do not have.
OF_COMPLETIONS = frozenset(
    {
        *("response_length", "response_length_min", "response_length_max", "max_response_length", "num_tokens"),
        *("truncated_fraction", "mask_truncated", "unique_fraction", "ref_kl", "ref_kl_target"),
        *("kl_penalty_reward", "objective_entropy", "ptx_loss", "ptx_coef", "frac_reward_zero_std"),
        *("reward_group_std", "num_generations", "end_tokens"),
    }
)
#: Metrics and settings of a critic, which methods that compare the completions of a prompt do not have.
OF_CRITICS = frozenset(
    {
        *("value_loss", "value_clip_fraction", "explained_variance", "values_mean", "values_std", "critic_grad_norm"),
        *("returns_mean", "returns_std", "clip_range_vf", "gae_lambda", "critic_warmup"),
    }
)
#: Metrics that exist only with a rollout engine beside the trainer, whose policy differs or is older.
OF_ENGINES = frozenset(
    {
        *("rollout_kl", "rollout_logp_diff", "rollout_logp_diff_max", "rollout_prob_diff", "rollout_prob_diff_max"),
        *("rollout_prob_corr", "rollout_ratio_mean", "rollout_ratio_min", "rollout_ratio_max"),
        *("policy_lag", "rollout_version"),
    }
)
#: Methods that compare the completions of a prompt.
WITHOUT_CRITIC = ("grpo", "rloo")
#: Facet and value → metrics and settings that only such a run has.
_ONLY_OF: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {
        ("samples", "episodes"): OF_STEPS,
        ("samples", "completions"): OF_COMPLETIONS,
        ("actions", "continuous"): frozenset({"action_std"}),
        ("critic", "yes"): OF_CRITICS,
        ("rollout_engine", "yes"): OF_ENGINES,
    }
)


def never_logged(view: RunView) -> frozenset[str]:
    """Return the metrics and settings that a run of this kind cannot have."""
    return _never(view.kind.known)


def not_for(view: RunView, missing: tuple[str, ...]) -> str | None:
    """Return why quantities (`series.X`, `fact.X`) do not apply to a run of this kind; None if they do."""
    facet = _foreign_to(view.kind.known, missing)
    return view.kind.excludes(dict([facet])) if facet else None


@cache
def _foreign_to(known: tuple[str | None, ...], missing: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the facet, and its value in other runs, that these quantities need and this run does not have."""
    return next(((facet, value) for facet, value, names in _lacking(known) if _all_need(missing, names)), None)


@cache
def _lacking(known: tuple[str | None, ...]) -> list[tuple[str, str, frozenset[str]]]:
    """Return what a run is known not to be: facet, value, and the metrics and settings that only such runs have."""
    values = dict(zip(FACETS, known, strict=True))
    return [(*only, names) for only, names in _ONLY_OF.items() if values[only[0]] not in (None, only[1])]


@cache
def _never(known: tuple[str | None, ...]) -> frozenset[str]:
    return frozenset[str]().union(*(names for _, _, names in _lacking(known)))


def _all_need(missing: tuple[str, ...], never: frozenset[str]) -> bool:
    """Return whether one of the quantities cannot be computed without a member of `never`."""
    return any(all(not never.isdisjoint(way) for way in ways(quantity)) for quantity in missing)


#: Strengths of a `Witness`.
NAME, TRAINER, DECIDES = 1, 2, 3
#: Words of keys and settings of language models only, and names of engines that generate for them.
_TEXT = frozenset({"tokenizer", "prompt", "prompts", "completions", "lora", "llm"})
_ENGINES = frozenset({"vllm", "sglang"})
#: Words of keys and settings that language models do not have.
_WORLD = frozenset({"timestep", "timesteps", "gym", "obs", "observation", "observations"})
#: Words of keys of results of an episode.
_EPISODE, _OUTCOME = ("episode", "episodes", "ep"), ("reward", "rewards", "rew", "return", "returns", "length", "len")
#: Settings that name the environment; "env" or "task" does so only with a value in the form of an environment's name.
_ENVIRONMENT = frozenset({"env_id", "gym_id"})
_MAYBE_ENVIRONMENT = frozenset({"env", "env_name", "environment", "task", "task_name", "task_id", "env_task"})
_AS_ENVIRONMENT = r"[\w.:/@-]+-v\d+"
#: Patterns of Gymnasium environments → number of discrete actions, 0 if actions are continuous; the first fit counts.
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
#: Tolerance of the first entropy, as a share.
_NEAR = 0.005
#: Fewest records with an entropy below this share of the highest: a density's would pass 0.
_SEVERAL, _SPENT = 5, 0.03
#: Numbers of discrete actions, and dimensions of Gaussian actions, that are usual.
_CHOICES, _DIMENSIONS = range(2, 19), range(1, 9)
#: Entropy (nats) that rounding does not explain below 0.
_NEGATIVE = -1e-4


def sample_kind(view: RunView) -> SampleKind:
    """Return the kind of run; use `RunView.kind`, which computes it once."""
    samples = Facet(name="samples", witnesses=tuple(_samples(view)))
    return SampleKind(
        samples=samples,
        actions=Facet(name="actions", witnesses=tuple(_actions(view, samples))),
        critic=Facet(name="critic", witnesses=tuple(_critic(view))),
        rollout_engine=Facet(name="rollout_engine", witnesses=tuple(_engine(view, samples))),
    )


@statistic("response_length", "episode_return")
def completions(view: RunView) -> Fact | None:
    """Return 1 if the samples are completions of a language model, 0 if they are steps of episodes."""
    facet = view.kind.samples
    return (
        None if facet.value is None else _as_fact(facet, float(facet.value == "completions"), "completions", CONDITION)
    )


def _facet(name: str) -> Callable[[RunView], Fact | None]:
    """Return a function that returns the value of a facet as a statistic."""

    def statistic_of_facet(view: RunView) -> Fact | None:
        facet = view.kind.facet(name)
        return None if facet.value is None else _as_fact(facet, facet.value, name)

    return statistic_of_facet


statistic("response_length", "episode_return", name="samples")(_facet("samples"))
statistic("action_std", "entropy", "response_length", name="actions")(_facet("actions"))
statistic("value_loss", "explained_variance", name="critic")(_facet("critic"))
statistic("rollout_logp_diff", "rollout_kl", name="rollout_engine")(_facet("rollout_engine"))


def _as_fact(facet: Facet, value: ConfigValue, name: str, unit: str = "") -> Fact:
    first, kind = facet.supporting[0], FACETS[facet.name][facet.value or ""]
    says = f"{facet.says}: {'samples are ' if facet.name == 'samples' else ''}{kind}"
    return Fact(name=name, value=value, how="observed", unit=unit, source=first.source, says=says)


def _samples(view: RunView) -> Iterator[Witness]:
    """Yield the witnesses of what samples are: completions or steps of episodes."""
    run = view.run
    kind = detection.samples_of(run.framework)
    if kind:
        yield Witness(value=kind, says=f"the log is that of {run.framework}", strength=TRAINER)
    dumped = run.facts.get("completions")
    if dumped is not None:
        yield Witness(value="completions", says=dumped.says, strength=DECIDES, source=dumped.source)
    for key in _keys_with(view, _TEXT | _ENGINES)[:2]:
        yield Witness(value="completions", says=f"{key} is there", strength=DECIDES)
    for key in _keys_with(view, _WORLD)[:1]:
        yield Witness(value="episodes", says=f"{key} is there")
    for key, value in _environments(view):
        yield Witness(value="episodes", says=f"{key} = {value}", strength=DECIDES)
    if _spread(view) is not None or _differential(view) is not None:
        yield Witness(value="episodes", says="the policy is a Gaussian", strength=DECIDES)
    for key in run.keys:
        if not _words(key).isdisjoint(_EPISODE) and not _words(key).isdisjoint(_OUTCOME):
            yield Witness(value="episodes", says=f"{key} is logged")
    for names, value in ((OF_COMPLETIONS, "completions"), (OF_STEPS - {"action_std"}, "episodes")):
        yield from _of_names(view, names, value)


def _actions(view: RunView, samples: Facet) -> Iterator[Witness]:
    """Yield the witnesses of whether actions are discrete or continuous."""
    if samples.value == "completions":
        yield Witness(value="discrete", says="a token is chosen among many", strength=samples.strength)
        return
    spread, entropy = _spread(view), _differential(view)
    if spread is not None:
        yield Witness(value="continuous", says=f"{spread.raw} is a number", strength=DECIDES, source=spread.source())
    if entropy is not None:
        says = f"{entropy.raw} is below 0, as only a differential entropy is"
        yield Witness(value="continuous", says=says, strength=DECIDES, source=entropy.source())
    yield from _of_environment(view)
    yield from _of_settings(view)
    if samples.value == "episodes":
        yield from _of_first_entropy(view)


def _of_environment(view: RunView) -> Iterator[Witness]:
    """Yield the kind of actions by an environment's name, and an entropy beyond what its choices allow."""
    entropy = view.run.series.get("entropy")
    for key, value in _environments(view):
        count = next((n for pattern, n in _ACTIONS if re.search(pattern, value.lower())), None)
        if count is None:
            continue
        yield Witness(value="discrete" if count else "continuous", says=f"{key} = {value}", strength=DECIDES)
        most = float(np.max(finite_of(entropy.values), initial=0.0)) if entropy is not None else 0.0
        if entropy is not None and count and most > math.log(count) * (1 + _NEAR):
            says = f"{entropy.raw} reaches {most:.3g} nats, {count} actions allow {math.log(count):.3g}"
            yield Witness(value="continuous", says=says, strength=DECIDES, source=entropy.source())


def _of_settings(view: RunView) -> Iterator[Witness]:
    """Yield the kind of actions by the names and values of settings."""
    for key, value in view.run.config_raw.items():
        words = _words(key)
        if isinstance(value, bool) and "continuous" in words:
            yield Witness(value="continuous" if value else "discrete", says=f"{key} = {value}", strength=DECIDES)
        elif isinstance(value, str) and (match := re.search(r"categorical|gaussian", value.lower())):
            kind = "discrete" if match.group() == "categorical" else "continuous"
            yield Witness(value=kind, says=f"{key} = {value}", strength=TRAINER)
        elif isinstance(value, int | float) and {"std", "init"} <= words:
            yield Witness(value="continuous", says=f"{key} = {value}")


def _of_first_entropy(view: RunView) -> Iterator[Witness]:
    """Yield the kind of actions by the entropy at first: of a uniform choice, or of a Gaussian of deviation 1."""
    entropy, spread = view.run.series.get("entropy"), view.run.series.get("action_std")
    if spread is not None and len(spread) and not np.isfinite(spread.values).any():
        yield Witness(value="discrete", says=f"{spread.raw} is never a number", source=spread.source())
    values = finite_of(entropy.values) if entropy is not None else np.empty(0)
    if entropy is None or not len(values):
        return
    first, most = float(values[0]), float(values.max())
    choices = next((n for n in _CHOICES if abs(first / math.log(n) - 1) < _NEAR), None)
    dimensions = next((d for d in _DIMENSIONS if abs(first / (GAUSSIAN_ENTROPY * d) - 1) < _NEAR), None)
    if choices is not None and dimensions is not None:  # ambiguous, as ln 17 and two Gaussians
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


def _critic(view: RunView) -> Iterator[Witness]:
    """Yield the witnesses of whether there is a critic."""
    run = view.run
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


def _engine(view: RunView, samples: Facet) -> Iterator[Witness]:
    """Yield the witnesses of whether there is a rollout engine beside the trainer."""
    run = view.run
    for name in sorted(OF_ENGINES & run.series.keys()):
        series = run.series[name]
        yield Witness(value="yes", says=f"{series.raw} is logged", strength=DECIDES, source=series.source())
    for key, value in run.config_raw.items():
        words = _words(key)
        if _ENGINES & words and words & {"use", "engines"} and isinstance(value, int | float):
            yield Witness(value="yes" if value else "no", says=f"{key} = {value}", strength=DECIDES)
        elif isinstance(value, str) and value.lower() in _ENGINES and not _ENGINES & words:
            yield Witness(value="yes", says=f"{key} = {value}", strength=DECIDES)
    engine = detection.traits_of(run.framework).get("rollout_engine")
    if engine is not None:
        yield Witness(value="yes" if engine else "no", says=f"the log is that of {run.framework}", strength=TRAINER)
    if samples.value == "episodes":
        yield Witness(value="no", says="samples are steps of episodes", strength=samples.strength)


def _of_names(view: RunView, names: frozenset[str], value: str) -> Iterator[Witness]:
    """Yield a witness for each metric and setting of `names` that the run has."""
    run = view.run
    for name in sorted(names & view.held):
        if name in run.series:
            series = run.series[name]
            yield Witness(value=value, says=f"{series.raw} is logged", source=series.source())
        else:
            setting = run.config[name]
            yield Witness(value=value, says=f"{setting.key} = {setting.value}", source=setting.source)


def _spread(view: RunView) -> Series | None:
    """Return the deviation of a Gaussian policy if it is a number."""
    spread = view.run.series.get("action_std")
    return spread if spread is not None and np.isfinite(spread.values).any() else None


def _differential(view: RunView) -> Series | None:
    """Return the entropy if it is below 0, which only a differential entropy can be."""
    entropy = view.run.series.get("entropy")
    values = finite_of(entropy.values) if entropy is not None else np.empty(0)
    return entropy if len(values) and float(values.min()) < _NEGATIVE else None


def _environments(view: RunView) -> list[tuple[str, str]]:
    """Return the settings that name an environment."""
    named = view.run.config_raw.items()
    return [(key, value) for key, value in named if isinstance(value, str) and value and _names_one(key, value)]


def _names_one(key: str, value: str) -> bool:
    tail = key.rpartition(".")[2].lower()
    known = tail in _MAYBE_ENVIRONMENT and re.fullmatch(_AS_ENVIRONMENT, value)
    return tail in _ENVIRONMENT or bool(known)


def _keys_with(view: RunView, words: frozenset[str]) -> list[str]:
    """Return the keys of the log and its settings that contain one of the words."""
    run = view.run
    keys: Mapping[str, object] = {**run.keys, **{key: None for key, v in run.config_raw.items() if v not in (None, "")}}
    return [key for key in keys if words & _words(key)]


@lru_cache(maxsize=1024)  # each key of a run is asked for three times
def _words(key: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()))
