"""What a caller asks for besides the files: how they are read, and how the run is judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

    from ppo_doctor.model.words import ConfigValue


@frozen
class Request:
    """The options of one analysis, from the command line or from a caller."""

    settings: Mapping[str, ConfigValue] | None = None
    configs: Sequence[Path] = ()
    framework: str | None = None
    #: first and last step to judge; None is open
    steps: tuple[int | None, int | None] = (None, None)
    #: role=name, for tensors of dumps whose names do not show what they hold
    names: Sequence[str] = ()
    #: column or setting → metric, setting or clock: of the command line, and of the project's own file
    aliases: Mapping[str, str] = field(default_factory=dict)
    project_aliases: Mapping[str, str] = field(default_factory=dict)
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    #: the reward that the user calls good
    target_return: float | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        """Refuse a reward that is no number, or that no run reaches.

        Raises:
            DoctorError: the reward to reach is NaN or infinite (exit code 2).
        """
        if self.target_return is not None and not math.isfinite(self.target_return):
            text = f"the return to reach is {self.target_return}"
            raise DoctorError(text, hint="give a finite number", code=ExitCode.USAGE)
