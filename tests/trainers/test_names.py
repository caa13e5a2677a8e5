"""Names of unknown frameworks: what is clear is mapped, what could mislead is not."""

from __future__ import annotations

import pytest

from lab.names import of_profiles
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.detection import near_misses
from ppo_doctor.trainers.names import (
    aliases,
    clocks,
    is_settings,
    metric_of,
    of_groups,
    of_language,
    parse,
    setting_of,
    siblings,
)
from ppo_doctor.trainers.phrases import SETTINGS
from ppo_doctor.trainers.settings import SETTINGS as KNOWN_SETTINGS

MEANT = (
    ("Train/ApproxKL", "approx_kl"),
    ("GaussianMLPPolicy/LossAfter", "policy_loss"),
    ("avgR", "episode_return"),
    ("avg_G", "episode_return"),
    ("val/rho_drop_frac", "masked_fraction"),
    ("reward/avg_reward_sample", "reward_mean"),
    ("reward_env_3", "reward_mean"),
    ("PPOClip/EntropyRegularizer/beta", "entropy_coef"),
    ("avgS", "episode_length"),
    ("objC", "value_loss"),
    ("Total num frames", "env_steps"),
    ("mean_gen_tokens_per_sample", "response_length"),
    ("value_loss_unclipped", "value_loss_unclipped"),
    ("actor/clip_frac", "clip_fraction"),
    ("mean_reward", "reward_mean"),
    ("train_R_avg", "reward_mean"),
    ("stdR", "reward_std"),
    ("Mean reward over last 100 episodes", "episode_return"),
    ("objC", "value_loss"),
    ("10 score avgs", "reward_mean"),
    ("5 fitness avgs", "eval_return"),
    ("Timesteps So Far", "env_steps"),
    ("Average undiscounted return per training episode", "episode_return"),
    ("ppo_kl", "approx_kl"),
    ("agent_0/policy_loss", "policy_loss"),
    ("Loss/policy", "policy_loss"),
    ("losses.value", "value_loss"),
    ("loss/entropy", "entropy"),
    ("Loss / Policy loss", "policy_loss"),
    ("critic/loss", "value_loss"),
    ("critic/advantages/mean", "advantages_mean"),
    ("critic/score/mean", "reward_mean"),
    ("advantages/std", "advantages_std"),
    ("reward/max", "reward_max"),
    ("ratio/max", "ratio_max"),
    ("ratio_max", "ratio_max"),
    ("Episode Return", "episode_return"),
    ("ep_rew_mean", "episode_return"),
    ("mean 100 episode reward", "episode_return"),
    ("eval/mean_reward", "eval_return"),
    ("eval_reward", "eval_return"),
    ("test/return", "eval_return"),
    ("explained_var", "explained_variance"),
    ("Policy LR", "learning_rate"),
    ("actor_lr", "learning_rate"),
    ("GradNorm", "grad_norm"),
    ("Grad Norm (L2)", "grad_norm"),
    ("entropy [nats]", "entropy"),
    ("KL", "approx_kl"),
    ("kl_ref", "ref_kl"),
    ("old_approx_kl", "approx_kl_k1"),
    ("critic/grad_norm", "critic_grad_norm"),
    ("grad_norm_actor", "grad_norm"),
    ("param_delta_actor", "update_norm"),
    ("Train/StopIter", "epochs_executed"),
    ("critic/lr", "critic_learning_rate"),
    ("learning_rate_critic", "critic_learning_rate"),
    ("response_length/clip_ratio", "truncated_fraction"),
    ("max 100 episode reward", "episode_return_max"),
    ("sampling/importance_sampling_ratio/max", "rollout_ratio_max"),
    ("clip_ratio/high_mean", "clip_fraction_high"),
    ("rewards/iter", "reward_mean"),
    ("AverageVVals", "values_mean"),
    ("Loss/value_function", "value_loss"),
    ("clip_ratio", "clip_fraction"),
    ("time/total_timesteps", "env_steps"),
    ("num_env_steps_sampled_lifetime", "env_steps"),
    ("update/gradient_steps", "optimizer_steps"),
    ("train/optim_steps", "optimizer_steps"),
    ("time/iterations", "iteration"),
    ("train/clip_range_vf", "clip_range_vf"),
    ("trainer/weight_version", "policy_version"),
    ("rollout/weights_version", "rollout_version"),
    ("diff_num_grad_updates_vs_sampler_policy", "policy_lag"),
    ("train/reward_with_kl_penalty", "reward_total"),
    ("train/reward_critic_lr", "critic_learning_rate"),
    ("imp_weights", "ratio_mean"),
    ("sampler_is/weight_max", "rollout_ratio_max"),
    ("length_clip_ratio", "truncated_fraction"),
    ("advantages/old_values/mean", "values_mean"),
    ("actor/old_ref_approx_kl", "ref_kl"),
    ("norm_updates", "update_norm"),
    ("env_runners/weights_seq_no", "rollout_version"),
    ("charts/SPS", "fps"),
    ("adv_raw_mean", "advantages_raw_mean"),
    ("adv_norm_std", "advantages_std"),
    ("param_delta_critic", "critic_update_norm"),
    ("val/clipfrac_avg", "value_clip_fraction"),
    ("generate/avg_num_tokens", "response_length"),
    ("adaptive_kl_beta", "kl_coef"),
    ("train/critic_target_std", "returns_std"),
    ("optim/kl_sample_train_v1", "rollout_kl"),
)
NOT_MEANT = (
    "time/kl_something",
    "time/policy_loss",
    "timing_s/entropy",
    "perf/grad_norm",
    "value/entropy",
    "discriminator/loss",
    "target_kl",
    "config/learning_rate",
    "reward_model_loss",
    "eval/entropy",
    "val/policy_loss",
    "eval/reward_std",
    "test_loss",
    "kl_time",
    "entropy_coef_lr",
    "loss_scale_window",
    "episode_reward_std",
    "",
    "/",
    "()",
    "timers/training_iteration",
    "std",
    "next/state_value",
    "version",
    "early_stop_epoch",
    "exploration_loss",
    "actor/reward_kl_penalty",
    "critic/rewards/max_allowed",
    "foo",
    "100",
)


