"""A training loop's calls to a recorder, as tests make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.record import Recorder


def one_update(recorder: Recorder, **more: object):
    """Record one update of one minibatch."""
    recorder.start_update()
    recorder.minibatch(new_log_prob=np.zeros(4), old_log_prob=np.full(4, -0.1), advantages=np.arange(4.0))
    recorder.optimizer_step(grad_norm=0.25)
    return recorder.end_update(**more)
