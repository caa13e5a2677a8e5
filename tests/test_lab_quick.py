"""The scoreboard in small: a few dozen short runs of seeds of their own, judged as `make scoreboard` does.

A floor may be raised when rules get better. It is lowered only together with a reason.
"""

from __future__ import annotations

import pytest

from ppo_doctor.pipeline import Request, read_run
from tests.lab.corpus import Case, cases, make, quick
from tests.lab.figures import Score, score
from tests.lab.verdicts import Judged, built_in, verdict

PLAN = quick()
#: Faulty logs of each group whose cause is first, and first or level with the first. What is below is a regression.
FLOORS = {
    "canonical": (10, 11),
    "trl-grpo": (4, 6),
    "sb3": (3, 3),
    "cleanrl": (2, 2),
    "trl-ppo": (3, 3),
    "trl-ppo-legacy": (3, 3),
}


def scored(case: Case) -> Score:
    """Judge a log as it is: the scoreboard also judges it without its configuration, and while it grows."""
    whole = verdict(read_run(str(case.log), Request(debug=True)), built_in())
    return score(Judged(case=case, whole=whole, bare=None, told_after=None), whole, identifiable=False)


@pytest.mark.parametrize("group", PLAN)
def test_no_sound_run_is_alarmed_of_and_faults_are_named(tmp_path, group):
    make(tmp_path, PLAN[group], jobs=1)
    held = cases(tmp_path, PLAN[group])
    scores = [scored(case) for case in held]
    assert len(held) == sum(len(training.dialects) for training in PLAN[group])
    assert [(s.dialect, s.variant, s.alarms) for s in scores if s.benign and s.alarms] == []
    sick = [s for s in scores if not s.benign]
    missed = [(s.fault, s.dialect, s.said) for s in sick if not s.first]
    assert (sum(s.first for s in sick), sum(s.in_level_set for s in sick)) >= FLOORS[group], missed
    assert sum(s.in_level_set for s in sick) >= FLOORS[group][1], missed
