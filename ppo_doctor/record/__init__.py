"""Record, inside a training script, the metrics that distinguish causes of silent failures.

`Recorder` works in any loop; `ppo_doctor.record.sb3` and `ppo_doctor.record.trl` are callbacks. They use the array
library of the tensors they get and import no other.
"""

from __future__ import annotations

from ppo_doctor.record.recorder import Recorder

__all__ = ["Recorder"]
