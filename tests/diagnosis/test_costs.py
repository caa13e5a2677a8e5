"""What a crossed guard-rail costs: the share that the log counts, and nothing where it counts none."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.findings import COSTS, costs
from ppo_doctor.testing import case_run
from tests.synthetic import a_finding, a_rule


def run_of(**series):
    return case_run({"series": series})


@pytest.mark.parametrize("rule", COSTS)
def test_the_share_is_the_mean_over_the_run(rule):
    metric, _ = COSTS[rule]
    told = costs([a_finding(a_rule(rule))], run_of(**{metric: "0.2x4 0.6x4"}))
    assert told[rule].share == pytest.approx(0.4)


def test_records_without_a_number_count_for_nothing():
    told = costs([a_finding(a_rule("clipped-much"))], run_of(clip_fraction="0.5x4 nanx4"))
    assert told["clipped-much"].share == pytest.approx(0.5)


def test_nothing_is_told_of_what_is_not_counted_or_not_crossed():
    clipped = a_rule("clipped-much")
    assert costs([a_finding(clipped)], run_of(entropy="1x9")) == {}
    assert costs([a_finding(clipped)], run_of(clip_fraction="nanx9")) == {}
    assert costs([a_finding(clipped, "clear")], run_of(clip_fraction="0.5x9")) == {}
    assert costs([a_finding(a_rule("other"))], run_of(clip_fraction="0.5x9")) == {}


def test_every_check_with_a_cost_exists():
    assert set(COSTS) <= set(load_pack().by_name)
