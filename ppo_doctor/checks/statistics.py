"""Registry of the statistics of a run: functions by name, each with the inputs that it can be computed from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, cast

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.rules import SETTING

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, Series

Function = TypeVar("Function", bound="Callable[[RunView], Series | Fact | None]")
Result = TypeVar("Result")

#: Metrics that show the entropy of a policy, and its reward.
ENTROPIES = ("entropy", "entropy_loss", "action_std")
REWARDS_LOGGED = ("reward_mean", "episode_return", "eval_return")


@frozen(kw_only=False)
class Statistic:
    """A function of a run, and the alternative sets of inputs that it can be computed from."""

    function: Callable[[RunView], Series | Fact | None]
    any_of: tuple[tuple[str, ...], ...]


#: All statistics by name; `run_view` imports the modules that register them.
STATISTICS: dict[str, Statistic] = {}


def statistic(*ways: str, name: str = "") -> Callable[[Function], Function]:
    """Register a function under its name, or under `name`; each of `ways` is a set of inputs joined by "+"."""

    def register(function: Function) -> Function:
        any_of = tuple(tuple(way.split("+")) for way in ways)
        STATISTICS[name or function.__name__] = Statistic(function, any_of)
        return function

    return register


def once(function: Callable[[RunView], Result]) -> Callable[[RunView], Result]:
    """Make a function of a run that returns what it returned for that run before."""

    def first(view: RunView) -> Result:
        results = view.results
        if function not in results:
            results[function] = function(view)
        return cast("Result", results[function])

    return wraps(function)(first)


def ways(quantity: str) -> tuple[tuple[str, ...], ...]:
    """Return the alternative sets of inputs of a statistic; a metric or setting is its own input."""
    name = quantity.removeprefix(SETTING)
    return STATISTICS[name].any_of if name in STATISTICS else ((name,),)


def each_with(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return every combination of one of `names` with one of `others`, as `statistic` reads it."""
    return tuple(f"{name}+{other}" for name in names for other in others)
