"""Turn the tables of a reader into runs: separated, named by framework, configured, and cut to steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import Fact, Note, Run, SourceRef, SourceSummary
from ppo_doctor.model.words import SEVERAL_RUNS
from ppo_doctor.readers.table import CELL, RUN_KEYS, SECTION, EmbeddedConfig, Table, numbered_columns, of_several
from ppo_doctor.runs import columns, config_agreement
from ppo_doctor.runs import splitting as monitors
from ppo_doctor.runs.builder import RunBuilder
from ppo_doctor.runs.cleaning import cut, notes_on, text_cells, uses, whole_means, without_factors
from ppo_doctor.runs.columns import names_guessed, rescaled
from ppo_doctor.runs.splitting import by_lines, by_name, settings_apart, split, summaries_apart
from ppo_doctor.trainers import configuration
from ppo_doctor.trainers import detection as frameworks
from ppo_doctor.trainers.column_values import generations, settled
from ppo_doctor.trainers.configuration import Found
from ppo_doctor.trainers.settings import OF_EITHER
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


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Content:
    """What one source held, in native names: records, notes, and configurations that stood among them.

    `suffix` tells the runs of one source apart; `folders` are further places in which a configuration may lie.
    """

    path: str
    container: str
    builder: RunBuilder
    suffix: str = ""
    embedded: list[Found] = field(default_factory=list)
    folders: tuple[Path, ...] = ()
    #: what somebody named its columns and settings
    named: Mapping[str, str] = field(default_factory=dict)
    #: names of the columns of a table, in their order
    header: tuple[str, ...] = ()
    #: lines from which on records are of another method, and which
    sections: list[tuple[int, str]] = field(default_factory=list)
    #: one summary for each file that was joined to the first
    joined: tuple[SourceSummary, ...] = ()

    @property
    def name(self) -> str:
        """Return what the run is called until its files are merged."""
        return self.path + self.suffix

    @property
    def summary(self) -> SourceSummary:
        """Return how much of this source was used."""
        skipped = sum(note.count for note in self.builder.notes if note.kind == "skipped")
        records = self.builder.records + skipped
        return SourceSummary(path=self.path, container=self.container, records=records, skipped=skipped)

    def extend(self, other: Content) -> None:
        """Add the next file of the same run."""
        self.joined = (*(self.joined or (self.summary,)), other.summary)
        self.builder.extend(other.builder)
        self.embedded += other.embedded


def collect(path: str, container: str, items: Iterable[Item], folders: tuple[Path, ...], request: Request) -> Content:
    """Gather the items of one source; secrets are taken out on the way in.

    Raises:
        DoctorError: a file of names beside it cannot be read or means nothing (exit code 2).
    """
    named = columns.given(path, request.project_aliases, request.aliases)
    content = Content(path=path, container=container, builder=RunBuilder(path=path), folders=folders, named=named)
    factors: dict[str, str] = {}
    for item in items:
        if isinstance(item, Table):
            table, says = without_factors(item, named)
            factors |= says
            content.header = max(content.header, tuple(table.columns), key=len)
            content.builder.append(_lean(table, named))
        elif isinstance(item, EmbeddedConfig) and SECTION in item.values:
            content.sections.append((item.source.line or 0, str(item.values[SECTION])))
        elif isinstance(item, EmbeddedConfig):
            redacted = {key: configuration.redact(key, value) for key, value in item.values.items()}
            content.embedded.append(Found(values=redacted, source=item.source))
        else:
            content.builder.notes.append(replace(item, text=configuration.redact_text(item.text)))
    source = SourceRef(path=path)
    content.builder.notes += [Note(text=text, source=source) for text in factors.values()]
    content.builder.tables, closing = summaries_apart(content.builder.tables)
    if closing:
        text = "a summary of the whole training is no record, and is not used"
        content.builder.notes.insert(0, Note(text=text, source=SourceRef(path=path, line=closing[0])))
    content.builder.tables, settings = settings_apart(of_several(content.builder.tables))
    for line, values in settings:
        redacted = {key: configuration.redact(key, value) for key, value in values.items()}
        content.embedded.append(Found(values=redacted, source=SourceRef(path=path, line=line)))
    if monitors.is_monitor(content.builder.tables):
        content.builder.tables = monitors.with_steps(content.builder.tables)
    return content


def _lean(table: Table, named: Iterable[str]) -> Table:
    """Return a table without the columns that can mean nothing to anyone, of which most logs hold three in four.

    Their names stay. Short tables stay as they are: to know the names of all frameworks takes longer than they do.
    """
    if len(table.records) < LONG or numbered_columns(table.columns):
        return table
    wanted = frameworks.meaningful(frozenset(table.columns)).union(RUN_KEYS, STEP_KEYS, named)
    # Copies, for columns are rows of one matrix, and what is left out goes only with all of it.
    kept = {key: values.copy() for key, values in table.columns.items() if key in wanted}
    return replace(table, columns=kept, others=frozenset(table.columns.keys() - kept.keys()))


def told_apart(content: Content) -> list[Content]:
    """Return the runs of a tracker's database, or of the cells of a notebook, as contents of their own.

    They may have nothing in common, not even the trainer.
    """
    if content.container == NOTEBOOK:
        parts = by_lines(content.builder.tables, [_line(found) for found in content.embedded if CELL in found.values])
    else:
        parts = by_name(content.builder.tables) if content.container == "sqlite" else []
    if len(parts) < 2:
        return [content]
    return [own_content(content, tables, f"#{number}") for number, tables in enumerate(parts, start=1)]


def own_content(content: Content, tables: list[Table], suffix: str) -> Content:
    """Return some tables of a content, with what stood among them, as a content of its own."""
    first, last = min(int(table.lines[0]) for table in tables), max(int(table.lines[-1]) for table in tables)
    # What a cell of a notebook printed before its first record is its own.
    first = max((line for f in content.embedded if CELL in f.values and (line := _line(f)) < first), default=first)

    def within(source: SourceRef | None) -> bool:
        return source is None or source.line is None or first <= source.line <= last

    return Content(
        path=content.path,
        container=content.container,
        suffix=suffix,
        builder=RunBuilder(
            path=content.path, tables=tables, notes=[note for note in content.builder.notes if within(note.source)]
        ),
        embedded=[found for found in content.embedded if within(found.source)],
        folders=content.folders,
        named=content.named,
    )


def runs_in(content: Content, request: Request, *, like: Profile | None = None) -> list[Run]:
    """Return every run in a source, each with its configuration.

    `like` is the profile of the run's other files, for a file whose keys alone show none.

    Raises:
        DoctorError: no record, no metric that we know, or not a run of the PPO family (exit code 3).
    """
    builder, path = content.builder, content.path
    if not builder.records and not died_of_numbers(builder):
        raise nothing_in(content)
    profile = columns.profile_of(builder, content.name, framework=request.framework, like=like, named=content.named)
    beside = _beside(content, request, profile)
    outer = _Outer(
        path=path, container=content.container, request=request, profile=profile, beside=beside, joined=content.joined
    )
    builder.turn_forward(profile)
    parts = parts_of(content, profile)
    if len(parts) == 1:
        return [_run(outer, builder, content.embedded, content.suffix)]
    return _runs(outer, [_part(content, tables) for tables in parts])


def died_of_numbers(builder: RunBuilder) -> bool:
    """Tell whether a log ends in an exception about numbers that are not finite: then its end alone is judged."""
    return any(note.died_of_numbers for note in builder.notes)


def nothing_in(content: Content) -> DoctorError:
    """Return what is said of a content without a record: of what the run died, if it did, else what stands there."""
    notes = content.builder.notes
    if told := columns.death(content.builder):
        return DoctorError(f"{content.name}: no record{told}", hint=_OF_A_CRASH)
    hint = str(notes[0]) if notes else "did the run crash before its first update?"
    what = "settings, but no record of a metric," if content.embedded else "no record"
    return DoctorError(f"{content.name}: {what} in this {content.container}", hint=hint)


_OF_A_CRASH = "nothing was trained: mend what the last frame shows, and run it again"


#: Lines that are named of those at which the runs of a log begin.
MOST_BEGINS = 8


def _runs(outer: _Outer, parts: Sequence[tuple[RunBuilder, list[Found]]]) -> list[Run]:
    """Return the run of each part; one that holds nothing to judge is a note on the first that does.

    Raises:
        DoctorError: what the first part lacks, if all lack something.
    """
    runs: list[Run] = []
    failed: list[DoctorError] = []
    for n, (builder, embedded) in enumerate(parts, start=1):
        try:
            runs.append(_run(outer, builder, embedded, f"#{n}"))
        except DoctorError as error:
            if error.code != ExitCode.NOTHING_TO_JUDGE:
                raise
            failed.append(error)
    if not runs:
        raise failed[0]
    unjudged = tuple(Note(text=f"not judged: {error.message}") for error in failed)
    begins = [str(min(int(table.lines[0]) for table in builder.tables)) for builder, _ in parts]
    held = f"it holds {len(parts)} {SEVERAL_RUNS} {', '.join(begins[:MOST_BEGINS])}"
    more = f" and {len(begins) - MOST_BEGINS} more" * (len(begins) > MOST_BEGINS) + "; each is judged by itself"
    said = Note(text=held + more, source=SourceRef(path=outer.path), kind="said")
    runs = [replace(run, notes=(said, *run.notes)) for run in runs]
    return [replace(runs[0], notes=(*runs[0].notes, *unjudged)), *runs[1:]]


def parts_of(content: Content, profile: Profile) -> list[list[Table]]:
    """Return the tables of each run in a content; files that were joined are one."""
    if content.container in TOLD_APART or content.joined:
        return [content.builder.tables]
    own = [found for found in content.embedded if found.source.path == content.path]  # lent settings divide nothing
    lines = [_line(found) for found in own if _is_of_a_run(found, profile)]
    return split(content.builder.tables, content.builder.steps(profile), lines)


def _line(found: Found) -> int:
    return found.source.line or 0


def _is_of_a_run(found: Found, profile: Profile) -> bool:
    """Tell a configuration from a dict of a task's samples, which console logs print by the thousand."""
    from ppo_doctor.trainers import config_files

    return config_files.known_settings(found, profile) > 0


