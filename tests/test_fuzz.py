"""A few mutations of every kind of file, always the same ones; `python -m tests.fuzz --minutes 60` draws more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.cases import Case, drawn, run_case, run_file, with_baseline
from tests.fuzz.seeds import all_seeds

#: Cases in which each kind has had its turn.
TURN = 30


@pytest.fixture(scope="module")
def seeds():
    return with_baseline(all_seeds(real=False))


def test_no_mutation_breaks_a_promise(seeds):
    cases = [drawn(number, seeds, start=2026) for number in range(TURN)]
    assert {case.seed.kind for case in cases} == set(seeds)
    faults = [(case.told, result.fault, result.trace) for case in cases if (result := run_case(case)).fault]
    assert not faults


def test_a_fault_is_seen(seeds, monkeypatch):
    """The harness itself: a reader that raises is a fault with its place."""

    def raises(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("ppo_doctor.readers.read_source", raises)
    case = next(case for number in range(100) if (case := drawn(number, seeds, 1)).seed.kind == "csv")
    result = run_case(case)
    assert "KeyError at" in result.fault
    assert result.code == 70


def test_a_case_is_the_same_by_its_number(seeds):
    assert drawn(7, seeds, 1) == drawn(7, seeds, 1)
    assert drawn(7, seeds, 1) != drawn(7, seeds, 2)


SICK = "sick/epochs-not-executed.canonical/run.jsonl"


@pytest.fixture(scope="module")
def settings_and_records(seeds):
    seed = next(seed for seed in seeds["jsonl"] if seed.origin == SICK)
    settings, _, records = seed.data.partition(b"\n")
    assert b"config" in settings
    return seed, records


def test_a_fault_that_nobody_can_see_any_more_is_counted_apart(settings_and_records):
    """Without the line that asks for four epochs, a log that executes one is sound."""
    seed, records = settings_and_records
    result = run_case(Case(0, seed, seed, records, ("cut the start",)))
    assert (result.verdict, result.look, result.remains) == ("healthy", "", True)


def test_a_fault_behind_the_cut_is_counted_apart(seeds):
    """NaN from record 42 on: what goes on until the twentieth is sound, however its header is damaged."""
    seed = next(seed for seed in seeds["csv"] if seed.origin == "sick/nan-inf.sb3/progress.csv")
    lines = seed.data.replace(b"ep_len_mean", b"ep|len_mean").splitlines(keepends=True)
    result = run_case(Case(0, seed, seed, b"".join(lines[:21]), ("flip", "cut the end")))
    assert (result.verdict, result.look, result.remains) == ("healthy", "", True)


def test_a_fault_that_is_there_to_be_seen_is_looked_at(settings_and_records, monkeypatch):
    """A judgement that overlooked what stands in whole lines would be told."""
    seed, _ = settings_and_records
    case = Case(0, seed, seed, seed.data + b"\n", ("padded",))
    judged = run_file

    def blind(of, data):
        return replace(judged(of, data), verdict="healthy") if data == case.data else judged(of, data)

    monkeypatch.setattr("tests.fuzz.cases.run_file", blind)
    assert run_case(case).look
