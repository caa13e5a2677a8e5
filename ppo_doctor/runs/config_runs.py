"""Make a run without series of a configuration alone, and a run under hypothetical settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.run import Fact, Note, Run, Setting, SourceRef, SourceSummary
from ppo_doctor.runs.log_runs import constants, given_settings
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.detection import OF_PPO, imported, learns_from_replay, likeliest
from ppo_doctor.trainers.settings import JUDGED
from ppo_doctor.trainers.updates import configured_updates

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import Profile

CONTAINER = "configuration"
#: The fact by which rules recognise a run without a log.
FROM_SETTINGS = Fact(name="from_settings", value=True, how="computed", says="only a configuration was given")
SCOPE = "only a configuration was given: what it says is judged; whether the run trains takes its log"
#: Advantage estimators by which verl and similar trainers name the algorithm.
_ESTIMATORS: Mapping[str, str] = {"gae": "ppo", "grpo": "grpo", "rloo": "rloo"}


def run_of_settings(path: Path, request: Request, lent: Sequence[Found] = ()) -> Run:
    """Return the run of a configuration without a log; `lent` are settings found in the file itself.

    Raises:
        DoctorError: it cannot be read (exit code 2), or holds no setting of PPO and its family (exit code 3).
    """
    given = given_settings(request)
    found = [*given, *lent]
    values = {key: value for origin in reversed(found) for key, value in origin.values.items()}
    program = imported(name for origin in found for name in origin.imports)
    profile, unclear = profile_of(path, values, request.framework or program)
    settings = configuration.canonical_settings(profile, found)
    check_known(path, settings, named=bool(request.framework or program))
    configured = configured_updates(profile, settings)
    facts = {name: Fact(name=name, value=value, how="default") for name, value in profile.facts.items()}
    files = configuration.files_of(found)
    return Run(
        id=str(path),
        framework=profile.name,
        algorithm=_algorithm(profile, settings),
        sources=tuple(SourceSummary(path=file, container=CONTAINER, records=0) for file in files),
        series={},
        facts=facts | {FROM_SETTINGS.name: FROM_SETTINGS} | ({configured.name: configured} if configured else {}),
        config=settings,
        misspelt=configuration.misspelt_settings(profile, found),
        config_raw=values,
        configs=configuration.files_of(given),
        notes=(Note(text=SCOPE), *unclear, *_expected(configured), _checked(profile, settings, values)),
    )


def profile_of(path: Path, values: Mapping[str, ConfigValue], named: str | None) -> tuple[Profile, list[Note]]:
    """Return the profile of the trainer of a configuration, with a note if its names show no trainer.

    Raises:
        DoctorError: it configures a method with a replay buffer (exit code 3), or `named` is no trainer (exit code 2).
    """
    if named:
        return detection.profile(named), []
    if learns_from_replay(values):
        hint = "ppo-doctor judges PPO, GRPO and their kin; --framework NAME overrules"
        raise DoctorError(f"{path}: this configures a method that learns from a replay buffer, not PPO", hint=hint)
    like = likeliest(values, detection.profiles())
    if like.name:
        return detection.profile(like.name), []
    near = f"; nearest: {', '.join(like.nearest)}" if like.nearest else ""
    text = f"no framework that we know has these names for its settings{near}; read as our own, --framework NAME tells"
    return detection.profile(detection.CANONICAL), [Note(text=text, source=SourceRef(path=str(path)))]


def check_known(path: Path, settings: Mapping[str, Setting], *, named: bool) -> None:
    """Refuse a file without a setting of PPO, or with `named` without any setting of the trainer.

    Raises:
        DoctorError: it has no such setting (exit code 3).
    """
    known = {name for name, setting in settings.items() if setting.how != "default"}
    if not known & (known if named else OF_PPO):
        hint = "name the configuration of a training run, or its log; --framework NAME tells how settings are named"
        raise DoctorError(f"{path}: no setting of PPO or its family that we know", hint=hint)


def _algorithm(profile: Profile, settings: Mapping[str, Setting]) -> str:
    values = [settings[name].value for name in ("algorithm", "advantage_estimator") if name in settings]
    words = [str(value).lower() for value in values if value]
    return next((_ESTIMATORS[word] for word in words if word in _ESTIMATORS), profile.algorithm)


def _checked(profile: Profile, settings: Mapping[str, Setting], values: Mapping[str, ConfigValue]) -> Note:
    """Return a note on the settings that are compared with their domains, and the number of other keys."""
    found = {name: setting for name, setting in settings.items() if setting.how != "default"}
    judged = sorted(s.key for name, s in found.items() if name in JUDGED and is_number(s.value))
    others = len(values.keys() - {setting.key for setting in found.values()})
    of = f"settings of {profile.title}: {', '.join(judged)}" if judged else "no setting, for none holds a number"
    text = f"held against what is impossible, pointless and unusual: {len(judged) or ''} {of}".replace("  ", " ")
    return Note(text=f"{text}; keys that mean nothing to us: {others}")


def is_number(value: ConfigValue) -> TypeGuard[int | float]:
    """Return whether a setting is a number, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _expected(updates: Fact | None) -> Iterator[Note]:
    """Yield a note on what the updates per batch mean for the ratio, or on why they are unknown."""
    if updates is None or not isinstance(updates.value, int | float):
        text = "K, the optimizer steps that one batch serves, does not follow from this configuration"
        yield Note(text=f"{text}; --set tells what is missing")
        return
    yield Note(text=_meaning(float(updates.value), updates), source=updates.source)


