"""Who wrote a log: every key set gets its own profile, and no other."""

from __future__ import annotations

import random
import time

import pytest

from ppo_doctor.trainers import detection
from ppo_doctor.trainers.profiles import Keys

from .keysets import KeySet, keysets

#: A framework built on another is recognised by what it adds; an actor-critic with Q-values is also Q-learning.
NESTED = {("ms-swift", "trl-grpo"), ("unsloth", "trl-grpo"), ("td3", "dqn")}
BOOKKEEPING = ("_step", "_runtime", "_timestamp")


def found(keys: object) -> str | None:
    profile = detection.detect(keys)  # type: ignore[arg-type]
    return profile.name if profile else None


@pytest.mark.parametrize("log", keysets(), ids=str)
def test_a_key_set_gets_its_profile(log: KeySet) -> None:
    profile = detection.detect(log.keys)
    assert profile is not None
    assert (profile.name, profile.version) == (log.profile, log.version)
    if log.algorithm:
        assert profile.algorithm == log.algorithm
    assert found([*log.keys, *BOOKKEEPING]) == log.profile, "what a tracker adds changes nothing"
    assert found(list(reversed(log.keys))) == found(frozenset(log.keys)) == log.profile, "the order of keys counts"
    fitting = {name for name, profile in detection.profiles().items() if profile.fingerprint.fits(Keys(log.keys))}
    assert {(log.profile, other) for other in fitting - {log.profile}} <= NESTED


@pytest.mark.parametrize("log", [log for log in keysets() if detection.profile(log.profile).ppo_family], ids=str)
def test_every_key_of_a_framework_is_accounted_for_and_makes_no_other_algorithm(log: KeySet) -> None:
    profile = detection.profile(log.profile).resolved(log.keys)
    uses = profile.uses(log.keys)
    assert set(uses) == set(log.keys)
    assert {key for key, use in uses.items() if use == "unknown"} == profile.unknown(log.keys)
    assert profile.unknown(BOOKKEEPING) == frozenset()
    assert "mapped" in uses.values()
    assert not [name for name in OTHERS if detection.profile(name).fingerprint.fits(Keys(log.keys))]


def test_every_profile_that_keys_can_show_has_a_key_set() -> None:
    by_option_only = {"canonical", "trl-rloo"}
    assert {log.profile for log in keysets()} == set(detection.profiles()) - by_option_only


COLLISIONS = (
    ("CleanRL or PufferLib", ("losses/approx_kl", "losses/clipfrac", "charts/SPS"), "cleanrl"),
    ("PufferLib or CleanRL", ("losses/approx_kl", "losses/clipfrac", "agent_steps", "SPS"), "pufferlib"),
    ("PufferLib's zero", ("losses/approx_kl", "losses/clipfrac", "0verview/SPS"), "pufferlib-1"),
    ("train/ of Stable-Baselines3", ("train/approx_kl", "train/n_updates", "train/loss"), "sb3"),
    ("train/ of Sample Factory", ("train/kl_divergence", "train/loss", "train/value_loss"), "sample-factory"),
    ("train/ of torchrl", ("train/loss_objective", "train/loss_critic"), "torchrl"),
    ("train/ of Tianshou", ("train/reward", "update/loss/clip", "update/loss/vf"), "tianshou"),
    ("Loss/ of rsl_rl", ("Loss/surrogate", "Loss/value_function"), "rsl-rl"),
    ("Losses/ of ML-Agents", ("Losses/Policy Loss", "Losses/Value Loss"), "ml-agents"),
    ("losses/ of rl_games", ("losses/a_loss", "losses/c_loss", "losses/entropy"), "rl-games"),
    ("losses/ of trlX", ("losses/policy_loss", "losses/value_loss", "policy/sqrt_kl"), "trlx"),
    ("baselines without prefixes", ("approxkl", "clipfrac", "nupdates", "policy_loss"), "baselines-ppo2"),
    ("Stable Baselines", ("approxkl", "clipfrac", "n_updates", "policy_loss"), "stable-baselines"),
    ("TRL's names in open-instruct", ("policy/clipfrac_avg", "val/ratio", "training_step"), "open-instruct"),
    ("TRL's names in TRL", ("policy/clipfrac_avg", "policy/approxkl_avg", "val/ratio", "eps"), "trl-ppo"),
    ("verl's names in ROLL", ("actor/pg_loss@sum", "critic/score/mean", "critic/advantages/mean"), "roll"),
    ("verl's names in verl", ("actor/pg_loss", "critic/score/mean", "critic/advantages/mean"), "verl"),
    ("verl's names in slime", ("train/ppo_kl", "train/pg_clipfrac", "train/pg_loss"), "slime"),
    ("act_loss of OpenRLHF", ("act_loss", "act_lr", "kl", "gen_len"), "openrlhf"),
    ("act_loss of DeepSpeed-Chat", ("act_loss", "cri_loss", "ppo_ep"), "deepspeed-chat"),
    ("a Tune trial that is not RLlib's", ("training_iteration", "trial_id", "mean_accuracy"), None),
)