@frozen
class _Outer:
    """What the runs of one log share."""

    path: str
    container: str
    request: Request
    profile: Profile
    beside: list[Beside]
    joined: tuple[SourceSummary, ...]


def _part(content: Content, tables: list[Table]) -> tuple[RunBuilder, list[Found]]:
    """Return one run's tables, notes and the nearest configuration above or within it."""
    builder = content.builder
    last = max(int(table.lines[-1]) for table in tables)
    notes = [note for note in builder.notes if note.source is None or (note.source.line or 0) <= last]
    above = [found for found in content.embedded if _line(found) <= last]
    return RunBuilder(path=builder.path, tables=tables, notes=notes), [f for f in above if CELL not in f.values][-1:]


def _run(outer: _Outer, builder: RunBuilder, embedded: Sequence[Found], suffix: str) -> Run:
    profile, path = outer.profile, outer.path
    summary = Content(path=path, container=outer.container, builder=builder).summary
    embedded = [found for found in embedded if CELL not in found.values]
    given = given_settings(outer.request)
    if shown := columns.settings_shown(profile, builder):
        embedded = [*embedded, Found(values=shown, source=SourceRef(path=path))]
    beside, said = config_agreement.taken(profile, builder, path, embedded, outer.beside, given)
    found = [*given, *embedded, *beside]
    settings = configuration.canonical_settings(profile, found)
    configuration.check_given(outer.request.settings, profile)
    profile = _without_constants(profile, settings, builder)
    whole, restored = whole_means(profile, settings, builder.series(profile), path)
    # of a log that no framework's profile is for, nobody says what its approx_kl compares, or in which unit it is
    unsaid = ("approx_kl", "clip_fraction") if profile.name == frameworks.CANONICAL else ()
    open_names = {*profile.fuzzy.values(), *unsaid}
    groups = profile.algorithm == "grpo"
    whole, decided = settled(whole, open_names, path, named=profile.named, groups=groups)
    held = {one.raw: name for name, one in whole.items()}
    kept = {raw: name for raw, name in profile.fuzzy.items() if held.get(raw, name) == name}  # else numbers decided
    notes = columns.missing_aliases(outer.request.aliases, builder.keys, configuration.as_written(found))
    guesses = names_guessed(replace(profile, fuzzy=kept), path, settings)
    series = cut(whole, outer.request.steps)
    cells = text_cells(builder.tables)
    unread = notes_on(cells, builder.keys, profile)
    some = outer.request.steps != (None, None)
    if not any(len(s) for s in series.values()) and (some or not died_of_numbers(builder)):
        what = "no record within the steps asked for" if some else "no metric that any rule knows"
        raise DoctorError(f"{path}{suffix}: {what}")
    return Run(
        id=path + suffix,
        framework=profile.name,
        algorithm=configuration.algorithm_of(profile, settings),
        sources=outer.joined or (replace(summary, records=builder.measured(profile) + summary.skipped),),
        series=series,
        facts=_facts(profile, settings, path, builder) | generations(series, _undeclared(profile), path),
        config=settings,
        misspelt=configuration.misspelt_settings(profile, found, embedded),
        config_raw=configuration.as_written(found),
        notes=(*notes, *rescaled(profile, path), *builder.notes, *unread, *said, *restored, *decided, *guesses),
        keys=uses(profile, builder.keys, tuple(cells)),
        inferred={raw: held[raw] for raw in profile.inferred if raw in held},
        not_understood=columns.not_understood(profile, builder),
    )


