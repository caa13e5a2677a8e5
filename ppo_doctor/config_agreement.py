"""Does a log agree with a configuration beside it? One that it contradicts is another run's, and is not used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import configuration
from ppo_doctor.arrays import finite_of, median
from ppo_doctor.evidence import number
from ppo_doctor.model import Note, Setting
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.builder import RunBuilder
    from ppo_doctor.config_beside import Beside
    from ppo_doctor.configuration import Found
    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import FloatArray, Series

#: Why a configuration is left alone that nothing speaks against.
UNLINKED = "neither its name nor the log says that it is this run's; --config takes it"
#: Files that are named one by one.
MOST_NAMED = 3
#: Metrics that a log is held against a configuration by.
COMPARED = ("learning_rate", "clip_range", "epochs_executed_total", "epochs_executed", "iteration", "env_steps")
#: What is within this share is the same: a number that a file rounds, or the first of a slow schedule.
ALIKE = 0.01
#: A number printed in steps of more than this share of it is not known to be another's equal.
COARSE = 0.3
#: A schedule's largest rate in a log is at most this many times below the configured one, and at most this share above.
FARTHEST, ABOVE = 2.0, 0.05
#: Steps that a run makes at most beyond what was planned: its last rollout.
BEYOND = 1.1
#: Settings that move a rate beyond what was configured.
MOVES_RATE = frozenset({"desired_kl", "kl_target"})
#: Names of environments as registries write them.
_ENVIRONMENT = re.compile(r"(?<![A-Za-z0-9])([A-Z][A-Za-z0-9]+(?:-[A-Za-z0-9]+)*-v\d+)(?![A-Za-z0-9])")
_RUN_NAMES = frozenset({"run_name", "exp_name", "experiment_name"})
_NAMED_ENVIRONMENT = frozenset({"env", "env_id", "env_name", "environment", "gym_id", "task", "env.id", "env.name"})


@frozen
class Comparison:
    """What a log says of one setting: `agrees` or not; `alone` is false of what refuses only beside another."""

    setting: Setting
    logged: str
    agrees: bool
    alone: bool = True

    @property
    def says(self) -> str:
        """Return the contradiction with both values, as in "learning_rate is 0.01, and the log has 0.0003"."""
        line = f"line {self.setting.source.line}: " if self.setting.source and self.setting.source.line else ""
        return f"{line}{self.setting.key} is {_shown(self.setting)}, and {self.logged}"


@frozen
class Record:
    """What a log says of the settings that it was made under: metrics by name, settings of its own, its path."""

    profile: Profile
    series: Mapping[str, Series]
    own: Sequence[Found]
    log: str

    @classmethod
    def of(cls, profile: Profile, builder: RunBuilder, own: Sequence[Found], log: str) -> Record:
        """Return what the records of a builder say; its notes stay as they are."""
        told = {name: metric for name in COMPARED if (metric := profile.metrics.get(name))}
        series = builder.copy().series(replace(profile, metrics=told))
        return cls(profile=profile, series=series, own=own, log=log)

    def accepted(self, near: Sequence[Beside]) -> tuple[list[Found], list[Note]]:
        """Return the configurations beside the log that are its run's; notes say which are used, and why others not."""
        used: list[Found] = []
        alone: list[Found] = []
        notes: list[Note] = []
        for one in near:
            why = self._refusal(one)
            if not why:
                used.append(one.found)
            elif why == UNLINKED:
                alone.append(one.found)
            else:
                notes.append(Note(text=f"not used: {why}", source=one.found.source, kind="dropped"))
        if used:
            notes.append(Note(text=f"settings from {_names(used)}", kind="merged"))
        if alone:
            notes.append(Note(text=f"not used: {_names(alone)}: {UNLINKED}"))
        return used, notes

    def _refusal(self, one: Beside) -> str:
        """Return why a configuration is not the run's; nothing where it is.

        One that name or log link to the run may differ in as many settings as it agrees in: a setting that the trainer
        does not follow is a fault.
        """
        compared = self._compared(one.found)
        against = [c for c in compared if not c.agrees]
        agreeing = sum(c.agrees for c in compared)
        most = agreeing if one.linked else 0
        if any(c.alone for c in against) and len(against) > most:
            return f"the log contradicts it: {'; '.join(c.says for c in against)}"
        if not one.linked and not agreeing:
            return UNLINKED
        return ""

    def contradicted(self, given: Iterable[Found]) -> list[Note]:
        """Return what the log contradicts of configurations that somebody named: they are used, and told of."""
        notes: list[Note] = []
        for found in given:
            against = [c for c in self._compared(found) if not c.agrees]
            if against:
                text = f"used as told, though the log contradicts it: {'; '.join(c.says for c in against)}"
                notes.append(Note(text=text, source=found.source, kind="dropped"))
        return notes

    def _compared(self, found: Found) -> list[Comparison]:
        named = configuration.canonical_settings(self.profile, [found])
        settings = {name: setting for name, setting in named.items() if setting.how != "default"}
        each = (compare(settings, self.series) for compare in (_rate, _clip, _passes, _extent))
        named_so = (_environment(found, self.own, self.log), _run_name(found, self.own, self.log))
        return [c for c in (*each, *named_so) if c is not None]


