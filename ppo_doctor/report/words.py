"""Words and numbers that several reports share, with every string of a log escaped."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import number, says
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.layout import BOUND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis, LedgerEntry, RankedCause, RunSummary, UpdatesPerBatch
    from ppo_doctor.model.rules import Finding, Measurement, Remedy
    from ppo_doctor.model.words import ConfigValue, LinkState, Verdict

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
#: Longer phrases may break at any space.
LONGEST_BOUND = 40
#: The container of a run of which there is only the configuration.
SETTINGS_ONLY = "configuration"
_HOW = {"configured": "configured", "observed": "observed", "default": "framework default", "computed": "computed"}
#: Numbers that read badly when a line ends inside them: "400 of 401", "step 12", "line 3", "12 dB".
_KEEP = re.compile(r"(?<=\d) (?=of \d)|(?<=\d of) (?=\d)|(?<=steps) (?=\d)|(?<=step) (?=\d)|(?<=\d) (?=dB\b)")
#: The framework of a log that no profile knows.
OWN_SCRIPT = "canonical"
#: Whole numbers within this range are printed whole; smaller ones have three digits anyway, larger ones an exponent.
WHOLE_FROM, WHOLE_TO = 100, 1e6
#: The most severe verdict first.
VERDICTS: Mapping[Verdict, int] = {"unhealthy": 0, "warning": 1, "inconclusive": 2, "healthy": 3}
#: The unit of a cause's score.
UNIT = "dB against a healthy run"
_EXPONENT = re.compile(r"e([+-])0*(\d+)$")


def bound(text: str) -> str:
    """Return text that breaks nowhere; a phrase too long for that stays as it is."""
    return text.replace(" ", BOUND) if len(text) <= LONGEST_BOUND else text


def flowing(text: str) -> str:
    """Return a sentence from outside as safe prose, its numbers kept whole."""
    return _KEEP.sub(BOUND, prose(text))


def sentence(text: str) -> str:
    """Return prose from outside with a capital at its start, unless that is a name, and a full stop at its end."""
    return stopped(capital(flowing(text)))


def capital(text: str) -> str:
    """Return text with a capital at its start, unless its first word is a name such as `approx_kl`."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def stopped(text: str) -> str:
    """Return text with a full stop at its end."""
    return text if not text or text[-1] in ".?" else text + "."


def to_do(measure: Measurement) -> str:
    """Return the verb of what would settle a question: a metric is logged, a setting is told."""
    return "tell" if measure.log.startswith("--set ") else "log"


def finding_says(finding: Finding) -> str:
    """Return what a finding found with its title: "Every advantage is zero: advantages_std is 0 in …"."""
    detail = says(finding)
    return flowing(f"{finding.title}: {detail}" if detail else finding.title)


def entry_says(entry: LedgerEntry, titles: Mapping[str, str]) -> str:
    """Return a line of a ledger in words: the finding's title and its numbers."""
    title = entry.title or titles.get(entry.finding, entry.finding)
    return flowing(f"{title}: {entry.says}" if entry.says else title)


def titles(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the title of each finding by its rule's name."""
    return {finding.rule: finding.title for finding in diagnosis.findings}


def decibels(value: int) -> str:
    """Return a weight with its sign, which is never a hyphen."""
    return f"+{value}" if value >= 0 else f"−{-value}"


def chance(probability: float | None) -> str:
    """Return what a score comes to as a probability; nothing where none is given."""
    return "" if probability is None else f"probability {probability:.2f} under the lab's mix of faults"


def count(size: int, noun: str) -> str:
    """Return "1 check", "2 checks"."""
    return bound(f"{size} {noun}" if size == 1 else f"{size} {noun}s")


def listed(names: Sequence[str], joint: str = "or") -> str:
    """Return "a", "a or b", "a, b or c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {joint} {names[-1]}"


def run_facts(run: RunSummary) -> list[str]:
    """Return what was read: framework, algorithm, steps, records and K."""
    if settings_only(run):
        read = (_trainer(run), "a configuration, no log")
        return [*(bound(phrase) for phrase in read if phrase), updates(run.updates_per_batch)]
    skipped = sum(source.skipped for source in run.sources)
    records = f"{run.records} of {run.records + skipped} records" if skipped else count(run.records, "record")
    logged = (_trainer(run), _steps(run.steps), records)
    return [*(bound(phrase) for phrase in logged if phrase), updates(run.updates_per_batch)]


def _trainer(run: RunSummary) -> str:
    """Return the trainer and the algorithm; what no profile knows is somebody's own script."""
    name = "own script" if run.framework == OWN_SCRIPT else plain(run.framework)
    # what nothing in a log of nobody's trainer tells is taken for PPO
    algorithm = "" if (run.framework, run.algorithm) == (OWN_SCRIPT, "ppo") else plain(run.algorithm).upper()
    return " ".join(filter(None, (name, algorithm if algorithm.lower() not in name.lower() else "")))


def settings_only(run: RunSummary) -> bool:
    """Tell a configuration that was judged by itself."""
    return bool(run.sources) and all(source.container == SETTINGS_ONLY for source in run.sources)


def _steps(steps: tuple[int, int] | None) -> str:
    if steps is None:
        return "no step"
    return f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]}–{steps[1]}"