@pytest.mark.parametrize(("key", "name"), MEANT)
def test_what_a_name_means(key: str, name: str) -> None:
    assert metric_of(key) == name


@pytest.mark.parametrize("key", NOT_MEANT)
def test_what_a_name_does_not_mean(key: str) -> None:
    assert metric_of(key) is None


@pytest.mark.parametrize("key", ["eval_reward", "test/mean_reward", "val_reward"])
def test_evaluation_is_not_training(key: str) -> None:
    assert metric_of(key) == "eval_return"


@pytest.mark.parametrize("actor", ["grad_norm_actor", "train/policy_grad_norm", "actor/grad_norm"])
def test_norms_of_parts_stand_beside_that_of_the_whole(actor):
    critic = actor.replace("actor", "critic").replace("policy", "value")
    parts = {actor: "grad_norm", critic: "critic_grad_norm"}
    assert aliases(parts) == parts
    assert aliases([*parts, "grad_norm"]) == parts | {actor: "actor_grad_norm", "grad_norm": "grad_norm"}
    assert aliases(parts, beside=[*parts, "grad_norm"]) == parts | {actor: "actor_grad_norm"}


def test_a_bare_kl_is_the_references_where_completions_are_trained_on() -> None:
    assert metric_of("kl") == "approx_kl"
    assert metric_of("kl", language=True) == "ref_kl"
    profile = detection.detect(["kl", "policy_loss", "response_tokens"])
    assert profile is not None
    assert profile.fuzzy == {"kl": "ref_kl"}


def test_the_policys_update_is_preferred_to_that_of_all_parameters() -> None:
    assert aliases(["param_delta_norm", "param_delta_actor"]) == {"param_delta_actor": "update_norm"}
    assert aliases(["param_delta_norm"]) == {"param_delta_norm": "update_norm"}


def test_a_folder_of_the_actor_does_not_make_all_in_it_the_policys_alone() -> None:
    whole, own = "actor/param_delta_norm", "actor/param_delta_policy"
    assert aliases([whole, own]) == {own: "update_norm"}
    norms = ["actor/grad_norm", "actor/grad_norm_policy"]
    assert aliases(norms) == {norms[0]: "grad_norm", norms[1]: "actor_grad_norm"}


