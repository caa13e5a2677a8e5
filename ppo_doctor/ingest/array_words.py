"""The phrases of words that are an array of a dump; the words themselves are in `vocabulary`.

Of "a|b" one word stands in the phrase; "a?" may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What a capital letter stands for that is a word by itself in the name of an array, as papers write it.
SYMBOLS: Mapping[str, str] = {"A": "advantage", "V": "value", "G": "return", "H": "entropy"}

#: array of a dump → phrases
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

#: What an array may be → phrases; which it is shows in what else the dump holds.
OPEN_ARRAYS: Mapping[str, str] = {
    "action_log_prob": "logprob action policy?",
    "policy_log_prob": "logprob policy token?",
    "sampled_log_prob": "logprob sampled rollout|action?, logprob sample|episode",
    "behaviour_log_prob": "logprob behaviour|worker policy?, logprob behaviour action",
}

#: The axes of an array behind its name, one capital letter each: "values_BT" is batch by time.
SHAPE = re.compile(r"(?<=[a-z])_[BDGLNST]{1,4}$")
#: What counts something, and what says of such an array that it is a number or the present one.
ORDINALS = frozenset({"step", "update", "epoch", "minibatch", "group"})
COUNTED = frozenset({"id", "new"})
NUMBERED = re.compile(r"^n(?=_)(?!.*s$)|(?<=_)(i|no|nr|num|number)$|(?<=step_)count$|(?<=update_)count$", re.I)
