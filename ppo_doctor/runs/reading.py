"""Turn the tables of a reader into runs: separated, named by framework, configured, and cut to steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor import readers
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import Fact, Note, Run, SourceRef
from ppo_doctor.model.words import SEVERAL_RUNS
from ppo_doctor.readers.table import CELL, RUN_KEYS, SECTION, EmbeddedConfig, Table, numbered_columns, of_several
from ppo_doctor.runs import columns, config_agreement, splitting
from ppo_doctor.runs.cleaning import cut, notes_on, text_cells, uses, whole_means, without_factors
from ppo_doctor.runs.columns import names_guessed, rescaled
from ppo_doctor.runs.log import Log
from ppo_doctor.runs.splitting import settings_apart, split, summaries_apart
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.column_values import generations, settled
from ppo_doctor.trainers.configuration import Found
from ppo_doctor.trainers.updates import configured_updates

if TYPE_CHECKING:
    from ppo_doctor.model.run import Setting
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers import Item
    from ppo_doctor.runs.config_agreement import Beside
    from ppo_doctor.trainers.profiles import Profile

#: Records from which on a table is worth going through for columns that nobody needs.
LONG = 1_000
#: Columns by which files of one run are put in order, whatever the framework.
STEP_KEYS = ("step", "_step", "global_step")
#: Containers that say themselves which run a record is of: steps that start over are no second run in there.
TOLD_APART = ("tfevents", "wandb", "mlflow", "sqlite")
NOTEBOOK = "notebook"


@frozen
class Request:
    """How to read and judge: what the command line or a caller adds to the source itself."""

    settings: Mapping[str, ConfigValue] | None = None
    configs: Sequence[Path] = ()
    framework: str | None = None
    steps: tuple[int | None, int | None] = (None, None)
    #: role=name, for tensors of dumps whose names do not say what they are
    names: Sequence[str] = ()
    #: column or setting → metric, setting or clock: of the command line, and of the project's own file
    aliases: Mapping[str, str] = field(default_factory=dict)
    project_aliases: Mapping[str, str] = field(default_factory=dict)
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    #: the reward that the user calls good
    target_return: float | None = None
    debug: bool = False


def read_file(path: str, folders: tuple[Path, ...], request: Request, *, growing: bool = False) -> Log:
    """Read one file or store; of text that is `growing`, a last line without an end is left out.

    Raises:
        DoctorError: as `readers.read`.
    """
    if path != "-" and Path(path).is_dir():
        from ppo_doctor.readers import metric_files

        if metric_files.is_mlflow_run(Path(path)):
            return collect(path, "mlflow", metric_files.read_mlflow_run(Path(path)), folders, request)
        return collect(path, "csv", metric_files.read_csv_run(Path(path)), folders, request)
    container, stream = readers.read(path, growing=growing)
    return collect(path, container, stream, folders, request)


def collect(path: str, container: str, items: Iterable[Item], folders: tuple[Path, ...], request: Request) -> Log:
    """Gather the items of one source; secrets are taken out on the way in.

    Raises:
        DoctorError: a file of names beside it cannot be read or means nothing (exit code 2).
    """
    named = columns.given(path, request.project_aliases, request.aliases)
    log = Log(path=path, container=container, folders=folders, named=named)
    factors: dict[str, str] = {}
    for item in items:
        if isinstance(item, Table):
            table, says = without_factors(item, named)
            factors |= says
            log.header = max(log.header, tuple(table.columns), key=len)
            log.tables.append(_lean(table, named))
        elif isinstance(item, EmbeddedConfig) and SECTION in item.values:
            log.sections.append((item.source.line or 0, str(item.values[SECTION])))
        elif isinstance(item, EmbeddedConfig):
            redacted = {key: configuration.redact(key, value) for key, value in item.values.items()}
            log.embedded.append(Found(values=redacted, source=item.source))
        else:
            log.notes.append(replace(item, text=configuration.redact_text(item.text)))
    source = SourceRef(path=path)
    log.notes += [Note(text=text, source=source) for text in factors.values()]
    log.tables, closing = summaries_apart(log.tables)
    if closing:
        text = "a summary of the whole training is no record, and is not used"
        log.notes.insert(0, Note(text=text, source=SourceRef(path=path, line=closing[0])))
    log.tables, settings = settings_apart(of_several(log.tables))
    for line, values in settings:
        redacted = {key: configuration.redact(key, value) for key, value in values.items()}
        log.embedded.append(Found(values=redacted, source=SourceRef(path=path, line=line)))
    if splitting.is_monitor(log.tables):
        log.tables = splitting.with_steps(log.tables)
    return log


def _lean(table: Table, named: Iterable[str]) -> Table:
    """Return a table without the columns that can mean nothing to anyone, of which most logs hold three in four.

    Their names stay. Short tables stay as they are: to know the names of all frameworks takes longer than they do.
    """
    if len(table.records) < LONG or numbered_columns(table.columns):
        return table
    wanted = detection.meaningful(frozenset(table.columns)).union(RUN_KEYS, STEP_KEYS, named)
    # Copies, for columns are rows of one matrix, and what is left out goes only with all of it.
    kept = {key: values.copy() for key, values in table.columns.items() if key in wanted}
    return replace(table, columns=kept, others=frozenset(table.columns.keys() - kept.keys()))


def runs_in(log: Log, request: Request, *, like: Profile | None = None) -> list[Run]:
    """Return every run in a log, each with its configuration.

    `like` is the profile of the run's other files, for a file whose keys alone show none.

    Raises:
        DoctorError: no record, no metric that we know, or not a run of the PPO family (exit code 3).
    """
    if not log.records and not log.died_of_numbers:
        raise nothing_in(log)
    profile = columns.profile_of(log, framework=request.framework, like=like)
    beside = _beside(log, request, profile)
    log.turn_forward(profile)
    parts = parts_of(log, profile)
    if len(parts) == 1:
        return [_run(log, request, profile, beside)]
    return _runs([_part(log, tables, number) for number, tables in enumerate(parts, start=1)], request, profile, beside)


def nothing_in(log: Log) -> DoctorError:
    """Return what is said of a log without a record: of what the run died, if it did, else what stands there."""
    if told := columns.death(log):
        return DoctorError(f"{log.name}: no record{told}", hint=_OF_A_CRASH)
    hint = str(log.notes[0]) if log.notes else "did the run crash before its first update?"
    what = "settings, but no record of a metric," if log.embedded else "no record"
    return DoctorError(f"{log.name}: {what} in this {log.container}", hint=hint)


_OF_A_CRASH = "nothing was trained: mend what the last frame shows, and run it again"


#: Lines that are named of those at which the runs of a log begin.
MOST_BEGINS = 8


def _runs(parts: Sequence[Log], request: Request, profile: Profile, beside: Sequence[Beside]) -> list[Run]:
    """Return the run of each part; one that holds nothing to judge is a note on the first that does.

    Raises:
        DoctorError: what the first part lacks, if all lack something.
    """
    runs: list[Run] = []
    failed: list[DoctorError] = []
    for part in parts:
        try:
            runs.append(_run(part, request, profile, beside))
        except DoctorError as error:
            if error.code != ExitCode.NOTHING_TO_JUDGE:
                raise
            failed.append(error)
    if not runs:
        raise failed[0]
    unjudged = tuple(Note(text=f"not judged: {error.message}") for error in failed)
    begins = [str(min(int(table.lines[0]) for table in part.tables)) for part in parts]
    held = f"it holds {len(parts)} {SEVERAL_RUNS} {', '.join(begins[:MOST_BEGINS])}"
    more = f" and {len(begins) - MOST_BEGINS} more" * (len(begins) > MOST_BEGINS) + "; each is judged by itself"
    said = Note(text=held + more, source=SourceRef(path=parts[0].path), kind="said")
    runs = [replace(run, notes=(said, *run.notes)) for run in runs]
    return [replace(runs[0], notes=(*runs[0].notes, *unjudged)), *runs[1:]]


def parts_of(log: Log, profile: Profile) -> list[list[Table]]:
    """Return the tables of each run in a log; files that were joined are one."""
    if log.container in TOLD_APART or log.joined:
        return [log.tables]
    own = [found for found in log.embedded if found.source.path == log.path]  # lent settings divide nothing
    lines = [_line(found) for found in own if _is_of_a_run(found, profile)]
    return split(log.tables, log.steps(profile), lines)


def _line(found: Found) -> int:
    return found.source.line or 0


def _is_of_a_run(found: Found, profile: Profile) -> bool:
    """Tell a configuration from a dict of a task's samples, which console logs print by the thousand."""
    from ppo_doctor.trainers import config_files

    return config_files.known_settings(found, profile) > 0


