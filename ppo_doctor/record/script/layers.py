"""Know the lines that made layers with two modes, and those that set a network to training."""

from __future__ import annotations

import weakref
from collections.abc import Container
from types import FrameType
from typing import Any

from ppo_doctor.record.script.places import DEEP, Places, Stack

#: Lines that set a network to training that are remembered.
MOST = 8


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