@pytest.mark.parametrize(("keys", "name"), [row[1:] for row in COLLISIONS], ids=[row[0] for row in COLLISIONS])
def test_names_that_frameworks_share(keys: tuple[str, ...], name: str | None) -> None:
    assert found(keys) == name


def test_half_a_log_is_no_other_ppo_framework() -> None:
    """What is left of a truncated log is recognised, or falls back to the likeness of names, or is a near relative."""
    relatives = {*NESTED, ("pufferlib", "cleanrl"), ("pufferlib-1", "cleanrl"), ("roll", "verl"), ("ml-agents", "sac")}
    relatives |= {("trl-grpo", "llama-factory"), ("trl-ppo", "open-instruct")}
    for log in keysets():
        kept = random.Random(log.name).sample(log.keys, max(1, len(log.keys) // 2))
        profile = detection.detect(kept)
        if profile is not None and profile.ppo_family and detection.profile(log.profile).ppo_family:
            allowed = {log.profile, "canonical", *(other for one, other in relatives if one == log.profile)}
            assert profile.name in allowed, log


def test_a_subset_with_peculiar_keys_is_recognised() -> None:
    assert found(["update/loss", "losses/importance"]) == "pufferlib"
    assert found(["ppo/val/clipfrac", "ppo/std_scores", "my/own"]) == "trl-ppo-legacy"
    assert found(["actor/pg_clipfrac_lower", "response_length/clip_ratio", "my/own"]) == "verl"


def test_names_that_anybody_may_choose_are_not_peculiar() -> None:
    assert found(["LR", "Entropy", "scores", "ratios", "kl"]) == "canonical"
    assert found(["train/approx_kl", "train/clip_fraction", "train/policy_loss"]) == "canonical"


def test_nothing_known_is_none() -> None:
    assert detection.detect([]) is None
    assert detection.detect(["accuracy", "images/seen", "current_steps"]) is None


def test_names_that_could_break_a_pattern() -> None:
    odd = ["[", "a*b", "new\nline", "", " ", "(", "%", "ü/ß", "a" * 5000, "train/approx_kl", "train/clip_range", "\\"]
    assert found(odd) == "sb3"
    assert detection.detect(["[", "*", "**", "\n"]) is None


def test_two_thousand_keys_take_no_time() -> None:
    keys = [f"val-aux/set{i}/reward/mean@{j}" for i in range(200) for j in range(10)]
    detection.detect(keys)
    start = time.process_time()
    assert detection.detect([*keys, "actor/pg_loss", "actor/ppo_kl"]) is not None
    assert time.process_time() - start < 0.5


class TestPatterns:
    KEYS = (
        "learners/__all_modules__/num_module_steps_trained",
        "learners/blue/mean_kl_loss",
        "learners/blue/num_module_steps_trained",
        "learners/red/mean_kl_loss",
        "learners/red/num_module_steps_trained",
    )

    def test_one_agent_is_chosen_and_the_others_are_named(self) -> None:
        profile = detection.detect(self.KEYS)
        assert profile is not None
        assert profile.metrics["approx_kl"].keys[0] == "learners/blue/mean_kl_loss"
        assert profile.further["approx_kl"] == ("learners/red/mean_kl_loss",)

    def test_the_sum_over_agents_is_nobodys(self) -> None:
        profile = detection.detect(self.KEYS)
        assert profile is not None
        assert profile.metrics["samples_trained"].keys[0] == "learners/blue/num_module_steps_trained"

    def test_patterns_without_a_key_are_gone(self) -> None:
        profile = detection.detect(self.KEYS)
        assert profile is not None
        assert "policy_loss" not in profile.metrics
        assert not any("*" in key for metric in profile.metrics.values() for key in metric.keys)

    def test_an_exact_name_comes_first(self) -> None:
        keys = ("learners/a/mean_kl_loss", "learners/default_policy/mean_kl_loss")
        profile = detection.detect(keys)
        assert profile is not None
        assert profile.metrics["approx_kl"].keys[0] == keys[1]

    def test_value_estimates_of_ml_agents(self) -> None:
        keys = ("Policy/Epsilon", "Policy/Beta", "Policy/Curiosity Value Estimate", "Policy/Extrinsic Value Estimate")
        profile = detection.detect(keys)
        assert profile is not None
        assert profile.metrics["values_mean"].keys[0] == "Policy/Extrinsic Value Estimate"


class TestVersions:
    def test_reward_std_of_trl_changed_its_meaning(self) -> None:
        old = detection.detect(["frac_reward_zero_std", "reward_std", "entropy", "reward"])
        new = detection.detect(["frac_reward_zero_std", "reward_std", "entropy", "reward", "step_time"])
        assert old is not None
        assert new is not None
        assert old.metrics["reward_std"].aggregation == "mean over groups"
        assert old.metrics["reward_group_std"].keys[0] == "reward_std"
        assert "reward_group_std" not in new.metrics

    def test_trl_before_0_20_penalises_the_kl_by_default(self) -> None:
        old = detection.detect(["completion_length", "reward_std", "kl"])
        assert old is not None
        assert old.defaults["kl_coef"] == 0.04
        assert detection.profile("trl-grpo").defaults["kl_coef"] == 0.0

    def test_verl_0_7_adds_losses_up(self) -> None:
        summed = detection.detect(["actor/pg_loss", "perf/mfu/actor_infer"])
        plain = detection.detect(["actor/pg_loss", "actor/loss", "perf/mfu/actor_infer"])
        assert summed is not None
        assert plain is not None
        assert summed.metrics["policy_loss"].aggregation == "sum over updates"
        assert plain.metrics["policy_loss"].aggregation == "all minibatches"

    def test_verl_of_2024_writes_its_learning_rate_in_units(self) -> None:
        profile = detection.detect(["actor/pg_loss", "actor/lr(1e-4)"])
        assert profile is not None
        assert profile.metrics["learning_rate"].scale == 1e-4

    def test_a_version_adds_its_traps(self) -> None:
        profile = detection.detect(["actor/pg_loss", "mfu/actor"])
        assert profile is not None
        assert any("walk the batch once" in trap for trap in profile.traps)
        assert not any("walk the batch once" in trap for trap in detection.profile("verl").traps)


OTHERS = sorted(name for name, profile in detection.profiles().items() if not profile.ppo_family)


@pytest.mark.parametrize("name", OTHERS)
def test_other_algorithms_are_named_and_have_no_metrics(name: str) -> None:
    profile = detection.profile(name)
    assert profile.algorithm == name
    assert not profile.metrics


def test_metrics_of_ones_own_beside_a_learning_rate_are_no_supervised_run() -> None:
    assert found(["loss", "learning_rate", "epoch", "grad_norm", "approx_kl"]) == "canonical"
    assert found(["loss", "learning_rate", "epoch", "grad_norm", "ratio_mean"]) == "canonical"


def test_the_port_of_stable_baselines_to_jax_is_a_version_with_other_meanings():
    names = ("pg_loss", "value_loss", "approx_kl", "clip_fraction", "clip_range", "learning_rate")
    profile = detection.detect([f"train/{name}" for name in names])
    assert profile is not None
    assert (profile.name, profile.config["desired_kl"], profile.config["target_kl"]) == ("sb3", ("target_kl",), ())
    assert profile.metrics["policy_loss"].keys == ("train/pg_loss",)
    assert profile.metrics["value_loss"].aggregation == "last minibatch"


@pytest.mark.parametrize(("keys", "estimator"), [(("approx_kl", "entropy"), "k3"), (("approx_kl", "pi_loss"), None)])
def test_what_another_trainer_estimates_its_kl_by_is_unknown(keys: tuple[str, ...], estimator: str | None) -> None:
    profile = detection.detect([*keys, "ratio_mean"])
    assert profile is not None and profile.name == "canonical"
    assert profile.metrics["approx_kl"].estimator == estimator


def test_one_key_in_common_names_no_framework() -> None:
    metrics = ["actor_loss", "reward_critic_loss", "reward", "mean_generated_length", "ptx_loss", "actor_lr"]
    assert found(["train/kl_divergence", *(f"train/{name}" for name in metrics)]) == "canonical"
    assert (
        found(["actor_grad_norm", "policy_loss", "dist_entropy", "ratio", "value_loss", "episode_reward"])
        == "canonical"
    )
