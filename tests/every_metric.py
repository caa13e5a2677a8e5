"""A run in which every canonical metric is logged and every setting that derived quantities ask for is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.checks.run_view import STATISTICS, RunView
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.run import Axis
from tests.synthetic import a_series, observe

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: What tells of K and of the kind of samples, as profiles write it.
FACTS: dict[str, Any] = {
    "generation_marker": "reward_mean",
    "epochs_repeat_batch": True,
}
SETTINGS: dict[str, Any] = {
    "ppo_epochs": 4,
    "num_minibatches": 4,
    "gradient_accumulation_steps": 2,
    "minibatch_size": 64,
    "num_envs": 8,
    "rollout_steps": 128,
    "rollout_size": 256,
    "num_generations": 8,
    "steps_per_generation": 4,
    "num_ranks": 2,
    "learning_rate": 3e-4,
    "warmup_steps": 10,
    "schedule_steps": 100,
    "total_steps": 100,
    "total_env_steps": 1e6,
    "clip_range": 0.2,
    "clip_range_high": 0.3,
    "clip_range_vf": 0.2,
    "target_kl": 0.01,
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "kl_coef": 0.05,
    "ref_kl_target": 1.0,
    "max_response_length": 100,
    "normalize_advantages": True,
    "early_stopping": True,
    "scale_rewards": True,
    "lr_schedule": "linear",
}
#: One part of the reward, as a log names it.
NAMES = (*METRICS, "reward_component.format", "reward_component_std.format")
ESTIMATORS = ("k3", "k1", None)


def axis_of(records: int, apart: int = 1) -> Axis:
    """Return the axis of records `apart` steps from each other, numbered by update, epoch and minibatch."""
    at = np.arange(records)
    return Axis(path="log", steps=at * apart, lines=at + 1, update=at // 16, epoch=at // 4 % 4, minibatch=at % 4)


def observe_all(
    axis: Axis, values: Callable[[str], FloatArray], *, estimator: str | None = "k3", **fields: Any
) -> RunView:
    """Return observations of a run with each metric's `values` by its name, on one axis."""
    logged = [a_series(name, values(name), axis=axis, estimator=estimator) for name in NAMES]
    return observe(*logged, **({"config": SETTINGS, "facts": FACTS} | fields))


def derive_all(view: RunView) -> dict[str, str]:
    """Compute every derived quantity; return what those raised that failed, by name."""
    failed: dict[str, str] = {}
    for name in STATISTICS:
        try:
            view.get(name)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what a test asks for
            failed[name] = f"{type(error).__name__}: {error}"
    return failed
