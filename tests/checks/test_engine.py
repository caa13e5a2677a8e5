"""Three-valued comparison: yes, no, or cannot be told; an oracle in plain Python agrees wherever numbers are exact."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.checks.engine import check, evaluate, window
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model.rules import OPERATORS, TAKEN, WINDOWS, Clause
from ppo_doctor.model.run import CodePlace, Fact
from tests.synthetic import NAN, a_rule, a_run, a_series

TESTS = {
    "equals": lambda v, b: v == b,
    "below": lambda v, b: v < b,
    "at_most": lambda v, b: v <= b,
    "above": lambda v, b: v > b,
    "at_least": lambda v, b: v >= b,
}
#: Multiples of 1/8: every sum and difference is exact.
EIGHTHS = st.integers(-16, 16).map(lambda n: n / 8)
VALUES = st.lists(EIGHTHS, min_size=1, max_size=24)
SHARES = st.sampled_from([0.5, 0.55, 0.6, 0.7, 0.9, 0.95, 1.0])


def ask(test, values, bound=0.0, *, min_points=1, absolute=0.0, **clause):
    series = a_series("entropy", values, absolute=absolute)
    return evaluate(Clause(quantity="entropy", test=test, bound=bound, **clause), series, min_points=min_points)


def test_the_vocabulary_is_closed():
    assert set(OPERATORS) == set(TESTS)


@given(test=st.sampled_from(sorted(TESTS)), values=VALUES, bound=EIGHTHS, share=SHARES)
def test_exact_numbers_agree_with_an_oracle(test, values, bound, share):
    """Over a tenth of a share, floats must not round a count up: 11 of 20 records are 0.55 of them."""
    held = [TESTS[test](value, bound) for value in values]
    expected = sum(held) >= Fraction(str(share)) * len(held) and any(held)
    outcome = ask(test, values, bound, share=share)
    assert outcome.truth is expected
    if expected:
        assert outcome.onset == held.index(True) + 1


def oracle_tail(held, share, least):
    for start in range(len(held)):
        rest = held[start:]
        enough = len(rest) >= Fraction(str(least)) * len(held) and sum(rest) >= Fraction(str(share)) * len(rest)
        if held[start] and enough:
            return start
    return None


@given(
    test=st.sampled_from(sorted(TESTS)),
    values=VALUES,
    bound=EIGHTHS,
    share=SHARES,
    least=st.sampled_from([0.0, 0.3, 0.5]),
)
def test_a_tail_agrees_with_an_oracle(test, values, bound, share, least):
    held = [TESTS[test](value, bound) for value in values]
    start = oracle_tail(held, share, least)
    outcome = ask(test, values, bound, share=share, window="tail", least=least)
    assert outcome.truth is (start is not None)
    if start is not None:
        assert outcome.onset == start + 1
        assert outcome.evidence.steps == (start + 1, len(values))
        assert outcome.evidence.satisfied == sum(held[start:])


PLAIN = {
    "median": statistics.median,
    "min": min,
    "max": max,
    "first": lambda v: v[0],
    "last": lambda v: v[-1],
}


@given(
    test=st.sampled_from(["below", "at_most", "above", "at_least"]),
    values=VALUES,
    bound=EIGHTHS,
    name=st.sampled_from(sorted(PLAIN)),
)
def test_statistics_agree_with_an_oracle(test, values, bound, name):
    observed = PLAIN[name](values)
    outcome = ask(test, values, bound, take=name)
    assert outcome.truth is TESTS[test](observed, bound)
    assert outcome.evidence.observed == pytest.approx(observed)


def test_every_statistic_is_checked():
    assert set(TAKEN) == {"each", *PLAIN}


# Intervals


@pytest.mark.parametrize(
    ("test", "value", "truth"),
    [
        ("above", 0.2, True),
        ("above", 0.06, None),
        ("above", 0.05, None),
        ("above", -0.2, False),
        ("below", -0.2, True),
        ("below", 0.04, None),
        ("below", 0.2, False),
        ("at_least", 0.2, True),
        ("at_least", -0.04, None),
        ("at_most", -0.2, True),
        ("at_most", 0.04, None),
        ("equals", 0.0, None),
        ("equals", 0.2, False),
    ],
)
@pytest.mark.parametrize("take", ["each", "median", "last"])
def test_an_interval_that_straddles_the_bound_is_unknown(test, value, truth, take):
    outcome = ask(test, [value] * 9, 0.0, absolute=0.0625, take=take)
    assert outcome.truth is truth
    assert bool(outcome.reason) is (truth is None)


RESOLUTIONS = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0])
CLAUSES = st.fixed_dictionaries(
    {"share": SHARES, "window": st.sampled_from(WINDOWS), "least": st.sampled_from([0.0, 0.5])}
    | {"take": st.sampled_from(TAKEN)}
)


@given(
    test=st.sampled_from(sorted(TESTS)),
    values=VALUES,
    bound=EIGHTHS,
    clause=CLAUSES,
    fine=RESOLUTIONS,
    coarse=RESOLUTIONS,
)
def test_coarser_printing_never_turns_yes_into_no(test, values, bound, clause, fine, coarse):
    sharp = ask(test, values, bound, absolute=min(fine, coarse), **clause).truth
    blurred = ask(test, values, bound, absolute=max(fine, coarse), **clause).truth
    assert blurred in (sharp, None)


def moved(data, values, sizes):
    steps = data.draw(st.lists(st.integers(-8, 8), min_size=len(values), max_size=len(values)))
    return [value + step / 8 * size for value, step, size in zip(values, steps, sizes, strict=True)]


@given(data=st.data(), test=st.sampled_from(sorted(TESTS)), values=VALUES, bound=EIGHTHS, clause=CLAUSES)
def test_an_answer_holds_for_every_measurement_behind_the_print(data, test, values, bound, clause):
    printed = ask(test, values, bound, absolute=0.25, **clause).truth
    exact = ask(test, moved(data, values, [0.25] * len(values)), bound, **clause).truth
    assert printed in (exact, None)


# NaN and too little


@pytest.mark.parametrize("test", sorted(TESTS))
@pytest.mark.parametrize("broken", [NAN, math.inf, -math.inf])
def test_what_is_not_finite_is_never_compared(test, broken):
    outcome = ask(test, [broken] * 20)
    assert outcome.truth is None
    assert outcome.reason
    assert ask(test, [1.0, broken] * 10).truth is ask(test, [1.0] * 10).truth


@pytest.mark.parametrize(("finite", "told"), [(4, False), (5, True)])
def test_too_few_finite_records_are_no_answer(finite, told):
    outcome = ask("above", [1.0] * finite + [NAN] * 30, min_points=5)
    assert (outcome.truth is True) is told
    assert bool(outcome.reason) is not told


@pytest.mark.parametrize("window_name", WINDOWS)
@pytest.mark.parametrize("take", TAKEN)
def test_no_records_are_no_answer(window_name, take):
    assert ask("above", [], min_points=0, window=window_name, take=take).truth is None


@given(size=st.integers(1, 300))
def test_windows_are_never_empty(size):
    assert all(len(range(size)[window(name, size)]) > 0 for name in WINDOWS)


def test_a_window_counts_finite_records():
    values = [NAN] * 50 + [5.0, *[0.0] * 4]
    assert ask("above", values, window="early", take="max").truth is True
    assert ask("above", [*[0.0] * 4, *[NAN] * 50, 0.0, 5.0], window="early", take="max").truth is False


def test_the_onset_is_a_step_of_the_log():
    series = a_series("entropy", [0.0, NAN, 2.0, 3.0], steps=[100, 200, 300, 400])
    clause = Clause(quantity="entropy", test="above", bound=1.0, share=0.6)
    outcome = evaluate(clause, series, min_points=1)
    assert outcome.onset == 300
    assert outcome.evidence.source.line == 3
    assert (outcome.evidence.satisfied, outcome.evidence.of) == (2, 3)


@pytest.mark.parametrize("test", ["below", "at_most", "above", "at_least"])
def test_the_evidence_shows_the_value_nearest_to_the_bound(test):
    sign = 1 if test in ("above", "at_least") else -1
    outcome = ask(test, [sign * v for v in (9.0, 2.0, 5.0)])
    assert outcome.evidence.observed == sign * 2.0


# Facts


@pytest.mark.parametrize("test", sorted(TESTS))
@pytest.mark.parametrize("value", [-1, 0, 1, 0.5, True, False])
def test_facts_are_exact(test, value):
    outcome = evaluate(
        Clause(quantity="k", test=test, bound=0.0), Fact(name="k", value=value, how="observed"), min_points=5
    )
    assert outcome.truth is TESTS[test](float(value), 0.0)
    assert outcome.evidence.observed == float(value)


@pytest.mark.parametrize("value", [None, "four", NAN, math.inf])
def test_a_fact_that_is_no_number_is_no_answer(value):
    outcome = evaluate(
        Clause(quantity="k", test="above", bound=0.0), Fact(name="k", value=value, how="observed"), min_points=0
    )
    assert outcome.truth is None
    assert outcome.reason


def test_a_median_of_both_signs_is_no_better_known_than_its_values():
    """Each value may be off by a quarter, so a median of 0 may be 0.25."""
    assert ask("at_most", [-1.0, 1.0], 0.125, absolute=0.25, take="median").truth is None


RATIO, STEP = CodePlace(file="train.py", line=205), CodePlace(file="train.py", line=220)


def finding_with_places(*quantities, **places):
    """Return the finding of a rule that compares each quantity with 0, in a run with lines of its script."""
    run = a_run(a_series("ratio_std", [0.0] * 6), a_series("update_norm", [0.0] * 6))
    clauses = tuple(Clause(quantity=name, test="equals", bound=0) for name in quantities)
    return check(RunView(replace(run, places=places)), a_rule("still", when=clauses, needs=quantities))


def test_a_finding_is_at_the_line_of_the_first_metric_of_its_evidence():
    assert finding_with_places("ratio_std", "update_norm", ratio_std=RATIO, update_norm=STEP).place == RATIO
    assert finding_with_places("ratio_std", "update_norm", update_norm=STEP).place == STEP
    assert finding_with_places("ratio_std", "update_norm", entropy=STEP).place is None


def test_a_statistic_is_at_the_line_of_a_metric_that_it_is_computed_from():
    assert finding_with_places("ratio_departure", "update_norm", ratio_std=RATIO, update_norm=STEP).place == RATIO
    assert finding_with_places("ratio_departure", "update_norm", approx_kl=RATIO).place is None  # it is not logged


def test_a_check_that_is_clear_has_no_line():
    run = replace(a_run(a_series("ratio_std", [0.5] * 6)), places={"ratio_std": RATIO})
    clauses = (Clause(quantity="ratio_std", test="equals", bound=0),)
    finding = check(RunView(run), a_rule("still", when=clauses, needs=("ratio_std",)))
    assert (finding.status, finding.place) == ("clear", None)
