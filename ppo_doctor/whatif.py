"""What if a setting were another: the same records under other settings, without reading the log again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor import configuration, frameworks
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.frameworks.planning import configured_updates
from ppo_doctor.model import Fact, Note, Setting, SourceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import ConfigValue, Run

#: The name under which K itself can be supposed, whatever settings it follows from.
K = "K"
#: Where a supposed setting says that it comes from.
SUPPOSED = SourceRef(path="supposed")


def settable(run: Run) -> list[str]:
    """Return the names that `supposed` takes for a run: K first, then its framework's settings by name."""
    profile = _profile(run)
    return [K, *sorted({*run.config, *profile.config, *profile.defaults, *profile.unset})]


def supposed(run: Run, overrides: Mapping[str, ConfigValue]) -> Run:
    """Return a run as it would be under other settings: canonical setting names, or `K`, and their values.

    K follows by the framework's formula unless it is supposed itself. What the log observes stays as it is: a K that
    the log shows goes before one that is supposed, as it goes before one that is configured.

    Raises:
        DoctorError: no such setting, or a K that is no positive number (exit code 2).
    """
    if not overrides:
        return run
    _check(run, overrides)
    profile = _profile(run)
    told = {name: value for name, value in overrides.items() if name != K}
    settings = dict(run.config) | {name: _setting(name, value) for name, value in told.items()}
    constant = {name for name, metric in profile.metrics.items() if _holds(metric.constant_when, settings)}
    return replace(
        run,
        series={name: series for name, series in run.series.items() if name not in constant},
        facts=_facts(run, profile, settings, overrides),
        config=settings,
        config_raw={**run.config_raw, **{name: configuration.redact(name, value) for name, value in told.items()}},
        notes=(*run.notes, *(_note(name, value) for name, value in overrides.items())),
    )


def _profile(run: Run) -> Profile:
    keys = {series.raw for series in run.series.values()} | set(run.unknown_keys)
    return frameworks.profile(run.framework).resolved(keys)


def _check(run: Run, overrides: Mapping[str, ConfigValue]) -> None:
    known = set(settable(run))
    for name, value in overrides.items():
        if name not in known:
            raise DoctorError(f"no setting '{name}'", hint=f"known: {', '.join(sorted(known))}", code=ExitCode.USAGE)
        if name == K and not _positive(value):
            raise DoctorError(f"K = {value}: K is a positive number", hint="for example 4", code=ExitCode.USAGE)


def _positive(value: ConfigValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12


def _setting(name: str, value: ConfigValue) -> Setting:
    return Setting(key=name, value=configuration.redact(name, value), how="configured", source=SUPPOSED)


def _holds(constant_when: Mapping[str, ConfigValue], settings: Mapping[str, Setting]) -> bool:
    return any(key in settings and settings[key].value == value for key, value in constant_when.items())


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