def test_detection_extends_the_canonical_profile() -> None:
    profile = detection.detect(
        ["Train/ApproxKL", "Train/policy_loss", "Eval/reward", "Train/iteration", "what/is/this"]
    )
    assert profile is not None
    assert profile.name == "canonical"
    assert profile.fuzzy == {
        "Train/ApproxKL": "approx_kl",
        "Train/policy_loss": "policy_loss",
        "Eval/reward": "eval_return",
        "Train/iteration": "iteration",
    }
    assert profile.metrics["approx_kl"].keys == ("Train/ApproxKL",)
    assert profile.metrics["approx_kl"].estimator is None
    assert "Train/iteration" in profile.axis["step"]
    assert profile.unknown(["Train/ApproxKL", "what/is/this"]) == {"what/is/this"}


def test_a_name_written_in_full_beats_a_likeness() -> None:
    profile = detection.detect(["approx_kl", "Train/ApproxKL"])
    assert profile is not None
    assert not profile.fuzzy
    assert profile.metrics["approx_kl"].estimator == "k3"


def test_of_several_likenesses_the_plainest_is_taken() -> None:
    profile = detection.detect(["a/b/c/policy_loss", "actor/policy_loss", "policyloss"])
    assert profile is not None
    assert profile.fuzzy == {"policyloss": "policy_loss"}


def test_the_fallback_does_not_leak_into_the_profile() -> None:
    detection.detect(["Train/ApproxKL"])
    assert detection.profile("canonical").metrics["approx_kl"].keys == ("approx_kl",)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("clip_fracton", "clip_fraction"),
        ("actor/ppokl", "actor/ppo_kl"),
        ("train/aprox_kl", "train/approx_kl"),
        ("explained_varience", "explained_variance"),
        ("frac_reward_zerostd", "frac_reward_zero_std"),
    ],
)
def test_near_misses(key: str, expected: str) -> None:
    assert expected in near_misses(key, n=5)


def test_nothing_is_near_to_nonsense() -> None:
    assert near_misses("zzzzqqqq") == ()
    assert near_misses("") == ()


def test_near_misses_are_few_and_never_the_key() -> None:
    assert len(near_misses("policy_los", n=2)) == 2
    assert "approx_kl" not in near_misses("approx_kl")


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("train_reward", "reward_mean"),
        ("train_return", "episode_return"),
        ("mean_reward_100", "reward_mean"),
        ("avg_reward_last_100", "reward_mean"),
        ("running_reward", "episode_return"),
        ("reward_mean_raw", "reward_mean"),
        ("policy_losses", "policy_loss"),
        ("kl_divergences", "approx_kl"),
        ("train_distance", None),
        ("trainer", None),
    ],
)
def test_what_scripts_call_what_they_collect(key, metric):
    assert metric_of(key) == metric


@pytest.mark.parametrize(
    ("keys", "kl"),
    [
        (["kl", "policy_loss", "response_length"], "ref_kl"),
        (["kl_divergence", "loss", "reward_mean", "reward_std"], "ref_kl"),
        (["kl", "clip_frac", "adv_std", "lr"], "ref_kl"),
        (["kl", "policy_loss", "value_loss", "reward_std"], "approx_kl"),
        (["kl", "loss", "episode_return", "reward_std"], "approx_kl"),
        (["kl", "loss", "reward_mean"], "approx_kl"),
    ],
)
def test_a_bare_kl_without_a_critic_is_the_references(keys: list[str], kl: str) -> None:
    profile = detection.detect(keys)
    assert profile is not None
    assert profile.fuzzy[keys[0]] == kl


def test_names_of_frameworks_are_read_without_their_profiles() -> None:
    answers = [asked.answer for asked in of_profiles(detection.profiles())]
    assert len(answers) > 500
    assert answers.count("right") + answers.count("vaguer") >= 0.9 * len(answers)
    assert answers.count("wrong") <= 0.01 * len(answers)


def test_a_metric_is_called_by_its_own_name_or_by_none() -> None:
    found = {name: metric_of(name, language=True) for name in METRICS}
    wrong = {name: other for name, other in found.items() if other not in (name, None)}
    assert wrong.keys() == {"actor_grad_norm"}, "by itself the policy's norm stands for that of the whole"


def test_a_name_tells_its_parse() -> None:
    name = parse("critic/grad_norm_max")
    assert name.slot("quantity") == ("gradient", "norm")
    assert name.slot("part") == ("critic",)
    assert name.slot("statistic") == ("max",)
    assert parse("losses/approx_kl_k3").slot("estimator") == ("approx", "k3")
    assert parse("entropy_bonus_foo").unknown == ("foo",)