def updates(k: UpdatesPerBatch) -> str:
    """Return K with where it comes from, and the configured value where the log shows another."""
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
    """Return what to do in sentences; the key and its values replace the first sentence, which says the change.

    What follows the first sentence, such as what else to do or why, comes after the values.
    """
    text, key = flowing(remedy.do), plain(remedy.key or "")
    now, to = plain(_value(remedy.now), 80), plain(_value(remedy.then), 80)
    if key and to:
        change = f"{key}: {now} → {to}" if now else f"Set {key} to {to}"
        return f"{bound(change)}. {stopped(text.partition('. ')[2])}".rstrip()
    # Of a key somewhere in the sentence, "now 8" would be read as of the sentence's last word.
    inside = (remedy.key or "") in remedy.do
    known = f"{key} is now {now}" if now and inside else ", ".join(filter(None, (key, now and f"now {now}")))
    if not known or (inside and not now):
        return capital(stopped(text))
    return capital(f"{text.rstrip('.')} ({bound(known)}).")


def _value(value: ConfigValue) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return short(value)
    return "" if value is None else str(value)


def short(value: float) -> str:
    """Return a number with three significant digits, as people write it: 0.00312, 17.8, 2341, 1e-6."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if WHOLE_FROM <= abs(value) < WHOLE_TO:
        return str(round(value))
    return _EXPONENT.sub(lambda found: "e" + found[1].replace("+", "") + found[2], f"{value + 0.0:.3g}")


def gravity(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return what sorts runs, the gravest first: the verdict, then how grave the fault is that leads."""
    faults = [cause.severity.rank for cause in diagnosis.causes if cause.leader and not cause.benign]
    return VERDICTS[diagnosis.verdict], min(faults, default=len(Severity))


def behind(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return how a cause stands to what leads its problem: as its root, as what follows, or how far behind."""
    ahead = [c for c in diagnosis.causes if c.leader and c.problem == cause.problem]
    if cause.leader or not ahead:
        return ""
    if cause.role in ("root", "mechanism"):
        return bound(f"{'may be why' if cause.role == 'root' else 'follows from'} {ahead[0].rank}")
    best = max(ahead, key=lambda leader: leader.score_db)
    return bound(f"{best.score_db - cause.score_db} dB behind {best.rank}")


def level_with(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return which causes this log cannot tell a cause from; nothing where there is none."""
    if not cause.level_with:
        return ""
    ranks = {c.id: c.rank for c in diagnosis.causes}
    names = [bound(f"{ranks[i]} ({plain(i)})" if i in ranks else plain(i)) for i in cause.level_with]
    return f"Cannot be told apart from {listed(names)} by this log."


def weighed(cause: RankedCause) -> list[LedgerEntry]:
    """Return the account of a cause, what speaks for it first, the weightiest first."""
    return sorted(cause.ledger, key=lambda entry: -entry.db)


def in_favour(cause: RankedCause) -> list[LedgerEntry]:
    """Return what speaks for a cause, the weightiest first."""
    return [entry for entry in weighed(cause) if entry.db > 0]
