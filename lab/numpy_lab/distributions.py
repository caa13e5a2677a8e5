"""What a policy's outputs mean: a choice among actions, or a diagonal Gaussian over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .nets import F32, log_softmax, sample

_LOG_ROOT_TWO_PI = np.float32(0.5 * np.log(2 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Rows of outputs with the actions that were taken."""

    log_prob: F32
    entropy: F32
    pull: Callable[[F32, float], F32]
    """d loss / d outputs per row, from d loss / d log-prob per row and the entropy coefficient."""


class Distribution(Protocol):
    """Actions from rows of outputs."""

    def sample(self, outputs: F32, rng: np.random.Generator) -> Any:
        """Return an action per row."""

    def evaluate(self, outputs: F32, actions: Any) -> Evaluated:
        """Return log-probs and entropies per row, and how to differentiate them."""

    def log_prob(self, outputs: F32, actions: Any) -> F32:
        """Return the log-probs alone, per row."""


class Categorical:
    """Outputs are logits, actions their indices."""

    def sample(self, outputs: F32, rng: np.random.Generator) -> Any:
        return sample(outputs, rng)

    def log_prob(self, outputs: F32, actions: Any) -> F32:
        return gather(log_softmax(outputs), actions)

    def evaluate(self, outputs: F32, actions: Any) -> Evaluated:
        log_probs = log_softmax(outputs)
        probs = np.exp(log_probs)
        entropies = -(probs * log_probs).sum(axis=-1)

        def pull(d_log_prob: F32, ent_coef: float) -> F32:
            one_hot = np.zeros_like(probs)
            one_hot[np.arange(len(probs)), actions] = 1
            gradient: F32 = d_log_prob[:, None] * (one_hot - probs)
            if ent_coef:
                gradient += np.float32(ent_coef) * probs * (log_probs + entropies[:, None])
            return gradient

        return Evaluated(log_prob=gather(log_probs, actions), entropy=entropies, pull=pull)


class Gaussian:
    """Outputs are means and logarithms of standard deviations, actions rows of real numbers.

    Its entropy is a differential one: it is negative below a standard deviation of 0.24.
    """

    def sample(self, outputs: F32, rng: np.random.Generator) -> Any:
        means, log_std = np.split(outputs, 2, axis=-1)
        return (means + np.exp(log_std) * rng.normal(size=means.shape)).astype(np.float32)

    def log_prob(self, outputs: F32, actions: Any) -> F32:
        return self.evaluate(outputs, actions).log_prob

    def evaluate(self, outputs: F32, actions: Any) -> Evaluated:
        means, log_std = np.split(outputs, 2, axis=-1)
        away = (actions - means) * np.exp(-log_std)
        log_prob: F32 = (-0.5 * np.square(away) - log_std - _LOG_ROOT_TWO_PI).sum(axis=-1)

        def pull(d_log_prob: F32, ent_coef: float) -> F32:
            d_means = d_log_prob[:, None] * away * np.exp(-log_std)
            d_log_std = d_log_prob[:, None] * (np.square(away) - 1) - np.float32(ent_coef)
            return np.concatenate([d_means, d_log_std], axis=-1)

        entropy: F32 = (log_std + np.float32(0.5) + _LOG_ROOT_TWO_PI).sum(axis=-1)
        return Evaluated(log_prob=log_prob, entropy=entropy, pull=pull)


def gather(log_probs: F32, actions: Any) -> F32:
    """Return the log-prob of each row's action."""
    picked: Any = log_probs[np.arange(len(actions)), actions]
    return np.asarray(picked, np.float32)


CATEGORICAL: Distribution = Categorical()
GAUSSIAN: Distribution = Gaussian()


def distribution(*, continuous: bool) -> Distribution:
    """Return the distribution of a policy."""
    return GAUSSIAN if continuous else CATEGORICAL
