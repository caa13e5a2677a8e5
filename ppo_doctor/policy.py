"""What a project asks of its runs: read from `ppo-doctor.toml` or from `[tool.ppo-doctor]` of `pyproject.toml`.

A key, rule, cause or metric that does not exist is an error with a near miss: a policy with a typing error in it would
otherwise pass everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.aliases import read_table
from ppo_doctor.budgets import Budget, parse_budget
from ppo_doctor.compiled import LARGEST, parse_toml
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.judgement import FAIL_ON
from ppo_doctor.model import QUESTIONS
from ppo_doctor.opening import contents

if TYPE_CHECKING:
    from ppo_doctor.model import Clause, Rule
    from ppo_doctor.rulepack import Pack

KEYS = (
    *("fail-on", "require", "allow", "select", "ignore", "thresholds", "budgets", "baseline", "rules", "framework"),
    *("alias", "target_return"),
)
ALLOW_KEYS = ("cause", "reason", "expires")
DEFAULT_FAIL_ON = "high"


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
    return _Reader(path=path).policy(raw)


#: The ways of writing a table of ours in a pyproject.toml. Every start looks for one, and parsing TOML is slow.
_MAY_HOLD_OURS = re.compile(
    rb"""tool["']?[ \t]*\.[ \t]*["']?ppo-doctor|^[ \t]*\[[ \t]*["']?tool["']?[ \t]*\]|^[ \t]*["']?tool["']?[ \t]*=""",
    re.MULTILINE,
)


def _section(path: Path) -> Mapping[str, Any] | None:
    try:
        if not _MAY_HOLD_OURS.search(contents(path, LARGEST)):
            return None
    except OSError:
        pass  # parsing says why it cannot be read
    tool = parse_toml(path).get("tool", {})
    section = tool.get("ppo-doctor") if isinstance(tool, Mapping) else None
    return section if isinstance(section, Mapping) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Turns the tables of one file into a policy; every complaint names the file and the key."""

    path: Path

    def policy(self, raw: Mapping[str, Any]) -> Policy:
        self.known(raw, KEYS, "key")
        return Policy(
            source=self.path,
            fail_on=self.one_of(raw.get("fail-on", DEFAULT_FAIL_ON), FAIL_ON, "fail-on"),
            require=self.questions(raw),
            allow=tuple(self.allowed(entry) for entry in self.tables(raw, "allow")),
            select=self.strings(raw, "select"),
            ignore=self.strings(raw, "ignore"),
            thresholds=self.thresholds(raw.get("thresholds", {})),
            budgets=tuple(parse_budget(text, str(self.path)) for text in self.strings(raw, "budgets")),
            baseline=self.file(raw["baseline"], "baseline") if "baseline" in raw else None,
            rules=tuple(self.file(text, "rules") for text in self.strings(raw, "rules")),
            framework=self.text(raw["framework"], "framework") if "framework" in raw else None,
            target_return=self.number(raw["target_return"], "target_return") if "target_return" in raw else None,
            alias=read_table(raw.get("alias", {}), str(self.path)),
        )

    def complain(self, text: str, hint: str = "") -> DoctorError:
        return DoctorError(f"{self.path}: {text}", hint=hint, code=ExitCode.USAGE)

    def known(self, raw: Mapping[str, Any], names: Sequence[str], what: str) -> None:
        for key in raw:
            if key not in names:
                raise self.complain(f"no {what} '{key}'", near_miss(key, names))

    def one_of(self, value: object, names: Sequence[str], key: str) -> str:
        if value not in names:
            raise self.complain(f"{key}: '{value}' means nothing", near_miss(str(value), names))
        return str(value)

    def questions(self, raw: Mapping[str, Any]) -> tuple[str, ...] | None:
        if "require" not in raw:
            return None
        return tuple(self.one_of(name, QUESTIONS, "require") for name in self.strings(raw, "require"))

    def text(self, value: object, key: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.complain(f"{key}: expected some text")
        return value

    def strings(self, raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = raw.get(key, [])
        if not isinstance(value, list):
            raise self.complain(f'{key}: expected a list of strings, such as ["…"]')
        return tuple(self.text(entry, key) for entry in value)

    def tables(self, raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
            raise self.complain(f"{key}: expected tables, such as [[{key}]]")
        return value

    def allowed(self, raw: Mapping[str, Any]) -> Allowed:
        self.known(raw, ALLOW_KEYS, "key of allow")
        for key in ALLOW_KEYS:
            if key not in raw:
                raise self.complain(f"allow: '{key}' is missing", "an allowed cause needs cause, reason and expires")
        cause, reason = self.text(raw["cause"], "allow.cause"), self.text(raw["reason"], "allow.reason")
        return Allowed(cause=cause, reason=reason, expires=self.day(raw["expires"]))

    def day(self, value: object) -> date:
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            raise self.complain(f"allow.expires: '{value}' is no date", "write 2026-12-31") from None

    def thresholds(self, raw: object) -> Mapping[str, Mapping[str, float]]:
        if not isinstance(raw, Mapping) or not all(isinstance(params, Mapping) for params in raw.values()):
            raise self.complain("thresholds: expected a table per rule", "[thresholds.RULE] then PARAMETER = NUMBER")
        return {r: {name: self.number(v, f"thresholds.{r}.{name}") for name, v in ps.items()} for r, ps in raw.items()}

    def number(self, value: object, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.complain(f"{key}: expected a number")
        try:
            return float(value)
        except OverflowError:
            raise self.complain(f"{key}: the number is too large") from None

    def file(self, value: object, key: str) -> Path:
        """Return a path; a policy's paths are relative to the policy, wherever the gate is started."""
        return self.path.parent / self.text(value, key)


def near_miss(name: str, names: Iterable[str]) -> str:
    """Return a hint for a name that does not exist: the nearest one, or all of them when they are few."""
    known = list(names)
    near = get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"one of {', '.join(known)}" if len(known) <= 12 else "ppo-doctor rules list shows all rules"


def applied(policy: Policy, pack: Pack) -> Pack:
    """Return the pack with the policy's thresholds in its rules, after holding every name of the policy to it.

    Raises:
        DoctorError: the policy names a rule, parameter or cause that does not exist (exit code 2).
    """
    where = str(policy.source or "policy")
    known_rules(pack, (*policy.select, *policy.ignore, *policy.thresholds), f"{where}: ")
    for allowed in policy.allow:
        _exists(f"{where}: ", "cause", allowed.cause, [cause.id for cause in pack.causes])
    return replace(pack, rules=tuple(_tuned(rule, policy, where) for rule in pack.rules))


def known_rules(pack: Pack, chosen: Iterable[str], where: str = "") -> None:
    """Refuse the name or code of a rule that does not exist, with a near miss.

    Raises:
        DoctorError: there is no such rule (exit code 2).
    """
    names = [name for rule in pack.rules for name in (rule.name, rule.code)]
    for name in chosen:
        _exists(where, "rule", name, names)


def _exists(where: str, what: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise DoctorError(f"{where}no {what} '{name}'", hint=near_miss(name, names), code=ExitCode.USAGE)


def _tuned(rule: Rule, policy: Policy, where: str) -> Rule:
    wanted = {**policy.thresholds.get(rule.code, {}), **policy.thresholds.get(rule.name, {})}
    if not wanted:
        return rule
    for name in wanted:
        _exists(f"{where}: ", f"parameter of {rule.name}", name, [param.name for param in rule.params])
    params = tuple(
        replace(p, value=wanted.get(p.name, p.value), source=_source(p.name, p.source, wanted, where))
        for p in rule.params
    )
    return replace(rule, params=params, when=tuple(_retuned(clause, wanted, where) for clause in rule.when))


def _source(name: str, source: str, wanted: Mapping[str, float], where: str) -> str:
    return where if name in wanted else source


def _retuned(clause: Clause, wanted: Mapping[str, float], where: str) -> Clause:
    changed: dict[str, Any] = {name: wanted[param] for name, param in clause.params.items() if param in wanted}
    if "bound" in changed:
        changed["bound_source"] = where
    return replace(clause, **changed)
