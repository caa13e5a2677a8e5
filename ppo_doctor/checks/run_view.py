"""A run with the statistics computed from it: each once, on demand.

A statistic is a function of a `RunView`, so that one may build on another, and returns a Series, a Fact, or None where
the run cannot tell.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.run_kind import sample_kind
from ppo_doctor.checks.series import finite
from ppo_doctor.checks.statistics import STATISTICS
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.run import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.model.kinds import SampleKind
    from ppo_doctor.model.run import FloatArray, Run, Setting

#: Metrics that are settings as well.
CONFIGURED = frozenset({"clip_range", "clip_range_vf", "critic_learning_rate", "kl_coef", "learning_rate"})

for _link in (
    *("clip", "config", "counters", "critic", "entropy", "goal", "gradient"),
    *("learning_rate", "loss", "mismatch", "movement", "numerics", "outcome", "policy", "ratio", "rewards", "rollout"),
    *("series", "sizes", "unused_settings", "update"),
):
    import_module(f"ppo_doctor.checks.{_link}")  # registers its statistics


class RunView:
    """A run with everything that can be derived from it, computed at most once."""

    __slots__ = ("_found", "_kind", "_memo", "held", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        #: the metrics in the log, and the settings that were found rather than taken from a framework's defaults
        self.held = frozenset(run.series).union(name for name, s in run.config.items() if s.how != "default")
        self._memo: dict[str, Series | Fact | None] = {}
        self._kind: SampleKind | None = None
        #: by reference; rules ask for the same few quantities again and again
        self._found: dict[str, Series | Fact | None] = {}

    @property
    def kind(self) -> SampleKind:
        """Return what kind of run it is, with the witnesses."""
        if self._kind is None:
            self._kind = sample_kind(self)
        return self._kind

    def get(self, reference: str) -> Series | Fact | None:
        """Return what `series.X`, `fact.X` or `config.X` refers to, or None if the run cannot tell."""
        try:
            return self._found[reference]
        except KeyError:
            found = self._found[reference] = self._get(reference)
            return found

    def _get(self, reference: str) -> Series | Fact | None:
        kind, _, name = reference.partition(".")
        if kind == "series":
            return self.series(name)
        return self.fact(name) if kind == "fact" else self.setting(name)

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

    def number(self, name: str) -> float | None:
        """Return a setting as a number, None when it is unset, unknown or no finite number."""
        setting = self.run.config.get(name)
        if setting is None or isinstance(setting.value, str | bool | None) or not math.isfinite(setting.value):
            return None
        return float(setting.value)

    def configured(self, name: str) -> bool:
        """Tell whether a setting was found, rather than taken from the framework's defaults."""
        setting = self.run.config.get(name)
        return setting is not None and setting.how != "default"

    def logged(self, *names: str, fewest: int = 1) -> Series | None:
        """Return the first of some metrics that has enough finite values."""
        series = (self.run.series.get(name) for name in names)
        return next((s for s in series if s is not None and np.count_nonzero(np.isfinite(s.values)) >= fewest), None)

    def values(self, *names: str) -> FloatArray | None:
        """Return the finite values of the first of some metrics that has any, shape [records]."""
        series = self.logged(*names)
        return None if series is None else finite(series)

    def value(self, name: str) -> float | None:
        """Return a fact as a number, None where it is unknown or a word."""
        found = self.fact(name)
        return None if found is None else found.number

    def holds(self, name: str) -> bool | None:
        """Return the answer of a fact that is a condition, None where it is unknown."""
        found = self.fact(name)
        return None if found is None else bool(found.value)

    def says(self, *names: str) -> str:
        """Return what some facts say, of those that are known."""
        return "; ".join(found.says for found in map(self.fact, names) if found is not None)

    def given(self, name: str) -> float | None:
        """Return a setting that was found, as a number; None for what only a default says."""
        return self.number(name) if self.configured(name) else None

    def given_setting(self, name: str) -> Setting | None:
        """Return a setting that was found, rather than taken from the framework's defaults."""
        return self.run.config[name] if self.configured(name) else None

    def _derived(self, name: str) -> Series | Fact | None:
        memo = self._memo
        if name not in memo:
            if name not in STATISTICS and name not in METRICS:
                raise LookupError(f"there is no statistic or metric '{name}'")
            found = STATISTICS[name].function(self) if name in STATISTICS else None
            memo[name] = replace(found, name=name) if isinstance(found, Fact) and not found.name else found
        return memo[name]


@cache
def inputs(name: str) -> str:
    """Return, in words, what a quantity needs: its own name, or the alternatives it derives from."""
    if name not in STATISTICS:
        return name
    return ", or ".join(" with ".join(group) for group in STATISTICS[name].any_of)


def takes_a_log(reference: str) -> bool:
    """Tell whether what `series.X` or `fact.X` refers to cannot follow from a configuration alone."""
    kind, _, name = reference.partition(".")
    groups = STATISTICS[name].any_of if name in STATISTICS else ((name,),)
    logged = any(needed in METRICS and needed not in CONFIGURED for group in groups for needed in group)
    return kind == "series" or (kind == "fact" and logged)


def metrics_wanted(name: str, never: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the metrics whose logging would make a quantity computable: the cheapest way without those of `never`."""
    ways = STATISTICS[name].any_of if name in STATISTICS else ((name,),)
    return next((way for way in ways if never.isdisjoint(way)), ways[0])
