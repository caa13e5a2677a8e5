"""K as it was planned: a framework's formula applied to settings, and the setting that is missing for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ppo_doctor.frameworks.profiles import UPDATES_PER_BATCH, UpdateFormula
from ppo_doctor.frameworks.updates import FUNCTIONS
from ppo_doctor.ingest.naming import parse
from ppo_doctor.model import Fact, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.frameworks.profiles import Profile
    from ppo_doctor.model import ConfigValue, How, Setting

#: What a run's length is counted in, what may stand beside that, and the words of a decay of the learning rate.
UNITS = frozenset({"step", "epoch", "iteration", "update", "episode"})
WHOLE = frozenset({"total", "max", "count"})
DECAY = frozenset({"learning_rate", "decay"})

_WEAKEST: tuple[How, ...] = ("default", "observed")


def configured_updates(profile: Profile, settings: Mapping[str, Setting]) -> Fact | None:
    """Return K by the framework's formula; `how` is the weakest of its arguments: default, observed, configured."""
    facts = [fact for formula in _formulas(profile) if (fact := _apply(formula, settings, profile))]
    return min(facts, key=lambda fact: fact.how == "default", default=None)


def deciding_setting(profile: Profile, known: Iterable[str]) -> str:
    """Return the setting that tells K beside those that are known, as `--set` takes it: the framework's own key.

    K itself, under our name for it, where several are missing.
    """
    held = set(known)
    lacking = [set(formula.arguments.values()) - held for formula in profile.updates]
    single = (name for names in lacking if len(names) == 1 for name in names)
    one = next((name for name in single if name != UPDATES_PER_BATCH), UPDATES_PER_BATCH)
    return profile.config.get(one, (one,))[0]


def _formulas(profile: Profile) -> tuple[UpdateFormula, ...]:
    """Return what a profile knows, and that K itself may be told for each."""
    return (UpdateFormula(function="direct", arguments={"updates": UPDATES_PER_BATCH}), *profile.updates)


def _apply(formula: UpdateFormula, settings: Mapping[str, Setting], profile: Profile) -> Fact | None:
    used = {argument: settings.get(name) for argument, name in formula.arguments.items()}
    numbers = {argument: _positive(setting) for argument, setting in used.items()}
    if any(number is None for number in numbers.values()):
        return None
    value = FUNCTIONS[formula.function](**numbers)
    hows = {setting.how for setting in used.values() if setting}
    first = next(setting for setting in used.values() if setting)
    keys = ", ".join(_written(profile, name, settings[name]) for name in formula.arguments.values() if name in settings)
    return Fact(
        name="updates_configured",
        value=value,
        how=next((how for how in _WEAKEST if how in hows), "configured"),
        unit="optimizer steps per batch",
        source=SourceRef(path=first.source.path, line=first.source.line, key=keys),
        says=f"{formula.function}({keys})",
    )


def _written(profile: Profile, name: str, setting: Setting) -> str:
    """Return the key of a setting; that of a default as its framework would write it."""
    return setting.key if setting.how != "default" else profile.config.get(name, (name,))[0]


def _positive(setting: Setting | None) -> float | None:
    """Return a count or share that a run could have, in which quotients and products stay finite."""
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    number = float(setting.value)
    return number if 1e-12 < number < 1e12 else None


def planned_length(key: str, settings: Mapping[str, ConfigValue]) -> tuple[str, float] | None:
    """Return how long a run is planned, in the unit that a setting counts: the longest that says nothing else.

    `lr_decay_epochs` counts what `epoch` and `max_epochs` do, `lr_decay_steps` what `total_steps` and `steps` do.
    """
    unit = UNITS & _words(key)
    lengths = [
        (name, float(value))
        for name, value in settings.items()
        if isinstance(value, int | float) and unit and unit <= _words(name) <= unit | WHOLE
    ]
    return max(lengths, key=lambda told: told[1], default=None)


def decay_is_off(settings: Mapping[str, ConfigValue]) -> bool:
    """Tell whether a switch turns the decay of the learning rate off."""
    return any(value is False and _words(name) >= DECAY for name, value in settings.items())


def _words(key: str) -> frozenset[str]:
    return parse(key.rpartition(".")[2]).concepts
