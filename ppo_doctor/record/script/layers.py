"""Know the lines that made layers with two modes, and the latest that set a network to training."""

from __future__ import annotations

from types import FrameType
from typing import Any

from ppo_doctor.record.script.places import DEEP, Places, Stack


class Layers:
    """The lines at which the first layer of dropout and of batch normalisation were made, and modes were set."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.dropout_at: Stack = ()
        self.norm_at: Stack = ()
        self.training_at: Stack = ()

    def dropout_created(self, layer: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Remember the line that made the first layer that drops anything."""
        if layer.p and not self.dropout_at:
            self.dropout_at = self._places.stack(frame, DEEP)

    def norm_created(self, _: object, frame: FrameType) -> None:
        """Remember the line that made the first layer of batch normalisation."""
        self.norm_at = self.norm_at or self._places.stack(frame, DEEP)

    def set_to_training(self, frame: FrameType) -> None:
        """Remember the latest line of the script that set a network to training."""
        stack = self._places.stack(frame)
        if self._places.own(stack) is not None:
            self.training_at = stack
