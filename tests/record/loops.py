"""A training loop's calls to a recorder, as tests make them, and what has to be said of what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import ppo_doctor

if TYPE_CHECKING:
    from pathlib import Path

    from ppo_doctor.record import Recorder


def one_update(recorder: Recorder, **more: object):
    """Record one update of one minibatch."""
    recorder.start_update()
    recorder.minibatch(new_log_prob=np.zeros(4), old_log_prob=np.full(4, -0.1), advantages=np.arange(4.0))
    recorder.optimizer_step(grad_norm=0.25)
    return recorder.end_update(**more)


def check_cause(run: Path, case: str, confidence: str = "established") -> None:
    """Assert that the first fault of a run is its case, or that it has none if it is a sound one."""
    diagnosis = ppo_doctor.analyze(run)
    faults = [cause for cause in diagnosis.causes if not cause.benign]
    if case in ("healthy", "benign-single-update"):
        assert (diagnosis.verdict, faults) == ("healthy", [])
    else:
        assert (faults[0].id, faults[0].confidence) == (case, confidence)
