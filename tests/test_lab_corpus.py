"""The plan of the corpus: sides that share no seed and no faulty task, enough sound runs, and clocks that are true."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from tests.lab import FAULTS, run
from tests.lab.corpus import (
    AFTERWARDS,
    FAULTY_IN,
    NEW,
    SPLITS,
    UNSEEN,
    VARIANTS,
    Training,
    begins,
    cases,
    make,
    overrides,
    possible,
    sound,
    trainings,
)
from tests.lab.dialects import WRITERS

PLAN = [training for training in trainings() if possible(training)]


def side(name: str) -> list[Training]:
    return [training for training in PLAN if training.split == name]


def test_no_seed_is_on_two_sides_and_no_faulty_task():
    for one, other in combinations(SPLITS, 2):
        assert not {t.seed for t in side(one)} & {t.seed for t in side(other)}
    for task in ("control", "language"):
        for one, other in combinations(SPLITS, 2):
            assert not {*FAULTY_IN[one][task]} & {*FAULTY_IN[other][task]}
        assert not {*VARIANTS[task], *UNSEEN[task]} & {*NEW[task], *AFTERWARDS[task]}
        assert not {*NEW[task]} & {*AFTERWARDS[task]}
        assert not {*VARIANTS[task]} & {*UNSEEN[task]}


def test_the_plan_is_large_and_a_third_of_it_is_sound():
    calm = sum(sound(training.fault) for training in PLAN)
    assert len(PLAN) >= 600
    assert calm / len(PLAN) >= 1 / 3
    assert sum(sound(training.fault) for training in side("held-out")) >= 150


@pytest.mark.parametrize("split", SPLITS)
def test_every_fault_is_on_every_side_at_every_severity_and_in_all_its_dialects(split):
    severities = Counter((t.fault, t.dialects, t.severity) for t in side(split))
    for fault in FAULTS:
        ours = {dialects for name, dialects, _ in severities if name == fault}
        assert ours, fault
        assert all(severities[fault, dialects, level] for dialects in ours for level in (1, 2, 3)), fault
    assert {dialect for t in side(split) for dialect in t.dialects} == set(WRITERS)


def test_no_two_runs_have_one_place(tmp_path):
    folders = [training.folder(tmp_path, dialect) for training in PLAN for dialect in training.dialects]
    assert len(folders) == len(set(folders))


def test_a_corpus_goes_on_where_it_stopped_and_is_read_back(tmp_path):
    plan = [t for t in PLAN if t.fault == "lr-zero" and "trl-grpo" in t.dialects][:1]
    assert make(tmp_path, plan, jobs=1) == len(plan[0].dialects)
    (first, *_) = held = cases(tmp_path)
    stamp = first.log.stat().st_mtime_ns
    assert make(tmp_path, plan, jobs=1) == len(held)
    assert first.log.stat().st_mtime_ns == stamp
    assert {case.dialect for case in held} == set(plan[0].dialects)
    assert {(case.fault, case.cause, case.seed) for case in held} == {("lr-zero", "lr-zero", plan[0].seed)}


def test_a_log_that_is_not_of_the_plan_is_not_scored(tmp_path):
    plan = [t for t in PLAN if t.fault == "lr-zero" and "trl-grpo" in t.dialects][:1]
    make(tmp_path, plan, jobs=1)
    assert cases(tmp_path, [t for t in PLAN if t.fault == "nan-inf"]) == []


@pytest.mark.parametrize(
    ("fault", "severity"), [("nan-inf", 2), ("late-collapse", 3), ("lr-zero", 2), ("lr-zero", 3), ("no-grad-path", 1)]
)
def test_a_fault_begins_where_the_plan_says(fault, severity):
    training = next(t for t in PLAN if (t.fault, t.dialects) == (fault, ("sb3",)) and t.split == "training")
    made = {
        name: run(name, seed=training.seed, severity=level, updates=20, dialect="sb3", **overrides(training)).updates
        for name, level in ((fault, severity), ("healthy", None))
    }
    pairs = zip(made[fault], made["healthy"], strict=True)
    differs = next(index for index, (ours, theirs) in enumerate(pairs) if repr(ours) != repr(theirs))
    assert differs == pytest.approx(begins(fault, severity) * 20, abs=1)