def _part(log: Log, tables: list[Table], number: int) -> Log:
    """Return one run of a log, with its notes and the nearest configuration above or within it."""
    last = max(int(table.lines[-1]) for table in tables)
    notes = [note for note in log.notes if note.source is None or (note.source.line or 0) <= last]
    above = [found for found in log.embedded if _line(found) <= last and CELL not in found.values]
    return replace(log, tables=tables, notes=notes, embedded=above[-1:], suffix=f"#{number}")


def _run(log: Log, request: Request, profile: Profile, near: Sequence[Beside]) -> Run:
    path, summary = log.path, log.summary
    embedded = [found for found in log.embedded if CELL not in found.values]
    given = given_settings(request)
    if shown := columns.settings_shown(profile, log):
        embedded = [*embedded, Found(values=shown, source=SourceRef(path=path))]
    beside, said = config_agreement.taken(profile, log, embedded, near, given)
    found = [*given, *embedded, *beside]
    settings = configuration.canonical_settings(profile, found)
    configuration.check_given(request.settings, profile)
    profile = _without_constants(profile, settings, log)
    whole, restored = whole_means(profile, settings, log.series(profile), path)
    # of a log that no framework's profile is for, nobody says what its approx_kl compares, or in which unit it is
    unsaid = ("approx_kl", "clip_fraction") if profile.name == detection.CANONICAL else ()
    open_names = {*profile.fuzzy.values(), *unsaid}
    groups = profile.algorithm == "grpo"
    whole, decided = settled(whole, open_names, path, named=profile.named, groups=groups)
    held = {one.raw: name for name, one in whole.items()}
    kept = {raw: name for raw, name in profile.fuzzy.items() if held.get(raw, name) == name}  # else numbers decided
    notes = columns.missing_aliases(request.aliases, log.keys, configuration.as_written(found))
    guesses = names_guessed(replace(profile, fuzzy=kept), path, settings)
    series = cut(whole, request.steps)
    cells = text_cells(log.tables)
    unread = notes_on(cells, log.keys, profile)
    some = request.steps != (None, None)
    if not any(len(s) for s in series.values()) and (some or not log.died_of_numbers):
        what = "no record within the steps asked for" if some else "no metric that any rule knows"
        raise DoctorError(f"{log.name}: {what}")
    return Run(
        id=log.name,
        framework=profile.name,
        algorithm=configuration.algorithm_of(profile, settings),
        sources=log.joined or (replace(summary, records=log.measured(profile) + summary.skipped),),
        series=series,
        facts=_facts(profile, settings, log) | generations(series, _undeclared(profile), path),
        config=settings,
        misspelt=configuration.misspelt_settings(profile, found, embedded),
        config_raw=configuration.as_written(found),
        notes=(*notes, *rescaled(profile, path), *log.notes, *unread, *said, *restored, *decided, *guesses),
        keys=uses(profile, log.keys, tuple(cells)),
        inferred={raw: held[raw] for raw in profile.inferred if raw in held},
        not_understood=columns.not_understood(profile, log),
    )


