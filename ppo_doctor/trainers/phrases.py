"""Phrases that name an array of a dump, a setting or a clock; the words are in `vocabulary`.

"a|b" means one of the two words; "a?" is optional.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ppo_doctor.model.patterns import lazy_pattern

#: Meanings of single capital letters in names of arrays, as in papers.
SYMBOLS: Mapping[str, str] = {"A": "advantage", "V": "value", "G": "return", "H": "entropy"}

#: Role of an array → phrases.
ARRAYS: Mapping[str, str] = {
    "log_prob": "logprob token?, logprob new|next|learner|after policy? token|action?",
    "old_log_prob": "logprob old policy? token|action?, logprob before",
    "ref_log_prob": "logprob reference policy? token|action?",
    "rollout_log_prob": "logprob engine|rollout policy? token|action?, logprob completion",
    "advantages": "reward advantage, advantage norm, advantage target, advantage approx group?, advantage group,"
    " advantage value, advantage policy?, advantage token, advantage after",
    "advantages_raw": "advantage before, advantage before after",
    "returns": "target, return discounted, return approx, return lambda, reward return, return, value return, value"
    " target, return target",
    "values": "baseline value, reward value, value policy, value, value new, value approx, critic, val",
    "old_values": "value old|behaviour, reward value old",
    "rewards": "environment reward, reward before, reward old, reward last, reward, reward total, episode reward,"
    " reward next",
    "mask": "valid, mask, completion? policy mask, completion|action|token|loss|target|label mask, completion"
    " attention|token mask, loss token mask",
    "attention_mask": "attention mask",
    "sample_mask": "sample mask, sample loss mask",
    "prompt_lengths": "prompt length, prompt token count",
    "tokens": "action token, action token id, action id, completion prompt, token, token id, completion, completion"
    " id, completion token, action, sequence",
    "lengths": "length, completion length, id length",
    "token_scores": "score",
    "token_rewards": "token reward shaped, reward shaped, reward step, reward action, token reward, token reward next",
    "kept_mass": "kept",
    "step": "optimizer_step, step optimizer|total|count?, step count done|total, step environment total|count?, frame"
    " environment? count|total?",
    "update": "update count? done?, update iteration|policy|step, iteration count?, iteration step, rollout id|count",
    "epoch": "epoch, epoch optimizer|iteration|update|minibatch|policy",
    "minibatch": "minibatch, minibatch iteration|optimizer, batch iteration|id",
    "dones": "done, done next",
    "truncations": "truncated",
    "group": "index prompt|group?, group sample|prompt|completion|episode|environment?, prompt",
    "entropy": "entropy, entropy token, entropy policy",
    "version": "version policy?, version engine|rollout|behaviour|completion|worker|old policy? step?, policy step"
    " engine|rollout|behaviour",
    "trained_version": "version new|learner|target policy? step?, learner policy step",
}

#: Ambiguous role of an array → phrases; the other arrays of the dump decide.
OPEN_ARRAYS: Mapping[str, str] = {
    "action_log_prob": "logprob action policy?",
    "policy_log_prob": "logprob policy token?",
    "sampled_log_prob": "logprob sampled rollout|action?, logprob sample|episode",
    "behaviour_log_prob": "logprob behaviour|worker policy?, logprob behaviour action",
}

#: Axes at the end of an array's name, a capital letter each: "values_BT" is batch by time.
SHAPE = lazy_pattern(r"(?<=[a-z])_[BDGLNST]{1,4}$")
#: Roles that number something, and the concepts that their names may have in addition.
ORDINALS = frozenset({"step", "update", "epoch", "minibatch", "group"})
COUNTED = frozenset({"id", "new"})
NUMBERED = lazy_pattern(r"^n(?=_)(?!.*s$)|(?<=_)(i|no|nr|num|number)$|(?<=step_)count$|(?<=update_)count$", re.I)


#: Setting → phrases.
SETTINGS: Mapping[str, str] = {
    "ppo_epochs": "epoch count, epoch update, epoch update count, epoch minibatch, epoch policy, epoch policy count,"
    " epoch update max, update iteration, update iteration count",
    "num_minibatches": "minibatch count, minibatch, minibatch epoch count",
    "minibatch_size": "minibatch size",
    "rollout_steps": "rollout length, rollout step, rollout step count, step environment, horizon length, rollout"
    " horizon",
    "num_envs": "environment count",
    "rollout_size": "batch frame, batch step, rollout size, rollout batch size, batch frame count",
    "learning_rate": "learning_rate, policy learning_rate, adam learning_rate, learning_rate reference, step size",
    "critic_learning_rate": "value learning_rate",
    "clip_range": "clip, clip coefficient, clip ratio, policy clip, policy clip coefficient, importance clip, ratio"
    " clip, ratio clip coefficient, clip epsilon, clip reference",
    "clip_range_vf": "value clip, value clip coefficient",
    "target_kl": "kl target, kl threshold, kl max",
    "gamma": "gamma",
    "gae_lambda": "lambda, advantage lambda",
    "ent_coef": "entropy coefficient, entropy beta, entropy lambda, entropy loss coefficient, policy entropy"
    " coefficient, entropy regularizer, entropy regularizer coefficient",
    "vf_coef": "value coefficient, value loss coefficient",
    "kl_coef": "kl coefficient, kl beta, kl lambda, kl coefficient beta, kl penalty, kl penalty coefficient,"
    " kl loss coefficient, kl coefficient reference, kl penalty reference, kl penalty policy,"
    " kl penalty policy reference",
    "ptx_coef": "ptx coefficient, ptx loss coefficient",
    "max_grad_norm": "gradient norm max, gradient clip, gradient norm clip, gradient clip max, gradient norm clip max,"
    " gradient clip val, norm max, norm clip, policy gradient norm max",
    "schedule_steps": "learning_rate decay step, learning_rate decay epoch, learning_rate decay iteration,"
    " learning_rate decay update, learning_rate schedule step, learning_rate schedule decay step,"
    " learning_rate schedule step total",
    "reward_scale": "reward scale",
    "adam_eps": "adam epsilon, optimizer epsilon, optimizer adam epsilon",
    "adam_beta1": "beta1, adam beta1, optimizer beta1",
    "adam_beta2": "beta2, adam beta2, optimizer beta2",
    "normalize_advantages": "advantage normalize, advantage norm",
    "num_generations": "completion count, completion prompt count, group size, sample prompt count, sequence return"
    " count",
    "temperature": "temperature, completion temperature, engine temperature, rollout temperature",
    "max_response_length": "completion length max, completion token max, token new max",
}

#: Names of clocks, most trusted first, without separators between words.
CLOCKS = (
    *("step", "globalstep", "trainstep", "trainingstep", "envsteps", "totalenvsteps", "totaltimesteps", "numtimesteps"),
    *("timesteps", "timestep", "totalsteps", "steps", "iteration", "iterations", "iter", "it", "update", "updates"),
    *("upd", "upds"),
    *("episode", "episodes", "ep", "epoch", "frame", "frames"),
)
#: Name of the second number in "3 of 40 steps", which is planned and not done.
PLANNED = "planned"
