"""Record, inside a training script, the metrics that distinguish causes of silent failures.

`Recorder` works in any loop; `ppo_doctor.record.sb3` and `ppo_doctor.record.trl` are callbacks. They use the array
library of the tensors they get and import no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.record.recorder import Recorder

__all__ = ["Recorder"]


def __getattr__(name: str) -> object:
    """Import the recorder when it is asked for: `ppo_doctor.record.script` starts without NumPy."""
    if name != "Recorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ppo_doctor.record.recorder import Recorder

    return Recorder
