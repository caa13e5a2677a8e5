"""The canonical metrics, to which profiles map native names and which rules use, with their units and limits."""

from __future__ import annotations

import math
from types import MappingProxyType

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern


@frozen(kw_only=False)
class Metric:
    """A canonical metric with its unit and meaning."""

    name: str
    unit: str
    meaning: str
    #: False if NaN or infinity can be harmless (explained variance for constant returns)
    finite: bool = True
    #: False if the metric can only be computed from dumps and checkpoints, or observed in a running script
    logged: bool = True


_ROWS = (
    # policy and ratio
    ("policy_loss", "", "clipped surrogate loss of the policy"),
    ("loss", "", "total loss as optimised"),
    ("entropy", "nats", "entropy of the policy (positive sign, whatever the log's sign)"),
    ("entropy_loss", "", "entropy term of the loss, scaled by its coefficient"),
    ("approx_kl", "nats", "KL of the old policy to the new one, estimated on the trained samples"),
    ("approx_kl_k1", "nats", "signed k1 estimate of the KL of the old policy to the new one"),
    ("approx_kl_k2", "nats", "k2 estimate of the KL of the old policy to the new one: half the mean squared log-ratio"),
    ("approx_kl_max", "nats", "largest KL of the old policy to the new one over samples"),
    ("probe_kl", "nats", "KL between the stored log-probs and a forward pass after the last optimizer step"),
    ("ratio_mean", "", "importance ratio new/old, mean"),
    ("ratio_std", "", "importance ratio new/old, standard deviation over samples"),
    ("ratio_min", "", "importance ratio new/old, minimum"),
    ("ratio_max", "", "importance ratio new/old, maximum"),
    ("ratio_abs_dev", "", "mean distance of the importance ratio from 1"),
    ("effective_sample_size", "fraction", "effective share of samples under the importance ratios"),
    ("first_ratio_dev", "", "mean distance of the importance ratio from 1 at the first minibatch, before any step"),
    ("batch_start_ratio_dev", "", "largest |ratio - 1| at the first minibatch of a batch, before any step on it"),
    ("epoch_start_ratio_dev", "", "largest |ratio - 1| at the first minibatch of each epoch after the first"),
    ("clip_fraction", "fraction", "share of samples whose ratio left the clip range"),
    ("clip_fraction_low", "fraction", "share clipped below 1 - clip_range"),
    ("clip_fraction_high", "fraction", "share clipped above 1 + clip_range"),
    ("clip_fraction_dual", "fraction", "share of samples at the second bound for negative advantages (dual clip)"),
    ("clip_fraction_positive", "fraction", "share of samples above 1 + clip_range whose advantage is positive"),
    ("clip_fraction_negative", "fraction", "share of samples below 1 - clip_range whose advantage is negative"),
    ("clip_range_vf", "", "clip range of value predictions"),
    ("clip_range", "", "clip range in force"),
    ("loss_ratio_std", "", "relative spread of the importance ratio in the loss, read off the gradient by log-probs"),
    ("stored_ratio_std", "", "standard deviation of the ratio to the log-probs of sampling, whatever the loss uses"),
    ("old_policy_shared", "fraction", "share of the old policy, log-probs or weights, in the memory of the new one"),
    ("logratio_advantage_corr", "", "correlation of log-ratio and advantage on trained samples"),
    # reference and rollout
    ("ref_kl", "nats", "KL of the policy to the reference model"),
    ("kl_term", "", "KL term of the loss, its coefficient included"),
    ("reference_shared", "fraction", "share of the policy's trained weights in the memory of the reference model"),
    ("kl_coef", "", "coefficient of the KL penalty"),
    ("entropy_coef", "", "coefficient of the entropy bonus in force"),
    ("rollout_kl", "nats", "KL of the sampler's policy to the trainer's at the same weights"),
    # signal
    ("reward_mean", "", "mean reward of the rollout's samples"),
    ("reward_component", "", "mean of one part of the reward over samples; the part's name follows behind a dot"),
    ("reward_component_std", "", "standard deviation of one part of the reward over samples, named likewise"),
    ("reward_std", "", "standard deviation of rewards, as the framework defines it"),
    ("reward_min", "", "smallest reward of the rollout"),
    ("reward_max", "", "largest reward of the rollout"),
    ("frac_reward_zero_std", "fraction", "share of groups whose rewards are all equal"),
    ("reward_group_std", "", "standard deviation of rewards within the completions of one prompt, mean over prompts"),
    ("reward_total", "", "reward that enters the advantages, after penalties and shaping"),
    ("advantages_mean", "", "mean of the advantages used in the loss"),
    ("advantages_std", "", "standard deviation of the advantages used in the loss"),
    ("advantages_abs_max", "", "largest absolute advantage used in the loss"),
    ("advantages_min", "", "smallest advantage used in the loss"),
    ("advantages_max", "", "largest advantage used in the loss"),
    ("advantages_raw_mean", "", "mean of the advantages before whitening"),
    ("advantages_raw_abs_max", "", "largest absolute advantage before whitening"),
    ("advantages_raw_std", "", "standard deviation of the advantages before whitening"),
    ("returns_mean", "", "mean return target of the critic"),
    ("returns_std", "", "standard deviation of the critic's return targets"),
    ("returns_min", "", "smallest return target of the critic"),
    ("returns_max", "", "largest return target of the critic"),
    ("tokens_in_loss", "tokens", "unmasked tokens in the loss"),
    # critic
    ("value_loss", "", "loss of the critic"),
    ("value_loss_unclipped", "", "loss of the critic before its errors are clamped"),
    ("actor_grad_norm", "", "gradient norm of the policy alone before clipping, beside that of the whole"),
    ("critic_grad_norm", "", "gradient norm of the critic before clipping"),
    ("critic_learning_rate", "", "learning rate applied to the critic"),
    ("values_mean", "", "mean value prediction"),
    ("values_min", "", "smallest value prediction"),
    ("values_max", "", "largest value prediction"),
    ("ptx_loss", "", "loss on pretraining text that is mixed in (PPO-ptx)"),
    ("dormant_fraction", "fraction", "share of the policy's hidden units that are dormant: next to no activation"),
    ("value_clip_fraction", "fraction", "share of value predictions outside the value clip range"),
    # optimizer
    ("learning_rate", "", "learning rate applied to the policy"),
    ("grad_norm", "", "gradient norm before clipping"),
    ("update_norm", "", "norm of the parameter change of one update"),
    ("critic_update_norm", "", "norm of the change of the critic's parameters in one update"),
    ("changed_fraction", "fraction", "share of the policy's parameters that one update changes"),
    ("optimizer_params_matched", "fraction", "share of the policy's trained parameters that its optimizer holds"),
    ("optimizer_steps", "steps", "optimizer steps executed for one rollout batch"),
    ("optimizer_steps_total", "steps", "optimizer steps executed so far"),
    ("epochs_executed", "epochs", "PPO epochs executed for one rollout batch"),
    ("training_on", "fraction", "1 where the trainer says that it trains, 0 where it says that it does not"),
    ("early_stopped", "fraction", "share of updates that an early stop on the KL ended"),
    ("samples_trained", "", "samples of one rollout batch, counted once per pass over them"),
    ("samples_per_update", "", "samples of one optimizer step"),
    ("skipped_steps", "steps", "optimizer steps skipped by the loss scaler"),
    ("loss_scale", "", "loss scale of mixed precision"),
    # generation and episodes
    ("response_length", "tokens", "mean length of completions"),
    ("truncated_fraction", "fraction", "share of completions that hit the length limit"),
    ("end_tokens", "tokens", "end-of-sequence tokens in one process's completions of a rollout"),
    ("action_std", "", "standard deviation of a Gaussian policy"),
    # time
    ("time_update", "s", "time of the optimizer phase"),
    ("time_old_log_prob", "s", "time of the old log-prob pass"),
    ("time_ref_log_prob", "s", "time of the reference model's log-prob pass"),
    ("time_update_critic", "s", "time of the critic's optimizer phase"),
    ("time_rollout", "s", "time of the rollout"),
    ("time_step", "s", "time of a whole step"),
    ("mfu", "fraction", "model FLOPs utilisation"),
    ("num_tokens", "tokens", "tokens generated so far"),
    ("env_steps", "steps", "environment steps so far"),
    ("iteration", "", "rollout batches so far"),
    ("policy_lag", "", "policy versions between acting and training"),
    ("policy_version", "", "version of the weights that are trained"),
    ("rollout_version", "", "version of the weights that sampled"),
    ("epochs_executed_total", "epochs", "PPO epochs executed so far"),
)

