"""Every derived quantity: a row says where its function is, and which inputs make it computable."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ppo_doctor.model.frozen import frozen
from ppo_doctor.signals.table import SIGNALS


@frozen(kw_only=False)
class Derived:
    """A derived quantity: its function, and the alternatives (each a set of inputs) that it can be computed from."""

    function: str
    any_of: tuple[tuple[str, ...], ...]


def _row(function: str, *alternatives: str) -> Derived:
    return Derived(f"ppo_doctor.derive.{function}", tuple(tuple(a.split("+")) for a in alternatives))


#: What bounds the length of completions where it is not logged itself.
_LENGTH_BOUND = "objective_entropy+entropy+max_response_length"

DERIVED: Mapping[str, Derived] = MappingProxyType(
    {
        # numerics
        # config, update
        "updates_observed": _row("updates:updates_observed", "optimizer_steps", "epochs_executed_total", "reward_mean"),
        "apart_before_the_step": _row("updates:apart_before_the_step", "approx_kl", "ratio_std"),
        "updates_effective": _row("updates:updates_effective", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "updates_planned": _row("updates:updates_planned", "ppo_epochs+num_minibatches"),
        "updates_asked": _row("updates:updates_asked", "ppo_epochs+num_minibatches"),
        "updates_known": _row("updates:updates_known", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "passes_hidden": _row("hidden:passes_hidden", "loss", "grad_norm"),
        "epochs_share": _row("updates:epochs_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"),
        "unexplained_share": _row(
            "updates:unexplained_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"
        ),
        "kl_over_target": _row(
            "updates:kl_over_target", "approx_kl+target_kl", "early_stopped", "optimizer_steps+approx_kl"
        ),
        "stops_at_kl": _row(
            "updates:stops_at_kl",
            *("optimizer_steps+approx_kl", "optimizer_steps_total+approx_kl", "epochs_executed+approx_kl"),
        ),
        "binding_target_kl": _row("updates:binding_target_kl", "target_kl", "optimizer_steps+approx_kl"),
        "applied_learning_rate": _row("updates:applied_learning_rate", "learning_rate"),
        "kl_coef_implied": _row("coefficients:kl_coef_implied", "kl_penalty_reward+ref_kl"),
        "kl_in_loss": _row("coefficients:kl_in_loss", "loss+ref_kl"),
        "schedule_end_step": _row("coefficients:schedule_end_step", "learning_rate"),
        "schedule_spans_epochs": _row("coefficients:schedule_spans_epochs", "learning_rate+ppo_epochs"),
        # what a configuration says by itself
        "clip_range_gap": _row("dead:clip_range_gap", "clip_range_unused"),
        "settings_without_effect": _row("dead:settings_without_effect", "use_kl_loss+kl_loss_coef"),
        "warmup_share": _row("plan:warmup_share", "warmup_steps+total_steps"),
        "decay_share": _row("plan:decay_share", "schedule_steps"),
        "last_minibatch_samples": _row(
            "plan:last_minibatch_samples", "rollout_steps+num_envs+num_minibatches", "minibatch_size+policy_loss"
        ),
        "token_clip_range": _row("plan:token_clip_range", "clip_range"),
        "kl_coefficient": _row("plan:kl_coefficient", "kl_coef"),
        "rate_negative": _row("domains:rate_negative", "learning_rate"),
        "discount_out_of_range": _row("domains:discount_out_of_range", "gamma", "gae_lambda"),
        "no_update_configured": _row("domains:no_update_configured", "ppo_epochs"),
        "clip_range_closed": _row("domains:clip_range_closed", "clip_range"),
        "gradient_bound_closed": _row("domains:gradient_bound_closed", "max_grad_norm"),
        "critic_untrained": _row("domains:critic_untrained", "vf_coef", "critic_learning_rate"),
        "greedy_sampling": _row("domains:greedy_sampling", "temperature"),
        "group_of_one": _row("domains:group_of_one", "num_generations"),
        "settings_impossible": _row("domains:settings_impossible", "learning_rate"),
        "settings_unusual": _row("domains:settings_unusual", "learning_rate"),
        "settings_misspelt": _row("domains:settings_misspelt", "learning_rate"),
        "pretraining_weight": _row("plan:pretraining_weight", "ptx_coef"),
        "swallowed_step": _row("plan:swallowed_step", "precision+learning_rate"),
        # ratio
        "batch_start_ratio_dev": _row(
            "minibatches:batch_start_ratio_dev",
            "batch_start_ratio_dev",
            "first_ratio_dev",
            "ratio_mean+ratio_batch_var",
        ),
        "epoch_start_ratio_dev": _row("minibatches:epoch_start_ratio_dev", "epoch_start_ratio_dev"),
        "within_epoch_ratio_dev": _row("minibatches:within_epoch_ratio_dev", "within_epoch_ratio_dev"),
        "passes_logratio_std": _row("minibatches:passes_logratio_std", "passes_logratio_std", "first_ratio_dev"),
        "ratio_departure": _row(
            "ratio:ratio_departure", "approx_kl", "ratio_std", "ratio_abs_dev", "ratio_max", "ratio_mean"
        ),
        "ratio_trace": _row("ratio:ratio_trace", "approx_kl", "ratio_std", "clip_fraction"),
        "loss_change_within_batch": _row("ratio:loss_change_within_batch", "loss+reward_mean"),
        # advantages and loss
        "advantage_spread": _row(
            "advantages:advantage_spread",
            *("frac_reward_zero_std", "advantages_std", "advantages_raw_std", "advantages_min+advantages_max"),
        ),
        "advantages_in_loss": _row(
            "advantages:advantages_in_loss", "advantages_abs_max", "advantages_std", "advantages_min+advantages_max"
        ),
        # signal: rewards, critic, batches, completions
        "reward_level": _row("rewards:reward_level", "reward_mean", "episode_return"),
        "reward_ceiling_level": _row("rewards:reward_ceiling_level", "reward_mean", "episode_return"),
        "reward_trend": _row("rewards:reward_trend", "reward_mean", "episode_return"),
        "flat_share": _row("rewards:flat_share", "frac_reward_zero_std"),
        "flat_share_late": _row("rewards:flat_share_late", "frac_reward_zero_std"),
        "share_cut": _row("batches:share_cut", "truncated_fraction", "response_length+max_response_length"),
        "explained_variance_trained": _row("critic:explained_variance_trained", "explained_variance"),
        "explained_variance_alive": _row(
            "critic:explained_variance_alive",
            *(f"explained_variance+{name}" for name in ("value_loss", "returns_std", "episode_return", "reward_mean")),
        ),
        "rollout_steps_seen": _row("batches:rollout_steps_seen", "env_steps+iteration", "rollout_steps+num_envs"),
        "discount_horizon": _row("batches:discount_horizon", "gamma"),
        "truncation_rise": _row("batches:truncation_rise", "truncated_fraction"),
        "length_left": _row("batches:length_left", "response_length", _LENGTH_BOUND),
        "implied_clip_range": _row("clipping:implied_clip_range", "clip_range", "clip_fraction+approx_kl"),
        # policy
        "policy_drift": _row("policy:policy_drift", "entropy", "probe_kl", "update_norm"),
        "weight_motion": _row("policy:weight_motion", "update_norm", "probe_kl"),
        # decision table: how small steps are, what the optimizer does with gradients, what is expected
        "kl_size": _row("movement:kl_size", "approx_kl", "ratio_std"),
        "kl_over_noise": _row("noise:kl_over_noise", "approx_kl", "ratio_std"),
        "rate_over_usual": _row("movement:rate_over_usual", "learning_rate"),
        "rate_over_most": _row("usual_rate:rate_over_most", "learning_rate"),
        "rate_over_least": _row("usual_rate:rate_over_least", "learning_rate"),
        "advantage_link": _row("movement:advantage_link", "logratio_advantage_corr"),
        "gradient_over_epsilon": _row("optimizer:gradient_over_epsilon", "grad_norm"),
        "skipped_share": _row("optimizer:skipped_share", "skipped_steps"),
        "half_precision": _row("optimizer:half_precision", "precision"),
        "gradient_of_policy": _row("optimizer:gradient_of_policy", "grad_norm", "actor_grad_norm"),
        "policy_gradient": _row("optimizer:policy_gradient", "grad_norm", "actor_grad_norm"),
        "overflowing_gradient": _row("optimizer:overflowing_gradient", "grad_norm+policy_loss", "grad_norm+loss"),
        "controller_idle": _row("optimizer:controller_idle", "learning_rate+desired_kl"),
        "loss_without_ratio": _row("expected:loss_without_ratio", "loss_type"),
        "loss_tokens": _row("expected:loss_tokens", "tokens_in_loss", "truncated_fraction+mask_truncated"),
        "warmup_left": _row("expected:warmup_left", "critic_warmup"),
        "rate_left": _row("expected:rate_left", "learning_rate"),
        "printed_zeros": _row("expected:printed_zeros", "learning_rate", "approx_kl", "grad_norm"),
        # stability, mismatch, time (family "stability")
        "reward_lost": _row("outcome:reward_lost", "episode_return", "reward_mean"),
        "reward_gain": _row("onset:reward_gain", "episode_return", "reward_mean"),
        "unclipped_cliff": _row(
            "spikes:unclipped_cliff", "approx_kl+entropy+max_grad_norm", "ratio_std+entropy+max_grad_norm"
        ),
        "movement_cliff": _row("cliffs:movement_cliff", "approx_kl+entropy", "ratio_std+entropy"),
        "choice_entropy": _row("entropy:choice_entropy", "entropy"),
        "entropy_share": _row("entropy:entropy_share", "entropy"),
        "mean_ratio_off": _row("mismatch:mean_ratio_off", "ratio_mean", "approx_kl+approx_kl_k1"),
        "first_cell_off": _row("mismatch:first_cell_off", "ratio_mean+ratio_batch_var"),
        "sampler_gap_growth": _row("mismatch:sampler_gap_growth", "rollout_logp_diff", "rollout_kl"),
        "reference_kl_at_sampling": _row("mismatch:reference_kl_at_sampling", "ref_kl"),
        "reference_kl_sinks": _row("lagging:reference_kl_sinks", "ref_kl"),
        "reference_kl_returns": _row("mismatch:reference_kl_returns", "ref_kl"),
        "sampler_gap": _row("mismatch:sampler_gap", "rollout_logp_diff"),
        "completions": _row("sample_kind:completions", "response_length", "episode_return"),
        "samples": _row("sample_kind:samples", "response_length", "episode_return"),
        "actions": _row("sample_kind:actions", "action_std", "entropy", "response_length"),
        "critic": _row("sample_kind:critic", "value_loss", "explained_variance"),
        "rollout_engine": _row("sample_kind:rollout_engine", "rollout_logp_diff", "rollout_kl"),
        "clip_over_spread": _row("identities:clip_over_spread", "clip_fraction+approx_kl"),
        "clip_kl_contradiction": _row("identities:clip_kl_contradiction", "clip_fraction+approx_kl"),
        # catalogue: repeated batches, what arithmetic allows, whether the reward is the goal
        "records_per_batch": _row(
            "repeats:records_per_batch",
            *("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps"),
        ),
        "batch_repeats": _row(
            "repeats:batch_repeats",
            *("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps"),
        ),
        "equal_episodes": _row("repeats:equal_episodes", "episode_return_min+episode_return_max+env_steps"),
        "clamped_share": _row("clamps:clamped_share", "ratio_mean", "approx_kl", "approx_kl+approx_kl_k1"),
        "reference_kl_burst": _row("bursts:reference_kl_burst", "ref_kl"),
        "reference_kl_over_target": _row("limits:reference_kl_over_target", "ref_kl+ref_kl_target"),
        "loss_tokens_per_written": _row(
            "baselines:loss_tokens_per_written", "tokens_in_loss+response_length+rollout_size+ppo_epochs"
        ),
        "evaluation_behind": _row("goal:evaluation_behind", "eval_return+episode_return"),
        "evaluation_lost": _row("goal:evaluation_lost", "eval_return+reward_mean", "eval_return+episode_return"),
        "accuracy_since_format": _row("goal:accuracy_since_format", "reward_component"),
        "pretraining_loss_rise": _row("goal:pretraining_loss_rise", "ptx_loss"),
        "clipped_values_leap": _row("value_losses:clipped_values_leap", "value_clip_fraction"),
        "explained_variance_best": _row("value_losses:explained_variance_best", "explained_variance"),
        "value_mean_slope": _row("value_losses:value_mean_slope", "values_mean+returns_mean"),
        "steady_kl_spread": _row("advantage_signs:steady_kl_spread", "approx_kl+entropy"),
        "raw_advantage_share": _row("samples:raw_advantage_share", "advantages_raw_std+returns_std"),
        "answers_share": _row("prompts:answers_share", "reward_group_std+reward_component_std"),
        "least_ratio_taught": _row("discarded:least_ratio_taught", "rollout_ratio_min", "masked_fraction"),
        "mean_ratio_taught": _row("discarded:mean_ratio_taught", "rollout_ratio_mean", "masked_fraction"),
        "kl_term_share": _row("samples:kl_term_share", "loss+ref_kl+kl_coef"),
    }
    | {
        name: Derived(f"ppo_doctor.signals.{module}:{name}", tuple(tuple(a.split("+")) for a in alternatives))
        for name, (module, alternatives) in SIGNALS.items()
    }
)
