"""What a fleet's table says in total: counts, findings by trainer, model and setting, the worst runs, and failures."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from ppo_doctor.fleets.separating import Separating, Separation
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import Severity
from ppo_doctor.report.phrases import VERDICTS

#: A row of the table as plain values.
Record: TypeAlias = Mapping[str, Any]

#: Columns that are read; the metrics at start and end take most of a table.
COLUMNS = (
    *("key", "run", "source", "status", "error", "verdict", "headline", "outcome", "findings", "causes", "cause"),
    *("onset_step", "trainer", "model", "environment", "modified", "settings", "wasted", "seconds"),
)
#: Worst runs, failed runs that are named, and findings and values in a table of both.
WORST, FAILED, MOST_FINDINGS, MOST_COLUMNS = 20, 50, 12, 8
#: Values of a setting up to which findings are counted by it, and settings and reasons that are counted.
MOST_VALUES, MOST_SETTINGS, MOST_REASONS = 24, 1000, 1000
#: Settings with a table of findings in the summary.
MOST_TABLES = 24
#: Columns that findings are counted by, and verdicts that count as broken and as not.
BY = ("trainer", "model", "environment")
BROKEN, SOUND = "unhealthy", ("healthy", "warning")


@frozen
class FindingCount:
    """A finding, its severity where it is worst, and how many runs have it."""

    id: str
    title: str
    severity: str
    runs: int


@frozen
class CauseCount:
    """A cause that leads, and in how many runs it does."""

    id: str
    runs: int
    benign: bool


@frozen
class CrossTable:
    """Runs with each finding by the values of a column or a setting; `other` values are those left out."""

    name: str
    #: whether it is a setting and no column of the table
    setting: bool
    values: tuple[str, ...]
    runs: tuple[int, ...]
    findings: tuple[tuple[str, tuple[int, ...]], ...]
    other: int = 0


@frozen
class Day:
    """The runs whose files were last written on a day (UTC), by verdict and by outcome."""

    day: str
    verdicts: Mapping[str, int]
    outcomes: Mapping[str, int]


@frozen
class Worst:
    """One of the worst runs: what it has, and since when."""

    run: str
    source: str
    verdict: str
    severity: str
    cause: str
    title: str
    since_step: int | None
    trainer: str


@frozen
class Failure:
    """A run that could not be judged, and why."""

    run: str
    reason: str


@frozen
class FleetSummary:
    """The whole of a fleet."""

    runs: int
    judged: int
    failed: int
    seconds: float
    verdicts: Mapping[str, int]
    outcomes: Mapping[str, int]
    trainers: Mapping[str, int]
    findings: tuple[FindingCount, ...]
    causes: tuple[CauseCount, ...]
    tables: tuple[CrossTable, ...]
    days: tuple[Day, ...]
    separating: Separation
    worst: tuple[Worst, ...]
    reasons: Mapping[str, int]
    failures: tuple[Failure, ...]


@dataclass(slots=True)
class _Cross:
    """Counts of runs and of findings by value, as long as the values are few."""

    runs: Counter[str] = field(default_factory=Counter)
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    many: bool = False

    def add(self, value: str, findings: Sequence[str]) -> None:
        if self.many:
            return
        self.runs[value] += 1
        for each in findings:
            self.findings[each, value] += 1
        if len(self.runs) > MOST_VALUES:
            self.many = True
            self.runs.clear()
            self.findings.clear()

    def table(self, name: str, findings: Sequence[str], *, setting: bool) -> CrossTable:
        values = [value for value, _ in self.runs.most_common(MOST_COLUMNS)]
        return CrossTable(
            name=name,
            setting=setting,
            values=tuple(values),
            runs=tuple(self.runs[value] for value in values),
            findings=tuple((each, tuple(self.findings[each, value] for value in values)) for each in findings),
            other=len(self.runs) - len(values),
        )


class Summing:
    """Sums up rows one after the other; memory does not grow with their number."""

    def __init__(self) -> None:
        self._status: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._trainers: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()
        self._about: dict[str, tuple[int, str]] = {}
        self._causes: Counter[tuple[str, bool]] = Counter()
        self._columns = {name: _Cross() for name in BY}
        self._settings: dict[str, _Cross] = {}
        self._days: dict[str, tuple[Counter[str], Counter[str]]] = {}
        self._separating = Separating()
        self._worst: list[tuple[tuple[float, ...], int, Worst]] = []
        self._reasons: Counter[str] = Counter()
        self._failures: list[Failure] = []
        self._seconds = 0.0

    def add(self, row: Record) -> None:
        """Add a row."""
        self._status[row["status"]] += 1
        self._seconds += row["seconds"] or 0.0
        verdicts, outcomes = self._days.setdefault(day_of(row["modified"]), (Counter(), Counter()))
        if row["status"] == "failed":
            verdicts["failed"] += 1
            self._add_failure(row)
            return
        verdicts[row["verdict"]] += 1
        outcomes[row["outcome"]] += 1
        self._verdicts[row["verdict"]] += 1
        self._outcomes[row["outcome"]] += 1
        self._trainers[row["trainer"]] += 1
        if cause := row["cause"]:
            self._causes[cause, is_benign(row)] += 1
        findings = [each["id"] for each in row["findings"]]
        self._add_findings(row)
        self._add_settings(row, findings)
        self._add_worst(row)

    def _add_failure(self, row: Record) -> None:
        reason = reason_of(row)
        if reason in self._reasons or len(self._reasons) < MOST_REASONS:
            self._reasons[reason] += 1
        if len(self._failures) < FAILED:
            self._failures.append(Failure(run=row["run"], reason=reason))

    def _add_findings(self, row: Record) -> None:
        for each in row["findings"]:
            self._findings[each["id"]] += 1
            about = (Severity(each["severity"]).rank, each["title"])
            self._about[each["id"]] = min(self._about.get(each["id"], about), about)

    def _add_settings(self, row: Record, findings: Sequence[str]) -> None:
        for name in BY:
            if row[name]:
                self._columns[name].add(row[name], findings)
        settings = dict(row["settings"])
        for name, value in settings.items():
            cross = self._settings.get(name)
            if cross is None and len(self._settings) < MOST_SETTINGS:
                cross = self._settings[name] = _Cross()
            if cross is not None:
                cross.add(value, findings)
        if row["verdict"] == BROKEN or row["verdict"] in SOUND:
            self._separating.add({"trainer": row["trainer"], **settings}, broken=row["verdict"] == BROKEN)

    def _add_worst(self, row: Record) -> None:
        """Keep the worst runs in a heap, the least bad of them first."""
        at = tuple(-each for each in gravity(row))
        entry = (at, -self._status.total(), worst_of(row))
        if len(self._worst) < WORST:
            heapq.heappush(self._worst, entry)
        elif entry > self._worst[0]:
            heapq.heapreplace(self._worst, entry)

    def result(self) -> FleetSummary:
        """Return what the rows are in total."""
        separating = self._separating.result()
        worst = sorted(self._worst, key=lambda entry: entry[:2], reverse=True)
        return FleetSummary(
            runs=self._status.total(),
            judged=self._status["judged"],
            failed=self._status["failed"],
            seconds=self._seconds,
            verdicts={verdict: self._verdicts[verdict] for verdict in VERDICTS if self._verdicts[verdict]},
            outcomes=dict(self._outcomes.most_common()),
            trainers=dict(self._trainers.most_common()),
            findings=tuple(self._finding(*each) for each in self._findings.most_common()),
            causes=tuple(CauseCount(id=id, runs=n, benign=benign) for (id, benign), n in self._causes.most_common()),
            tables=tuple(self._tables([each.setting for each in separating.found])),
            days=tuple(Day(day=day, verdicts=dict(v), outcomes=dict(o)) for day, (v, o) in sorted(self._days.items())),
            separating=separating,
            worst=tuple(each for _, _, each in worst if each.verdict in (BROKEN, "warning")),
            reasons=dict(self._reasons.most_common()),
            failures=tuple(self._failures),
        )

    def _finding(self, id: str, runs: int) -> FindingCount:
        rank, title = self._about[id]
        return FindingCount(id=id, title=title, severity=list(Severity)[rank].value, runs=runs)

    def _tables(self, first: Sequence[str]) -> list[CrossTable]:
        """Return tables of the most frequent findings by column and by setting; settings that separate come first."""
        findings = [id for id, _ in self._findings.most_common(MOST_FINDINGS)]
        tables = [each.table(name, findings, setting=False) for name, each in self._columns.items() if each.runs]
        several = {name: each for name, each in self._settings.items() if len(each.runs) > 1}
        order = sorted(several, key=lambda name: (name not in first, -several[name].runs.total(), name))
        return tables + [several[name].table(name, findings, setting=True) for name in order[:MOST_TABLES]]


def summarize(rows: Iterable[Record]) -> FleetSummary:
    """Return what rows are in total, in one pass."""
    total = Summing()
    for row in rows:
        total.add(row)
    return total.result()


def gravity(row: Record) -> tuple[float, ...]:
    """Return what runs are sorted by, the worst first: verdict, severity, share of compute lost, confidence."""
    severity = Severity(severity_of(row)).rank
    grave = sum(Severity(each["severity"]) is Severity.CRITICAL for each in row["findings"])
    return VERDICTS.get(row["verdict"], len(VERDICTS)), severity, -(row["wasted"] or 0.0), -grave, -row["modified"]


def severity_of(row: Record) -> str:
    """Return the severity of the cause that leads, or else of the worst finding."""
    causes = {each["id"]: each for each in row["causes"]}
    leader = causes.get(row["cause"])
    if leader is not None and not leader["benign"]:
        return str(leader["severity"])
    return str(row["findings"][0]["severity"]) if row["findings"] else Severity.INFO.value


def is_benign(row: Record) -> bool:
    """Return whether the cause that leads is no fault."""
    return any(each["id"] == row["cause"] and each["benign"] for each in row["causes"])


def worst_of(row: Record) -> Worst:
    """Return what is said of one of the worst runs."""
    return Worst(
        run=row["run"],
        source=row["source"],
        verdict=row["verdict"],
        severity=severity_of(row),
        cause="" if is_benign(row) else row["cause"],
        title=row["findings"][0]["title"] if row["findings"] else "",
        since_step=row["onset_step"],
        trainer=row["trainer"],
    )


def reason_of(row: Record) -> str:
    """Return why a run failed, without its own name, so that equal reasons are counted together."""
    reason = row["error"]
    for name in (row["source"], row["run"], row["key"]):
        reason = reason.removeprefix(f"{name}: ").replace(name, "…") if name else reason
    return str(reason)


def day_of(seconds: float) -> str:
    """Return the day (UTC) of a time in seconds."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
