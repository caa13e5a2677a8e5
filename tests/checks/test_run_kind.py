"""The kind of a run by several witnesses; what is for another kind is neither judged nor asked for."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.engine import run_rules
from ppo_doctor.checks.rulepack import build, load_pack
from ppo_doctor.checks.run_kind import OF_COMPLETIONS, OF_CRITICS, OF_STEPS, not_for
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.diagnosis.diagnosis import assemble
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.kinds import FACETS, Facet, Witness
from ppo_doctor.model.metrics import METRICS
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

PENDULUM = {"env_id": "Pendulum-v1"}


def kind(framework="canonical", algorithm="ppo", config=None, **series):
    case = {"name": "a", "framework": framework, "algorithm": algorithm, "series": series, "config": config or {}}
    return RunView(case_run(case)).kind


@pytest.mark.parametrize(
    ("told", "samples"),
    [
        ({"framework": "sb3", "approx_kl": "0.01x9"}, "episodes"),
        ({"framework": "verl", "approx_kl": "0.01x9"}, "completions"),
        ({"response_length": "90x9"}, "completions"),
        ({"episode_return": "1x9"}, "episodes"),
        ({"config": {"num_envs": 4}}, "episodes"),
        ({"config": {"num_generations": 4}}, "completions"),
        ({"config": {"max_prompt_length": 64}, "episode_return": "1x9"}, "completions"),
        # what somebody calls the length of an episode
        ({"config": PENDULUM, "response_length": "200x9"}, "episodes"),
        ({"response_length": "200x9", "action_std": "0.6x9"}, "episodes"),
        ({"response_length": "200x9", "entropy": "-0.5x9"}, "episodes"),
        # a log in the manner of a trainer of language models
        ({"framework": "verl", "config": PENDULUM, "response_length": "200x9"}, "episodes"),
        # two that only speak, and two that are sure, contradict each other
        ({"response_length": "200x9", "episode_return": "1x9"}, None),
        ({"config": {"max_prompt_length": 64}, "action_std": "0.6x9"}, None),
        ({"entropy": "1x9"}, None),
    ],
)
def test_samples(told, samples):
    assert kind(**told).samples.value == samples


@pytest.mark.parametrize(
    ("told", "actions"),
    [
        ({"response_length": "90x9"}, "discrete"),
        ({"action_std": "0.6x9"}, "continuous"),
        ({"entropy": "-0.5x9"}, "continuous"),
        ({"config": PENDULUM}, "continuous"),
        ({"config": {"env_id": "CartPole-v1"}}, "discrete"),
        ({"config": {"env": "LunarLanderContinuous-v3"}}, "continuous"),
        ({"config": {"task": "reach the goal"}}, None),
        ({"config": {"has_continuous_action_space": False}}, "discrete"),
        ({"config": {"policy": "Gaussian_AC"}}, "continuous"),
        ({"framework": "sb3", "entropy": f"{math.log(4)}x9"}, "discrete"),
        ({"framework": "sb3", "entropy": "1.4189x9"}, "continuous"),
        ({"framework": "sb3", "entropy": "2.836x9"}, None),  # ln 17, and two Gaussians
        ({"framework": "sb3", "action_std": "nanx9"}, "discrete"),
        ({"config": {"env_id": "CartPole-v1"}, "entropy": "0.6x5 1.2x4"}, None),  # two actions allow 0.69 nats
        ({"entropy": "1.4189x9"}, None),
    ],
)
def test_actions(told, actions):
    assert kind(**told).actions.value == actions


@pytest.mark.parametrize(
    ("told", "critic"),
    [
        ({"value_loss": "1x9"}, "yes"),
        ({"algorithm": "grpo", "entropy": "1x9"}, "no"),
        ({"config": {"advantage_estimator": "rloo"}}, "no"),
        ({"config": {"advantage_estimator": "gae"}}, "yes"),
        ({"entropy": "1x9"}, None),
    ],
)
def test_critic(told, critic):
    assert kind(**told).critic.value == critic


@pytest.mark.parametrize(
    ("told", "engine"),
    [
        ({"rollout_logp_diff": "0.01x9"}, "yes"),
        ({"framework": "sb3", "approx_kl": "0.01x9"}, "no"),
        ({"framework": "trl-grpo", "config": {"use_vllm": False}}, "no"),
        ({"framework": "trl-grpo", "config": {"use_vllm": True, "vllm_mode": "colocate"}}, "yes"),
        ({"framework": "verl", "config": {"actor_rollout_ref.rollout.name": "sglang"}}, "yes"),
        ({"framework": "openrlhf", "config": {"vllm_num_engines": 0}}, "no"),
        ({"entropy": "1x9"}, None),
    ],
)
def test_rollout_engine(told, engine):
    assert kind(**told).rollout_engine.value == engine


def test_what_contradicts_is_told():
    told = kind(config=PENDULUM, response_length="200x9").samples
    assert [witness.value for witness in told.contradicting] == ["completions"]
    assert "response_length" in told.says.partition("against it")[2]


def test_a_stronger_witness_outweighs_any_number_of_others():
    guesses = tuple(Witness(value="completions", says=str(i)) for i in range(9))
    facet = Facet(name="samples", witnesses=(*guesses, Witness(value="episodes", says="sure", strength=2)))
    assert (facet.value, facet.strength, len(facet.contradicting)) == ("episodes", 2, 9)
    assert Facet(name="samples", witnesses=guesses).value == "completions"
    assert Facet(name="samples").value is None


def test_only_what_is_known_excludes():
    control, unknown = kind(config=PENDULUM), kind(entropy="1x9")
    assert control.excludes({"samples": "completions"}) == "not for steps of episodes"
    assert control.excludes({"samples": "episodes", "actions": "continuous"}) is None
    assert control.excludes({"actions": "discrete", "critic": "yes"}) == "not for continuous actions"
    assert unknown.excludes(dict.fromkeys(("critic", "rollout_engine"), "no")) is None


def test_facets_are_facts():
    seen = RunView(case_run({"name": "a", "config": PENDULUM, "series": {"value_loss": "1x9"}}))
    assert {name: seen.fact(name).value for name in FACETS} == {
        "samples": "episodes",
        "actions": "continuous",
        "critic": "yes",
        "rollout_engine": "no",
    }
    assert seen.fact("completions").value == 0


def test_a_check_of_completions_is_not_made_on_steps_of_episodes():
    run = case_run({"name": "a", "config": PENDULUM, "series": {"response_length": "200x30", "entropy": "2x30"}})
    found = {finding.rule: finding for finding in run_rules(RunView(run), load_pack().rules)}
    assert found["answers-longer-than-sampled"].reason == "not for steps of episodes"


def test_one_word_gates_a_rule():
    rule = a_rule("of-a-gaussian", kind={"actions": "continuous"})
    seen = RunView(case_run({"name": "a", "config": {"env_id": "CartPole-v1"}, "series": {"entropy": "0.6x30"}}))
    [found] = run_rules(seen, [rule])
    assert found.reason == "not for discrete actions"


def test_a_word_that_no_facet_has_is_refused():
    rule = dict.fromkeys(("code", "name", "title", "pass_title"), "X") | {"link": "ratio", "severity": "low"}
    rule |= {"doc": {}, "cases": {}, "when": [], "actions": "stepwise"}
    with pytest.raises(DoctorError, match="actions"):
        build({"policy/x.toml": rule})


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
        (STEPS, "unique_fraction", "not for steps of episodes"),
        (STEPS, "grad_norm", None),
        (STEPS, "explained_variance", None),
        (COMPLETIONS, "action_std", "not for completions"),
        (COMPLETIONS, "explained_variance", "not for a run without a critic"),
        (COMPLETIONS, "reward_trend", None),
        (EITHER, "unique_fraction", None),
        (EITHER, "action_std", None),
    ],
)
def test_what_is_missed(run, missing, reason):
    assert not_for(RunView(run), ("approx_kl", missing)) == reason


@pytest.mark.parametrize(("run", "gone"), [(STEPS, {COPIED}), (COMPLETIONS, {COPIES}), (EITHER, set())])
def test_what_is_not_ruled_out(run, gone):
    open_ones = {cause.id for cause in diagnose(run, PACK).not_ruled_out}
    assert {COPIED, COPIES} - open_ones == gone


@pytest.mark.parametrize(("run", "told"), [(STEPS, False), (COMPLETIONS, True), (EITHER, True)])
def test_a_cause_of_completions_is_none_of_episodes(run, told):
    rule = a_rule("one")
    pack = a_pack([rule], [a_cause("it", {"one": 30}, kind={"samples": "completions"})])
    assert bool(assemble(RunView(run), pack, [a_finding(rule, "fired")]).causes) is told


RULES = {rule.name: rule for rule in PACK.rules}


NO_ENGINE = case_run({"name": "a", "algorithm": "ppo", "framework": "torchtune", "series": {"response_length": "9x20"}})


DISCRETE = a_run(episode_return="1+0.05x19", entropy="0.6931x20")


@pytest.mark.parametrize(
    "run", [STEPS, COMPLETIONS, NO_ENGINE, DISCRETE], ids=["steps", "answers", "no engine", "choices"]
)
def test_a_cause_that_a_run_cannot_show_says_so(run):
    view = RunView(run)
    kind = view.kind

    def answerable(name):
        rule = RULES[name]
        return not kind.excludes(rule.kind) and not_for(view, rule.needs) is None

    mute = []
    for cause in PACK.causes:
        speaking = {*cause.proof, *cause.needs, *(w.finding for w in cause.weights if w.fired > 0)} & RULES.keys()
        if not kind.excludes(cause.kind) and speaking and not any(map(answerable, speaking)):
            mute.append(cause.id)
    assert mute == []


def test_only_a_run_with_an_engine_or_versions_differs_from_one():
    kinds = {cause.id: cause.kind for cause in PACK.causes}
    lagging = a_run(episode_return="1+0.05x19", policy_lag="2x20")
    assert RunView(STEPS).kind.excludes(kinds["is-mask-discards-batch"])
    assert RunView(lagging).kind.excludes(kinds["is-mask-discards-batch"]) is None
    # answers are generated by other code than the update's, with an engine or without; actions are not
    assert RunView(STEPS).kind.excludes(kinds["rollout-trainer-mismatch"])
    assert RunView(NO_ENGINE).kind.excludes(kinds["rollout-trainer-mismatch"]) is None
    for name in ("staleness-async", "weights-not-synced"):  # steps per generation, a collector with a copy
        assert RunView(STEPS).kind.excludes(kinds[name]) is None


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
