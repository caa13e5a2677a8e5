"""The sentences, words and numbers that all reports print.

Text from logs and rules is escaped here as prose; each report then escapes the sentences for its own format.
"""

from __future__ import annotations

import math
import re
import shlex
from itertools import zip_longest
from os.path import commonprefix
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import UNREWARDED, became, number, says, way
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.layout import BOUND
from ppo_doctor.report.summary import folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis, LedgerEntry, Outcome, RankedCause, RunSummary, UpdatesPerBatch
    from ppo_doctor.model.rules import Finding, Measurement, Remedy
    from ppo_doctor.model.run import Run, SourceRef
    from ppo_doctor.model.words import ConfigValue, LinkState, Verdict
    from ppo_doctor.report.summary import Checks, FirstNonFinite, Open, ProblemSummary, Row, Summary, Table, Trend

VERDICT_STYLE: Mapping[Verdict, str] = {
    "healthy": "bold green",
    "warning": "bold yellow",
    "unhealthy": "bold red",
    "inconclusive": "bold cyan",
}
SEVERITY_STYLE: Mapping[Severity | str, str] = {"critical": "red", "high": "red", "medium": "yellow"}
MARKS: Mapping[LinkState, str] = {"alive": "✓", "weak": "~", "wrong": "!", "dead": "✗", "unknown": "?"}
MARK_STYLE: Mapping[LinkState, str] = {
    "alive": "green",
    "weak": "yellow",
    "wrong": "bold red",
    "dead": "bold red",
    "unknown": "dim",
}
MARK_KEY = "✓ alive, ~ weak, ! wrong, ✗ dead, ? not logged"
#: Phrases longer than this may break at any space.
LONGEST_BOUND = 40
#: The container of a run that has only a configuration.
SETTINGS_ONLY = "configuration"
_HOW = {"configured": "configured", "observed": "observed", "default": "framework default", "computed": "computed"}
#: Matches the spaces at which a line must not break, as in "400 of 401", "step 12" and "12 dB".
_KEEP = re.compile(r"(?<=\d) (?=of \d)|(?<=\d of) (?=\d)|(?<=steps) (?=\d)|(?<=step) (?=\d)|(?<=\d) (?=dB\b)")
#: The framework of a log that no profile knows.
OWN_SCRIPT = "canonical"
#: Numbers in this range are rounded to whole ones; smaller ones get three significant digits, larger ones an exponent.
WHOLE_FROM, WHOLE_TO = 100, 1e6
#: Verdicts in the order of severity, the most severe first.
VERDICTS: Mapping[Verdict, int] = {"unhealthy": 0, "warning": 1, "inconclusive": 2, "healthy": 3}
#: The unit of a cause's score.
UNIT = "dB against a healthy run"
#: The most metrics that are named as the first to be non-finite.
MOST_BROKEN = 2
#: The most columns that are named as inferred or not understood, and the longest name that is printed in full.
MOST_NAMES, LONGEST_NAME = 3, 24
#: "only" precedes the number of clear checks if more than this many times as many did not run.
THIN = 8
_EXPONENT = re.compile(r"e([+-])0*(\d+)$")


def bound(text: str) -> str:
    """Return a phrase with no-break spaces, or unchanged if it is longer than `LONGEST_BOUND`."""
    return text.replace(" ", BOUND) if len(text) <= LONGEST_BOUND else text


def flowing(text: str) -> str:
    """Return text from a log or rule as safe prose in which numbers do not break."""
    return _KEEP.sub(BOUND, prose(text))


def sentence(text: str) -> str:
    """Return text from a log or rule as a safe sentence, with a capital and a full stop."""
    return stopped(capital(flowing(text)))


