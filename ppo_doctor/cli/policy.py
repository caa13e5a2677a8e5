"""Read what a gate goes by: its policy and its baseline.

A policy is a `ppo-doctor.toml`, or `[tool.ppo-doctor]` of a `pyproject.toml`. A key, rule, cause or metric that does
not exist is an error that names the nearest one; otherwise a policy with a typo would pass everything. A baseline is a
JSON report of an earlier run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from ppo_doctor.diagnosis.gate_result import FAIL_ON
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.opening import contents
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.toml_files import LARGEST, parse_toml
from ppo_doctor.model.toml_schema import fail, validate
from ppo_doctor.model.words import QUESTIONS, Severity
from ppo_doctor.trainers.aliases import read_table

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.rules import Clause, Rule

#: The fields of a policy and of an allowed cause, as `toml_schema` checks them.
ALLOW_FIELDS: Mapping[str, Any] = {"cause": str, "reason": str, "expires": object}
FIELDS: Mapping[str, Any] = {
    "fail-on?": FAIL_ON,
    "require?": [QUESTIONS],
    "allow?": [ALLOW_FIELDS],
    "select?": [str],
    "ignore?": [str],
    "thresholds?": {"*": {"*": float}},
    "budgets?": [str],
    "baseline?": str,
    "rules?": [str],
    "framework?": str,
    "alias?": object,
    "target_return?": float,
}
DEFAULT_FAIL_ON = "high"
#: What budgets count in a fleet's table, and how.
RUN_COUNTS, RUN_STATISTICS = ("unhealthy", "inconclusive", "failed", "new", "gone"), ("runs", "share")
STATISTICS = ("first", "last", "min", "max", "mean", "median")
PERCENTILE = lazy_pattern(r"p(\d{1,2}|100)\Z")
_BUDGET = lazy_pattern(r"\s*(\w+)\.(\w+)\s*(<=|>=|<|>)\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*\Z")
#: Any spelling of our table in a pyproject.toml. Every start looks for one, and parsing TOML is slow.
_MAY_HOLD_OURS = lazy_pattern(rb"""\btool\b["'\s.]*(?:ppo-doctor|\]|=)""")
#: Versions of our reports that have what a baseline needs.
READABLE = ("1", "2", "3")
#: Bytes of a report; one of a thousand runs has some 50 MiB.
LARGEST_REPORT = 256 << 20
REPORT_HINT = "write one with: ppo-doctor analyze RUN --format json -o main.json"


@frozen
class Budget:
    """A bound on one statistic of one metric, or on the runs of a fleet's table."""

    text: str
    metric: str
    statistic: str
    op: str
    bound: float

    @property
    def counts_runs(self) -> bool:
        """Return whether it is about the runs of a fleet's table."""
        return self.metric in RUN_COUNTS


@frozen
class Allowed:
    """A cause that may lead for now: why, and until which day (that day included)."""

    cause: str
    reason: str
    expires: date

    def expired(self, today: date) -> bool:
        """Tell whether the day has passed."""
        return today > self.expires


