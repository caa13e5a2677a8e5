"""What the tensors of a dump are, by the names that trainers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ppo_doctor.errors import DoctorError, ExitCode

#: Role → names that trainers write, without case and plural; the role itself is one of them.
_NAMES: Mapping[str, str] = {
    # of the policy that is being updated
    "log_prob": "new_log_prob logprob new_logprob logp new_logp log_pi actlogprob current_logprob policy_logprob"
    " curr_log_prob curr_logprob log_probabilitie",
    # of the policy at the start of the update, as the ratio takes it
    "old_log_prob": "old_logprob old_logp logp_old prev_logprob prev_log_prob old_per_token_logp old_action_log_prob"
    " prox_logp proximal_logprob old_actions_log_prob b_logprob"
    " behaviour_log_prob behavior_log_prob action_logprob_old log_prob_old logprob_old",
    # of the frozen model that KL is taken against
    "ref_log_prob": "ref_logprob base_action_log_prob ref_logp ref_per_token_logp reference_log_prob reference_logprob"
    " reference_policy_logprob ref_policy_logprob",
    # as the sampler reported them
    "rollout_log_prob": "rollout_logprob generation_logprob generation_log_prob sampling_logprob sampling_log_prob"
    " sampling_per_token_logp sampler_logprob vllm_logprob inference_logprob sglang_logprob infer_logprob"
    " behav_logprob",
    "advantages": "advantage adv b_advantage gae whitened_advantage normalized_advantage token_level_advantage",
    "advantages_raw": "raw_advantage advantage_raw unnormalized_advantage advantages_before_whitening",
    "returns": "return ret target_return b_return value_target discounted_return value_return",
    "values": "value vpred value_prediction state_value critic_value b_value vf_pred value_pred",
    "old_values": "old_value prev_value value_old",
    # one per sequence or step
    "rewards": "reward rew reward_score score total_reward",
    # one per token, before and after the KL penalty
    "token_scores": "token_level_score",
    "token_rewards": "token_level_reward",
    "mask": "response_mask loss_mask action_mask completion_mask token_loss_mask token_mask valid_mask masks mask"
    " attention_mask_response eos_mask generated_mask",
    "sample_mask": "sample_loss_mask",
    # of prompt and completion together, and the prompts' lengths: both tell how far a row was padded
    "attention_mask": "attn_mask full_attention_mask",
    "prompt_lengths": "prompt_length prompt_len prompt_token_count",
    "group": "group_id uid uids prompt_id prompt_idx prompt_index group_idx group_index prompt question_id problem_id"
    " sample_group",
    "dones": "done terminated terminal episode_start b_done dones",
    "truncations": "truncated truncation",
    "tokens": "token_id input_id response_id completion_id responses response sequence action",
    "lengths": "input_length response_length completion_length length",
    "entropy": "token_entropy entropie",
    "kept_mass": "kept_probability_mass top_p_mass kept_prob_mass",
    "step": "global_step training_step",
    "update": "update_id iteration rollout_id",
    # of the policy that sampled, and of the one that is trained
    "version": "policy_version weight_version model_version behavior_version rollout_version weights_version",
    "trained_version": "current_version trainer_version current_policy_version train_version",
    "epoch": "epoch_id ppo_epoch",
    "minibatch": "minibatch_id mini_batch mini_batch_id batch_id",
}


def _plain(name: str) -> str:
    """Return a name in lower case with underscores, its last word in the singular."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
    return words[:-1] if words.endswith("s") and not words.endswith("ss") else words


_BY_NAME: Mapping[str, str] = MappingProxyType(
    {_plain(name): role for role, names in _NAMES.items() for name in (role, *names.split())}
)


def role(name: str, overrides: Mapping[str, str] | None = None) -> str | None:
    """Return what a tensor is by its name in the file, or None.

    Of a dotted name the last word counts, and numbers behind it are rows: "batch.old_log_probs.3" is old_log_prob.
    `overrides` maps roles to names as given with `--map role=name`; a role that is given has no other tensor.
    """
    path = without_row(name)
    given = overrides or {}
    for known, chosen in given.items():
        if chosen in (name, path):
            return known
    where, _, word = path.rpartition(".")
    found = _BY_NAME.get(_plain(word))
    if found == "log_prob" and "buffer" in where.lower():
        found = "old_log_prob"  # a rollout buffer holds what the policy said when it acted
    return None if found in given else found


def without_row(name: str) -> str:
    """Return a name without the number of the row that it ends in, if it does."""
    return re.sub(r"(\.\d+)+$", "", name)


def parse_overrides(given: Iterable[str]) -> Mapping[str, str]:
    """Return role → name from words of the form role=name; raises DoctorError for another form or an unknown role."""
    overrides: dict[str, str] = {}
    for word in given:
        known, equals, name = word.partition("=")
        if not equals or not name or known not in _NAMES:
            raise DoctorError(
                f"--map {word} is not of the form role=name",
                hint=f"roles are {', '.join(sorted(_NAMES))}",
                code=ExitCode.USAGE,
            )
        overrides[known] = name
    return overrides


def roles() -> tuple[str, ...]:
    """Return every role that a tensor can have."""
    return tuple(_NAMES)
