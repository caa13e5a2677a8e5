"""Choose the configurations beside a log that belong to it: by usual names, or because the log refers to them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import finite_of, median
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.evidence import number
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.run import Note, Setting, SourceRef
from ppo_doctor.trainers import configuration
from ppo_doctor.trainers.config_files import COMMANDS, fenced_settings, is_model, known_settings, read_config
from ppo_doctor.trainers.config_formats import SCRIPTS

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray, Series
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import Profile

#: Files that hold a run's settings when they lie beside its log, in the order in which they are believed.
KNOWN = (
    "config.json",
    "args.json",
    "params.json",
    "hparams.json",
    "hyperparameters.json",
    "config.yaml",
    "config.yml",
    "args.yaml",
    "args.yml",
    "configuration.yaml",
    "hparams.yaml",
    "training_args.yaml",
    "torchtune_config.yaml",
    "agent.yaml",
    "config.toml",
    ".hydra/config.yaml",
    "files/config.yaml",
    "params/agent.yaml",
    "training_args.bin",
)
_NAMES = frozenset(Path(name).name for name in KNOWN)
#: Other names that may be one: any YAML or TOML, a script, and what else says so (a JSON beside a log is mostly another
#: log).
OTHERS = re.compile(r".*\.(ya?ml|toml|sh|py)|.*(config|args|param).*\.(json|txt)", re.IGNORECASE)
MOST_OTHERS = 10
#: Our own settings, and a Python project's: never a training run's.
NEVER = ("ppo-doctor.toml", "pyproject.toml")
#: Words in a name that say that a file configures a run.
_WORD = re.compile(
    r"(?:^|[\W_]|(?<=[a-z]))(?:config|configuration|conf|cfg|args|arguments|params|parameters|hparams|hyper\w*|settings)"
    r"(?:$|[\W_\d])",
    re.IGNORECASE,
)
#: Files that start a run: of several in a folder nobody says which started it.
LAUNCHERS = frozenset({*COMMANDS, *SCRIPTS})
#: A file of another name counts as a configuration when this many of the framework's settings are in it.
ENOUGH = 2
#: Documents that a log is pasted into.
MARKDOWN = (".md", ".markdown")
#: Bytes at the head of a log that are searched for the name of a file.
HEAD = 1 << 18


@frozen
class Beside:
    """A configuration beside a log; `linked` tells whether its name, or the log, says that it is the run's."""

    found: Found
    linked: bool

    @property
    def path(self) -> Path:
        """Return the file."""
        return Path(self.found.source.path)


def beside(log: Path, profile: Profile, folders: Sequence[Path] = ()) -> tuple[list[Beside], list[Note]]:
    """Return the configurations that lie beside a log, most believed first; an unreadable one becomes a note.

    `folders` are further places to look in, after the log's own.
    """
    found: list[Beside] = []
    notes: list[Note] = []
    for path in _candidates(log, folders):
        try:
            config = _of_section(read_config(path), log.parent.name)
        except DoctorError as error:
            if path.suffix.lower() not in SCRIPTS:  # a program without settings is no broken configuration
                notes.append(Note(text=error.message, source=SourceRef(path=str(path))))
            continue
        if not is_model(config) and (path.name in _NAMES or known_settings(config, profile) >= ENOUGH):
            found.append(Beside(found=config, linked=False))
    launchers = sum(_starts(one.path) for one in found)
    found = [replace(one, linked=_linked(one.path, log, alone=launchers == 1)) for one in found]
    if log.suffix.lower() in MARKDOWN:  # pasted above its own log
        inside = (one for one in fenced_settings(log) if known_settings(one, profile) >= ENOUGH)
        found = [*(Beside(found=one, linked=True) for one in inside), *found]
    return found, notes


def _starts(path: Path) -> bool:
    return path.suffix.lower() in LAUNCHERS