def test_what_a_profile_leaves_over_is_read_by_its_meaning() -> None:
    keys = ["train/approx_kl", "train/n_updates", "train/grad_norm", "rollout/ep_rew_max", "rollout/foo", "time/fps"]
    profile = detection.detect(keys)
    assert profile is not None
    assert profile.name == "sb3"
    assert profile.fuzzy == {"train/grad_norm": "grad_norm", "rollout/ep_rew_max": "episode_return_max"}
    uses = profile.uses(keys)
    assert uses["train/approx_kl"] == "mapped"
    assert uses["train/grad_norm"] == "guessed"
    assert uses["rollout/foo"] == "unknown"


@pytest.mark.parametrize(
    ("key", "setting"),
    [
        ("clip_epsilon", "clip_range"),
        ("loss.clip_eps", "clip_range"),
        ("frames_per_batch", "rollout_size"),
        ("lmbda", "gae_lambda"),
        ("discount", "gamma"),
        ("entropy_coeff", "ent_coef"),
        ("critic_lr", "critic_learning_rate"),
        ("critic.lr", "critic_learning_rate"),
        ("num_train_epochs", None),
        ("total_timesteps", None),
        ("eval.temperature", None),
        ("seed", None),
        ("epoch", None),
        ("K_epochs", "ppo_epochs"),
        ("PPO K epochs", "ppo_epochs"),
        ("max_optimization_epochs", "ppo_epochs"),
        ("num_env_steps", None),
        ("num_mini_batch", "num_minibatches"),
        ("ppo_clipping_epsilon", "clip_range"),
        ("likelihood_ratio_clipping", "clip_range"),
        ("lr_clip_range", "clip_range"),
        ("gae_tau", "gae_lambda"),
        ("discount factor (gamma)", "gamma"),
        ("entropy_loss_scaling", "ent_coef"),
        ("lambda_entropy", "ent_coef"),
        ("use_adv_norm", "normalize_advantages"),
        ("init_kl_coef", "kl_coef"),
        ("trainer.reinforce.gradient_clip_val", "max_grad_norm"),
        ("num_samples_per_prompt", "num_generations"),
        ("system.actor_lr", "learning_rate"),
        ("args.lr", "learning_rate"),
        ("rnd.lr", None),
        ("clip_range_schedule.initial", "clip_range"),
        ("clip_range_schedule.final", None),
        ("target_kl", "target_kl"),
        ("kl_div.target_kl", "ref_kl_target"),
        ("kl_ctl.target", "ref_kl_target"),
        ("kl_div.coeff", "kl_coef"),
        ("entropy_coef_spec.start_val", "ent_coef"),
        ("clip_eps_spec.start_val", "clip_range"),
        ("clip_eps_spec.end_val", None),
        ("INIT_HP.VF_COEF", "vf_coef"),
        ("opti_eps", "adam_eps"),
        ("max_norm", "max_grad_norm"),
        ("lr_decay_epochs", "schedule_steps"),
        ("scheduler.lr_anneal_steps", "schedule_steps"),
        ("weight_decay", None),
        ("reward_scaling", "reward_scale"),
        ("env.reward_scale", "reward_scale"),
    ],
)
def test_what_a_setting_means(key: str, setting: str | None) -> None:
    assert setting_of(key) == setting


def test_settings_are_canonical() -> None:
    assert set(SETTINGS) <= set(KNOWN_SETTINGS)
    assert all(setting_of(name) in (name, None) for name in SETTINGS)


def test_times_of_the_machine_count_no_steps() -> None:
    assert clocks(["timers/training_step", "training_iteration", "policy_loss"]) == ("training_iteration",)


def test_beside_an_episodes_return_a_bare_one_is_the_critics() -> None:
    assert aliases(["charts/episodic_return", "returns/mean"])["returns/mean"] == "returns_mean"
    assert aliases(["returns/mean"])["returns/mean"] == "episode_return"


def test_a_return_beside_advantages_is_the_critics_only_if_the_log_has_another_reward() -> None:
    batch = ["adv_mean", "adv_std", "ret_mean", "len_mean"]
    assert {"ret_mean": "episode_return", "len_mean": "episode_length"}.items() <= aliases(batch).items()
    assert aliases([*batch, "reward_mean"])["ret_mean"] == "returns_mean"