def _undeclared(profile: Profile) -> set[str]:
    """Return the metrics of which no trainer's profile says more than the name."""
    return {*profile.fuzzy.values(), *(profile.metrics if profile.name in OF_EITHER else ())}


def _without_constants(profile: Profile, settings: Mapping[str, Setting], builder: RunBuilder) -> Profile:
    """Leave out metrics that are a constant under these settings: a constant there says nothing about the run."""
    dropped = {
        name: f"{key} is {settings[key].value}"
        for name, metric in profile.metrics.items()
        for key, value in metric.constant_when.items()
        if key in settings and settings[key].value == value
    }
    held = {name: why for name, why in dropped.items() if set(profile.metrics[name].keys) & builder.keys}
    source = SourceRef(path=builder.path)
    builder.notes.extend(
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


def _beside(content: Content, request: Request, profile: Profile) -> list[Beside]:
    """Return the configurations beside the log, unless one was named."""
    if content.path == "-" or request.configs:
        return []
    from ppo_doctor.runs import config_agreement as config_beside

    found, notes = config_beside.beside(Path(content.path), profile, content.folders)
    content.builder.notes.extend(notes)
    return found


def _facts(profile: Profile, settings: Mapping[str, Setting], path: str, builder: RunBuilder) -> dict[str, Fact]:
    source = SourceRef(path=path)
    facts = {name: Fact(name=name, value=value, how="default", source=source) for name, value in profile.facts.items()}
    if builder.numbered:  # the number of a record counts nothing but records
        facts.pop("steps_are_env_steps", None)
        facts["steps_numbered"] = Fact(name="steps_numbered", value=True, how="computed", source=source)
    configured = configured_updates(profile, settings)
    return facts | ({configured.name: configured} if configured else {})
