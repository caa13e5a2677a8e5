"""Record, inside a training script, the numbers that tell causes of a silent failure apart.

`Recorder` works in any loop; `ppo_doctor.record.sb3` and `ppo_doctor.record.trl` are callbacks. It works with the array
library of the tensors, and imports none that is not in use.
"""

from __future__ import annotations

from ppo_doctor.record.recorder import Recorder

__all__ = ["Recorder"]
