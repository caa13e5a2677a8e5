"""The phrases of words that are a setting, and the names of clocks; the words themselves are in `vocabulary`."""

from __future__ import annotations

from collections.abc import Mapping

#: setting → phrases
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

#: Names of a clock, most trusted first, as words without anything between them.
CLOCKS = (
    *("step", "globalstep", "trainstep", "trainingstep", "envsteps", "totalenvsteps", "totaltimesteps", "numtimesteps"),
    *("timesteps", "timestep", "totalsteps", "steps", "iteration", "iterations", "iter", "it", "update", "updates"),
    *("upd", "upds"),
    *("episode", "episodes", "ep", "epoch", "frame", "frames"),
)
#: What the second number of "3 of 40 steps" is called: what was planned, and not what was done.
PLANNED = "planned"