def _linked(path: Path, log: Path, *, alone: bool) -> bool:
    """Tell whether a configuration's name is a known one, the log's, or in the log; of scripts whether it is alone."""
    if path.name in _NAMES or path.name == f"{log.stem}.config.json" or (_starts(path) and alone):
        return True
    stems = {log.stem.casefold(), log.parent.resolve().name.casefold()}
    if path.stem.casefold() in stems or (_WORD.search(path.stem) and not _starts(path)):
        return True
    try:
        with plain_file(log) as file:
            return path.name.encode() in file.read(HEAD)
    except (DoctorError, OSError):
        return False


def _of_section(found: Found, name: str) -> Found:
    """Leave out the settings of other sections than the one that the log's folder is named for.

    ML-Agents keeps every behaviour's settings in one file, under `behaviors.<name>`, and logs each to its own folder.
    """
    section = f".{name}."
    owner = next((key[: key.index(section) + 1] for key in found.values if section in key), None)
    if owner is None:
        return found
    kept = {
        key: v for key, v in found.values.items() if not key.startswith(owner) or key.startswith(owner + name + ".")
    }
    return replace(found, values=kept)


def _candidates(log: Path, further: Sequence[Path]) -> list[Path]:
    folders = [log.parent]
    if log.parent.name.startswith("checkpoint-") or log.parent.name in ("logs", "log"):
        folders.append(log.parent.parent)
    folders += [folder for folder in further if folder not in folders]
    named = [log.parent / f"{log.stem}.config.json"]
    held = {folder: _held_in(folder) for folder in folders}  # one listing instead of asking for each of nineteen
    named += [folder / name for folder in folders for name in _known_in(held[folder])]
    names = sorted(set(held[log.parent] or ()).difference(NEVER))
    others = [log.parent / name for name in names if OTHERS.fullmatch(name)]
    settings = [path for path in others if not _starts(path)][:MOST_OTHERS]
    scripts = [path for path in others if _starts(path)][:MOST_OTHERS]
    unique = dict.fromkeys(path for path in [*named, *settings, *scripts] if path.is_file() and path.name != log.name)
    return list(unique)


def _held_in(folder: Path) -> list[str] | None:
    """Return the names in a folder, None for one that may be entered but not listed."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are enough
    except OSError:
        return None


def _known_in(held: Sequence[str] | None) -> Sequence[str]:
    """Return the known names that a folder of these names may hold: any where they are not known."""
    if held is None:
        return KNOWN
    folded = {name.casefold() for name in held}
    return [name for name in KNOWN if name.partition("/")[0].casefold() in folded]


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
    def of(cls, profile: Profile, log: Log, own: Sequence[Found]) -> Record:
        """Return what the records of a log say; its notes stay as they are."""
        told = {name: metric for name in COMPARED if (metric := profile.metrics.get(name))}
        series = log.copy().series(replace(profile, metrics=told))
        return cls(profile=profile, series=series, own=own, log=log.path)

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
        schedule = settings.get("lr_schedule")
        adaptive = not MOVES_RATE.isdisjoint(settings) or (schedule is not None and "adaptive" in str(schedule.value))
        each = (
            None if adaptive else _level("learning_rate", settings, self.series),
            _level("clip_range", settings, self.series),
            _passes(settings, self.series),
            _extent(settings, self.series),
            _environment(found, self.own, self.log),
            _run_name(found, self.own, self.log),
        )
        return [c for c in each if c is not None]


def _names(found: Sequence[Found]) -> str:
    """Return the files of some settings by name, and how many more there are."""
    names = list(dict.fromkeys(Path(each.source.path).name for each in found))
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join(names[:MOST_NAMED] + more)


def taken(
    profile: Profile, log: Log, own: Sequence[Found], near: Sequence[Beside], given: Sequence[Found]
) -> tuple[list[Found], list[Note]]:
    """Return the configurations beside a log that are its run's, and notes on them, or on those that were named."""
    named = [found for found in given if found.source.path != "--set"]
    if not near and not named:
        return [], []
    record = Record.of(profile, log, own)
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