@frozen
class Policy:
    """Everything that a gate goes by; the defaults are those of `ppo-doctor gate` without any file."""

    source: Path | None = None
    fail_on: str = DEFAULT_FAIL_ON
    #: questions that have to be answered; None leaves it to the verdict
    require: tuple[str, ...] | None = None
    allow: tuple[Allowed, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    #: rule → parameter → the number to use instead
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    baseline: Path | None = None
    rules: tuple[Path, ...] = ()
    framework: str | None = None
    #: the return that is good enough
    target_return: float | None = None
    #: column or setting → metric, setting or clock
    alias: Mapping[str, str] = field(default_factory=dict)


def find_policy(start: Path) -> Policy:
    """Return the nearest policy, from `start` upwards to the root of the repository; the defaults without any."""
    file = nearest_file(start)
    return Policy() if file is None else read_policy(file)


def nearest_file(start: Path) -> Path | None:
    """Return the nearest file that holds a policy, from `start` upwards to the root of the repository.

    In one folder `ppo-doctor.toml` wins over `pyproject.toml`. A folder that was deleted under us holds none.
    """
    try:
        here = start.resolve(strict=True)
    except FileNotFoundError:
        return None
    for folder in (here, *here.parents):
        if (folder / "ppo-doctor.toml").is_file():
            return folder / "ppo-doctor.toml"
        project = folder / "pyproject.toml"
        if project.is_file() and _section(project) is not None:
            return project
        if (folder / ".git").exists():
            break
    return None


def project_aliases(start: Path) -> Mapping[str, str]:
    """Return the names that the nearest policy gives to columns and settings; its other keys are the gate's.

    Raises:
        DoctorError: the file is not TOML, or a name in its `[alias]` means nothing (exit code 2).
    """
    file = nearest_file(start)
    if file is None:
        return {}
    raw = _section(file) if file.name == "pyproject.toml" else parse_toml(file)
    return read_table((raw or {}).get("alias", {}), str(file))


def read_policy(path: Path) -> Policy:
    """Read one policy file.

    Raises:
        DoctorError: no such file, not TOML, or a key or value that means nothing (exit code 2).
    """
    if not path.is_file():
        raise DoctorError(f"{path}: no such policy", hint="name a TOML file", code=ExitCode.USAGE)
    raw = _section(path) if path.name == "pyproject.toml" else parse_toml(path)
    if raw is None:
        raise DoctorError(f"{path}: no [tool.ppo-doctor] in it", code=ExitCode.USAGE)
    return _policy(raw, path)


def _section(path: Path) -> Mapping[str, Any] | None:
    try:
        if not _MAY_HOLD_OURS.search(contents(path, LARGEST)):
            return None
    except OSError:
        pass  # parsing says why it cannot be read
    tool = parse_toml(path).get("tool", {})
    section = tool.get("ppo-doctor") if isinstance(tool, Mapping) else None
    return section if isinstance(section, Mapping) else None


def _policy(raw: Mapping[str, Any], path: Path) -> Policy:
    validate(str(path), raw, FIELDS)
    return Policy(
        source=path,
        fail_on=raw.get("fail-on", DEFAULT_FAIL_ON),
        require=tuple(raw["require"]) if "require" in raw else None,
        allow=tuple(_allowed(path, entry) for entry in raw.get("allow", ())),
        select=tuple(raw.get("select", ())),
        ignore=tuple(raw.get("ignore", ())),
        thresholds={r: {p: float(v) for p, v in ps.items()} for r, ps in raw.get("thresholds", {}).items()},
        budgets=tuple(parse_budget(text, str(path)) for text in raw.get("budgets", ())),
        # The paths of a policy are relative to the policy, wherever the gate is started.
        baseline=path.parent / raw["baseline"] if "baseline" in raw else None,
        rules=tuple(path.parent / text for text in raw.get("rules", ())),
        framework=raw.get("framework"),
        target_return=float(raw["target_return"]) if "target_return" in raw else None,
        alias=read_table(raw.get("alias", {}), str(path)),
    )


def _allowed(path: Path, raw: Mapping[str, Any]) -> Allowed:
    if not raw["reason"].strip():
        raise fail(str(path), "allow.reason: expected some text")
    expires = raw["expires"]
    try:
        day = date.fromisoformat(str(expires)[:10] if isinstance(expires, date) else str(expires))
    except ValueError:
        raise fail(str(path), f"allow.expires: '{expires}' is not a date", "write 2026-12-31") from None
    return Allowed(cause=raw["cause"], reason=raw["reason"], expires=day)


def _known(where: str, what: str, names: Iterable[str], known: Sequence[str], otherwise: str = "") -> None:
    """Raise for the first name that does not exist; the hint is the nearest one, or `otherwise`, or all of them."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else otherwise or f"one of {', '.join(known)}"
            raise fail(where, f"no {what} '{name}'", hint)


def parse_budget(text: str, where: str) -> Budget:
    """Return the budget that a line of a policy states.

    Raises:
        DoctorError: it is none, or names no metric or statistic of ours (exit code 2).
    """
    hint = "write METRIC.STATISTIC < NUMBER, for example approx_kl.p95 < 0.05; of a table unhealthy.share <= 0.05"
    where = f"{where}: budget '{text}'"
    match = _BUDGET.match(text)
    if match is None:
        raise fail(where, "not a budget", hint)
    metric, statistic, op, bound = match.groups()
    _known(where, "metric", [metric], [*METRICS, *RUN_COUNTS], hint)
    if metric in RUN_COUNTS:
        _known(where, "statistic of runs", [statistic], RUN_STATISTICS)
        _known(where, "bound of runs", [op], ("<", "<="))
    elif not PERCENTILE.match(statistic):
        _known(where, "statistic", [statistic], [*STATISTICS, "p95"])
    try:
        return Budget(text=text.strip(), metric=metric, statistic=statistic, op=op, bound=float(bound))
    except ValueError:
        raise fail(where, f"'{bound}' is not a number", hint) from None


def applied(policy: Policy, pack: Pack) -> Pack:
    """Return the pack with the policy's thresholds in its rules, after checking every name of the policy.

    Raises:
        DoctorError: the policy names a rule, parameter or cause that does not exist (exit code 2).
    """
    where = str(policy.source or "policy")
    known_rules(pack, (*policy.select, *policy.ignore, *policy.thresholds), where)
    for allowed in policy.allow:
        causes = [cause.id for cause in pack.causes]
        _known(where, "cause", [allowed.cause], causes, "ppo-doctor explain CAUSE prints its page")
    return replace(pack, rules=tuple(_tuned(rule, policy, where) for rule in pack.rules))


def known_rules(pack: Pack, names: Iterable[str], where: str = "--select and --ignore") -> None:
    """Refuse the name or code of a rule that does not exist, with the nearest one.

    Raises:
        DoctorError: there is no such rule (exit code 2).
    """
    known = [name for rule in pack.rules for name in (rule.name, rule.code)]
    _known(where, "rule", names, known, "ppo-doctor rules list shows all rules")


def _tuned(rule: Rule, policy: Policy, where: str) -> Rule:
    wanted = {**policy.thresholds.get(rule.code, {}), **policy.thresholds.get(rule.name, {})}
    if not wanted:
        return rule
    _known(where, f"parameter of {rule.name}", wanted, [param.name for param in rule.params])
    params = tuple(replace(p, value=wanted[p.name], source=where) if p.name in wanted else p for p in rule.params)
    return replace(rule, params=params, when=tuple(_retuned(clause, wanted, where) for clause in rule.when))


def _retuned(clause: Clause, wanted: Mapping[str, float], where: str) -> Clause:
    changed: dict[str, Any] = {name: wanted[param] for name, param in clause.params.items() if param in wanted}
    if "bound" in changed:
        changed["bound_source"] = where
    return replace(clause, **changed)


@frozen
class KnownFault:
    """A cause that led, or a finding that made the run unhealthy, in the baseline."""

    severity: Severity
    confidence: str
    is_cause: bool = True

    def worse(self, severity: Severity, confidence: str) -> str:
        """Return how a cause has become worse, empty if it has not.

        A longer log proves more, so a likely cause that is now established is no worse; a suspicion that has become
        likely is, because a suspicion never failed the gate.
        """
        if severity.rank < self.severity.rank:
            return f"{self.severity.value} then, {severity.value} now"
        if self.confidence == "suspected" and confidence != "suspected":
            return f"suspected then, {confidence} now"
        return ""


KnownFaults: TypeAlias = Mapping[str, KnownFault]


@frozen
class Baseline:
    """The faults of earlier runs, by run."""

    path: Path
    runs: Mapping[str, KnownFaults] = field(default_factory=dict)

    def known(self, runs: Iterable[str]) -> KnownFaults | None:
        """Return the faults of any of several seeds, each as it was at its worst; None if it has none of the seeds."""
        found = [known for run in runs if (known := self._of(run)) is not None]
        entries = [entry for known in found for entry in known.items()]
        # The worst comes last and stays.
        entries.sort(key=lambda entry: (-entry[1].severity.rank, entry[1].confidence != "suspected"))
        return dict(entries) if found else None

    def _of(self, run: str) -> KnownFaults | None:
        """Return a run's faults: by its path, else of the only run, else by a path that ends alike."""
        if run in self.runs:
            return self.runs[run]
        if len(self.runs) == 1:
            return next(iter(self.runs.values()))
        alike = [known for name, known in self.runs.items() if _tail(name) == _tail(run)]
        return alike[0] if len(alike) == 1 else None


def _tail(run: str) -> tuple[str, ...]:
    """Return folder and file, which stay the same when a job works elsewhere."""
    return PurePosixPath(run.replace("\\", "/")).parts[-2:]


def read_baseline(path: Path) -> Baseline:
    """Read a JSON report as a baseline.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    return Baseline(path=path, runs={d["run"]["id"]: _faults(d) for d in read_report(path)})


def read_report(path: Path) -> list[Mapping[str, Any]]:
    """Return the diagnoses of a JSON report.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    import json

    try:
        raw = json.loads(contents(path, LARGEST_REPORT, pipes=True))
    except DoctorError as error:
        raise DoctorError(error.message, hint=REPORT_HINT, code=ExitCode.USAGE) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise DoctorError(f"{path}: cannot read: {reason}", hint=REPORT_HINT, code=ExitCode.USAGE) from error
    if why := _unusable(raw):
        raise DoctorError(f"{path}: {why}", hint=REPORT_HINT, code=ExitCode.USAGE)
    return list(raw.get("diagnoses", [raw]))


def _unusable(raw: object) -> str:
    """Return why a JSON document cannot be a baseline, empty if it can."""
    match raw:
        case {"schema_version": version, **rest} if {"run", "diagnoses", "error"} & set(rest):
            diagnoses = rest.get("diagnoses", [raw])
            if version not in READABLE:
                return f"schema {version}, and this version reads {', '.join(READABLE)}"
            if isinstance(diagnoses, list) and diagnoses and all(map(_is_diagnosis, diagnoses)):
                return ""
            error = rest.get("error")
            return str(error["message"]) if isinstance(error, dict) and error.get("message") else "no diagnosis in it"
    return "no report of ppo-doctor"


def _is_diagnosis(raw: object) -> bool:
    match raw:
        case {"run": {"id": str(), **run}, "causes": [*causes]}:
            return isinstance(run.get("config") or {}, Mapping) and all(map(_is_cause, causes))
    return False


def _is_cause(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("id"), str) and raw.get("severity") in list(Severity)


def _faults(diagnosis: Mapping[str, Any]) -> KnownFaults:
    problems = diagnosis.get("problems")
    known: dict[str, KnownFault] = {}
    for problem in problems if isinstance(problems, list) else ():
        match problem:  # reports before version 3 do not say what makes a run unhealthy
            case {"verdict": "unhealthy", "severity": str(severity), "link": str(link)} if severity in list(Severity):
                name = str(problem.get("finding") or link)
                known[name] = KnownFault(severity=Severity(severity), confidence="likely", is_cause=False)
    return known | {
        cause["id"]: KnownFault(severity=Severity(cause["severity"]), confidence=str(cause.get("confidence")))
        for cause in diagnosis["causes"]
        if cause.get("leader") and not cause.get("benign")
    }