#: Metrics that may be NaN in a sound run.
_MAY_BE_MISSING = (
    ("explained_variance", "", "share of the returns' variance that the critic explains"),
    ("ratio_batch_var", "", "variance of the ratio's means over minibatches"),
    ("episode_return", "", "mean return of finished episodes"),
    ("episode_return_min", "", "smallest return of finished episodes"),
    ("episode_return_max", "", "largest return of finished episodes"),
    ("episode_length", "steps", "mean length of finished episodes"),
    ("eval_return", "", "mean return in evaluation"),
    ("success_rate", "fraction", "share of successful episodes"),
    ("fps", "1/s", "environment steps per second"),
    ("objective_entropy", "nats", "minus the summed log-prob of a sequence, which TRL calls entropy"),
    ("kl_penalty_reward", "", "KL penalty as a reward, per sequence"),
    ("response_length_min", "tokens", "shortest completion"),
    ("response_length_max", "tokens", "longest completion"),
    ("values_std", "", "standard deviation of value predictions"),
    ("returns_var", "", "variance of the critic's return targets"),
    ("values_var", "", "variance of value predictions"),
    ("rollout_ratio_mean", "", "probability of the trainer over that of the sampler, mean"),
    ("rollout_ratio_min", "", "probability of the trainer over that of the sampler, minimum"),
    ("rollout_ratio_max", "", "probability of the trainer over that of the sampler, maximum"),
    (
        "masked_fraction",
        "fraction",
        "share of samples or tokens that a mask on their importance ratios takes out of the loss",
    ),
    ("unique_fraction", "fraction", "share of different completions among those of one prompt"),
    ("rollout_logp_diff", "nats", "mean absolute difference of log-probs between sampler and trainer"),
    ("rollout_logp_diff_max", "nats", "largest absolute difference of log-probs between sampler and trainer"),
    ("rollout_prob_diff", "", "mean absolute difference of probabilities between sampler and trainer"),
    ("rollout_prob_diff_max", "", "largest absolute difference of probabilities between sampler and trainer"),
    ("rollout_prob_corr", "", "correlation of the probabilities of sampler and trainer"),
)

