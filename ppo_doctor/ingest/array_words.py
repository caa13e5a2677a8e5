"""The phrases of words that are an array of a dump; the words themselves are in `vocabulary`."""

from __future__ import annotations

from collections.abc import Mapping

#: What a capital letter stands for that is a word by itself in the name of an array, as papers write it.
SYMBOLS: Mapping[str, str] = {"A": "advantage", "V": "value", "G": "return", "H": "entropy"}

#: array of a dump → phrases
ARRAYS: Mapping[str, str] = {
    "log_prob": "logprob, logprob new, logprob policy, logprob policy new, logprob token, logprob next, logprob"
    " learner, logprob new action, logprob next action",
    "old_log_prob": "logprob old, logprob old policy, logprob old token, logprob old action, logprob before",
    "ref_log_prob": "logprob reference, logprob reference policy, logprob reference token, logprob reference action",
    "rollout_log_prob": "logprob engine, logprob engine policy, logprob rollout, logprob completion, logprob engine"
    " token",
    "advantages": "reward advantage, advantage norm, advantage target, advantage approx, advantage value, advantage,"
    " advantage token, advantage after",
    "advantages_raw": "advantage before, advantage before after",
    "returns": "target, return discounted, return approx, return lambda, reward return, return, value return, value"
    " target, return target",
    "values": "baseline value, reward value, value policy, value, value new, value approx, critic, val",
    "old_values": "value old, reward value old",
    "rewards": "environment reward, reward before, reward old, reward last, reward, reward total, episode reward,"
    " reward next",
    "mask": "valid, mask, completion mask, action mask, loss mask, completion attention mask, completion token mask,"
    " loss token mask, token mask",
    "attention_mask": "attention mask",
    "sample_mask": "sample mask, sample loss mask",
    "prompt_lengths": "prompt length, prompt token count",
    "tokens": "action token, action token id, action id, completion prompt, token, token id, completion, completion"
    " id, completion token, action, sequence",
    "lengths": "length, completion length, id length",
    "token_scores": "score",
    "token_rewards": "token reward shaped, reward shaped, reward step, reward action, token reward, token reward next",
    "kept_mass": "kept",
    "step": "optimizer_step, step, step total, step environment, step environment count, frame",
    "update": "update, update iteration, policy update, update id, update step, iteration, rollout id",
    "epoch": "epoch, epoch id, epoch optimizer, epoch iteration, epoch update, epoch minibatch, epoch policy",
    "minibatch": "minibatch, minibatch iteration, batch iteration, minibatch optimizer, minibatch id, batch id",
    "dones": "done, done next",
    "truncations": "truncated",
    "group": "index prompt, index group, sample group, sample group id, group id prompt, group prompt, index, group,"
    " group id, prompt, prompt id",
    "entropy": "entropy, entropy token, entropy policy",
    "version": "version, rollout policy step, behaviour policy step, engine policy step, policy version, engine"
    " version, policy old version, rollout version, behaviour version, completion version, worker version, policy"
    " rollout version, policy behaviour version, old version",
    "trained_version": "learner policy step, version new, policy version new, learner version, learner policy version",
}

#: What an array may be → phrases; which it is shows in what else the dump holds.
OPEN_ARRAYS: Mapping[str, str] = {
    "action_log_prob": "logprob action, logprob action policy",
    "sampled_log_prob": "logprob sampled, logprob sample, logprob rollout sampled, logprob action sampled",
    "behaviour_log_prob": "logprob behaviour, logprob policy behaviour, logprob action behaviour, logprob worker,"
    " logprob worker policy",
}
