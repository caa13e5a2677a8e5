"""The manual: one page per rule, cause and metric, written from the same files that evaluation reads."""

from __future__ import annotations

from difflib import get_close_matches

from ppo_doctor import frameworks
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.metrics import METRICS
from ppo_doctor.report import pages
from ppo_doctor.rulepack import Pack, load_pack, prose


def page(name: str, pack: Pack | None = None) -> str:
    """Return the manual page of a rule (by name or code), a cause, or a metric (canonical or native).

    Raises:
        DoctorError: no such name; the hint holds near misses (exit code 2).
    """
    pack = pack or load_pack()
    rule, cause = pack.rule(name), pack.cause(name)
    if rule is not None:
        return pages.rule_page(rule, prose(rule.path), pack)
    if cause is not None:
        return pages.cause_page(cause, prose(cause.path), pack)
    metric = _metric(name)
    if metric is None:
        raise _unknown(name, pack)
    return pages.metric_page(METRICS[metric], native_names(metric))


def _metric(name: str) -> str | None:
    if name in METRICS:
        return name
    profiles = frameworks.profiles().values()
    return next((metric for p in profiles for metric, m in p.metrics.items() if name in m.keys), None)


def native_names(metric: str) -> list[tuple[str, str, str]]:
    """Return (framework, native key, qualifiers) for every framework that logs a metric."""
    rows: list[tuple[str, str, str]] = []
    for profile in frameworks.profiles().values():
        found = profile.metrics.get(metric)
        if found is not None:
            qualifiers = ", ".join(q for q in (found.estimator, found.aggregation, found.reference) if q)
            rows.extend((profile.name, key, qualifiers) for key in found.keys)
    return sorted(rows)


def _unknown(name: str, pack: Pack) -> DoctorError:
    known = [*(rule.name for rule in pack.rules), *(cause.id for cause in pack.causes), *METRICS]
    near = get_close_matches(name, known, n=3)
    hint = f"near: {', '.join(near)}" if near else "ppo-doctor rules list shows all rules"
    return DoctorError(f"nothing is called '{name}'", hint=hint, code=ExitCode.USAGE)
