"""Find the configuration files in the folder of a log, and use those that the log does not contradict."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import finite_of, median
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.evidence import number
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Note, Setting, SourceRef
from ppo_doctor.trainers import configuration
from ppo_doctor.trainers.config_files import COMMANDS, fenced_settings, is_model, known_settings, read_config
from ppo_doctor.trainers.config_formats import SCRIPTS

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray, Series
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import Profile

#: Names of files that hold the settings of the run in whose folder they lie; the first that holds a setting counts.
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
#: Other names of possible configurations. A JSON file needs a word for settings in its name: most are other logs.
OTHERS = lazy_pattern(r".*\.(ya?ml|toml|sh|py)|.*(config|args|param).*\.(json|txt)", re.IGNORECASE)
MOST_OTHERS = 10
#: Files of settings that never configure a training run.
NEVER = ("ppo-doctor.toml", "pyproject.toml")
#: Words for settings in the name of a file.
_WORD = lazy_pattern(
    r"(?:^|[\W_]|(?<=[a-z]))(?:config|configuration|conf|cfg|args|arguments|params|parameters|hparams|hyper\w*|settings)"
    r"(?:$|[\W_\d])",
    re.IGNORECASE,
)
#: Suffixes of files that start a run. If a folder holds several, it is not known which one started it.
LAUNCHERS = frozenset({*COMMANDS, *SCRIPTS})
#: Settings of the trainer that make a file of any other name a configuration.
ENOUGH = 2
#: Suffixes of documents into which people paste logs.
MARKDOWN = (".md", ".markdown")
#: Bytes at the beginning of a log that are searched for the name of a configuration.
HEAD = 1 << 18

#: Why a configuration is not used that the log neither confirms nor contradicts.
UNLINKED = "neither its name nor the log says that it is this run's; --config takes it"
#: Files that a note names.
MOST_NAMED = 3
#: Metrics that are compared with a configuration.
COMPARED = ("learning_rate", "clip_range", "epochs_executed_total", "epochs_executed", "iteration", "env_steps")
#: Numbers that differ by at most this share are equal: one may be rounded, or the first value of a slow schedule.
ALIKE = 0.01
#: A number whose printed digits are coarser than this share of it is not compared.
COARSE = 0.3
#: The largest logged rate of a schedule is at least the configured one divided by this, and at most this share above.
FARTHEST, ABOVE = 2.0, 0.05
#: A run may exceed its planned steps by this factor, because it completes its last rollout.
BEYOND = 1.1
#: Settings that let a trainer raise its learning rate above the configured one.
MOVES_RATE = frozenset({"desired_kl", "kl_target"})
#: Names of environments as registries write them.
_ENVIRONMENT = lazy_pattern(r"(?<![A-Za-z0-9])([A-Z][A-Za-z0-9]+(?:-[A-Za-z0-9]+)*-v\d+)(?![A-Za-z0-9])")
_RUN_NAMES = frozenset({"run_name", "exp_name", "experiment_name"})
_NAMED_ENVIRONMENT = frozenset({"env", "env_id", "env_name", "environment", "gym_id", "task", "env.id", "env.name"})


@frozen
class Beside:
    """A configuration near a log; `linked` is true if its name or the log shows that it belongs to the run."""

    found: Found
    linked: bool


def beside(log: Path, profile: Profile, folders: Sequence[Path] = ()) -> tuple[list[Beside], list[Note]]:
    """Return the configurations in the folder of a log, the most trusted first, and a note on each unreadable one.

    `folders` are searched after the folder of the log.
    """
    found: list[Found] = []
    notes: list[Note] = []
    for path in _candidates(log, folders):
        try:
            config = _of_section(read_config(path), log.parent.name)
        except DoctorError as error:
            if path.suffix.lower() not in SCRIPTS:  # a program without settings is no broken configuration
                notes.append(Note(text=error.message, source=SourceRef(path=str(path))))
            continue
        if not is_model(config) and (path.name in _NAMES or known_settings(config, profile) >= ENOUGH):
            found.append(config)
    launchers = sum(_starts(Path(one.source.path)) for one in found)
    near = [Beside(found=one, linked=_linked(Path(one.source.path), log, alone=launchers == 1)) for one in found]
    if log.suffix.lower() in MARKDOWN:  # pasted above its own log
        inside = (one for one in fenced_settings(log) if known_settings(one, profile) >= ENOUGH)
        near = [*(Beside(found=one, linked=True) for one in inside), *near]
    return near, notes


def _starts(path: Path) -> bool:
    return path.suffix.lower() in LAUNCHERS


def _linked(path: Path, log: Path, *, alone: bool) -> bool:
    """Return whether the name of a configuration or the log shows that it belongs to the run.

    Of files that start a run, only one that is `alone` in the folder does.
    """
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
    """Return settings without those of other sections than the one that the folder of the log is named after.

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
    """Return the names in a folder; None if it cannot be listed."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are enough
    except OSError:
        return None


def _known_in(held: Sequence[str] | None) -> Sequence[str]:
    """Return the usual names that a folder may contain; all of them if the folder cannot be listed."""
    if held is None:
        return KNOWN
    folded = {name.casefold() for name in held}
    return [name for name in KNOWN if name.partition("/")[0].casefold() in folded]


@frozen
class Comparison:
    """One setting compared with the log; with `alone` false, a difference alone rejects no configuration."""

    setting: Setting
    logged: str
    agrees: bool
    alone: bool = True

    @property
    def says(self) -> str:
        """Return the contradiction with both values, as in "learning_rate is 0.01, and the log has 0.0003"."""
        line = f"line {self.setting.source.line}: " if self.setting.source and self.setting.source.line else ""
        return f"{line}{self.setting.key} is {_shown(self.setting)}, and {self.logged}"


def configs_of_run(
    profile: Profile, log: Log, own: Sequence[Found], near: Sequence[Beside], given: Sequence[Found]
) -> tuple[list[Found], list[Note]]:
    """Return the configurations near a log that belong to its run, and notes on those used and those not.

    `own` are settings in the log itself. Those `given` on the command line are used whatever the log shows; a note
    names what it contradicts.
    """
    given = [found for found in given if found.source.path != "--set"]
    if not near and not given:
        return [], []
    metrics = {name: metric for name in COMPARED if (metric := profile.metrics.get(name))}
    series = log.copy().series(replace(profile, metrics=metrics))  # a copy, for this adds notes
    used: list[Found] = []
    unlinked: list[Found] = []
    notes: list[Note] = []
    for one in near:
        reason = _refusal(_compared(one.found, profile, series, own, log.path), linked=one.linked)
        if not reason:
            used.append(one.found)
        elif reason == UNLINKED:
            unlinked.append(one.found)
        else:
            notes.append(Note(text=f"not used: {reason}", source=one.found.source, kind="dropped"))
    if used:
        notes.append(Note(text=f"settings from {_names(used)}", kind="merged"))
    if unlinked:
        notes.append(Note(text=f"not used: {_names(unlinked)}: {UNLINKED}"))
    for found in given:
        against = [c for c in _compared(found, profile, series, own, log.path) if not c.agrees]
        if against:
            text = f"used as told, though the log contradicts it: {'; '.join(c.says for c in against)}"
            notes.append(Note(text=text, source=found.source, kind="dropped"))
    return used, notes


def _refusal(compared: Sequence[Comparison], *, linked: bool) -> str:
    """Return why a configuration is not used; empty if it is.

    A linked one may differ in as many settings as it agrees in: a setting that the trainer does not follow is a fault
    of the run, and no sign of another run.
    """
    against = [c for c in compared if not c.agrees]
    agreeing = len(compared) - len(against)
    if any(c.alone for c in against) and len(against) > (agreeing if linked else 0):
        return f"the log contradicts it: {'; '.join(c.says for c in against)}"
    return "" if linked or agreeing else UNLINKED


def _compared(
    found: Found, profile: Profile, series: Mapping[str, Series], own: Sequence[Found], log: str
) -> list[Comparison]:
    named = configuration.canonical_settings(profile, [found])
    settings = {name: setting for name, setting in named.items() if setting.how != "default"}
    schedule = settings.get("lr_schedule")
    adaptive = not MOVES_RATE.isdisjoint(settings) or (schedule is not None and "adaptive" in str(schedule.value))
    each = (
        None if adaptive else _level("learning_rate", settings, series),
        _level("clip_range", settings, series),
        _passes(settings, series),
        _extent(settings, series),
        _environment(found, own, log),
        _run_name(found, own, log),
    )
    return [c for c in each if c is not None]


def _names(found: Sequence[Found]) -> str:
    """Return the first names of the files of some settings, and how many more there are."""
    names = list(dict.fromkeys(Path(each.source.path).name for each in found))
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join(names[:MOST_NAMED] + more)


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
    """Compare a setting with its logged value, or with the largest value of a schedule.

    Returns None if the logged values are 0, as some faults make them, or printed so coarsely that they may be equal.
    """
    configured, values = _number(settings, name), _values(series, name)
    if configured is None or values is None or configured[1] <= 0:
        return None
    setting, asked = configured
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
    """Compare the passes over a batch. Fewer than configured may be a fault, so that they reject no file alone."""
    configured, total = _number(settings, "ppo_epochs"), _values(series, "epochs_executed_total")
    each = _values(series, "epochs_executed")
    rollouts = _values(series, "iteration")
    if configured is None or (total is None and each is None):
        return None
    setting, asked = configured
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
    """Compare the planned environment steps with those taken; fewer are no difference, the run may still go on."""
    planned, taken = _number(settings, "total_env_steps"), _values(series, "env_steps")
    if planned is None or taken is None or planned[1] <= 0:
        return None
    setting, steps = planned
    most, apart = float(taken.max()), float(np.abs(np.diff(taken)).max())
    if most <= steps * BEYOND + apart:
        return None
    return Comparison(setting=setting, logged=f"the log goes on to {number(most)} steps", agrees=False)


def _environment(found: Found, own: Sequence[Found], log: str) -> Comparison | None:
    """Compare the environment's name with that in the log's settings, else in the path of the log."""
    named = _environment_of(found)
    if named is None:
        return None
    others = [other[1] for each in own if (other := _environment_of(each)) is not None]
    others = others or [match[1] for part in Path(log).resolve().parts[-3:] for match in _ENVIRONMENT.finditer(part)]
    if not others:
        return None
    key, name = named
    setting = Setting(key=key, value=name, how=found.how, source=found.place(key))
    return Comparison(setting=setting, logged=f"the log is of {others[0]}", agrees=name in others)


def _run_name(found: Found, own: Sequence[Found], log: str) -> Comparison | None:
    """Compare the run's name with that in the log's settings, else with the folders that the log lies in.

    The name of the folder contradicts that of the run only if a folder next to it has the name of the run.
    """
    named = _run_named(found)
    if named is None:
        return None
    key, name = named
    setting = Setting(key=key, value=name, how=found.how, source=found.place(key))
    path = Path(log).resolve()
    others = [other[1] for each in own if (other := _run_named(each)) is not None]
    if not others and name in path.parts:
        others = [name]
    if others:
        return Comparison(setting=setting, logged=f"the log is of {others[0]}", agrees=name in others)
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
