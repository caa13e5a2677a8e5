"""What a fleet's table says in total: counts, findings by trainer, model and setting, the worst runs, and failures."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class Summing:
    """Sums up rows one after the other; memory does not grow with their number."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        self._about: dict[str, tuple[int, str]] = {}
        #: of columns and settings the runs and findings by value, with "" for the runs; None if the values are many
        self._crossed: dict[tuple[bool, str], dict[str, Counter[str]] | None] = {(False, name): {} for name in BY}
        self._separating = Separating()
        self._worst: list[tuple[tuple[float, ...], int, Worst]] = []
        self._failures: list[Failure] = []
        self._seconds = 0.0

    def add(self, row: Record) -> None:
        """Add a row."""
        counts, verdict, day = self._counts, row["verdict"] or row["status"], day_of(row["modified"])
        counts["status"][row["status"]] += 1
        counts["days"][day, "verdicts", verdict] += 1
        self._seconds += row["seconds"] or 0.0
        if row["status"] == "failed":
            self._add_failure(row)
            return
        counts["days"][day, "outcomes", row["outcome"]] += 1
        for name in ("verdict", "outcome", "trainer"):
            counts[name][row[name]] += 1
        if cause := row["cause"]:
            counts["cause"][cause, is_benign(row)] += 1
        for each in row["findings"]:
            counts["findings"][each["id"]] += 1
            about = (Severity(each["severity"]).rank, each["title"])
            self._about[each["id"]] = min(self._about.get(each["id"], about), about)
        self._add_settings(row)
        self._add_worst(row)

    def _add_failure(self, row: Record) -> None:
        reason, reasons = reason_of(row), self._counts["reasons"]
        if reason in reasons or len(reasons) < MOST_REASONS:
            reasons[reason] += 1
        if len(self._failures) < FAILED:
            self._failures.append(Failure(run=row["run"], reason=reason_of(row, file=True)))

    def _add_settings(self, row: Record) -> None:
        settings = dict(row["settings"])
        counted = ["", *(each["id"] for each in row["findings"])]
        given = [((False, name), row[name]) for name in BY if row[name]]
        for key, value in given + [((True, name), value) for name, value in settings.items()]:
            if key in self._crossed or len(self._crossed) < MOST_SETTINGS:
                self._cross(key, value, counted)
        if row["verdict"] == BROKEN or row["verdict"] in SOUND:
            self._separating.add({"trainer": row["trainer"], **settings}, broken=row["verdict"] == BROKEN)

    def _cross(self, key: tuple[bool, str], value: str, counted: Sequence[str]) -> None:
        values = self._crossed.setdefault(key, {})
        if values is not None:
            if value not in values:
                values[value] = Counter()
            for each in counted:
                values[value][each] += 1
            if len(values) > MOST_VALUES:
                self._crossed[key] = None

    def _add_worst(self, row: Record) -> None:
        """Keep the worst runs in a heap, the least bad of them first."""
        entry = (tuple(-each for each in gravity(row)), -self._counts["status"].total(), worst_of(row))
        if len(self._worst) < WORST:
            heapq.heappush(self._worst, entry)
        else:
            heapq.heappushpop(self._worst, entry)

    def result(self) -> FleetSummary:
        """Return what the rows are in total."""
        counts, separating = self._counts, self._separating.result()
        worst = sorted(self._worst, key=lambda entry: entry[:2], reverse=True)
        return FleetSummary(
            runs=counts["status"].total(),
            judged=counts["status"]["judged"],
            failed=counts["status"]["failed"],
            seconds=self._seconds,
            verdicts={verdict: counts["verdict"][verdict] for verdict in VERDICTS if counts["verdict"][verdict]},
            outcomes=dict(counts["outcome"].most_common()),
            trainers=dict(counts["trainer"].most_common()),
            findings=tuple(self._finding(*each) for each in counts["findings"].most_common()),
            causes=tuple(CauseCount(id=id, runs=n, benign=b) for (id, b), n in counts["cause"].most_common()),
            tables=tuple(self._tables([each.setting for each in separating.found])),
            days=tuple(_days(counts["days"])),
            separating=separating,
            worst=tuple(each for _, _, each in worst if each.verdict in (BROKEN, "warning")),
            reasons=dict(counts["reasons"].most_common()),
            failures=tuple(self._failures),
        )

    def _finding(self, id: str, runs: int) -> FindingCount:
        rank, title = self._about[id]
        return FindingCount(id=id, title=title, severity=list(Severity)[rank].value, runs=runs)

    def _tables(self, first: Sequence[str]) -> Iterator[CrossTable]:
        """Yield tables of the most frequent findings by column and by setting; settings that separate come first."""
        findings = [id for id, _ in self._counts["findings"].most_common(MOST_FINDINGS)]
        several = {key: values for key, values in self._crossed.items() if values and len(values) > key[0]}
        runs = {key: sum(counts[""] for counts in values.values()) for key, values in several.items()}
        order = sorted(several, key=lambda key: (key[0], key[0] and (key[1] not in first, -runs[key], key[1])))
        for setting, name in order[: MOST_TABLES + sum(not setting for setting, _ in order)]:
            values = sorted(several[setting, name].items(), key=lambda pair: -pair[1][""])
            shown = [counts for _, counts in values[:MOST_COLUMNS]]
            yield CrossTable(
                name=name,
                setting=setting,
                values=tuple(value for value, _ in values[:MOST_COLUMNS]),
                runs=tuple(counts[""] for counts in shown),
                findings=tuple((id, tuple(counts[id] for counts in shown)) for id in findings),
                other=len(values) - len(shown),
            )


def _days(counts: Mapping[tuple[str, str, str], int]) -> Iterator[Day]:
    days: dict[str, dict[str, dict[str, int]]] = {}
    for (day, of, word), runs in counts.items():
        days.setdefault(day, {"verdicts": {}, "outcomes": {}})[of][word] = runs
    return (Day(day=day, **held) for day, held in sorted(days.items()))


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


def reason_of(row: Record, *, file: bool = False) -> str:
    """Return why a run failed, without its own name, so that equal reasons are counted together.

    The name of its file is given only where it is asked for.
    """
    below = "" if file else r"(?:/[^\s:]+)?"
    reason = str(row["error"])
    for name in filter(None, (row["source"], row["run"], row["key"])):
        reason = re.sub(re.escape(name) + below, "…", reason)
    if folder := row["key"].rpartition("/")[2]:  # of a folder that was named from where the call was made
        reason = re.sub(rf"^(?:[^\s:]*?/)?{re.escape(folder)}{below}(?=[:/\s])", "…", reason)
    return reason.removeprefix("…: ")


def day_of(seconds: float) -> str:
    """Return the day (UTC) of a time in seconds."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
