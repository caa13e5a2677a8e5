"""The canonical vocabulary of training settings: what profiles map native configuration keys to."""

from __future__ import annotations

from types import MappingProxyType

#: name → what it means. A profile that names another setting does not load.
SETTINGS = MappingProxyType(
    {
        # data reuse
        "ppo_epochs": "passes over a rollout batch",
        "num_minibatches": "optimizer batches per pass",
        "minibatch_size": "samples (or prompts, where the framework counts prompts) per optimizer step or micro-batch",
        "max_minibatch_size": "largest minibatch that is not split and accumulated",
        "rollout_size": "samples (or prompts) per rollout batch",
        "local_rollout_size": "samples of one rank's part of a rollout batch",
        "rollout_steps": "environment steps per environment and rollout",
        "num_envs": "environments that act in parallel",
        "num_ranks": "data-parallel ranks of the trainer",
        "generation_batches": "generation batches that are trained on together",
        "generation_batch_size": "samples of one generation batch",
        "buffer_size": "optimizer batches kept for one update",
        "updates_per_batch": "optimizer steps per rollout batch",
        "gradient_accumulation_steps": "micro-batches per optimizer step",
        "steps_per_generation": "micro-batches per generation",
        "num_generations": "completions per prompt",
        "shuffle": "whether minibatches are drawn in random order",
        # step size
        "learning_rate": "learning rate of the policy at the start",
        "critic_learning_rate": "learning rate of the critic at the start",
        "anneal_lr": "whether the learning rate falls linearly to 0",
        "lr_schedule": "how the learning rate changes",
        "warmup_steps": "steps or share of the learning rate's warm-up",
        "schedule_steps": "steps over which the learning rate decays",
        "max_grad_norm": "norm to which gradients are clipped",
        "max_grad_norm_unused": "a bound of the gradient norm that the trainer does not apply",
        "optimizer": "name of the optimizer",
        "adam_eps": "what Adam adds to the root of the mean squared gradient",
        "adam_beta1": "decay of Adam's mean gradient",
        "adam_beta2": "decay of Adam's mean squared gradient",
        # clipping and divergence from the old policy
        "clip_range": "clip range of the ratio (the lower one where there are two)",
        "clip_range_high": "upper clip range of the ratio",
        "clip_range_dual": "bound of the ratio for negative advantages (dual clip)",
        "clip_range_vf": "clip range of value predictions",
        "clip_range_unused": "a clip range that the framework reads only under a switch",
        "use_clip_range": "the switch for separate lower and upper clip ranges",
        "vf_error_clamp": "bound at which the squared value error saturates",
        "target_kl": "KL to the old policy that stops the epochs",
        "early_stopping": "whether target_kl stops the epochs",
        "desired_kl": "KL to the old policy that an adaptive learning rate steers to",
        "kl_target": "KL to the old policy that an adaptive penalty steers to",
        "use_kl_loss": "whether a KL term is in the loss",
        # reference model
        "kl_coef": "coefficient of the KL penalty",
        "kl_loss_coef": "coefficient of a KL term in the loss, where the framework also has a penalty in the reward",
        "use_kl_in_reward": "whether the KL penalty is part of the reward",
        "ref_kl_target": "KL to the reference model that an adaptive coefficient steers to",
        "kl_estimator": "estimator of the KL to the reference model",
        "sync_ref_model": "whether the reference model follows the policy",
        # what a step is credited with
        "gamma": "discount",
        "gae_lambda": "lambda of generalised advantage estimation",
        "normalize_advantages": "whether advantages are normalised",
        "normalize_per_minibatch": "whether advantages are normalised in each minibatch instead of the whole batch",
        "advantage_estimator": "how advantages are computed",
        "scale_rewards": "over what rewards are scaled to unit deviation",
        "reward_scale": "factor of the rewards that are learned from",
        "normalize_rewards": "whether rewards are normalised",
        "reward_clip": "bound of rewards",
        "whiten_rewards": "whether rewards are whitened before advantages",
        # loss
        "ent_coef": "coefficient of the entropy bonus",
        "vf_coef": "coefficient of the value loss",
        "ptx_coef": "coefficient of a pretraining loss beside the policy's",
        "loss_type": "variant of the policy loss",
        "loss_aggregation": "how token losses are averaged",
        "importance_sampling_level": "whether the ratio is of tokens or of sequences",
        "rollout_correction": "whether the loss is reweighted for the rollout engine's own log-probs",
        "bypass_old_log_prob": "whether the rollout engine's log-probs serve as the old policy's",
        "force_on_policy_ratio": "whether the ratio is fixed at 1",
        "mask_truncated": "whether truncated completions are left out of the loss",
        "use_vtrace": "whether V-trace replaces GAE",
        # models and sampling
        "temperature": "sampling temperature",
        "sampler_temperature": "temperature that is passed to the generator alone",
        "top_p": "share of the probability from which tokens are sampled",
        "disable_dropout": "whether dropout is switched off",
        "critic_warmup": "updates before the policy is trained",
        "max_response_length": "longest completion",
        "max_policy_lag": "versions by which a sample may be old",
        "precision": "number format of training",
        # extent
        "total_steps": "steps planned",
        "total_env_steps": "environment steps planned",
        "total_episodes": "episodes planned",
        "train_epochs": "passes over the prompts",
        "logging_steps": "steps per record",
        "algorithm": "name of the algorithm",
    }
)

#: Settings that trainers log as they are in force → the metric.
IN_FORCE = MappingProxyType(
    {"learning_rate": "learning_rate", "clip_range": "clip_range", "kl_coef": "kl_coef", "ent_coef": "entropy_coef"}
)
