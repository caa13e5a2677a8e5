"""A threshold that moves is noticed: some case of its rule lies within a fifth of it on either side.

So far for the rules about configurations; a family is added here once its cases reach that near.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ppo_doctor.rulepack import load_pack, prose
from ppo_doctor.testing import run_case

FAMILIES = ("config",)
RULES = [rule for rule in load_pack(installed=False).rules if Path(rule.path).parent.name in FAMILIES]
MOVED = [(rule, param.name, by) for rule in RULES for param in rule.params for by in (0.8, 1.2)]


def with_threshold(rule, name, by):
    """Return a rule with one of its parameters multiplied, wherever its clauses take it."""

    def moved(clause):
        fields = {field: getattr(clause, field) * by for field, param in clause.params.items() if param == name}
        return replace(clause, **fields)

    return replace(rule, when=tuple(map(moved, rule.when)))


@pytest.mark.parametrize(("rule", "name", "by"), MOVED, ids=[f"{rule.name}/{n}x{by}" for rule, n, by in MOVED])
def test_a_threshold_that_moves_by_a_fifth_is_noticed(rule, name, by):
    cases = prose(rule.path)["case"]
    other = with_threshold(rule, name, by)
    assert any(run_case(other, case).problems for case in cases)


def test_every_family_named_here_has_thresholds():
    assert len(MOVED) >= 2 * len(FAMILIES)