def capital(text: str) -> str:
    """Return text with a capital at its start unless its first word is a name such as `approx_kl`."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def stopped(text: str) -> str:
    """Return text with a full stop at its end, unless it is empty or ends with one or a question mark."""
    return text if not text or text[-1] in ".?" else text + "."


def to_do(measure: Measurement) -> str:
    """Return the verb for a measurement: "tell" for a setting, "log" for a metric."""
    return "tell" if measure.log.startswith("--set ") else "log"


def finding_says(finding: Finding) -> str:
    """Return a finding as a sentence with its title: "Every advantage is zero: advantages_std is 0 in …"."""
    detail = says(finding)
    return flowing(f"{finding.title}: {detail}" if detail else finding.title)


def entry_says(entry: LedgerEntry) -> str:
    """Return a ledger entry as a sentence: the title of the finding and its numbers."""
    return flowing(f"{entry.title}: {entry.says}" if entry.says else entry.title)


def decibels(value: int) -> str:
    """Return a weight with its sign; negative ones get a minus sign, not a hyphen."""
    return f"+{value}" if value >= 0 else f"−{-value}"


def chance(probability: float | None) -> str:
    """Return the probability of a cause in words, or "" if it is unknown."""
    return "" if probability is None else f"probability {probability:.2f} under the lab's mix of faults"


def count(size: int, noun: str) -> str:
    """Return "1 check", "2 checks"."""
    return bound(f"{size} {noun}" if size == 1 else f"{size} {noun}s")


def listed(names: Sequence[str], joint: str = "or") -> str:
    """Return "a", "a or b", "a, b or c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {joint} {names[-1]}"


def _trainer(run: RunSummary) -> str:
    """Return the names of trainer and algorithm; a log that no profile matches is from an "own script"."""
    name = "own script" if run.framework == OWN_SCRIPT else plain(run.framework)
    # PPO is only an assumption if the log is from an own script.
    algorithm = "" if (run.framework, run.algorithm) == (OWN_SCRIPT, "ppo") else plain(run.algorithm).upper()
    return " ".join(filter(None, (name, algorithm if algorithm.lower() not in name.lower() else "")))


def settings_only(run: RunSummary) -> bool:
    """Return whether the run has only a configuration and no log."""
    return bool(run.sources) and all(source.container == SETTINGS_ONLY for source in run.sources)


def _steps(steps: tuple[int, int] | None) -> str:
    if steps is None:
        return "no step"
    return f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]}–{steps[1]}"


def updates(k: UpdatesPerBatch) -> str:
    """Return the updates per batch (K) with their origin, and the configured value if the log shows another."""
    if k.effective is None:
        return bound(f"updates per batch unknown (--set {plain(k.ask)}=…)" if k.ask else "updates per batch unknown")
    key = plain(k.origin.partition(":")[2] or k.origin)
    origin = f"{_HOW[k.how]}: {key}" if k.how else key
    if k.how != "configured" and k.configured is not None and k.configured != k.effective:
        origin += f"; configured: {_number(k.configured)}"
    value = bound(f"K = {_number(k.effective)}")
    return bound(f"{value} ({origin})")


def _number(value: float) -> str:
    return number(value) if math.isfinite(value) else str(value)


def remedy_says(remedy: Remedy) -> str:
    """Return a remedy in sentences.

    If it sets a key to a value, "key: now → then" replaces its first sentence, and the other sentences follow.
    """
    text, key = flowing(remedy.do), plain(remedy.key or "")
    now, to = plain(_value(remedy.now), 80), plain(_value(remedy.then), 80)
    if key and to:
        change = f"{key}: {now} → {to}" if now else f"Set {key} to {to}"
        return f"{bound(change)}. {stopped(text.partition('. ')[2])}".rstrip()
    # If the sentence has the key, "now 8" alone could refer to any of its words.
    inside = (remedy.key or "") in remedy.do
    state = f"{key} is now {now}" if now and inside else ", ".join(filter(None, (key, now and f"now {now}")))
    if not state or (inside and not now):
        return capital(stopped(text))
    return capital(f"{text.rstrip('.')} ({bound(state)}).")


def _value(value: ConfigValue) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return short(value)
    return "" if value is None else str(value)


def short(value: float) -> str:
    """Return a number with three significant digits, or as a whole number: 0.00312, 17.8, 2341, 1e-6."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if WHOLE_FROM <= abs(value) < WHOLE_TO:
        return str(round(value))
    return _EXPONENT.sub(lambda match: "e" + match[1].replace("+", "") + match[2], f"{value + 0.0:.3g}")


def by_gravity(diagnoses: Sequence[Diagnosis], runs: Sequence[Run | None]) -> list[tuple[Diagnosis, Run | None]]:
    """Return diagnoses with their runs, the most severe first; runs that are missing at the end are None."""
    return sorted(zip_longest(diagnoses, runs), key=lambda row: gravity(row[0]))


def gravity(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return a sort key that puts the most severe diagnosis first: the verdict, then the severity of leading causes."""
    ranks = [cause.severity.rank for cause in diagnosis.causes if cause.leader and not cause.benign]
    return VERDICTS[diagnosis.verdict], min(ranks, default=len(Severity))


