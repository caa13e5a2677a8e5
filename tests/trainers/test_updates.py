"""K by formula: the documented defaults of every framework, and the kinds of rounding."""

from __future__ import annotations

import pytest

from ppo_doctor.model.run import SourceRef
from ppo_doctor.trainers import configuration, detection, updates
from ppo_doctor.trainers.updates import FUNCTIONS, configured_updates, deciding_setting


def planned(name: str, **settings: float) -> tuple[float, str] | None:
    profile = detection.profile(name)
    found = configuration.Found(values=settings, source=SourceRef(path="config.json"))
    fact = configured_updates(profile, configuration.canonical_settings(profile, [found]))
    return (float(str(fact.value)), fact.how) if fact else None


DEFAULTS = (
    ("sb3", 320),
    ("cleanrl", 16),
    ("rllib", 938),
    ("rllib-old", 930),
    ("skrl", 16),
    ("torch-ac", 32),
    ("ppo-for-beginners", 5),
    ("rsl-rl", 20),
    ("sample-factory", 1),
    ("ml-agents", 30),
    ("pufferlib-1", 8),
    ("torchrl", 320),
    ("brax", 32),
    ("spinningup", 80),
    ("baselines-ppo2", 16),
    ("baselines-ppo1", 320),
    ("stable-baselines", 16),
    ("trl-ppo-legacy", 4),
    ("trl-ppo", 4),
    ("trl-grpo", 1),
    ("trl-rloo", 1),
    ("ms-swift", 1),
    ("unsloth", 1),
    ("verl", 4),
    ("openrlhf", 8),
    ("nemo-rl", 1),
    ("nemo-aligner", 8),
    ("areal", 4),
    ("prime-rl", 1),
    ("torchtune", 1),
    ("trlx", 16),
    ("deepspeed-chat", 1),
    ("open-instruct", 1),
    ("llama-factory", 4),
    ("minimind", 2),
)


@pytest.mark.parametrize(("name", "expected"), DEFAULTS)
def test_documented_defaults(name: str, expected: float) -> None:
    assert planned(name) == (expected, "default")


@pytest.mark.parametrize("name", ["rl-games", "tianshou", "slime", "roll", "pufferlib"])
def test_frameworks_whose_configuration_must_say_it(name: str) -> None:
    assert planned(name) is None


def test_ppo_of_nemo_rl_has_epochs_by_default() -> None:
    profile = detection.profile("nemo-rl").resolved(["critic/loss"])
    fact = configured_updates(profile, configuration.canonical_settings(profile, []))
    assert fact is not None
    assert fact.value == 4