def _meaning(steps: float, updates: Fact) -> str:
    origin = f"{updates.says}, framework defaults included" if updates.how == "default" else updates.says
    head = f"K = {steps:g}: one batch serves {_steps(steps)} [{origin}]"
    if steps < 1:
        return f"{head}; several batches make one step, and the ratio of each is 1 or only numeric noise"
    if steps == 1:
        return f"{head}; a ratio of 1, a clip fraction of 0 and a KL of 0 will be in its log, and are no fault"
    return f"{head}; only the first of them sees a ratio of 1, so that a log whose ratio stays 1 will show a fault"


def _steps(steps: float) -> str:
    return "one optimizer step" if steps == 1 else f"{steps:g} optimizer steps"


def known_settings(settings: Iterable[Setting]) -> int:
    """Return the number of settings that the configuration itself contains."""
    return sum(setting.how == "configured" for setting in settings)


#: The name under which updates per batch can be set in `supposed`.
K = "K"
#: The source of a supposed setting.
SUPPOSED = SourceRef(path="supposed")


def settable(run: Run) -> list[str]:
    """Return the names that `supposed` accepts for a run: K, then the settings of its trainer by name."""
    profile = _profile(run)
    return [K, *sorted({*run.config, *profile.config, *profile.defaults, *profile.unset})]


def supposed(run: Run, overrides: Mapping[str, ConfigValue]) -> Run:
    """Return a run as it would be under other settings: canonical setting names, or `K`, and their values.

    K is computed from the settings unless it is given. Observations of the log do not change: a K that the log counts
    overrides a supposed one, as it overrides a configured one.

    Raises:
        DoctorError: no such setting, or a K that is no positive number (exit code 2).
    """
    if not overrides:
        return run
    _check(run, overrides)
    profile = _profile(run)
    redacted = {name: configuration.redact(name, value) for name, value in overrides.items() if name != K}
    settings = dict(run.config) | {
        name: Setting(key=name, value=value, how="configured", source=SUPPOSED) for name, value in redacted.items()
    }
    constant = constants(profile, settings)
    return replace(
        run,
        series={name: series for name, series in run.series.items() if name not in constant},
        facts=_facts(run, profile, settings, overrides),
        config=settings,
        config_raw={**run.config_raw, **redacted},
        notes=(*run.notes, *(_note(name, value) for name, value in overrides.items())),
    )


def _profile(run: Run) -> Profile:
    keys = {series.raw for series in run.series.values()} | set(run.unknown_keys)
    return detection.profile(run.framework).resolved(keys)


def _check(run: Run, overrides: Mapping[str, ConfigValue]) -> None:
    known = set(settable(run))
    for name, value in overrides.items():
        if name not in known:
            raise DoctorError(f"no setting '{name}'", hint=f"known: {', '.join(sorted(known))}", code=ExitCode.USAGE)
        if name == K and not (is_number(value) and 0 < value < 1e12):
            raise DoctorError(f"K = {value}: K is a positive number", hint="for example 4", code=ExitCode.USAGE)


def _facts(
    run: Run, profile: Profile, settings: Mapping[str, Setting], overrides: Mapping[str, ConfigValue]
) -> dict[str, Fact]:
    facts = {name: fact for name, fact in run.facts.items() if name != "updates_configured"}
    configured = configured_updates(profile, settings)
    if K in overrides:
        says, source = "supposed", SourceRef(path=SUPPOSED.path, key=K)
        unit = "optimizer steps per batch"
        value = overrides[K]
        configured = Fact(name="updates_configured", value=value, how="configured", unit=unit, source=source, says=says)
    return facts | ({configured.name: configured} if configured else {})


def _note(name: str, value: ConfigValue) -> Note:
    return Note(text=f"hypothetical: {name} = {value}, which is supposed and was not read", source=SUPPOSED)
