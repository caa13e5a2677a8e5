"""Names of reinforcement learning methods: the PPO family, and others that logs compare it with."""

from __future__ import annotations

import re

from ppo_doctor.model.patterns import lazy_pattern

#: Methods outside the PPO family: the word for each in names of folders, files and columns, and its printed name.
OTHERS = {
    "a2c": "A2C",
    "a3c": "A3C",
    "dqn": "DQN",
    "ddqn": "Double DQN",
    "ddpg": "DDPG",
    "td3": "TD3",
    "sac": "SAC",
    "qlearning": "Q-learning",
    "sarsa": "SARSA",
    "reinforce": "REINFORCE",
    "vpg": "a vanilla policy gradient",
    "trpo": "TRPO",
}
#: The printed name of every method of the PPO family.
PPO = "PPO"
_FAMILY = lazy_pattern(r"ppo|grpo|rloo|dapo|gspo|reinforce(?:\+\+|[ _-]?(?:pp|plus))")
_Q_LEARNING = lazy_pattern(r"q[ _.-]?learning")

#: Texts of which every name of a method holds one, apart from a Q-learning of two words.
_PARTS = ("ppo", "grpo", "rloo", "dapo", "gspo", *OTHERS)


def may_name(text: str) -> bool:
    """Tell quickly whether a text can name a method, which few lines of a log do."""
    lowered = text.lower()
    return any(part in lowered for part in _PARTS) or _Q_LEARNING.search(lowered) is not None


def of_family(text: str) -> bool:
    """Tell whether a text names a method of the PPO family."""
    return _FAMILY.search(text.lower()) is not None


def other_in(text: str) -> str | None:
    """Return the first method outside the PPO family that a text names; None for any other text."""
    words = re.split(r"[^a-z0-9]+", _Q_LEARNING.sub(" qlearning ", text.lower()))
    return next((OTHERS[word] for word in words if word in OTHERS), None)


def method_of(text: str) -> str | None:
    """Return the method that a text names, PPO for any of its family; None if it names none."""
    return PPO if of_family(text) else other_in(text)