CONFIGURED: tuple[tuple[str, dict[str, float], float], ...] = (
    ("cleanrl", {"update_epochs": 10, "num_minibatches": 32, "num_envs": 1, "num_steps": 2048}, 320),
    ("cleanrl", {"update_epochs": 1, "num_minibatches": 4, "num_envs": 1, "num_steps": 10}, 5),
    ("cleanrl", {"update_epochs": 3, "num_minibatches": 7}, 21),
    ("sb3", {"n_epochs": 10, "n_steps": 10, "n_envs": 1, "batch_size": 64}, 10),
    ("sb3", {"n_epochs": 2, "n_steps": 65, "n_envs": 1, "batch_size": 64}, 4),
    ("rllib-old", {"num_sgd_iter": 20, "train_batch_size": 320000, "sgd_minibatch_size": 32768}, 180),
    ("rllib", {"num_epochs": 2, "train_batch_size_per_learner": 100, "minibatch_size": 64}, 4),
    ("ml-agents", {"num_epoch": 3, "buffer_size": 12000, "batch_size": 120}, 300),
    ("ml-agents", {"num_epoch": 3, "buffer_size": 100, "batch_size": 120}, 0),
    ("tianshou", {"repeat_per_collect": 10, "step_per_collect": 2048, "batch_size": 64}, 320),
    ("tianshou", {"repeat_per_collect": 2, "step_per_collect": 10, "batch_size": 64}, 2),
    ("rl-games", {"mini_epochs": 5, "horizon_length": 16, "num_actors": 4096, "minibatch_size": 32768}, 10),
    ("pufferlib", {"update_epochs": 1, "batch_size": 131072, "minibatch_size": 16384, "max_minibatch_size": 32768}, 8),
    ("pufferlib", {"update_epochs": 1, "batch_size": 131072, "minibatch_size": 65536, "max_minibatch_size": 32768}, 2),
    ("sample-factory", {"num_epochs": 2, "num_batches_per_epoch": 4}, 8),
    ("spinningup", {"train_pi_iters": 40}, 40),
    ("verl", {"actor_rollout_ref.actor.ppo_epochs": 4, "data.train_batch_size": 1024}, 16),
    ("verl", {"data.train_batch_size": 2, "actor_rollout_ref.actor.ppo_mini_batch_size": 256}, 1),
    ("openrlhf", {"max_epochs": 2, "rollout_batch_size": 128, "n_samples_per_prompt": 8, "train_batch_size": 128}, 16),
    ("openrlhf", {"train.max_epochs": 2, "rollout.batch_size": 128, "rollout.n_samples_per_prompt": 1}, 2),
    ("nemo-rl", {"grpo.num_prompts_per_step": 64, "policy.train_global_batch_size": 512}, 2),
    ("nemo-aligner", {"model.ppo.num_rollout_samples": 128, "model.global_batch_size": 64}, 2),
    ("slime", {"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 128}, 2),
    ("areal", {"actor.ppo_n_minibatches": 2}, 2),
    (
        "roll",
        {
            "ppo_epochs": 2,
            "rollout_batch_size": 64,
            "num_return_sequences_in_group": 8,
            "num_ranks": 8,
            "actor_train.training_args.per_device_train_batch_size": 4,
            "actor_train.training_args.gradient_accumulation_steps": 8,
        },
        4,
    ),
    ("torchtune", {"ppo_epochs": 2, "batch_size": 64, "ppo_batch_size": 16}, 8),
    ("trlx", {"method.ppo_epochs": 2, "method.num_rollouts": 128, "train.batch_size": 128}, 2),
    (
        "deepspeed-chat",
        {
            "ppo_epochs": 2,
            "generation_batches": 2,
            "gradient_accumulation_steps": 2,
            "per_device_generation_batch_size": 16,
            "per_device_training_batch_size": 4,
        },
        8,
    ),
    ("open-instruct", {"num_epochs": 2, "num_mini_batches": 4}, 8),
    ("llama-factory", {"ppo_epochs": 4, "ppo_buffer_size": 2}, 8),
    ("minimind", {"ppo_update_iters": 2, "batch_size": 5, "mini_batch_size": 2, "accumulation_steps": 1}, 6),
    ("trl-grpo", {"num_iterations": 4, "steps_per_generation": 8, "gradient_accumulation_steps": 4}, 8),
    ("trl-grpo", {"num_iterations": 4, "gradient_accumulation_steps": 4}, 4),
    ("trl-ppo", {"num_ppo_epochs": 4, "num_mini_batches": 2}, 8),
    # optimizer steps counted in TRL 1.12
    ("trl-ppo", {"num_ppo_epochs": 1, "num_mini_batches": 4, "gradient_accumulation_steps": 4}, 1),
    ("trl-ppo", {"num_ppo_epochs": 1, "num_mini_batches": 2, "gradient_accumulation_steps": 4}, 1),
    ("trl-ppo", {"num_ppo_epochs": 1, "num_mini_batches": 8, "gradient_accumulation_steps": 4}, 2),
    ("trl-ppo", {"num_ppo_epochs": 1, "num_mini_batches": 4, "gradient_accumulation_steps": 2}, 2),
    (
        "trl-ppo-legacy",
        {"ppo_epochs": 4, "batch_size": 128, "mini_batch_size": 16, "gradient_accumulation_steps": 2},
        16,
    ),
    ("baselines-ppo2", {"noptepochs": 10, "nminibatches": 32}, 320),
    ("baselines-ppo1", {"optim_epochs": 4, "timesteps_per_actorbatch": 100, "optim_batchsize": 64}, 4),
    ("brax", {"num_updates_per_batch": 4, "num_minibatches": 32}, 128),
    ("torchrl", {"loss.ppo_epochs": 10, "collector.frames_per_batch": 100, "loss.mini_batch_size": 64}, 10),
)


@pytest.mark.parametrize(("name", "settings", "expected"), CONFIGURED)
def test_configured(name: str, settings: dict[str, float], expected: float) -> None:
    found = planned(name, **settings)
    assert found is not None
    assert found[0] == expected


def test_all_settings_found_is_no_default() -> None:
    assert planned("rsl-rl", **{"algorithm.num_learning_epochs": 5, "algorithm.num_mini_batches": 4}) == (
        20,
        "configured",
    )


def test_every_function_is_used_or_named_for_its_kind() -> None:
    used = {formula.function for profile in detection.profiles().values() for formula in profile.updates}
    used |= {profile.partial_mean.function for profile in detection.profiles().values() if profile.partial_mean}
    assert used == set(FUNCTIONS)


def test_full_minibatches_wrap_around() -> None:
    assert updates.rllib_cyclic(30, 4000, 128) == 938
    assert updates.rllib_cyclic(1, 10, 100) == 1
    assert updates.epochs_times_floor_or_one(30, 4000, 128) == 930
    assert updates.epochs_times_floor_or_one(3, 10, 100) == 3
    assert updates.epochs_times_floor(3, 10, 100) == 0
    assert updates.epochs_times_ceil(3, 10, 100) == 3


def test_what_is_asked_for_is_a_setting_that_may_be_told():
    asked = {
        (name, lacking): deciding_setting(profile, set(formula.arguments.values()) - {lacking})
        for name, profile in detection.profiles().items()
        for formula in profile.updates
        for lacking in formula.arguments.values()
    }
    assert asked["sb3", "minibatch_size"] == "batch_size"
    for (name, _), key in asked.items():
        found = configuration.canonical_settings(
            detection.profiles()[name], [configuration.Found(values={key: 8}, source=SourceRef(path="--set"))]
        )
        assert [setting for setting in found.values() if setting.key == key], (name, key)
    told = {"updates_per_batch": 48}
    for profile in detection.profiles().values():
        settings = configuration.canonical_settings(
            profile, [configuration.Found(values=told, source=SourceRef(path="--set"))]
        )
        fact = configured_updates(profile, settings)
        assert (fact.value, fact.how) == (48, "configured")
