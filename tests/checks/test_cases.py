"""A threshold that moves by a fifth, up or down, is noticed: some case of its rule lies as near on that side.

Thresholds are bounds, shares of records, and the least part of a run or number of records that a tail covers, each
where a clause takes it from a parameter of its rule. What no case can notice stands in `SAME`, with the reason.
"""

from __future__ import annotations

import pytest

from ppo_doctor.checks.cases import MOVED, moved, moves, read_cases, run_case, unnoticed
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.model.rules import Clause, Param
from tests.synthetic import a_rule

RULES = {rule.name: rule for rule in load_pack().rules}


WHOLE = "a count: at least 2 of them, or 3, or 4, and at least four fifths of that are the same counts"


DERIVED = "the derived quantity is 0 up to that very bound, so that nothing lies between it and four fifths of it"


#: (rule, clause, field, direction) → why the rule is the same one after that move, for every log
SAME = {
    ("gradient-spikes", 0, "bound", "down"): WHOLE,
    ("reference-kl-sawtooth", 0, "bound", "down"): WHOLE,
    ("reward-gone", 0, "bound", "down"): WHOLE,
    ("reward-collapses-late", 0, "bound", "down"): DERIVED,
}


def key(move):
    return move.rule, move.clause, move.field, move.direction


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if any(moves(rule))], ids=lambda rule: rule.name)
def test_a_threshold_that_moves_by_a_fifth_is_noticed(rule):
    found = {key(move): str(move) for move in unnoticed(rule, read_cases(rule))}
    same = {entry for entry in SAME if entry[0] == rule.name}
    assert {entry: says for entry, says in found.items() if entry not in same} == {}, (
        f"add a case that is nearer; ppo-doctor rules test {rule.name} --show-values"
    )
    assert same <= found.keys(), "a case notices it: take it out of SAME"


def test_every_exception_is_a_threshold_that_exists():
    known = {key(move) for rule in RULES.values() for move in moves(rule)}
    assert known >= SAME.keys()
    assert len(SAME) < 0.02 * len(known)


# That the test above can fail


def case(kl, status):
    return {"name": kl, "status": status, "series": {"approx_kl": kl}}


@pytest.fixture
def rule():
    """Return a rule that fires on a KL above 0.1 in half of the records."""
    fields = {"bound": "kl", "share": "share"}
    clause = Clause(quantity="approx_kl", test="above", bound=0.1, share=0.5, params=fields)
    params = tuple(Param(name=name, value=1.0, unit="nats", source="expert") for name in fields.values())
    return a_rule("kl-large", when=(clause,), needs=("approx_kl",), params=params, min_points=5)


FAR = [case("0.5x9", "fired"), case("0.01x9", "clear"), case("0.01x4 0.5x4", "fired")]


@pytest.mark.parametrize(
    ("near", "field", "direction"),
    [
        (case("0.11x9", "fired"), "bound", "up"),
        (case("0.09x9", "clear"), "bound", "down"),
        (case("0.01x4 0.5x4", "fired"), "share", "up"),
        (case("0.01x10 0.5x8", "clear"), "share", "down"),
    ],
)
def test_a_case_is_near_on_one_side_alone(rule, near, field, direction):
    assert run_case(rule, near).problems == ()
    left = {(move.field, move.direction) for move in unnoticed(rule, [near])}
    assert (field, direction) not in left
    assert {(move.field, move.direction) for move in moves(rule)} - left == {(field, direction)}


def test_cases_that_are_far_notice_nothing(rule):
    far = FAR[:2]
    assert all(run_case(rule, each).problems == () for each in far)
    assert unnoticed(rule, far) == list(moves(rule))


def test_a_move_leaves_the_other_thresholds_alone(rule):
    for move in moves(rule):
        (clause,) = moved(rule, move).when
        expected = {"bound": 0.1, "share": 0.5}
        expected[move.field] *= MOVED[move.direction]
        assert {name: getattr(clause, name) for name in expected} == expected


def test_a_threshold_of_zero_has_no_fifth(rule):
    (clause,) = rule.when
    at_zero = a_rule("zero", when=(Clause(quantity=clause.quantity, test="above", bound=0.0, params={"bound": "kl"}),))
    assert list(moves(at_zero)) == []


# What authors see


def test_the_cases_of_a_new_rule_are_near_each_of_its_thresholds(cli, tmp_path):
    assert cli("rules", "new", "made-up", "--dir", tmp_path / "mine").code == 0
    (made,) = [rule for rule in load_pack([tmp_path / "mine"]).rules if rule.name == "made-up"]
    assert list(moves(made))
    assert unnoticed(made, read_cases(made)) == []


def test_values_stand_beside_their_bounds(cli):
    outcome = cli("rules", "test", "updates-go-far", "--show-values")
    assert outcome.code == 0
    lines = [line.strip() for line in outcome.out.splitlines()]
    assert [
        line
        for case in read_cases(RULES["updates-go-far"])
        if (line := f"{case['name']}: {case['status']}") not in lines
    ] == []
    assert "0.1067 > 0.1 yes" in outcome.out


def test_what_no_case_is_near_is_told(cli, tmp_path):
    assert cli("rules", "new", "made-up", "--dir", tmp_path / "mine").code == 0
    (path,) = (tmp_path / "mine").glob("made-up.toml")
    path.write_text(path.read_text(encoding="utf-8").replace("0.55x", "0.9x"), encoding="utf-8")
    outcome = cli("rules", "test", "made-up", "--rules", tmp_path / "mine", "--show-values")
    (pack_rule,) = [r for r in load_pack([tmp_path / "mine"]).rules if r.name == "made-up"]
    left = unnoticed(pack_rule, read_cases(pack_rule))
    assert left
    assert all(str(move) in outcome.out for move in left)


def test_only_the_rules_named_are_tested(cli):
    rules = ["updates-go-far", "ratio-identically-one"]
    expected = sum(len(read_cases(RULES[name])) for name in rules)
    assert cli("rules", "test", *rules).out.startswith(f"{expected} cases")


def test_a_rule_that_does_not_exist_is_named_with_the_nearest(cli):
    outcome = cli("rules", "test", "updates-go-fra")
    assert outcome.code == 2
    assert "updates-go-far" in outcome.err
