"""The statistics of a run: each is a function, registered under its name with the inputs that make it computable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, Series

Function = TypeVar("Function", bound="Callable[[RunView], Series | Fact | None]")

#: What a policy's entropy can be told by, and what a policy earns.
ENTROPIES = ("entropy", "entropy_loss", "action_std")
REWARDS_LOGGED = ("reward_mean", "episode_return", "eval_return")


@frozen(kw_only=False)
class Statistic:
    """A function of a run, and the alternatives (each a set of inputs) that it can be computed from."""

    function: Callable[[RunView], Series | Fact | None]
    any_of: tuple[tuple[str, ...], ...]


#: Every statistic by its name; filled as the modules of this package are imported, which `run_view` does.
STATISTICS: dict[str, Statistic] = {}


def statistic(*ways: str, name: str = "") -> Callable[[Function], Function]:
    """Register a function under its name, or another one, with its inputs: alternatives, each joined by "+"."""

    def register(function: Function) -> Function:
        any_of = tuple(tuple(way.split("+")) for way in ways)
        STATISTICS[name or function.__name__] = Statistic(function, any_of)
        return function

    return register


def each_with(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return each of some inputs together with each of others."""
    return tuple(f"{name}+{other}" for name in names for other in others)
