"""A run with the statistics that are computed from it, each once and on demand.

A statistic is a function of a `RunView`, so that it can use other statistics. It returns a Series or a Fact, or None if
it cannot be computed from the run.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ppo_doctor.checks.run_kind import sample_kind
from ppo_doctor.checks.series import finite
from ppo_doctor.checks.statistics import STATISTICS, ways
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.rules import SETTING
from ppo_doctor.model.run import Fact, Series

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.model.kinds import SampleKind
    from ppo_doctor.model.run import FloatArray, Run, Setting

#: Metrics that are settings as well, and the statistics of such metrics that need them in each record.
CONFIGURED = frozenset({"clip_range", "clip_range_vf", "critic_learning_rate", "kl_coef", "learning_rate"})
OF_RECORDS = frozenset({"applied_learning_rate", "controller_idle"})

for _link in (
    *("clip", "config", "counters", "critic", "entropy", "goal", "gradient"),
    *("learning_rate", "loss", "mismatch", "movement", "numerics", "outcome", "policy", "ratio", "rewards", "rollout"),
    *("series", "sizes", "unused_settings", "update"),
):
    import_module(f"ppo_doctor.checks.{_link}")  # registers its statistics


class RunView:
    """A run with everything that can be derived from it, computed at most once."""

    __slots__ = ("_quantities", "held", "kind", "results", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        #: metrics of the log, and settings that are not merely a framework's defaults
        self.held = frozenset(run.series).union(name for name, s in run.config.items() if s.how != "default")
        self._quantities: dict[str, Series | Fact | None] = {}
        #: what functions returned that are computed `once` for a run
        self.results: dict[Callable[[RunView], object], object] = {}
        #: the kind of run, with the evidence for it
        self.kind: SampleKind = sample_kind(self)

    def get(self, quantity: str) -> Series | Fact | None:
        """Return a metric or statistic by its name, or a setting by `config.NAME`; None if the run does not have it.

        Raises:
            LookupError: there is no such metric or statistic.
        """
        try:
            return self._quantities[quantity]
        except KeyError:
            value = self._quantities[quantity] = self._get(quantity)
            return value

    def _get(self, quantity: str) -> Series | Fact | None:
        if quantity.startswith(SETTING):
            return self.setting(quantity.removeprefix(SETTING))
        run = self.run
        if (logged := run.series.get(quantity) or run.facts.get(quantity)) is not None:
            return logged
        if quantity not in STATISTICS:
            if quantity not in METRICS:
                raise LookupError(f"there is no statistic or metric '{quantity}'")
            return None
        value = STATISTICS[quantity].function(self)
        if isinstance(value, Fact) and not value.name:
            value.take_name(quantity)
        return value

    def series(self, name: str) -> Series | None:
        """Return a metric, or a statistic that is a series; None if the run does not have it."""
        value = self.get(name)
        return value if isinstance(value, Series) else None

    def fact(self, name: str) -> Fact | None:
        """Return a fact of the run, or a statistic that is a fact; None if the run does not have it."""
        value = self.get(name)
        return value if isinstance(value, Fact) else None

    def setting(self, name: str) -> Fact | None:
        """Return a setting as a fact; None if it is not set."""
        setting: Setting | None = self.run.config.get(name)
        if setting is None:
            return None
        return Fact(name=name, value=setting.value, how=setting.how, source=setting.source, says=setting.how)

    def number(self, name: str) -> float | None:
        """Return a setting as a number; None if it is not set or not a finite number."""
        setting = self.run.config.get(name)
        if setting is None or isinstance(setting.value, str | bool | None) or not math.isfinite(setting.value):
            return None
        return float(setting.value)

    def configured(self, name: str) -> bool:
        """Tell whether a setting was configured, rather than taken from the framework's defaults."""
        setting = self.run.config.get(name)
        return setting is not None and setting.how != "default"

    def logged(self, *names: str, fewest: int = 1) -> Series | None:
        """Return the first of some metrics that has at least `fewest` finite values."""
        series = (self.run.series.get(name) for name in names)
        return next((s for s in series if s is not None and len(finite(s)) >= fewest), None)

    def values(self, *names: str) -> FloatArray | None:
        """Return the finite values of the first of some metrics that has any; shape [records]."""
        series = self.logged(*names)
        return None if series is None else finite(series)

    def value(self, name: str) -> float | None:
        """Return a fact as a number; None if it is unknown or not a number."""
        fact = self.fact(name)
        return None if fact is None else fact.number

    def holds(self, name: str) -> bool | None:
        """Return whether a fact that is a condition is true; None if it is unknown."""
        fact = self.fact(name)
        return None if fact is None else bool(fact.value)

    def says(self, *names: str) -> str:
        """Return the descriptions of those of some facts that are known."""
        return "; ".join(fact.says for fact in map(self.fact, names) if fact is not None)

    def given(self, name: str) -> float | None:
        """Return a configured setting as a number; None if it is a default or not set."""
        return self.number(name) if self.configured(name) else None

    def given_setting(self, name: str) -> Setting | None:
        """Return a configured setting; None if it is a default or not set."""
        return self.run.config[name] if self.configured(name) else None


@cache
def inputs(quantity: str) -> str:
    """Return, in words, what a quantity needs: the alternatives of a statistic, or its own name."""
    return ", or ".join(" with ".join(way) for way in ways(quantity))


def takes_a_log(quantity: str) -> bool:
    """Tell whether a quantity cannot follow from a configuration alone."""
    if quantity.startswith(SETTING):
        return False
    logged = {need for way in ways(quantity) for need in way if need in METRICS and need not in CONFIGURED}
    return bool(logged) or quantity in METRICS or quantity in OF_RECORDS


def metrics_wanted(quantity: str, never: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the inputs to log for a quantity: its first alternative without those of `never`, else its first."""
    return next((way for way in ways(quantity) if never.isdisjoint(way)), ways(quantity)[0])


def metrics_used(quantity: str, held: frozenset[str]) -> tuple[str, ...]:
    """Return the inputs of a quantity: all that are held of each alternative for which nothing lacks."""
    return tuple(name for way in ways(quantity) if held.issuperset(way) for name in way)
