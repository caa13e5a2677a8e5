"""Quantities computed from a run, by link of the signal chain: once, on demand, with their inputs declared.

Every derived quantity is one row of `DERIVED`: where its function is, and which inputs make it computable. A function
takes `Observations`, so that one quantity may build on another, and returns a Series, a Fact, or None when it cannot
tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.model import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.model import Run, Setting


@dataclass(frozen=True, slots=True)
class Derived:
    """A derived quantity: its function, and the alternatives (each a set of inputs) that it can be computed from."""

    function: str
    any_of: tuple[tuple[str, ...], ...]


def _row(function: str, *alternatives: str) -> Derived:
    return Derived(f"ppo_doctor.derive.{function}", tuple(tuple(a.split("+")) for a in alternatives))


DERIVED: Mapping[str, Derived] = MappingProxyType(
    {
        # numerics
        "nonfinite_metrics": _row("numerics:nonfinite_metrics", "policy_loss", "loss", "approx_kl", "grad_norm"),
        # config, update
        "updates_observed": _row("updates:updates_observed", "optimizer_steps", "epochs_executed_total", "reward_mean"),
        "updates_effective": _row("updates:updates_effective", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "updates_known": _row("updates:updates_known", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "epochs_share": _row("updates:epochs_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"),
        "unexplained_share": _row(
            "updates:unexplained_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"
        ),
        "kl_over_target": _row("updates:kl_over_target", "approx_kl+target_kl"),
        "binding_target_kl": _row("updates:binding_target_kl", "target_kl"),
        "applied_learning_rate": _row("updates:applied_learning_rate", "learning_rate"),
        "kl_coef_implied": _row("coefficients:kl_coef_implied", "kl_penalty_reward+ref_kl"),
        "schedule_end_step": _row("coefficients:schedule_end_step", "learning_rate"),
        # ratio
        "ratio_departure": _row("ratio:ratio_departure", "approx_kl", "ratio_std", "ratio_max", "ratio_mean"),
        "ratio_trace": _row("ratio:ratio_trace", "approx_kl", "ratio_std", "clip_fraction"),
        "loss_change_within_batch": _row("ratio:loss_change_within_batch", "loss+reward_mean"),
        "gradient_change_within_batch": _row("ratio:gradient_change_within_batch", "grad_norm+reward_mean"),
        # advantages and loss
        "reward_change": _row("advantages:reward_change", "reward_mean", "episode_return"),
        "advantage_spread": _row(
            "advantages:advantage_spread", "frac_reward_zero_std", "advantages_std", "advantages_raw_std"
        ),
        "implied_clip_range": _row("clipping:implied_clip_range", "clip_range", "clip_fraction+approx_kl"),
        # policy
        "policy_drift": _row("policy:policy_drift", "entropy", "probe_kl", "update_norm"),
        "weight_motion": _row("policy:weight_motion", "update_norm", "probe_kl"),
        # stability, mismatch, time (family "stability")
        "reward_lost": _row("onset:reward_lost", "episode_return", "reward_mean"),
        "reward_gain": _row("onset:reward_gain", "episode_return", "reward_mean"),
        "update_kl": _row("steps:update_kl", "approx_kl"),
        "clipped_share": _row("steps:clipped_share", "clip_fraction"),
        "gradient_spikes": _row("steps:gradient_spikes", "grad_norm"),
        "gradient_growth": _row("steps:gradient_growth", "grad_norm"),
        "loss_leap": _row("steps:loss_leap", "policy_loss"),
        "kl_before_over_after": _row("steps:kl_before_over_after", "approx_kl+probe_kl"),
        "kl_per_squared_rate": _row("steps:kl_per_squared_rate", "approx_kl+learning_rate"),
        "entropy_share": _row("entropy:entropy_share", "entropy"),
        "entropy_rise": _row("entropy:entropy_rise", "entropy"),
        "solved_level": _row("entropy:solved_level", "reward_mean+frac_reward_zero_std"),
        "clipped_at_generation": _row("mismatch:clipped_at_generation", "clip_fraction+reward_mean"),
        "loss_before_update": _row("mismatch:loss_before_update", "policy_loss"),
        "mean_ratio_off": _row("mismatch:mean_ratio_off", "ratio_mean", "approx_kl+approx_kl_k1"),
        "sampler_gap_growth": _row("mismatch:sampler_gap_growth", "rollout_logp_diff", "rollout_kl"),
        "reference_kl_at_sampling": _row("mismatch:reference_kl_at_sampling", "ref_kl"),
        "reference_kl_at_start": _row("mismatch:reference_kl_at_start", "ref_kl"),
        "reference_kl_deficit": _row("mismatch:reference_kl_deficit", "ref_kl"),
        "reference_kl_returns": _row("mismatch:reference_kl_returns", "ref_kl"),
        "completions": _row("mismatch:completions", "response_length", "episode_return"),
        "action_spread": _row("mismatch:action_spread", "action_std"),
        "mean_ratio_contradiction": _row("identities:mean_ratio_contradiction", "ratio_mean+approx_kl+approx_kl_k1"),
        "clip_kl_contradiction": _row("identities:clip_kl_contradiction", "clip_fraction+approx_kl"),
        "negative_estimate": _row("identities:negative_estimate", "approx_kl", "ref_kl"),
    }
)


class Observations:
    """A run with everything that can be derived from it, computed at most once."""

    __slots__ = ("_memo", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._memo: dict[str, Series | Fact | None] = {}

    def get(self, reference: str) -> Series | Fact | None:
        """Return what `series.X`, `fact.X` or `config.X` refers to, or None if the run cannot tell."""
        kind, _, name = reference.partition(".")
        if kind == "config":
            return self.setting(name)
        return self.series(name) if kind == "series" else self.fact(name)

    def series(self, name: str) -> Series | None:
        """Return a logged or derived series."""
        found = self.run.series.get(name) or self._derived(name)
        return found if isinstance(found, Series) else None

    def fact(self, name: str) -> Fact | None:
        """Return a fact of the run or a derived one."""
        found = self.run.facts.get(name) or self._derived(name)
        return found if isinstance(found, Fact) else None

    def setting(self, name: str) -> Fact | None:
        """Return a setting of the configuration as a fact."""
        setting: Setting | None = self.run.config.get(name)
        if setting is None:
            return None
        return Fact(name=name, value=setting.value, how=setting.how, source=setting.source, says=setting.how)

    def holds(self, name: str) -> bool:
        """Tell whether a metric is in the log, or a setting in the configuration that was found."""
        return name in self.run.series or self.configured(name)

    def number(self, name: str) -> float | None:
        """Return a setting as a number, None when it is unset, unknown or no number."""
        setting = self.run.config.get(name)
        if setting is None or isinstance(setting.value, str | bool | None):
            return None
        return float(setting.value)

    def configured(self, name: str) -> bool:
        """Tell whether a setting was found, rather than taken from the framework's defaults."""
        setting = self.run.config.get(name)
        return setting is not None and setting.how != "default"

    def _derived(self, name: str) -> Series | Fact | None:
        if name not in DERIVED:
            return None
        if name not in self._memo:
            module, _, function = DERIVED[name].function.partition(":")
            self._memo[name] = getattr(import_module(module), function)(self)
        return self._memo[name]


def inputs(name: str) -> str:
    """Return, in words, what a quantity needs: its own name, or the alternatives it derives from."""
    if name not in DERIVED:
        return name
    return ", or ".join(" with ".join(group) for group in DERIVED[name].any_of)


def metrics_wanted(name: str) -> tuple[str, ...]:
    """Return the metrics whose logging would make a quantity computable, cheapest alternative first."""
    if name not in DERIVED:
        return (name,)
    return DERIVED[name].any_of[0]