#: Metrics that are computed from dumps and checkpoints. No trainer logs them, so reports do not ask for them.
_OF_TENSORS = (
    ("ratio_one_share", "fraction", "share of samples whose importance ratio is exactly 1"),
    ("ratio_mean_errors", "standard errors", "distance of the mean importance ratio from 1, in standard errors"),
    ("ratio_distinct", "values", "distinct importance ratios in a random sample of at most about 131,000"),
    ("ratio_p01", "", "importance ratio that one sample in a hundred lies below"),
    ("ratio_median", "", "importance ratio, median"),
    ("ratio_p99", "", "importance ratio that one sample in a hundred lies above"),
    ("kl_first_epoch_share", "fraction", "KL to the old policy in the first epoch of an update, over that in its last"),
    ("kl_step_corr", "", "correlation of the root of a minibatch's KL with the number of steps before it"),
    ("log_probs_nonfinite", "samples", "samples in the loss with a log-prob that is NaN or infinite"),
    ("log_prob_shift_gain", "", "correlation of new and old log-probs at another offset, less that as they are"),
    ("start_logratio_std", "nats", "standard deviation of the log-ratio of old and new policy before any step"),
    ("sampler_logratio_std", "nats", "standard deviation of the log-ratio of sampler and trainer before any step"),
    ("passes_logratio_std", "nats", "the larger of the log-ratios' deviations between passes at the same weights"),
    ("passes_over_rounding", "", "deviation of the log-ratio at the same weights, over what float32 and storing round"),
    ("passes_correlation", "", "correlation of the log-probs of two passes at the same weights"),
    ("passes_slope_excess", "", "by how much one pass scales the log-probs of another at the same weights, beyond 1"),
    ("passes_moved_share", "fraction", "share of tokens whose log-ratio at the same weights is beyond 0.02 nats"),
    ("passes_one_sided", "fraction", "by how much log-ratios at the same weights lie on one side of 0: 1 if all do"),
    ("passes_asymmetry", "fraction", "the same by their signs alone, small ones too"),
    ("passes_padding_corr", "", "correlation of the size of the log-ratio at the same weights with a row's padding"),
    ("passes_least_padded", "", "mean size of the log-ratio at the same weights of rows without padding, over all"),
    ("passes_position_corr", "", "correlation of the size of the log-ratio at the same weights with the position"),
    ("passes_repeat_share", "", "variance of that log-ratio among equal tokens after equal prefixes, over all of it"),
    (
        "sampler_moved",
        "",
        "change of the sampler's log-probs of the same tokens since the first dump, over its gap",
    ),
    ("kept_mass_mean", "fraction", "probability that the sampler left to choose from, mean over tokens"),
    ("old_log_prob_drift", "", "change of the mean old log-prob between epochs of an update, in deviations"),
    ("advantages_recomputed_corr", "", "correlation of stored advantages with those recomputed from rewards"),
    ("within_epoch_ratio_dev", "", "largest |ratio - 1| behind the first minibatch of each epoch"),
    ("epoch_change_corr", "", "correlation of a token's changes of log-prob from one epoch to the next two"),
    ("advantages_recomputed_std", "", "standard deviation of advantages recomputed from rewards"),
    ("advantages_reordered_gap", "", "largest gap of stored and recomputed advantages in order of size, in deviations"),
    ("advantages_other_groups_corr", "", "correlation of stored advantages with those of other groups of rows"),
    ("advantages_group_mean", "", "largest mean of the advantages of a group, in deviations"),
    ("advantages_group_bound", "", "largest |advantage| over (G - 1)/sqrt(G), the bound of G of unit deviation"),
    ("advantages_odd_group", "", "largest mean of a group, in deviations, where most groups have mean 0"),
    ("surrogate_gain", "", "mean of ratio times advantage, less the mean advantage"),
    ("advantage_follow", "standard errors", "correlation of log-ratio and advantage, in standard errors"),
    ("log_dump_gap", "fraction", "by which share the log differs from the dumps of its updates, in the worst metric"),
    ("old_policy_changed", "fraction", "share of the policy's weights that differ from the old policy's"),
    ("reference_changed", "fraction", "share of the policy's weights that differ from the reference's"),
    ("snapshot_changed", "fraction", "share of the policy's weights that differ from the snapshot before"),
    ("weights_nonfinite", "weights", "weights of the policy that are NaN or infinite"),
    ("adapters_zero", "fraction", "share of LoRA B matrices that are exactly 0"),
    ("optimizer_state_share", "fraction", "share of the optimizer's parameters for which it has a state"),
    ("optimizer_moving", "fraction", "share of the optimizer's states with moments other than 0"),
    ("optimizer_state_fitting", "fraction", "share of optimizer states that have the shape of a weight"),
    ("swallowed_fraction", "fraction", "share of 16-bit weights that a step of the learning rate leaves as they are"),
)

