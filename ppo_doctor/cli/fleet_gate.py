"""Decide for CI whether the runs of a fleet's table pass: how many may be broken, and what is new since a baseline."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heappush, heappushpop
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ppo_doctor.cli.gate import OPERATORS
from ppo_doctor.cli.output import add_to_job_page, write_beside
from ppo_doctor.cli.policy import DEFAULT_FAIL_ON, Policy, parse_budget
from ppo_doctor.diagnosis.gate_result import NEVER, BudgetValue, GateItem, GateResult, Outcome
from ppo_doctor.model.errors import DoctorError, ExitCode, worst
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import prose
from ppo_doctor.report.phrases import count

if TYPE_CHECKING:
    from ppo_doctor.cli.output import Place
    from ppo_doctor.cli.policy import Budget
    from ppo_doctor.fleets.table import Table
    from ppo_doctor.report.json_report import Json

#: How a row counts. Without a verdict that we know a run counts as failed, so that nothing passes unjudged.
State = Literal["sound", "unhealthy", "inconclusive", "failed"]
STATES: Mapping[str, State] = {
    "healthy": "sound",
    "warning": "sound",
    "unhealthy": "unhealthy",
    "inconclusive": "inconclusive",
}
COLUMNS = ("key", "run", "status", "error", "verdict", "headline", "findings")
#: Columns by which a Parquet file is taken for the table of a fleet.
TELLING = frozenset({"key", "run", "status", "verdict", "headline", "fingerprint", "tool_version"})
#: Budgets where the policy has none of the kind: without and with a baseline.
DEFAULTS = ("failed.runs <= 0", "inconclusive.runs <= 0", "unhealthy.runs <= 0")
DEFAULTS_SINCE = (*DEFAULTS[:2], "new.runs <= 0")
#: Runs of each state that a document lists, the worst first, and that a text does; runs that a note names.
MOST_LISTED, MOST_PRINTED, MOST_NAMED = 1000, 20, 5
#: Formats of a gate that have a form for a table.
FORMATS = ("text", "json", "markdown", "sarif", "junit", "github")
FORMAT = "ppo-doctor fleet gate"
WORDS: Mapping[str, tuple[str, str]] = {
    "unhealthy": ("judged", "unhealthy"),
    "inconclusive": ("judged", "inconclusive"),
    "failed": ("listed", "not judged"),
    "new": ("judged", "newly unhealthy"),
    "gone": ("former", "gone"),
}
_RANKS = {severity.value: severity.rank for severity in Severity}


def fleet_table_of(sources: Sequence[str]) -> Path | None:
    """Return the table of a fleet that is the only source, None if the sources are logs.

    Raises:
        DoctorError: a table among other sources (exit code 2).
    """
    table = next((source for source in sources if is_fleet_table(Path(source))), None)
    if table is None:
        return None
    if len(sources) > 1:
        raise DoctorError(f"{table} is a fleet's table, which is gated alone", code=ExitCode.USAGE)
    return Path(table)


def refuse_given(options: Iterable[str]) -> None:
    """Refuse options about logs.

    Raises:
        DoctorError: there is one (exit code 2).
    """
    if given := ", ".join(options):
        hint = "ppo-doctor fleet judges the runs again with other settings or rules"
        raise DoctorError(f"{given}: a fleet's table holds what was judged", hint=hint, code=ExitCode.USAGE)


def refuse_budgets(given: Iterable[str], *, of_table: bool) -> None:
    """Refuse budgets of the command line about runs where a log is gated, and about metrics where a table is.

    Raises:
        DoctorError: there is one (exit code 2).
    """
    for text in given:
        if parse_budget(text, "--budget").counts_runs != of_table:
            what = "a metric of a log" if of_table else "the runs of a fleet's table"
            here = "a table is" if of_table else "logs are"
            raise DoctorError(f"--budget '{text}' is about {what}; here {here} gated", code=ExitCode.USAGE)


def is_fleet_table(path: Path) -> bool:
    """Return whether a file is the table of a fleet, by its schema; what cannot be read is left to the readers."""
    if find_spec("pyarrow") is None:
        return False
    try:
        if not path.is_file():
            return False
        with plain_file(path) as file:
            if file.read(4) != b"PAR1":
                return False
            schema = import_module("pyarrow.parquet").read_schema(file)
    except (OSError, ValueError, NotImplementedError):
        return False
    return set(schema.names) >= TELLING


def gate_fleet(
    path: Path, policy: Policy, formats: Sequence[Place], inputs: set[str], *, quiet: bool = False
) -> ExitCode:
    """Gate a fleet's table, write the result in some formats, and return the exit code.

    Raises:
        DoctorError: a format that a table has no form for, or a table or baseline that cannot be read (exit code 2),
            or a table without a judged run (exit code 3).
    """
    for name, _ in formats:
        if name not in FORMATS:
            raise DoctorError(f"--format {name}: not of a table", hint=", ".join(FORMATS), code=ExitCode.USAGE)
    inputs.add(str(path))
    result, counts = decide(_complete(path), policy)
    for place in formats:
        write_beside(_rendered(place[0], str(path), result, counts, quiet=quiet), place, formats, inputs)
    names = {name for name, _ in formats}
    if "github" in names:
        add_to_job_page(lambda: _rendered("markdown", str(path), result, counts))
    if "text" not in names:
        sys.stderr.write(_rendered("text", str(path), result, counts, quiet=quiet))
    return result.code


def decide(table: Table, policy: Policy) -> tuple[GateResult, Mapping[str, int]]:
    """Return whether the runs of a table pass a policy, and how many are of each kind.

    Raises:
        DoctorError: the table or the baseline cannot be read (exit code 2), or holds no judged run (exit code 3).
    """
    before = _former(table, policy.baseline) if policy.baseline is not None else None
    counted = _Counted(before)
    for row in table.rows(COLUMNS):
        counted.add(row)
    counts = counted.counts
    if not counts["judged"]:
        why = f"{count(counts['listed'], 'run')}, none judged" if counts["listed"] else "no run in it"
        raise DoctorError(f"{table.path}: {why}", hint="ppo-doctor fleet RUNS --out TABLE says why")
    budgets = [item for budget in _budgets(policy) if (item := _check(budget, counts)) is not None]
    failed = {item.budget.metric for item in budgets if item.budget is not None and item.outcome != "passed"}
    items = (*budgets, *counted.items(failed))
    result = GateResult(
        code=_code(budgets),
        items=items,
        notes=(*counted.notes(), *_unused(policy)),
        policy=str(policy.source) if policy.source else None,
        fail_on=policy.fail_on,
        baseline=str(policy.baseline) if policy.baseline else None,
        in_baseline=before is not None,
    )
    return result, counts


@dataclass(slots=True)
class _Former:
    """The runs of a baseline by a hash of what names them, those not met yet, and what names a run."""

    table: Table
    #: the folder below which runs are named, in the table and in the baseline
    roots: tuple[str, str]
    states: dict[bytes, State]
    unmet: set[bytes]

    def meet(self, row: Mapping[str, Any]) -> State | None:
        """Return the state that the run of a row had, None if the baseline does not have it."""
        known = _named(row, self.roots[0])
        self.unmet.discard(known)
        return self.states.get(known)

    def gone(self) -> list[str]:
        """Return the names of some runs that were not met."""
        rows = (row for row in self.table.rows(("key", "run")) if _named(row, self.roots[1]) in self.unmet)
        return [prose(str(row["run"])) for row in islice(rows, MOST_NAMED)]


def _former(table: Table, path: Path) -> _Former:
    """Return the runs of the baseline; if none is in the table, both are compared below their common folders."""
    if not is_fleet_table(path):
        why = "no such file" if not path.exists() else "no table of a fleet, as which a table is compared"
        raise DoctorError(f"{path}: {why}", hint="ppo-doctor fleet RUNS --out TABLE", code=ExitCode.USAGE)
    baseline = _complete(path)
    here = {_named(row) for row in table.rows(("key", "run"))}
    by_path = not here.isdisjoint(map(_named, baseline.rows(("key", "run"))))
    roots = ("", "") if by_path else (_common(table), _common(baseline))
    states = {_named(row, roots[1]): _state(row) for row in baseline.rows(("key", "run", "status", "verdict"))}
    return _Former(baseline, roots, states, set(states))


def _complete(path: Path) -> Table:
    """Return a table, unless the call that writes it has not ended: its file alone would be an earlier state."""
    from ppo_doctor.fleets.table import Table

    table = Table(path)
    if table.has_parts:
        hint = "run the same ppo-doctor fleet again: it goes on from there"
        raise DoctorError(f"{path}: the call that writes it has not ended", hint=hint, code=ExitCode.USAGE)
    return table


def _named(row: Mapping[str, Any], root: str = "") -> bytes:
    """Return what names a run in 8 bytes: its folder, below `root`, and the file in it."""
    key, run = str(row["key"] or ""), str(row["run"] or "")
    name = f"{key[len(root) :]}\0{run.rpartition('/')[2]}"
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _common(table: Table) -> str:
    """Return the folder that holds all runs of a table."""
    common: str | None = None
    for row in table.rows(("key",)):
        folder = str(row["key"] or "").rpartition("/")[0]
        common = folder if common is None else _shared(common, folder)
    return common or ""


def _shared(one: str, other: str) -> str:
    if f"{other}/".startswith(f"{one}/"):
        return one
    return "/".join(os.path.commonprefix([one.split("/"), other.split("/")]))


def _state(row: Mapping[str, Any]) -> State:
    return STATES.get(row["verdict"], "failed") if row["status"] == "judged" else "failed"


class _Counted:
    """Counts the runs of a table by state, and keeps the worst of each; memory does not grow with their number."""

    def __init__(self, before: _Former | None) -> None:
        self._before = before
        self._counts: Counter[str] = Counter()
        self._kept: dict[str, list[tuple[int, int, str, str]]] = {}
        self._recovered: list[str] = []

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the runs of each state, those judged and those listed, and against a baseline new and gone ones."""
        since = {"former": len(self._before.states), "gone": len(self._before.unmet)} if self._before else {}
        names = ("listed", "judged", "unhealthy", "inconclusive", "failed", *(["new", "recovered"] * bool(since)))
        return {name: self._counts[name] for name in names} | since

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row."""
        state, former = _state(row), self._before.meet(row) if self._before else None
        self._counts["listed"] += 1
        self._counts["judged"] += state != "failed"
        self._counts[state] += 1
        name = str(row["run"] or row["key"] or "?")
        if state == "sound":
            if former == "unhealthy":
                self._counts["recovered"] += 1
                self._recovered += [name] * (len(self._recovered) < MOST_NAMED)
            return
        is_new = state == "unhealthy" and self._before is not None and former != "unhealthy"
        self._counts["new"] += is_new
        found = [each for each in row["findings"] or () if each]
        said = row["error"] if state == "failed" else found[0]["title"] if found else row["headline"]
        was = "" if not is_new else " (a new run)" if former is None else f" ({_was(former)} in the baseline)"
        what = "newly unhealthy" if is_new else "not judged" if state == "failed" else state
        self._keep("new" if is_new else state, name, f"{what}{was}: {name}: {_reason(said, name)}", row)

    def _keep(self, kind: str, name: str, text: str, row: Mapping[str, Any]) -> None:
        """Keep a run, the least bad of a heap first: by its worst finding, and of equal ones the earlier rows."""
        found = [_RANKS.get(each["severity"], len(_RANKS)) for each in row["findings"] or () if each]
        entry = (-min(found, default=len(_RANKS)), -self._counts["listed"], prose(name), prose(text, 600))
        heap = self._kept.setdefault(kind, [])
        if len(heap) < MOST_LISTED:
            heappush(heap, entry)
        else:
            heappushpop(heap, entry)

    def items(self, broken: set[str]) -> Iterable[GateItem]:
        """Yield the runs that are kept, the worst first; those of a broken budget fail or leave the gate open."""
        for kind in ("new", "unhealthy", "failed", "inconclusive"):
            fails = kind in broken or (kind == "new" and "unhealthy" in broken)
            outcome: Outcome = ("open" if kind == "inconclusive" else "failed") if fails else "allowed"
            state: Literal["new", "known"] | None = None
            if self._before is not None and kind in ("new", "unhealthy"):
                state = "new" if kind == "new" else "known"
                outcome = "known" if state == "known" and outcome == "allowed" else outcome
            for _, _, name, text in sorted(self._kept.get(kind, ()), reverse=True):
                yield GateItem(kind="run", name=name, outcome=outcome, message=text, baseline_state=state)

    def notes(self) -> list[str]:
        """Return what else changed since the baseline."""
        counts, notes = self.counts, list[str]()
        if self._before is None:
            return notes
        if len(self._before.unmet) == len(self._before.states):
            notes.append("no run of the table is in the baseline")
        elif counts["gone"]:
            notes.append(f"gone since the baseline: {_some(self._before.gone(), counts['gone'])}")
        if counts["recovered"]:
            notes.append(f"no longer unhealthy: {_some(self._recovered, counts['recovered'])}")
        return notes


def _reason(said: object, name: str) -> str:
    return str(said or "its row does not say why").removeprefix(f"{name}: ")


def _some(names: Sequence[str], number: int) -> str:
    return f"{count(number, 'run')} ({', '.join(names)}{', …' * (number > len(names))})"


def _was(state: State) -> str:
    return {"sound": "sound", "failed": "not judged"}.get(state, state)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _budgets(policy: Policy) -> list[Budget]:
    """Return the budgets of runs: those of the policy, and the defaults of counts that it does not mention."""
    given = [budget for budget in policy.budgets if budget.counts_runs]
    names = {budget.metric for budget in given}
    defaults = [parse_budget(text, "default") for text in (DEFAULTS if policy.baseline is None else DEFAULTS_SINCE)]
    if policy.fail_on == NEVER:
        defaults = [budget for budget in defaults if budget.metric == "failed"]
    return given + [budget for budget in defaults if budget.metric not in names]


def _check(budget: Budget, counts: Mapping[str, int]) -> GateItem | None:
    of, word = WORDS[budget.metric]
    if budget.metric not in counts:  # about a baseline that there is not
        return GateItem(kind="budget", name=budget.text, outcome="open", message=f"budget {budget.text}: no baseline")
    number, total = counts[budget.metric], counts[of]
    value = float(number) if budget.statistic == "runs" else number / total if total else 0.0
    holds = OPERATORS[budget.op](round(value, 12), budget.bound)
    share = f" ({number / total:.1%})" if total and number else ""
    outcome: Outcome = "passed" if holds else "open" if budget.metric == "inconclusive" else "failed"
    verb = "holds" if holds else "is broken"
    message = f"budget {budget.text} {verb}: {number:,} of {total:,} {of} runs {_are(number)} {word}{share}"
    numbers = BudgetValue(
        metric=budget.metric, statistic=budget.statistic, op=budget.op, bound=budget.bound, value=value, runs=total
    )
    return GateItem(kind="budget", name=budget.text, outcome=outcome, message=message, budget=numbers)


def _code(budgets: Sequence[GateItem]) -> ExitCode:
    """Return the worst code: runs that could not be judged are no sick ones, but never pass either."""
    codes = [ExitCode.OK]
    for item in budgets:
        if item.outcome == "open":
            codes.append(ExitCode.INCONCLUSIVE)
        elif item.outcome == "failed":
            unjudged = item.budget is not None and item.budget.metric == "failed"
            codes.append(ExitCode.NOTHING_TO_JUDGE if unjudged else ExitCode.SICK)
    return worst(codes)


def _unused(policy: Policy) -> list[str]:
    """Return a note on what the policy says of logs, which a table does not hold."""
    of_logs = [budget.text for budget in policy.budgets if not budget.counts_runs]
    named: dict[str, object] = {
        "budgets": of_logs,
        "require": policy.require,
        "allow": policy.allow,
        "select": policy.select,
    }
    named |= {"ignore": policy.ignore, "thresholds": policy.thresholds, "rules": policy.rules}
    named["fail-on"] = policy.fail_on not in (DEFAULT_FAIL_ON, NEVER)
    left = [name for name, given in named.items() if given]
    return [f"about logs, and not applied to a table: {', '.join(left)} of the policy"] if left else []


def _rendered(name: str, source: str, result: GateResult, counts: Mapping[str, int], *, quiet: bool = False) -> str:
    """Return the result in one format."""
    if name == "json":
        from ppo_doctor import __version__
        from ppo_doctor.report.json_report import dump, gate_payload

        head: dict[str, Json] = {
            "format": FORMAT,
            "tool_version": __version__,
            "table": prose(source),
            "counts": dict(counts),
        }
        return dump(head | {"gate": gate_payload(result)})
    if name == "text":
        from ppo_doctor.report.terminal import gate_text

        return gate_text({source: _brief(result, 0 if quiet else MOST_PRINTED)})
    if name == "markdown":
        from ppo_doctor.report.markdown import gate as as_markdown

        return as_markdown(source, _brief(result, MOST_PRINTED))
    if name == "junit":
        from ppo_doctor.report.junit import gate as as_junit

        return as_junit(source, result)
    document = import_module(f"ppo_doctor.report.{name}")
    return str(document.gate(result))


def _brief(result: GateResult, most: int) -> GateResult:
    """Return a result with the budgets, the worst runs that fail or are open, and a note on the others."""
    budgets, runs = result.of(*get_args(Outcome), kind="budget"), result.of("failed", "open", kind="run")
    holds = [item.message for item in budgets if item.outcome == "passed"]
    left = len(runs[most:])
    more = f"{count(left, 'further run')} not listed here; json and junit list up to {MOST_LISTED:,} of a kind"
    notes = (*[more] * bool(left and most), *holds, *result.notes)
    return replace(result, items=(*budgets, *runs[:most]), notes=notes)
