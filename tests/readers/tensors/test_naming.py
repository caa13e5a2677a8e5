"""The names of trainers, and what they mean."""

from __future__ import annotations

import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers.tensors.naming import parse_overrides, role, roles_of, without_row
from ppo_doctor.trainers.phrases import ARRAYS

HABITS = {
    # verl
    "old_log_probs": "old_log_prob",
    "batch.ref_log_prob": "ref_log_prob",
    "rollout_log_probs": "rollout_log_prob",
    "token_level_scores": "token_scores",
    "token_level_rewards": "token_rewards",
    "response_mask": "mask",
    "advantages": "advantages",
    "returns": "returns",
    "values": "values",
    "uid": "group",
    # TRL
    "ref_per_token_logps": "ref_log_prob",
    "old_per_token_logps": "old_log_prob",
    "completion_mask": "mask",
    # OpenRLHF
    "action_log_probs": None,
    "base_action_log_probs": "ref_log_prob",
    "action_mask": "mask",
    # NeMo-RL
    "generation_logprobs": "rollout_log_prob",
    "prev_logprobs": "old_log_prob",
    "token_loss_mask": "mask",
    "sample_loss_mask": "sample_mask",
    "rewards": "rewards",
    "input_lengths": "lengths",
    # classic
    "rollout_buffer.log_probs": "old_log_prob",
    "log_probs": "log_prob",
    "b_logprobs": "old_log_prob",
    "old_values": "old_values",
    "rewards.3": "rewards",
    "oldLogProbs": "old_log_prob",
    "dones": "dones",
    "policy.layers.0.weight": None,
    "optimizer.state.0.step": "step",
}


@pytest.mark.parametrize("name", sorted(HABITS))
def test_habits(name):
    assert role(name) == HABITS[name]


@pytest.mark.parametrize("known", ARRAYS)
def test_a_role_is_called_by_its_own_name(known):
    assert role(known) == known
    assert role(f"{known}.17") == known


def test_what_is_given_wins_and_leaves_no_second():
    overrides = parse_overrides(["old_log_prob=frozen.lp", "mask=keep"])
    assert role("frozen.lp", overrides) == "old_log_prob"
    assert role("frozen.lp.4", overrides) == "old_log_prob"
    assert role("keep", overrides) == "mask"
    assert role("old_log_probs", overrides) is None
    assert role("advantages", overrides) == "advantages"


@pytest.mark.parametrize("word", ["old_log_prob", "old_log_prob=", "=x", "nonsense=x"])
def test_overrides_of_another_form_are_wrong_usage(word):
    with pytest.raises(DoctorError) as caught:
        parse_overrides([word])
    assert caught.value.code == ExitCode.USAGE
    assert "old_log_prob" in caught.value.hint


#: Names of one dump → what they are beside each other.
COMPANY = (
    {"curr_action_logp": "log_prob", "action_logp": "old_log_prob", "behaviour_action_logp": "rollout_log_prob"},
    {"action_log_probs": "log_prob", "old_action_log_probs": "old_log_prob"},
    {"next_log_prob": "log_prob", "sampled_log_prob": "old_log_prob", "sampled_values": "values"},
    {"log_prob": "log_prob", "sample_log_prob": "old_log_prob", "next/reward": "rewards", "next/state_value": None},
    {"actor_version": "trained_version", "vllm_version": "version"},
    {"actor_version": "version", "learner_version": "trained_version"},
    {"epoch_num": "update", "mini_epoch": "epoch"},
    {"A": "advantages", "V": "values", "a": None},
    {
        "logp_t": "log_prob",
        "old_logp_t": "old_log_prob",
        "adv_t": "advantages",
        "ret_t": "returns",
        "mb_t": "minibatch",
    },
    {
        "xyz_logp": "log_prob",
        "xyz_old_logp": "old_log_prob",
        "xyz_adv": "advantages",
        "xyz_ret": "returns",
        "xyz_foo": None,
    },
    {"generator.logprobs": "rollout_log_prob", "actor.logprobs": "log_prob", "actor.prev_logprobs": "old_log_prob"},
    {"prompt_token_ids": None, "action_token_ids": "tokens", "prompt_uid": "group"},
    {
        "mb_actor_logps": "rollout_log_prob",
        "mb_logps": "old_log_prob",
        "mb_new_logps": "log_prob",
        "mb_idx": "minibatch",
    },
    {
        "values_BT": "values",
        "vllm_logprobs_BT": "rollout_log_prob",
        "scores_B": "rewards",
        "rewards_BT": "token_rewards",
    },
    {"traj.episode_reward": "rewards", "traj.reward": "token_rewards"},
    {"batch_idx": "update", "mini_batch_idx": "minibatch", "cur_epoch": "epoch", "n_epochs": None},
    {"generation_model_step": "version", "trainer_model_step": "trained_version", "train_step": "step"},
    {"sequence_id": None, "response_nr": None, "critic_id": None, "prompt_nr": "group", "rollout_nr": "update"},
    {"log_probability_under_current_policy": "log_prob", "log_probability_under_old_policy": "old_log_prob"},
)


@pytest.mark.parametrize("meant", COMPANY)
def test_a_name_is_read_beside_the_others_of_its_dump(meant):
    assert roles_of(meant) == meant


def test_rows():
    assert without_row("log_probs.12") == "log_probs"
    assert without_row("layers.0.weight") == "layers.0.weight"
