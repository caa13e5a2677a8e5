"""Know the layers and schedules that a script built, and the lines that set and step them and compute their rates."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Container, Sequence
from types import CodeType, FrameType
from typing import Any

from ppo_doctor.record.script.places import DEEP, Places, Stack
from ppo_doctor.record.script.steps import Step

#: The event of a step of a schedule.
SCHEDULED = "schedule"
#: Share of the steps of an update after which a schedule that is meant for each step is stepped.
EACH = 0.8
#: Lines that set a network to training that are remembered.
MOST = 8


class Schedules:
    """The schedules that a script made, and whether rates change from one optimizer step to the next."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._made: list[tuple[weakref.ref[Any], Stack]] = []
        self.stepped_at: Stack = ()
        #: whether a schedule is stepped at each optimizer step, and whether a rate changes in the course of an update
        self.each_step = self.varied = False

    def created(self, schedule: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember a schedule and the line that made it."""
        self._made.append((weakref.ref(schedule), self._places.stack(frame, DEEP)))

    def note(self, steps: Sequence[Step]) -> None:
        """Note how often schedules were stepped in an update, and whether its rates differ."""
        calls = [next((stack for name, stack in step.events if name == SCHEDULED), ()) for step in steps]
        self.stepped_at = next((stack for stack in calls if stack), self.stepped_at)
        later = len(steps) - 1
        often = later > 0 and sum(map(bool, calls[1:])) >= EACH * later
        self.each_step = self.each_step or often
        self.varied = self.varied or len({step.learning_rate for step in steps}) > 2

    def built_at(self) -> Stack:
        """Return the frames that made the latest schedule."""
        return self._made[-1][1] if self._made else ()

    def functions(self) -> list[CodeType]:
        """Return the code of functions that compute the rates of schedules, the latest first."""
        alive = [schedule for made, _ in reversed(self._made) if (schedule := made()) is not None]
        found = [_code(function) for each in alive for function in getattr(each, "lr_lambdas", ())]
        return [code for code in found if code is not None]


def _code(function: Any) -> CodeType | None:  # noqa: ANN401
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


class Layers:
    """The lines at which the first layer of dropout and of batch normalisation were made, and modes were set."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.dropout_at: Stack = ()
        self.norm_at: Stack = ()
        #: different lines of the script that set networks to training, the latest first
        self._training_at: list[tuple[weakref.ref[Any], Stack]] = []

    def dropout_created(self, layer: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember the line that made the first layer that drops anything."""
        if layer.p and not self.dropout_at:
            self.dropout_at = self._places.stack(frame, DEEP)

    def norm_created(self, _: object, frame: FrameType) -> None:
        """Remember the line that made the first layer of batch normalisation."""
        self.norm_at = self.norm_at or self._places.stack(frame, DEEP)

    def set_to_training(self, network: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember a line of the script that sets a network to training."""
        stack = self._places.stack(frame)
        if self._places.own(stack) is not None:
            others = [each for each in self._training_at if each[0]() is not network or each[1][0] != stack[0]]
            self._training_at = [(weakref.ref(network), stack), *others][:MOST]

    def training_at(self, weights: Container[int]) -> list[Stack]:
        """Return the lines that set a network with some of these weights to training, the latest first."""
        networks = ((network, stack) for known, stack in self._training_at if (network := known()) is not None)
        return [stack for network, stack in networks if any(id(each) in weights for each in network.parameters())]
