"""ppo-doctor: find out what is wrong with a PPO run, on what evidence, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

__version__ = "0.2.0"
__all__ = ["__version__", "analyze", "load_run"]


def load_run(source: str | Path, *, settings: Mapping[str, object] | None = None, framework: str | None = None) -> Run:
    """Read one log into an immutable `Run`.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know.
    """
    from ppo_doctor.diagnosis.analyze import load_run as load

    return load(source, settings=settings, framework=framework)


def analyze(
    source: str | Path, *, settings: Mapping[str, object] | None = None, framework: str | None = None
) -> Diagnosis:
    """Diagnose one run with the built-in rules.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know.
    """
    from ppo_doctor.diagnosis.analyze import analyze as diagnose

    return diagnose(source, settings=settings, framework=framework)