def _names(found: Sequence[Found]) -> str:
    """Return the files of some settings by name, and how many more there are."""
    names = list(dict.fromkeys(Path(each.source.path).name for each in found))
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join(names[:MOST_NAMED] + more)


def taken(
    profile: Profile,
    builder: RunBuilder,
    log: str,
    own: Sequence[Found],
    near: Sequence[Beside],
    given: Sequence[Found],
) -> tuple[list[Found], list[Note]]:
    """Return the configurations beside a log that are its run's, and notes on them, or on those that were named."""
    named = [found for found in given if found.source.path != "--set"]
    if not near and not named:
        return [], []
    record = Record.of(profile, builder, own, log)
    used, notes = record.accepted(near)
    return used, [*notes, *record.contradicted(named)]


def _shown(setting: Setting) -> str:
    return number(setting.value) if isinstance(setting.value, int | float) else str(setting.value)


def _number(settings: Mapping[str, Setting], name: str) -> tuple[Setting, float] | None:
    setting = settings.get(name)
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    try:
        value = float(setting.value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return (setting, value) if np.isfinite(value) else None


def _values(series: Mapping[str, Series], name: str) -> FloatArray | None:
    held = series.get(name)
    values = finite_of(held.values) if held is not None else np.empty(0)
    return values if len(values) > 1 else None


def _rate(settings: Mapping[str, Setting], series: Mapping[str, Series]) -> Comparison | None:
    adaptive = not MOVES_RATE.isdisjoint(settings) or "adaptive" in str(
        getattr(settings.get("lr_schedule"), "value", "")
    )
    return None if adaptive else _level("learning_rate", settings, series)


def _clip(settings: Mapping[str, Setting], series: Mapping[str, Series]) -> Comparison | None:
    return _level("clip_range", settings, series)


def _level(name: str, settings: Mapping[str, Setting], series: Mapping[str, Series]) -> Comparison | None:
    """Compare a setting with what is logged of it: always the same, or the largest of a schedule.

    Nothing is said of a value of 0, which is what some faults make of a setting, nor of one that is printed so coarsely
    that it may be the same.
    """
    told, values = _number(settings, name), _values(series, name)
    if told is None or values is None or told[1] <= 0:
        return None
    setting, asked = told
    raw, most = series[name].raw, float(values.max())
    coarse = series[name].resolution.absolute
    room = ALIKE * asked + coarse
    if most <= 0 or (coarse > COARSE * asked and abs(most - asked) <= room):
        return None
    if np.ptp(values) <= ALIKE * most:
        agrees = abs(most - asked) <= room
        return Comparison(setting=setting, logged=f"the log has {raw} = {number(most)}", agrees=agrees)
    if abs(most - asked) <= max(room, ABOVE * asked):
        return Comparison(setting=setting, logged=f"{raw} reaches {number(most)} in the log", agrees=True)
    begins = bool((values[: max(1, len(values) // 10)] == most).any())
    if most > asked or (begins and most * FARTHEST < asked):
        return Comparison(setting=setting, logged=f"{raw} reaches {number(most)} in the log", agrees=False)
    return None


def _passes(settings: Mapping[str, Setting], series: Mapping[str, Series]) -> Comparison | None:
    """Compare the passes over a batch; fewer than configured are a fault as well, and refuse nothing alone."""
    told, total = _number(settings, "ppo_epochs"), _values(series, "epochs_executed_total")
    each = _values(series, "epochs_executed")
    rollouts = _values(series, "iteration")
    if told is None or (total is None and each is None):
        return None
    setting, asked = told
    if each is not None:
        done, raw = float(median(each)), series["epochs_executed"].raw
    else:
        steps = np.diff(total) if total is not None else np.empty(0)
        per = float(median(np.diff(rollouts))) if rollouts is not None and total is not None else 1.0
        done, raw = float(median(steps)) / max(1.0, per), series["epochs_executed_total"].raw
    if done <= 0:
        return None
    logged = f"the log counts {number(done)} passes by {raw}"
    agrees = abs(done - asked) <= ALIKE * asked
    multiple = done > asked and abs(done / asked - round(done / asked)) < ALIKE and rollouts is None and each is None
    return None if multiple else Comparison(setting=setting, logged=logged, agrees=agrees, alone=done > asked)


def _extent(settings: Mapping[str, Setting], series: Mapping[str, Series]) -> Comparison | None:
    """Compare the environment steps that were planned with those that were taken: fewer are a run that goes on."""
    told, taken = _number(settings, "total_env_steps"), _values(series, "env_steps")
    if told is None or taken is None or told[1] <= 0:
        return None
    most, apart = float(taken.max()), float(np.abs(np.diff(taken)).max())
    if most <= told[1] * BEYOND + apart:
        return None
    return Comparison(setting=told[0], logged=f"the log goes on to {number(most)} steps", agrees=False)


def _environment(found: Found, own: Sequence[Found], log: str) -> Comparison | None:
    """Compare the environment's name with that in the log's settings, else in the path of the log."""
    named = _environment_of(found)
    if named is None:
        return None
    told = [other[1] for each in own if (other := _environment_of(each)) is not None]
    told = told or [match[1] for part in Path(log).resolve().parts[-3:] for match in _ENVIRONMENT.finditer(part)]
    if not told:
        return None
    key, name = named
    setting = Setting(key=key, value=name, how=found.how, source=found.place(key))
    return Comparison(setting=setting, logged=f"the log is of {told[0]}", agrees=name in told)


def _run_name(found: Found, own: Sequence[Found], log: str) -> Comparison | None:
    """Compare the run's name with that in the log's settings, else with the folders that the log lies in.

    A folder may be called anything: it contradicts a name only where another one beside it is called so.
    """
    named = _run_named(found)
    if named is None:
        return None
    key, name = named
    setting = Setting(key=key, value=name, how=found.how, source=found.place(key))
    told = [other[1] for each in own if (other := _run_named(each)) is not None]
    path = Path(log).resolve()
    if told or name in path.parts:
        return Comparison(
            setting=setting, logged=f"the log is of {(told or [name])[0]}", agrees=name in (told or [name])
        )
    if Path(name).name != name or not any((folder / name).is_dir() for folder in list(path.parents)[1:3]):
        return None
    return Comparison(setting=setting, logged=f"the log lies in {path.parent.name}", agrees=False)


def _run_named(found: Found) -> tuple[str, str] | None:
    for key, value in found.values.items():
        if key.lower().rpartition(".")[2] in _RUN_NAMES and isinstance(value, str) and value.strip(". "):
            return key, value
    return None


def _environment_of(found: Found) -> tuple[str, str] | None:
    for key, value in found.values.items():
        parts = key.lower().split(".")
        named = parts[-1] in _NAMED_ENVIRONMENT or ".".join(parts[-2:]) in _NAMED_ENVIRONMENT
        match = _ENVIRONMENT.search(value) if named and isinstance(value, str) else None
        if match is not None:
            return key, match[1]
    return None
