"""Moving the bound of a rule by a fifth, up or down, is noticed by one of its own cases.

Rules that do not hold themselves to this yet are listed in `known_loose_thresholds.txt`, which may only shrink.
"""

from __future__ import annotations

import dataclasses
import tomllib
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.rulepack import load_pack, prose
from ppo_doctor.testing import run_case

LIST = Path(__file__).with_name("known_loose_thresholds.txt")
LOOSE = {line.strip() for line in LIST.read_text(encoding="utf-8").splitlines() if line.strip()}
FACTORS = {"down": 0.8, "up": 1.2}
RULES = {rule.name: rule for rule in load_pack(installed=False).rules}


@cache
def bounds():
    """Return (rule, clause, direction) for every bound that is a parameter other than 0."""
    found = []
    for rule in RULES.values():
        for index, clause in enumerate(tomllib.loads(Path(rule.path).read_text(encoding="utf-8"))["when"]):
            if str(clause["bound"]).startswith("@") and rule.when[index].bound != 0:
                found += [(rule.name, index, direction) for direction in FACTORS]
    return found


def moved(rule, index, factor):
    clauses = list(rule.when)
    clauses[index] = dataclasses.replace(clauses[index], bound=clauses[index].bound * factor)
    return dataclasses.replace(rule, when=tuple(clauses))


def noticed(name, index, direction):
    rule = RULES[name]
    other = moved(rule, index, FACTORS[direction])
    return any(run_case(other, case).problems for case in prose(rule.path)["case"])


def label(name, index, direction):
    return f"{name} {index} {direction}"


@pytest.mark.parametrize(("name", "index", "direction"), [b for b in bounds() if label(*b) not in LOOSE])
def test_a_moved_threshold_is_noticed(name, index, direction):
    assert noticed(name, index, direction), "add a near-miss case that is nearer"


def test_the_list_of_exceptions_only_shrinks():
    known = {label(*bound) for bound in bounds()}
    assert known >= LOOSE, "remove what no longer exists"
    assert not [entry for entry in bounds() if label(*entry) in LOOSE and noticed(*entry)], "remove what is noticed now"
