"""Which framework a configuration is written for, by the names of its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.frameworks.profiles import Profile

#: Worth of a name that stands at the end of a nested key, where the framework writes it at the top.
NESTED = 0.5
#: Least worth of the names that show a framework, and its lead over the next: one name of its own and a common one.
ENOUGH, LEAD = 1.2, 1.3
#: Older and newer profiles of one trainer, whose settings have mostly the same names.
SAME = {"rllib-old": "rllib", "pufferlib-1": "pufferlib"}
#: Settings that nobody gives without PPO, or one of its family, in mind.
OF_PPO = frozenset(
    {
        *("ppo_epochs", "num_minibatches", "clip_range", "clip_range_high", "clip_range_dual", "gae_lambda"),
        *("num_generations", "steps_per_generation", "updates_per_batch", "advantage_estimator"),
    }
)
#: What a program imports to train by PPO or its kin → the framework whose settings it gives.
MODULES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("stable_baselines3.PPO", "stable_baselines3.ppo"), "sb3"),
        **dict.fromkeys(("sb3_contrib.RecurrentPPO", "sb3_contrib.MaskablePPO", "sb3_contrib.ppo_"), "sb3"),
        **dict.fromkeys(("stable_baselines.PPO2", "stable_baselines.ppo2"), "stable-baselines"),
        **dict.fromkeys(("trl.GRPO", "trl.trainer.GRPO"), "trl-grpo"),
        **dict.fromkeys(("trl.RLOO", "trl.trainer.RLOO"), "trl-rloo"),
        **dict.fromkeys(("skrl.agents.torch.ppo", "skrl.agents.jax.ppo"), "skrl"),
        **dict.fromkeys(("ray.rllib.algorithms.ppo",), "rllib"),
        **dict.fromkeys(("tianshou.policy.PPO", "tianshou.algorithm.PPO"), "tianshou"),
        **dict.fromkeys(("torchrl.objectives.ClipPPO",), "torchrl"),
        **dict.fromkeys(("pfrl.agents.PPO",), "pfrl"),
    }
)
#: Settings of methods that learn from a replay buffer: two of them, and it is one.
_REPLAY = frozenset(
    {
        *("exploration_fraction", "exploration_final_eps", "target_update_interval", "target_network_frequency"),
        *("learning_starts", "replay_buffer_class", "replay_buffer_config", "replay_buffer_kwargs", "train_freq"),
        *("policy_frequency", "target_policy_noise", "policy_delay", "dueling", "double_q", "n_step_returns"),
    }
)


@frozen
class Likeness:
    """What the names in a configuration are like: a framework, or the few that come nearest when none stands out."""

    name: str | None
    nearest: tuple[str, ...] = ()


def likeliest(keys: Collection[str], profiles: Mapping[str, Profile]) -> Likeness:
    """Return the framework whose own names a configuration holds most of."""
    names = frozenset(keys)
    tails = frozenset(part for key in names for part in _tails(key))
    known = {name: p for name, p in profiles.items() if p.ppo_family and name != "canonical"}
    owners = _owners(known.values())
    scores = {
        name: sum(_worth(keys, names, tails, owners) for keys in profile.config.values())
        for name, profile in known.items()
    }
    ordered = sorted(scores, key=lambda name: (-scores[name], "extends" in profiles[name].raw, name))
    first = ordered[0]
    rivals = [name for name in ordered[1:] if _family(profiles[name]) != _family(profiles[first])]
    ahead = not rivals or scores[first] >= LEAD * scores[rivals[0]]
    if scores[first] >= ENOUGH and ahead:
        return Likeness(name=first)
    return Likeness(name=None, nearest=tuple(name for name in ordered[:3] if scores[name] > 0))


def imported(imports: Iterable[str]) -> str | None:
    """Return the one framework that a program imports; None where it is none that we know, or several."""
    found = {name for what in imports for begins, name in MODULES.items() if what.startswith(begins)}
    return next(iter(found)) if len(found) == 1 else None


def learns_from_replay(keys: Collection[str]) -> bool:
    """Tell a configuration of DQN, SAC and their kin."""
    return len(_REPLAY & {key.rpartition(".")[2] for key in keys}) > 1


def _tails(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[start:]) for start in range(1, len(parts))]


def _worth(keys: tuple[str, ...], names: frozenset[str], tails: frozenset[str], owners: Mapping[str, int]) -> float:
    """Return what a setting is worth: a name that many frameworks share tells little."""
    found = [(1.0 if key in names else NESTED) / owners[key] for key in keys if key in names or key in tails]
    return max(found, default=0.0)


def _owners(profiles: Iterable[Profile]) -> Mapping[str, int]:
    """Return how many families of frameworks use each key."""
    used = {(_family(profile), key) for profile in profiles for keys in profile.config.values() for key in keys}
    return Counter(key for _, key in used)


def _family(profile: Profile) -> str:
    return SAME.get(profile.name) or str(profile.raw.get("extends", profile.name))
