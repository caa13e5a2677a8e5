"""Read the policy of a gate from `ppo-doctor.toml`, or from `[tool.ppo-doctor]` of `pyproject.toml`.

A key, rule, cause or metric that does not exist is an error that names the nearest one; otherwise a policy with a typo
would pass everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.diagnosis.gate_result import FAIL_ON
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.opening import contents
from ppo_doctor.model.toml_files import LARGEST, parse_toml
from ppo_doctor.model.words import QUESTIONS
from ppo_doctor.trainers.aliases import read_table

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.rules import Clause, Rule

KEYS = (
    *("fail-on", "require", "allow", "select", "ignore", "thresholds", "budgets", "baseline", "rules", "framework"),
    *("alias", "target_return"),
)
ALLOW_KEYS = ("cause", "reason", "expires")
DEFAULT_FAIL_ON = "high"
STATISTICS = ("first", "last", "min", "max", "mean", "median")
PERCENTILE = re.compile(r"p(\d{1,2}|100)\Z")
_BUDGET = re.compile(r"\s*(\w+)\.(\w+)\s*(<=|>=|<|>)\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A bound on one statistic of one metric."""

    text: str
    metric: str
    statistic: str
    op: str
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A cause that may lead for now: why, and until which day (that day included)."""

    cause: str
    reason: str
    expires: date

    def expired(self, today: date) -> bool:
        """Tell whether the day has passed."""
        return today > self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
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


#: A table of ours in a pyproject.toml, however it is written. Every start looks for one, and parsing TOML is slow.
_MAY_HOLD_OURS = re.compile(rb"""\btool\b["'\s.]*(?:ppo-doctor|\]|=)""")


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
    _known(path, "key", raw, KEYS)
    return Policy(
        source=path,
        fail_on=_one_of(path, "fail-on", raw.get("fail-on", DEFAULT_FAIL_ON), FAIL_ON),
        require=tuple(_one_of(path, "require", q, QUESTIONS) for q in _texts(path, "require", raw))
        if "require" in raw
        else None,
        allow=tuple(_allowed(path, entry) for entry in _list(path, "allow", raw, Mapping, "tables, such as [[allow]]")),
        select=_texts(path, "select", raw),
        ignore=_texts(path, "ignore", raw),
        thresholds=_thresholds(path, raw.get("thresholds", {})),
        budgets=tuple(parse_budget(text, str(path)) for text in _texts(path, "budgets", raw)),
        # The paths of a policy are relative to the policy, wherever the gate is started.
        baseline=path.parent / _text(path, "baseline", raw["baseline"]) if "baseline" in raw else None,
        rules=tuple(path.parent / text for text in _texts(path, "rules", raw)),
        framework=_text(path, "framework", raw["framework"]) if "framework" in raw else None,
        target_return=_number(path, "target_return", raw["target_return"]) if "target_return" in raw else None,
        alias=read_table(raw.get("alias", {}), str(path)),
    )


def _wrong(where: object, text: str, hint: str = "") -> DoctorError:
    return DoctorError(f"{where}: {text}", hint=hint, code=ExitCode.USAGE)


def _known(where: object, what: str, names: Iterable[str], known: Sequence[str], otherwise: str = "") -> None:
    """Raise for the first name that does not exist; the hint is the nearest one, or `otherwise`, or all of them."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else otherwise or f"one of {', '.join(known)}"
            raise _wrong(where, f"no {what} '{name}'", hint)


def _one_of(path: Path, key: str, value: object, known: Sequence[str]) -> str:
    _known(f"{path}: {key}", "such value", [str(value)], known)
    return str(value)


def _text(path: Path, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(path, f"{key}: expected some text")
    return value


def _list(path: Path, key: str, raw: Mapping[str, Any], kind: type, expected: str) -> list[Any]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, kind) for entry in value):
        raise _wrong(path, f"{key}: expected {expected}")
    return value


def _texts(path: Path, key: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_text(path, key, entry) for entry in _list(path, key, raw, str, 'a list of strings, such as ["…"]'))


def _number(path: Path, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, f"{key}: expected a number")
    try:
        return float(value)
    except OverflowError:
        raise _wrong(path, f"{key}: the number is too large") from None


def _allowed(path: Path, raw: Mapping[str, Any]) -> Allowed:
    _known(path, "key of allow", raw, ALLOW_KEYS)
    for key in ALLOW_KEYS:
        if key not in raw:
            raise _wrong(path, f"allow: '{key}' is missing", "an allowed cause needs cause, reason and expires")
    expires = raw["expires"]
    try:
        day = date.fromisoformat(str(expires)[:10] if isinstance(expires, date) else str(expires))
    except ValueError:
        raise _wrong(path, f"allow.expires: '{expires}' is not a date", "write 2026-12-31") from None
    cause, reason = (_text(path, f"allow.{key}", raw[key]) for key in ("cause", "reason"))
    return Allowed(cause=cause, reason=reason, expires=day)


def _thresholds(path: Path, raw: object) -> Mapping[str, Mapping[str, float]]:
    if not isinstance(raw, Mapping) or not all(isinstance(params, Mapping) for params in raw.values()):
        hint = "[thresholds.RULE] then PARAMETER = NUMBER"
        raise _wrong(path, "thresholds: expected a table per rule", hint)
    return {r: {name: _number(path, f"thresholds.{r}.{name}", v) for name, v in ps.items()} for r, ps in raw.items()}


def parse_budget(text: str, where: str) -> Budget:
    """Return the budget that a line of a policy states.

    Raises:
        DoctorError: it is none, or names no metric or statistic of ours (exit code 2).
    """
    hint = "write METRIC.STATISTIC < NUMBER, for example approx_kl.p95 < 0.05"
    where = f"{where}: budget '{text}'"
    match = _BUDGET.match(text)
    if match is None:
        raise _wrong(where, "not a budget", hint)
    metric, statistic, op, bound = match.groups()
    _known(where, "metric", [metric], [*METRICS], hint)
    if not PERCENTILE.match(statistic):
        _known(where, "statistic", [statistic], [*STATISTICS, "p95"])
    try:
        return Budget(text=text.strip(), metric=metric, statistic=statistic, op=op, bound=float(bound))
    except ValueError:
        raise _wrong(where, f"'{bound}' is not a number", hint) from None


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
