"""Metrics that are a factor times the mean: divided by it, or left out where the log shows it and nothing tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside
from ppo_doctor.frameworks.updates import FUNCTIONS
from ppo_doctor.model import Note, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.frameworks import PartialMean, Profile
    from ppo_doctor.model import Series, Setting

#: The variance of cells that are 1 with a share f and 0 else is f(1 - f); this much of it no spread of ratios has.
MOSTLY_EMPTY = 0.9
#: Means of ratios below this, with such a variance, are means over empty cells.
FAR_BELOW_ONE = 0.75


def whole_means(
    profile: Profile, settings: Mapping[str, Setting], series: Mapping[str, Series], path: str
) -> tuple[dict[str, Series], list[Note]]:
    """Return the series as means, or without those whose share of filled cells is unknown.

    The factor follows from settings by the profile's function. Failing these, a mean ratio far below 1 that varies as
    cells of 0 and 1 do shows that it is a share below 1; else the framework's defaults tell it.
    """
    partial = profile.partial_mean
    held = [name for name in (*partial.metrics, *partial.dropped) if name in series] if partial else []
    if partial is None or not held:
        return dict(series), []
    share, usual = _share(partial, settings), _share(partial, settings, defaults=True)
    source = SourceRef(path=path)
    if share is None and _looks_partial(series):
        asked = ", ".join(f"--set {name}=…" for name in partial.arguments.values())
        text = f"{', '.join(held)}: means over cells of which many are empty, and are not used; {asked} would tell"
        return {name: s for name, s in series.items() if name not in held}, [Note(text=text, source=source)]
    factor, by_default = (usual or 1, " by default") if share is None else (share, "")
    if factor == 1:
        return dict(series), []
    restored = {
        name: _divided(s, factor) if name in partial.metrics else s
        for name, s in series.items()
        if name not in partial.dropped
    }
    text = f"{', '.join(n for n in held if n in restored)}: divided by {factor:g}, {partial.why}{by_default}"
    lost = [name for name in held if name in partial.dropped]
    unused = [Note(text=f"{', '.join(lost)}: counts empty cells, and is not used", source=source)] if lost else []
    return restored, [Note(text=text, source=source), *unused]


def _share(partial: PartialMean, settings: Mapping[str, Setting], *, defaults: bool = False) -> float | None:
    if any((setting := settings.get(name)) is not None and setting.value for name in partial.unless):
        return None
    found = {argument: settings.get(name) for argument, name in partial.arguments.items()}
    numbers = {
        argument: float(setting.value)
        for argument, setting in found.items()
        if setting is not None
        and (defaults or setting.how != "default")
        and isinstance(setting.value, int | float)
        and setting.value > 0
    }
    return FUNCTIONS[partial.function](**numbers) if len(numbers) == len(found) else None


def _looks_partial(series: Mapping[str, Series]) -> bool:
    ratio = series.get("ratio_mean")
    spread = beside(ratio, series.get("ratio_batch_var"))
    if ratio is None or spread is None:
        return False
    known = np.isfinite(ratio.values) & np.isfinite(spread.values)
    share, variance = ratio.values[known], spread.values[known]
    with np.errstate(over="ignore"):  # a number near the largest is no share, whatever its square would be
        empty = (share < FAR_BELOW_ONE) & (variance > MOSTLY_EMPTY * share * (1 - share))
    return bool(len(empty) and empty.mean() > 0.5)


def _divided(series: Series, share: float) -> Series:
    return replace(series, values=series.values / share, resolution=series.resolution.scaled(1 / share))
