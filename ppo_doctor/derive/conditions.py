"""Series that hold 1 where something is so, and else 0."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ppo_doctor.model import CONDITION

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray, Series


def condition(series: Series, name: str, values: FloatArray, says: str) -> Series:
    """Return a condition on the records of a series, of shape [records]; `says` is what is so where it holds 1."""
    return dataclasses.replace(series, name=name, values=values, unit=CONDITION, how="computed", says=says)
