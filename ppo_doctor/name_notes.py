"""Notes on names: what was read by its likeness to a name, and what may mean the same and is not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ppo_doctor import configuration
from ppo_doctor.columns import listed
from ppo_doctor.model import Note, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import Setting


#: Metrics of what is to be made large.
_EARNED = frozenset({"episode_return", "reward_mean", "eval_return"})


def rescaled(profile: Profile, path: str) -> list[Note]:
    """Return a note on each cost that is read as a reward, with its sign turned, and each KL read in thousandths."""
    inferred = [(n, m) for n, m in sorted(profile.metrics.items()) if profile.inferred.keys() & set(m.keys)]
    return [
        Note(text=f"{', '.join(m.keys)} is read {how}", source=SourceRef(path=path))
        for name, m in inferred
        for how, holds in (
            ("as a cost: its sign is turned", name in _EARNED and m.scale < 0),
            ("in thousandths: as it stands it is larger than any update's KL", (name, m.scale) == ("approx_kl", 1e-3)),
        )
        if holds
    ]


def names_guessed(profile: Profile, path: str, settings: Mapping[str, Setting]) -> list[Note]:
    """Return a note on each metric and setting that only its name gives, and on further keys of a metric."""
    source = SourceRef(path=path)
    set_by_likeness = [
        Note(text=f"'{setting.key}' is read as {name}, by its name", source=setting.source, kind="renamed")
        for name, setting in sorted(settings.items())
        if configuration.is_guess(profile, name, setting)
    ]
    set_by_likeness += [
        Note(text=f"{profile.title} has no {setting.key}: it is {own} there", source=setting.source, kind="dropped")
        for name, setting in sorted(settings.items())
        if (own := configuration.own_name(profile, name, setting)) is not None
    ]
    several = [metric for metric in profile.metrics.values() if metric.columns]
    parts = {key for metric in several for key in metric.columns}
    guessed = [
        Note(text=f"'{raw}' is read as {name}, by its name", source=source, kind="renamed")
        for raw, name in sorted(profile.fuzzy.items())
        if raw not in parts and raw != name and raw not in profile.inferred
    ]
    guessed += [
        Note(text=f"{', '.join(m.columns)}: their {m.over} is read as {m.name}", source=source, kind="renamed")
        for m in several
    ]
    further = [
        Note(text=f"{name}: {listed(keys, 1)} may mean it too, not used", source=source)
        for name, keys in sorted(profile.further.items())
    ]
    return guessed + set_by_likeness + further