def test_answers_to_a_prompt_are_compared_where_nothing_speaks_of_a_critic() -> None:
    assert of_groups(["reward", "reward_std", "frac_reward_zero_std", "completions/mean_length"])
    assert not of_groups(["reward", "reward_std", "value_loss"])


@pytest.mark.parametrize(
    ("key", "held", "found"),
    [
        ("reward_0", ("reward_0", "reward_1", "reward_2"), 3),
        ("worker_1/return", ("worker_1/return", "worker_2/return"), 2),
        ("agent0/entropy", ("agent0/entropy", "agent1/entropy"), 2),
        ("reward_10", ("reward_10", "reward_100"), 0),
        ("reward_0", ("reward_0", "reward_2"), 0),
        ("kl_k1", ("kl_k1", "kl_k2"), 0),
    ],
)
def test_columns_that_differ_in_a_number_are_one_quantity(key: str, held: tuple[str, ...], found: int) -> None:
    assert len(siblings(key, held)) == found


def test_a_record_of_settings_is_none_of_metrics() -> None:
    assert is_settings(["learning_rate", "clip_range", "gamma", "n_epochs", "seed"])
    assert not is_settings(["learning_rate", "clip_range", "entropy_coef"])
    assert not is_settings(["learning_rate", "gamma", "n_epochs", "policy_loss"])


@pytest.mark.parametrize(("key", "name"), [("Value/reward", "values_mean"), ("critic/rewards/mean", "reward_mean")])
def test_a_reward_of_values_is_the_critic_s_and_one_of_a_critic_s_group_is_not(key, name):
    assert metric_of(key) == name


def test_log_probs_of_a_reference_tell_that_completions_are_trained_on() -> None:
    assert of_language(["rollout/ep_rew", "rollout/kl_div_mean", "rollout/ref_log_prob"])
    assert not of_language(["rollout/ep_rew", "rollout/kl_div_mean", "rollout/log_prob"])


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("Actor_loss/train", "policy_loss"),
        ("avg_ep_rews/train", "episode_return"),
        ("return/eval", "eval_return"),
        ("reward/test", "eval_return"),
        ("policy/train", None),
    ],
)
def test_what_stands_last_may_be_the_data(key, metric):
    assert metric_of(key) == metric


@pytest.mark.parametrize(
    "key",
    [
        *(
            "eval_accuracy",
            "eval/success_rate",
            "test_acc",
            "test accuracy",
            "val/acc",
            "eval/pass@1",
            "eval/solve_rate",
        ),
        *("eval/solve_rate", "eval/mean_reward", "validation/reward"),
    ],
)
def test_every_score_of_an_evaluation_is_one(key):
    assert metric_of(key) == metric_of(key, language=True) == "eval_return"


def test_a_score_of_training_is_none_of_an_evaluation():
    assert metric_of("success_rate") == "success_rate"
    assert metric_of("train_accuracy") is None


CHINESE = (
    ("平均奖励", "mean reward"),
    ("累计奖励", "cumulative_reward"),
    ("回报", "return"),
    ("策略损失", "policy_loss"),
    ("训练/价值网络损失", "train/value_loss"),
    ("熵", "entropy"),
    ("近似KL散度", "approx_kl"),
    ("裁剪比例", "clip_fraction"),
    ("学习率", "learning_rate"),
    ("平均优势", "advantages_mean"),
    ("解释方差", "explained_variance"),
    ("梯度范数", "grad_norm"),
    ("回合长度", "episode_length"),
    ("测试奖励", "eval_reward"),
    ("獎勵標準差", "reward_std"),
)


@pytest.mark.parametrize(("key", "english"), CHINESE)
def test_chinese_keys_are_read_as_english_ones_are(key, english):
    assert metric_of(english) is not None
    assert metric_of(key) == metric_of(english)


@pytest.mark.parametrize("key", ["判别器损失", "剩余时间", "显存", "股票损失"])
def test_a_chinese_word_that_nobody_knows_is_not_guessed(key):
    assert metric_of(key) is None


def test_chinese_steps_are_a_clock_and_settings_are_settings():
    assert clocks(["步数", "熵"]) == ("步数",)
    assert (setting_of("裁剪系数"), setting_of("折扣因子")) == ("clip_range", "gamma")