#: Metrics that are observed in the operations of a running script (`ppo-doctor run`). No trainer logs them either.
_OF_SCRIPTS = (
    (
        "repeated_ratio_dev",
        "",
        "largest |ratio - 1| in minibatches of samples that an earlier step of the update trained",
    ),
    ("old_log_prob_with_gradient", "fraction", "share of minibatches in which the old log-probs carry a gradient"),
    (
        "policy_pull",
        "",
        "cosine of minus the loss's gradient by the new log-probs with the advantages: 1 in sound runs",
    ),
    (
        "surrogate_takes_larger",
        "fraction",
        "share of minibatches whose surrogate takes the larger gain, clipped or not",
    ),
    ("surrogate_broadcast", "", "elements of ratio times advantage, per element of the larger factor"),
    ("advantage_repeat_corr", "", "correlation of the advantages of the same samples between two passes of an update"),
    ("advantages_transposed", "fraction", "1 if advantages are in the order of the transposed batch, else 0"),
    (
        "advantages_off_prompts",
        "fraction",
        "share of prompts whose advantages do not add up to 0, as groups do",
    ),
    ("weights_without_gradient", "fraction", "share of trainable weights that ran in training and got no gradient"),
    (
        "policy_gradient_cut",
        "fraction",
        "share of weights before a detach in the policy that only the value loss trains",
    ),
    ("weights_unheld", "fraction", "share of the trained weights of the policy that no optimizer holds"),
    ("weights_frozen", "fraction", "share of the weights in the policy's forward pass that require no gradient"),
    ("ratio_without_gradient", "fraction", "share of steps with a ratio that should carry a gradient and carries none"),
    ("clip_unused", "fraction", "share of minibatches whose clipped ratio is computed and not in the loss"),
    (
        "clip_bounds_swapped",
        "fraction",
        "share of minibatches that clip the ratio with the lower bound above the upper",
    ),
    ("clip_after_step", "fraction", "share of steps after which, and not before which, gradients are clipped"),
    ("gradients_left_over", "fraction", "share of steps that begin with gradients of an earlier step"),
    ("inputs_unseen", "fraction", "share of training inputs that the network did not get in the rollout"),
    ("dropout_active", "fraction", "share of training passes with active dropout"),
    ("modes_differ", "fraction", "share of modules with an effective mode that had another one in the rollout"),
    ("sampling_temperature", "", "divisor of the logits in the rollout that training does not have"),
    ("logits_masked_apart", "fraction", "1 if only the rollout, or only training, excludes classes by a mask, else 0"),
    ("rollouts_behind", "updates", "by how many rollouts the trained samples are older than the latest rollout"),
    ("rollout_trained", "fraction", "share of the rollout's samples that the update trained on"),
    ("gradient_kept", "fraction", "part of the norm of the policy's gradient that clipping leaves"),
    ("minibatches_alike", "fraction", "share of minibatches with the samples of the one before"),
    ("loop_left_early", "fraction", "1 where a return or break ends a loop of the update after its first step, else 0"),
    ("deviation_of_one", "fraction", "1 where the loss is no number by the deviation of a single value, else 0"),
    ("samples_trained_before", "fraction", "share of the update's samples that an earlier update trained on"),
    ("passes", "", "how often the update trained on each of its samples"),
    ("value_target_with_gradient", "fraction", "share of minibatches in which the value target carries a gradient"),
    ("value_broadcast", "", "elements of the value error, per predicted value"),
    ("weights_rounded_away", "fraction", "share of the weights with a step that rounding left unchanged"),
)

