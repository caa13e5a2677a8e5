"""Evidence in words: a sentence claims what the number shows, of what it is a number of, and in good grammar."""

from __future__ import annotations

import pytest

from ppo_doctor.model.evidence import measured, says, sentence
from ppo_doctor.model.rules import Evidence, Finding
from ppo_doctor.model.run import CONDITION, SourceRef
from ppo_doctor.model.words import Severity

PLACE = SourceRef(path="run.jsonl", line=3, key="low")


def each(**more):
    values = {
        "metric": "low",
        "raw": "low",
        "statistic": "value over 9 of 9 records",
        "observed": 1.0,
        "op": "==",
        "bound": 1.0,
        "steps": (1, 9),
        "satisfied": 9,
        "of": 9,
        "source": PLACE,
    }
    return Evidence(**values | more)


def one(**more):
    return each(**{"statistic": "median over 9 records", "satisfied": 1, "of": 1} | more)


def fired(*evidence):
    finding = {"rule": "r", "code": "R1", "title": "t", "link": "ratio", "severity": Severity.HIGH}
    return Finding(**finding, status="fired", evidence=evidence)


def test_a_condition_is_said_and_not_compared_with_1():
    told = sentence(each(raw="low as high as high", unit=CONDITION))
    assert told == "low as high as high in 9 of 9 records, steps 1–9 (run.jsonl:3)"


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1.0, "optimizer steps per batch", "1 optimizer step per batch"),
        (1.0, "tokens", "1 token"),
        (21.0, "tokens", "21 tokens"),
        (0.1, "tokens", "0.1 tokens"),
        (1.0, "times the target", "1 times the target"),
        (0.6, "fraction of groups", "0.6 of groups"),
        (0.6, "fraction", "0.6"),
        (1.0, CONDITION, "1"),
    ],
)
def test_a_number_with_its_unit(value, unit, words):
    assert measured(value, unit) == words


def test_nought_takes_no_unit():
    assert "low is at most 0 in 9 of 9" in sentence(each(op="<=", bound=0.0, unit="fraction of groups"))
    assert "low is exactly 0 in 9 of 9" in sentence(each(bound=0.0, unit="nats"))


def test_several_metrics_are_several():
    both = each(raw="low, high", bound=0.0, source=SourceRef(path="run.jsonl", line=3, key="low, high"))
    assert sentence(both).startswith("low, high are exactly 0 in")


def test_a_number_between_two_bounds_is_told_once():
    told = says(fired(one(observed=0.3, op=">", bound=0.1), one(observed=0.3, op="<", bound=0.9)))
    assert told == "low 0.3 is above 0.1 and below 0.9 [median over 9 records] (run.jsonl:3)"


def test_two_numbers_are_two_sentences():
    told = says(fired(one(observed=0.3, op=">", bound=0.1), one(observed=0.4, op="<", bound=0.9)))
    assert told.count(";") == 1


def test_one_record_is_no_records():
    assert "[median over 1 record]" in sentence(one(statistic="median over 1 records"))
    assert "[median over 11 records]" in sentence(one(statistic="median over 11 records"))


def test_the_only_record_is_told_with_its_number():
    of_one = {"of": 1, "satisfied": 1, "statistic": "value over 1 of 1 records"}
    assert sentence(each(observed=4.0, op=">=", **of_one)) == "low 4 is at least 1 in the only record (run.jsonl:3)"
    assert (
        sentence(each(raw="low infinite", unit=CONDITION, **of_one)) == "low infinite in the only record (run.jsonl:3)"
    )


def test_what_does_not_hold_is_denied():
    assert "low 0.3 is not above 0.5" in sentence(one(observed=0.3, op=">", bound=0.5, satisfied=0))


def test_a_fact_that_is_so_says_itself():
    so = {"of": 1, "satisfied": 1, "unit": CONDITION, "statistic": "low is logged: samples are low"}
    assert sentence(each(**so)) == "low is logged: samples are low (run.jsonl:3)"


def test_a_share_of_records_stays_one_of_records():
    assert measured(1.0, "of records") == "1 of records"