def relation_to_leader(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return how a cause relates to the leading cause of its problem: root, consequence, or its distance in dB.

    The text is empty for a leading cause.
    """
    ahead = [c for c in diagnosis.causes if c.leader and c.problem == cause.problem]
    if cause.leader or not ahead:
        return ""
    if cause.role in ("root", "mechanism"):
        return bound(f"{'may be why' if cause.role == 'root' else 'follows from'} {ahead[0].rank}")
    best = max(ahead, key=lambda leader: leader.score_db)
    return bound(f"{best.score_db - cause.score_db} dB behind {best.rank}")


def weighed(cause: RankedCause) -> list[LedgerEntry]:
    """Return the ledger of a cause, the entry with the largest weight first."""
    return sorted(cause.ledger, key=lambda entry: -entry.db)


def outcome(summary: Summary, *, medians: bool = True) -> str:
    """Return the outcome of a run in sentences: what ended it, reward, evaluation, entropy, and reason of the verdict.

    With `medians` it names the records of which the levels of the reward are medians.
    """
    records = _records_of_medians(summary.outcome) if medians else ""
    unrewarded = summary.because.endswith(UNREWARDED)
    parts = ["" if unrewarded else became(summary.outcome) + records, *_evaluation_and_target(summary.outcome)]
    parts.append(_trend(summary.entropy) if summary.entropy is not None else "")
    told = ["; ".join(filter(None, parts)), summary.because]
    sentences = [stopped(f"The run died: {flowing(summary.died)}")] if summary.died else []
    sentences += [stopped(capital(flowing(words))) for words in (reversed(told) if unrewarded else told) if words]
    if summary.verdict == "healthy":
        few = "only " * (THIN * summary.checks.clear < summary.checks.not_run)
        clear = f"{few}{count(summary.checks.clear, 'check')} clear, {_not_run(summary.checks)}"
        sentences.append(stopped(capital(clear)))
    return " ".join([*sentences, *([_broken(summary.broken)] if summary.broken is not None else [])])


def _records_of_medians(reward: Outcome) -> str:
    """Return the numbers of records of which the first and the last level are medians; "" unless both are printed."""
    if not reward.early or reward.what == "too_short" or " → " not in way(reward):
        return ""
    return f" ({bound(f'medians: first {reward.early},')} {bound(f'last {reward.late} records')})"


def _evaluation_and_target(reward: Outcome) -> Iterator[str]:
    """Yield how the evaluation return developed, if there is one, and whether the target is reached."""
    evaluation = reward.evaluation
    if evaluation is not None and evaluation.start is not None and evaluation.end is not None:
        yield f"evaluation ({plain(evaluation.key)}) {way(evaluation)}"
    if reward.target is not None:
        yield f"the target of {short(reward.target)} is {'' if reward.reached else 'not '}reached"


def _broken(broken: FirstNonFinite) -> str:
    """Return a sentence on the first metrics that were not finite, and the metric that grew before."""
    named = [plain(key) for key in broken.keys[:MOST_BROKEN]]
    named += [bound(f"{len(broken.keys) - MOST_BROKEN} more")] if len(broken.keys) > MOST_BROKEN else []
    first = f"First {short(broken.value)} at {bound(f'step {broken.step}')}, in {listed(named, 'and')}"
    if broken.grew is None:
        return f"{first}."
    rose = bound(f"{short(broken.grew.first)} → {short(broken.grew.last)}")
    return f"{first}; before it {plain(broken.grew.key)} rose {rose}."


def _trend(trend: Trend) -> str:
    key = f" ({plain(trend.key)})" if trend.word != trend.key else ""
    return f"{trend.word}{key} {bound(f'{short(trend.first)} → {short(trend.last)}')}"


def _not_run(checks: Checks) -> str:
    mostly = ", mostly for lack of metrics" if checks.unlogged and checks.not_run else ""
    return f"{checks.not_run} not run{mostly}"


def first_action(summary: Summary) -> str:
    """Return the first thing to do, or "" if there is none."""
    first = (problem.do[0] for problem in summary.problems if problem.do)
    step = next(first, summary.do)
    return remedy_says(step) if step is not None else ""


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return facts about a run: trainer and algorithm, steps, records, updates per batch, and the number of files."""
    run = diagnosis.run
    skipped = sum(source.skipped for source in run.sources)
    records = f"{run.records} of {run.records + skipped} records" if skipped else count(run.records, "record")
    logged = ["a configuration, no log"] if settings_only(run) else [_steps(run.steps), records]
    files = [count(len(run.sources), "file")] if len(run.sources) > 1 else []
    return [*(bound(phrase) for phrase in (_trainer(run), *logged) if phrase), _updates(run.updates_per_batch), *files]


def _updates(k: UpdatesPerBatch) -> str:
    if k.effective is None or not math.isfinite(k.effective):
        return updates(k)
    words = bound(f"{short(k.effective)} update{'' if k.effective == 1 else 's'} per batch")
    return f"{words} {bound('by default')}" if k.how == "default" else words


def row_name(row: Row) -> str:
    """Return the name of a row: its key, or "entropy (KEY)" for a loss, because the row shows the entropy itself."""
    key = plain(row.key)
    return f"entropy ({key})" if row.name == "entropy" and "loss" in row.key.rpartition("/")[2] else key


def extra_columns(table: Table) -> list[str]:
    """Return the columns after the key steps: "usual" and "remark", each only if a row has a text in it."""
    return [name for name in ("usual", "remark") if any(getattr(row, name) for row in table.rows)]


def cells(row: Row) -> list[str]:
    """Return the values of a row as text; a dash where there is none."""
    return ["–" if value is None else short(value) for value in row.values]


def title(problem: ProblemSummary) -> str:
    """Return the title of a problem as safe prose."""
    return flowing(problem.title)


def standing(problem: ProblemSummary, diagnosis: Diagnosis) -> list[str]:
    """Return the severity of a problem, its onset, and its place in script or log, as far as they are known."""
    since = [bound(f"since step {problem.since}")] if problem.since is not None else []
    place = _place(problem.place, diagnosis) if problem.place is not None else ""
    place = plain(str(problem.code)) if problem.code is not None else place
    return [problem.severity.value, *since, *filter(None, [bound(place)])]


def _place(place: SourceRef, diagnosis: Diagnosis) -> str:
    """Return a place as "line 3" or "row 3"; the file is added if the run has several."""
    if len(diagnosis.run.sources) == 1 and diagnosis.run.sources[0].path == place.path:
        return place.where
    return f"{plain(place.path.removeprefix(folder(diagnosis)))} {place.where}".rstrip()


def wrong(summary: Summary) -> str:
    """Return the first problem of a run in one line, or its outcome if it has none."""
    if not summary.problems:
        return outcome(summary)
    further = f" (+{len(summary.problems) - 1} more)" if len(summary.problems) > 1 else ""
    return title(summary.problems[0]) + further


def what(summary: Summary) -> str:
    """Return the first problem in one line, or else the open questions, the reason of the verdict or the outcome.

    This is shorter than `wrong` and meant for tables.
    """
    if summary.problems:
        return wrong(summary)
    if summary.open and summary.verdict == "inconclusive":
        return f"open: {', '.join(question.question for question in summary.open)}"
    course = flowing(became(summary.outcome)) if summary.outcome.what != "not_logged" else ""
    return capital(flowing(summary.because)) or course or f"{count(summary.checks.clear, 'check')} clear"


def rest(summary: Summary, diagnosis: Diagnosis, *, notes: int = 2) -> list[tuple[str, str]]:
    """Return the lines after the problems with their labels: remarks, open questions, failed checks, notes on reading.

    `notes` is the greatest number of notes on reading.
    """
    rows = [("note", f"{sentence(remark.title)} {sentence(remark.message)}".strip()) for remark in summary.remarks]
    if summary.do is not None:
        rows.append(("do", remedy_says(summary.do)))
    if summary.open:
        short_log = f" The log is short: {count(diagnosis.run.records, 'record')}." if summary.short else ""
        action = summary.do.do if summary.do is not None else ""
        rows.append(("open", f"{', '.join(_question(question, action) for question in summary.open)}.{short_log}"))
    if summary.verdict != "healthy" or summary.checks.left_out:  # otherwise the outcome has the counts
        rows.append(("checks", counts(summary.checks)))
    rows += [("failed", f"{plain(name)}: {flowing(reason)}") for name, reason in summary.checks.failed]
    rows += _names(diagnosis.run)
    if summary.reading[:notes]:
        rows.append(("reading", stopped("; ".join(_note(note, diagnosis) for note in summary.reading[:notes]))))
    return rows


def _names(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield a line on the columns whose meaning was inferred, and a line on those not understood."""
    if run.inferred:
        read = _columns("read by their company", [f"{_key(raw)} = {metric}" for raw, metric in run.inferred.items()])
        yield "names", f"{read}; wrong? {bound(_alias(next(iter(run.inferred))))}"
    if run.not_understood:
        unread = _columns("not understood", [_key(raw) for raw in run.not_understood])
        yield "unread", f"{unread}; name them with {bound(_alias(run.not_understood[0]))} or in ppo-doctor.toml."


def _columns(how: str, names: Sequence[str]) -> str:
    some = [*map(bound, names[:MOST_NAMES]), *(["…"] if len(names) > MOST_NAMES else [])]
    return f"{count(len(names), 'column')} {how}: {', '.join(some)}"


def _alias(raw: str) -> str:
    """Return the option that maps a column to a metric, quoted for a shell; a long name is replaced by NAME."""
    name = plain(raw) if len(raw) <= LONGEST_BOUND else "NAME"
    return f"--alias {shlex.quote(f'{name}=METRIC')}"


def _key(raw: str) -> str:
    key = plain(raw)
    return key if len(key) <= LONGEST_NAME else f"{key[: LONGEST_NAME - 1]}…"


def _question(question: Open, action: str) -> str:
    """Return an open question with the metrics that would answer it, unless `action` already names one of them."""
    names = [plain(name) for name in question.metrics if not re.search(rf"\b{re.escape(name)}\b", action)]
    wanted = f" (log {listed(names)})" if len(names) == len(question.metrics) > 0 else ""
    return question.question + wanted


def counts(checks: Checks) -> str:
    """Return the numbers of checks that are clear, did not run or were left out."""
    left = f" · {checks.left_out} left out on request" if checks.left_out else ""
    return f"{checks.clear} clear · {_not_run(checks)}{left}"


def left_to_run(diagnosis: Diagnosis) -> str:
    """Return a sentence on the checks that only an observation could answer, or "" if none were left out."""
    left = diagnosis.coverage.left_to_run
    takes = "takes" if left == 1 else "take"
    return (
        f"{count(left, 'further check')} {takes} an observation of the running script: ppo-doctor run." if left else ""
    )


def _note(note: str, diagnosis: Diagnosis) -> str:
    """Return a note on reading; the path is shortened, or omitted if the run has one file."""
    sources = diagnosis.run.sources
    if len(sources) == 1 and note.startswith(f"{sources[0].path}:"):
        rest = note.removeprefix(f"{sources[0].path}:").lstrip()
        return flowing(f"line {rest}" if re.match(r"\d+: ", rest) else rest)
    if len(sources) == 1 and note.startswith(f"{sources[0].path} row "):
        return flowing(note.removeprefix(f"{sources[0].path} "))
    return flowing(note.replace(folder(diagnosis), "") if folder(diagnosis) else note)


def apart(paths: Sequence[str]) -> list[str]:
    """Return the paths without the leading and trailing folders that all of them share."""
    if len(set(paths)) < 2:
        return list(paths)
    shared = commonprefix(list(paths))
    rest = [path[shared.rfind("/") + 1 :] for path in paths]
    tail = commonprefix([path[::-1] for path in rest])[::-1]
    end = len(tail) - tail.index("/") if "/" in tail else 0
    return [part[: len(part) - end] or part for part in rest]


def causes_of(diagnosis: Diagnosis, problem: ProblemSummary) -> list[RankedCause]:
    """Return the leading causes of a problem."""
    named = {why.cause for why in problem.why}
    return [cause for cause in diagnosis.causes if cause.id in named]
