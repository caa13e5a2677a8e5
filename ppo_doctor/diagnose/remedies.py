"""Remedies as they fit one run: the framework's own key, the value that the run has, and the value to set."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.configs.values import parse_value
from ppo_doctor.frameworks import SAME_SETTINGS, of_settings
from ppo_doctor.frameworks.settings import IN_FORCE
from ppo_doctor.model import Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model import ConfigValue, Run

#: More of them hide the first.
MOST_REMEDIES = 3
#: The value to set that is the framework's own.
DEFAULT = "default"
#: How a value follows from the one that is: a multiple or a part of it.
SCALES = ("*", "/")


def fitting(remedies: Iterable[Remedy], run: Run, samples: str | None = None) -> tuple[Remedy, ...]:
    """Return the first remedies for a run's framework and samples or for any, without those that it follows already.

    Where it follows all of them, something that no setting shows is wrong, and they are told in words.
    """
    own = (None, run.framework, SAME_SETTINGS.get(run.framework))
    fit = (remedy for remedy in remedies if None in (samples, remedy.samples) or remedy.samples == samples)
    named = [remedy for remedy in fit if remedy.framework in own]
    ours = [remedy for remedy in named if _settable(remedy, run)] or named
    open_ = [remedy for remedy in ours if not _followed(remedy, run)] or ours
    return tuple(_told(remedy, run) for remedy in open_[:MOST_REMEDIES])


def _settable(remedy: Remedy, run: Run) -> bool:
    """Tell whether a run's trainer has the setting to change: no upper clip bound where there is one for both sides.

    The weight of a value loss means nothing to a critic with an optimizer of its own.
    """
    if remedy.setting is None:
        return True
    given = run.config.get(remedy.setting)
    if given is not None and given.how != "default":
        return True
    apart = run.config.get("critic_learning_rate") is not None or "critic_learning_rate" in run.series
    if remedy.setting == "vf_coef" and apart:
        return False
    return of_settings(run.framework) is None or _key(remedy.setting, run) is not None


def _followed(remedy: Remedy, run: Run) -> bool:
    """Tell whether the run has the value to set, or its framework has and nothing says that the run has another.

    A multiple or a part of nothing, or of what is negative, is no remedy either.
    """
    if remedy.setting is None or not remedy.to:
        return False
    now, default = value_held(remedy.setting, run), _default(remedy.setting, run)
    if remedy.to[:1] in SCALES:
        return isinstance(now, int | float) and now <= 0
    held = default if now is None else now
    known = default is not None or not remedy.to.endswith(DEFAULT)
    return held is not None and known and target(remedy.to, held, default) is None


def _told(remedy: Remedy, run: Run) -> Remedy:
    """Return a remedy with the run's key and values; a part or a multiple is never one of a mere default."""
    if remedy.setting is None:
        return replace(remedy, now=run.config_raw.get(remedy.key or ""))
    key, now = _key(remedy.setting, run), value_held(remedy.setting, run)
    to = target(remedy.to, now, _default(remedy.setting, run))
    return replace(remedy, key=key, now=now, then=to if key else None)


def _key(setting: str, run: Run) -> str | None:
    """Return what the run calls a setting, else its framework; None where that has no such setting."""
    held = run.config.get(setting)
    if held is not None and held.how != "default":
        return held.key
    ours = of_settings(run.framework)
    return next(iter(ours.config.get(setting, ())), None) if ours is not None else None


def value_held(setting: str, run: Run) -> ConfigValue:
    """Return the value of a setting: the one that every record logs, else as configured, else the largest logged."""
    held, series = run.config.get(setting), run.series.get(IN_FORCE.get(setting, setting))
    logged = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    constant = len(logged) > 0 and bool((logged == logged[0]).all())
    if held is None or held.how == "default" or constant:  # a rate of 0 is, whatever was asked for
        return float(logged.max()) if len(logged) else None  # what a schedule decays from, or what was raised late
    return held.value


def _default(setting: str, run: Run) -> ConfigValue:
    ours = of_settings(run.framework)
    return ours.defaults.get(setting) if ours is not None else None


def target(to: str, now: ConfigValue, default: ConfigValue) -> ConfigValue:
    """Return the value to set; None where it cannot be told, or is what the run has."""
    how, _, value = to.partition(" ")
    if not how:
        return None
    if how in SCALES:
        scaled = _scaled(now, float(value) if how == "*" else 1 / float(value))
        return default if _further(default, scaled, up=how == "*") else scaled
    wanted = default if value == DEFAULT else parse_value(value)
    if not isinstance(now, int | float) or not isinstance(wanted, int | float):
        return None if wanted == now else wanted
    meets = {">=": now >= wanted, "<=": now <= wanted, "=": now == wanted}
    return None if meets[how] else wanted


def _further(default: ConfigValue, scaled: ConfigValue, *, up: bool) -> bool:
    """Tell whether the framework's own value lies further in the same direction: then that is where to go."""
    if not isinstance(default, int | float) or not isinstance(scaled, int | float):
        return False
    return default > scaled if up else 0 < default < scaled


def _scaled(now: ConfigValue, factor: float) -> ConfigValue:
    """Return a multiple or a part of the value that is; whole numbers stay whole."""
    if not isinstance(now, int | float) or isinstance(now, bool) or not math.isfinite(now) or now <= 0:
        return None
    return max(1, round(now * factor)) if isinstance(now, int) else float(f"{now * factor:.2g}")