def _undeclared(profile: Profile) -> set[str]:
    """Return the metrics of which no trainer's profile says more than the name."""
    return {*profile.fuzzy.values(), *(profile.metrics if profile.name == detection.CANONICAL else ())}


def constants(profile: Profile, settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the metrics that are a constant under these settings, each with the setting that makes it one."""
    return {
        name: f"{key} is {settings[key].value}"
        for name, metric in profile.metrics.items()
        for key, value in metric.constant_when.items()
        if key in settings and settings[key].value == value
    }


def _without_constants(profile: Profile, settings: Mapping[str, Setting], log: Log) -> Profile:
    """Leave out metrics that are a constant under these settings: a constant there says nothing about the run."""
    dropped = constants(profile, settings)
    held = {name: why for name, why in dropped.items() if set(profile.metrics[name].keys) & log.keys}
    source = SourceRef(path=log.path)
    log.notes.extend(
        Note(text=f"{name} is a constant when {why}, and is not used", source=source) for name, why in held.items()
    )
    kept = {name: metric for name, metric in profile.metrics.items() if name not in dropped}
    return replace(profile, metrics=kept) if dropped else profile


def given_settings(request: Request) -> list[Found]:
    """Return the settings that were given with a source: by --set, then by --config."""
    told = {key: configuration.redact(key, value) for key, value in (request.settings or {}).items()}
    given = [Found(values=told, source=SourceRef(path="--set"))] if told else []
    from ppo_doctor.trainers import config_files

    return given + [config_files.read_config(path) for path in request.configs]


def _beside(log: Log, request: Request, profile: Profile) -> list[Beside]:
    """Return the configurations beside the log, unless one was named."""
    if log.path == "-" or request.configs:
        return []
    found, notes = config_agreement.beside(Path(log.path), profile, log.folders)
    log.notes.extend(notes)
    return found


def _facts(profile: Profile, settings: Mapping[str, Setting], log: Log) -> dict[str, Fact]:
    source = SourceRef(path=log.path)
    facts = {name: Fact(name=name, value=value, how="default", source=source) for name, value in profile.facts.items()}
    if log.numbered:  # the number of a record counts nothing but records
        facts.pop("steps_are_env_steps", None)
        facts["steps_numbered"] = Fact(name="steps_numbered", value=True, how="computed", source=source)
    configured = configured_updates(profile, settings)
    return facts | ({configured.name: configured} if configured else {})