#: Units of counts and times, and their limit, up to which float64 represents every whole number.
_COUNTS, _MOST = frozenset(("tokens", "steps", "epochs", "s", "1/s")), 2.0**53
#: Deviations, norms, distances and ratios of probabilities cannot be negative. A learning rate, a coefficient or a KL
#: estimate can, because of a fault of the run or of its estimator.
_POSITIVE = lazy_pattern(r"(_std|_var|_norm|_abs_max|_dev|_diff|_diff_max|ratio_mean|ratio_min|ratio_max)$")
_WITHIN = MappingProxyType(
    {
        "explained_variance": (-math.inf, 1.0),
        "logratio_advantage_corr": (-1.0, 1.0),
        "policy_pull": (-1.0, 1.0),
        "advantage_repeat_corr": (-1.0, 1.0),
        "rollout_prob_corr": (-1.0, 1.0),
        "rollout_prob_diff": (0.0, 1.0),
        "rollout_prob_diff_max": (0.0, 1.0),
    }
)

METRICS = MappingProxyType(
    {row[0]: Metric(*row) for row in _ROWS}
    | {row[0]: Metric(*row, finite=False) for row in _MAY_BE_MISSING}
    | {row[0]: Metric(*row, finite=False, logged=False) for row in (*_OF_TENSORS, *_OF_SCRIPTS)}
)
#: Names of the metrics that only `ppo-doctor run` writes. A log that has one of them was measured in a running script.
OBSERVED = frozenset(row[0] for row in _OF_SCRIPTS)


def unit(name: str) -> str:
    """Return the unit of a metric, or "" if it has none or is unknown."""
    metric = METRICS.get(name)
    return metric.unit if metric else ""


def limits(name: str) -> tuple[float, float]:
    """Return the least and the largest value that the definition of a metric allows."""
    name = name.partition(".")[0]  # the name of a part of the reward follows the dot
    if name in _WITHIN:
        return _WITHIN[name]
    unit_ = unit(name)
    if unit_ == "fraction":
        return 0.0, 1.0
    if unit_ in _COUNTS:
        return 0.0, _MOST
    return (0.0, math.inf) if _POSITIVE.search(name) else (-math.inf, math.inf)


def loggable(name: str) -> bool:
    """Return whether a log may have a metric: all except those that are computed from tensors."""
    metric = METRICS.get(name)
    return metric is None or metric.logged
