"""What a run cannot have is neither asked for nor listed as something that its log leaves open."""

from __future__ import annotations

import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.derive.foreign import OF_COMPLETIONS, OF_CRITICS, OF_STEPS, not_for
from ppo_doctor.diagnosis import assemble
from ppo_doctor.errors import DoctorError
from ppo_doctor.metrics import METRICS
from ppo_doctor.packfiles import build
from ppo_doctor.pipeline import diagnose
from ppo_doctor.rulepack import load_pack
from ppo_doctor.testing import case_run
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

PACK = load_pack()
COPIED, COPIES = "duplicate-generations", "duplicated-workers"


def a_run(algorithm="ppo", **series):
    return case_run({"name": "a", "algorithm": algorithm, "series": series})


STEPS = a_run(episode_return="1+0.05x19", entropy="1x20")
COMPLETIONS = a_run("grpo", response_length="9x20", entropy="1x20")
EITHER = a_run(reward_mean="1+0.05x19", entropy="1x20")


@pytest.mark.parametrize(
    ("run", "missing", "reason"),
    [
        (STEPS, "series.unique_fraction", "not for steps of episodes"),
        (STEPS, "series.grad_norm", None),
        (STEPS, "series.explained_variance", None),
        (COMPLETIONS, "series.action_std", "not for completions"),
        (COMPLETIONS, "series.explained_variance", "not for a run without a critic"),
        (COMPLETIONS, "fact.reward_trend", None),
        (EITHER, "series.unique_fraction", None),
        (EITHER, "series.action_std", None),
    ],
)
def test_what_is_missed(run, missing, reason):
    assert not_for(Observations(run), ("series.approx_kl", missing)) == reason


@pytest.mark.parametrize(("run", "gone"), [(STEPS, {COPIED}), (COMPLETIONS, {COPIES}), (EITHER, set())])
def test_what_is_not_ruled_out(run, gone):
    open_ones = {cause.id for cause in diagnose(run, PACK).not_ruled_out}
    assert {COPIED, COPIES} - open_ones == gone


@pytest.mark.parametrize(("run", "told"), [(STEPS, False), (COMPLETIONS, True), (EITHER, True)])
def test_a_cause_of_completions_is_none_of_episodes(run, told):
    rule = a_rule("one")
    pack = a_pack([rule], [a_cause("it", {"one": 30}, kind={"samples": "completions"})])
    assert bool(assemble(Observations(run), pack, [a_finding(rule, "fired")]).causes) is told


RULES = {rule.name: rule for rule in PACK.rules}
NO_ENGINE = case_run({"name": "a", "algorithm": "ppo", "framework": "torchtune", "series": {"response_length": "9x20"}})
DISCRETE = a_run(episode_return="1+0.05x19", entropy="0.6931x20")


@pytest.mark.parametrize(
    "run", [STEPS, COMPLETIONS, NO_ENGINE, DISCRETE], ids=["steps", "answers", "no engine", "choices"]
)
def test_a_cause_that_a_run_cannot_show_says_so(run):
    observations = Observations(run)
    kind = observations.kind

    def answerable(name):
        rule = RULES[name]
        return not kind.excludes(rule.kind) and not_for(observations, rule.needs) is None

    mute = []
    for cause in PACK.causes:
        speaking = {*cause.proof, *cause.needs, *(w.finding for w in cause.weights if w.fired > 0)} & RULES.keys()
        if not kind.excludes(cause.kind) and speaking and not any(map(answerable, speaking)):
            mute.append(cause.id)
    assert mute == []


def test_only_a_run_with_an_engine_or_versions_differs_from_one():
    kinds = {cause.id: cause.kind for cause in PACK.causes}
    lagging = a_run(episode_return="1+0.05x19", policy_lag="2x20")
    for name in ("rollout-trainer-mismatch", "is-mask-discards-batch"):
        assert Observations(STEPS).kind.excludes(kinds[name])
        assert Observations(lagging).kind.excludes(kinds[name]) is None
    for name in ("staleness-async", "weights-not-synced"):  # steps per generation, a collector with a copy
        assert Observations(STEPS).kind.excludes(kinds[name]) is None


def test_nobody_is_asked_for_what_the_run_cannot_have():
    for run, never in ((STEPS, OF_COMPLETIONS), (COMPLETIONS, OF_STEPS | OF_CRITICS)):
        lacking = [finding.missing for finding in diagnose(run, PACK).findings]
        assert not [names for names in lacking if not never.isdisjoint(names)]


def test_nothing_is_of_both_kinds():
    assert not OF_STEPS & OF_COMPLETIONS
    assert len((OF_STEPS | OF_COMPLETIONS | OF_CRITICS) & set(METRICS)) > 25


def test_a_kind_of_samples_that_there_is_not_is_refused():
    cause = dict.fromkeys(("id", "title", "family", "says"), "")
    cause |= {"severity": "high", "prior": "rare", "benign": False, "link": "ratio", "complaints": [], "remedy": []}
    with pytest.raises(DoctorError, match="samples"):
        build({"causes/c.toml": cause | {"samples": "pixels"}})
