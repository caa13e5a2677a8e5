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
        "nonfinite_metrics": _row("numerics:nonfinite_metrics", "policy_loss", "loss", "approx_kl", "grad_norm"),
        "weights_end_broken": _row("numerics:weights_end_broken", "update_norm"),
        "share_of_plan": _row("numerics:share_of_plan", "env_steps+total_env_steps", "learning_rate+total_steps"),
        # config, update
        "updates_observed": _row("updates:updates_observed", "optimizer_steps", "epochs_executed_total", "reward_mean"),
        "apart_before_the_step": _row("updates:apart_before_the_step", "approx_kl", "ratio_std"),
        "updates_effective": _row("updates:updates_effective", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "one_update_by_default": _row("updates:one_update_by_default", "clip_fraction", "loss+ref_kl"),
        "passes_seen": _row("updates:passes_seen", "ratio_batch_var+ppo_epochs"),
        "updates_planned": _row("updates:updates_planned", "ppo_epochs+num_minibatches"),
        "updates_asked": _row("updates:updates_asked", "ppo_epochs+num_minibatches"),
        "updates_known": _row("updates:updates_known", "optimizer_steps", "ppo_epochs+num_minibatches"),
        "passes_hidden": _row("hidden:passes_hidden", "loss", "grad_norm"),
        "epochs_share": _row("updates:epochs_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"),
        "unexplained_share": _row(
            "updates:unexplained_share", "optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs"
        ),
        "passes_by_clip_counts": _row(
            "counts:passes_by_clip_counts", "clip_fraction+ppo_epochs+rollout_steps+num_envs"
        ),
        "kl_over_target": _row("updates:kl_over_target", "approx_kl+target_kl", "early_stopped"),
        "binding_target_kl": _row("updates:binding_target_kl", "target_kl"),
        "applied_learning_rate": _row("updates:applied_learning_rate", "learning_rate"),
        "kl_coef_implied": _row("coefficients:kl_coef_implied", "kl_penalty_reward+ref_kl"),
        "kl_in_loss": _row("coefficients:kl_in_loss", "loss+ref_kl"),
        "schedule_end_step": _row("coefficients:schedule_end_step", "learning_rate"),
        "rate_spent_share": _row("coefficients:rate_spent_share", "learning_rate"),
        # what a configuration says by itself
        "clip_range_gap": _row("dead:clip_range_gap", "clip_range_unused"),
        "unread_clip_change": _row("dead:unread_clip_change", "clip_range_unused"),
        "lost_ppo_epochs": _row("dead:lost_ppo_epochs", "ppo_epochs"),
        "prompt_passes": _row("dead:prompt_passes", "train_epochs"),
        "settings_without_effect": _row("dead:settings_without_effect", "use_kl_loss+kl_loss_coef"),
        "warmup_share": _row("plan:warmup_share", "warmup_steps+total_steps"),
        "schedule_over_run": _row("plan:schedule_over_run", "schedule_steps+total_steps"),
        "batch_remainder": _row("plan:batch_remainder", "rollout_steps+num_envs+minibatch_size"),
        "last_minibatch_samples": _row("plan:last_minibatch_samples", "rollout_steps+num_envs+num_minibatches"),
        "gae_reach": _row("plan:gae_reach", "gae_lambda+max_response_length"),
        "discount_reach": _row("plan:discount_reach", "gamma+max_response_length"),
        "token_clip_range": _row("plan:token_clip_range", "clip_range"),
        "kl_coefficient": _row("plan:kl_coefficient", "kl_coef"),
        "minibatch_excess": _row("plan:minibatch_excess", "rollout_steps+num_envs+minibatch_size"),
        "rate_zero": _row("domains:rate_zero", "learning_rate"),
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
        "ratio_departure": _row("ratio:ratio_departure", "approx_kl", "ratio_std", "ratio_max", "ratio_mean"),
        "idle_updates_share": _row("ratio:idle_updates_share", "approx_kl", "ratio_std"),
        "ratio_trace": _row("ratio:ratio_trace", "approx_kl", "ratio_std", "clip_fraction"),
        "loss_change_within_batch": _row("ratio:loss_change_within_batch", "loss+reward_mean"),
        "batches_that_fall": _row("ratio:batches_that_fall", "loss+reward_mean"),
        "gradient_change_within_batch": _row("ratio:gradient_change_within_batch", "grad_norm+reward_mean"),
        # advantages and loss
        "reward_change": _row("advantages:reward_change", "reward_mean", "episode_return"),
        "advantage_spread": _row(
            "advantages:advantage_spread",
            *("frac_reward_zero_std", "advantages_std", "advantages_raw_std", "advantages_min+advantages_max"),
        ),
        # signal: rewards, critic, batches, completions
        "reward_level": _row("rewards:reward_level", "reward_mean", "episode_return"),
        "reward_ceiling_level": _row("rewards:reward_ceiling_level", "reward_mean", "episode_return"),
        "reward_part_stopped": _row("components:reward_part_stopped", "reward_component"),
        "reward_stopped": _row("components:reward_stopped", "reward_mean", "episode_return"),
        "paying_level": _row("components:paying_level", "reward_mean", "episode_return"),
        "reward_peak": _row("rewards:reward_peak", "reward_mean", "episode_return"),
        "reward_step": _row("rewards:reward_step", "reward_mean", "episode_return"),
        "reward_trend": _row("rewards:reward_trend", "reward_mean", "episode_return"),
        "reward_fall": _row("rewards:reward_fall", "reward_mean", "episode_return"),
        "sharpening_loss": _row("rewards:sharpening_loss", "entropy+reward_mean", "entropy+episode_return"),
        "flat_share": _row("rewards:flat_share", "frac_reward_zero_std"),
        "flat_before_training": _row("origins:flat_before_training", "frac_reward_zero_std+reward_mean"),
        "truncated_before_training": _row("origins:truncated_before_training", "truncated_fraction+reward_mean"),
        "explained_variance_size": _row("critic:explained_variance_size", "explained_variance"),
        "explained_variance_best_sixth": _row("critic:explained_variance_best_sixth", "explained_variance+value_loss"),
        "explained_variance_alive": _row("critic:explained_variance_alive", "explained_variance+value_loss"),
        "constant_returns_share": _row("critic:constant_returns_share", "explained_variance+value_loss"),
        "value_follow": _row("critic:value_follow", "values_mean+returns_mean"),
        "value_loss_growth": _row("critic:value_loss_growth", "value_loss"),
        "value_loss_overflow": _row("critic:value_loss_overflow", "value_loss+policy_loss"),
        "value_loss_late": _row("critic:value_loss_late", "value_loss"),
        "rollout_steps_seen": _row("batches:rollout_steps_seen", "env_steps+iteration", "rollout_steps+num_envs"),
        "minibatch_samples": _row("batches:minibatch_samples", "minibatch_size"),
        "discount_horizon": _row("batches:discount_horizon", "gamma+episode_length"),
        "truncation_rise": _row("batches:truncation_rise", "truncated_fraction"),
        "gain_kept": _row("truncation:gain_kept", "reward_mean", "episode_return"),
        "reward_beyond_cuts": _row("truncation:reward_beyond_cuts", "reward_mean+truncated_fraction"),
        "ended_share": _row("truncation:ended_share", "end_tokens+local_rollout_size", "end_tokens+rollout_size"),
        "length_left": _row("batches:length_left", "response_length", _LENGTH_BOUND),
        "length_at_end": _row("batches:length_at_end", "response_length", _LENGTH_BOUND),
        "implied_clip_range": _row("clipping:implied_clip_range", "clip_range", "clip_fraction+approx_kl"),
        # policy
        "reference_kl_drift": _row("policy:reference_kl_drift", "ref_kl"),
        "policy_drift": _row("policy:policy_drift", "entropy", "probe_kl", "update_norm"),
        "weight_motion": _row("policy:weight_motion", "update_norm", "probe_kl"),
        # decision table: how small steps are, what the optimizer does with gradients, what is expected
        "kl_size": _row("movement:kl_size", "approx_kl", "ratio_std"),
        "kl_over_noise": _row("noise:kl_over_noise", "approx_kl", "ratio_std"),
        "late_entropy_drift": _row("movement:late_entropy_drift", "entropy"),
        "motion_per_rate": _row("movement:motion_per_rate", "update_norm+learning_rate"),
        "rate_over_usual": _row("movement:rate_over_usual", "learning_rate"),
        "probe_over_logged": _row("movement:probe_over_logged", "probe_kl+approx_kl+ppo_epochs"),
        "gain_evidence": _row("movement:gain_evidence", "policy_loss+approx_kl"),
        "advantage_link": _row("movement:advantage_link", "logratio_advantage_corr"),
        "clip_headroom": _row("optimizer:clip_headroom", "grad_norm+max_grad_norm", "max_grad_norm"),
        "gradient_over_epsilon": _row("optimizer:gradient_over_epsilon", "grad_norm"),
        "skipped_share": _row("optimizer:skipped_share", "skipped_steps"),
        "loss_scale_fall": _row("optimizer:loss_scale_fall", "loss_scale"),
        "half_precision": _row("optimizer:half_precision", "precision"),
        "overflowing_gradient": _row("optimizer:overflowing_gradient", "grad_norm+policy_loss", "grad_norm+loss"),
        "controller_idle": _row("optimizer:controller_idle", "learning_rate+desired_kl"),
        "loss_without_ratio": _row("expected:loss_without_ratio", "loss_type"),
        "loss_tokens": _row("expected:loss_tokens", "tokens_in_loss", "truncated_fraction+mask_truncated"),
        "warmup_left": _row("expected:warmup_left", "critic_warmup"),
        "rate_left": _row("expected:rate_left", "learning_rate"),
        "printed_zeros": _row("expected:printed_zeros", "learning_rate", "approx_kl", "grad_norm"),
        "reward_tilt": _row("expected:reward_tilt", "kl_coef+reward_std"),
        "coefficient_growth": _row("expected:coefficient_growth", "kl_coef"),
        "timing_epochs": _row("expected:timing_epochs", "time_update+time_old_log_prob+ppo_epochs"),
        "sampler_drift": _row("expected:sampler_drift", "rollout_kl"),
        "drift_over_ratio": _row("expected:drift_over_ratio", "rollout_kl+approx_kl"),
        # stability, mismatch, time (family "stability")
        "entropy_step_at_stop": _row("unmoved:entropy_step_at_stop", "entropy+reward_mean", "entropy+episode_return"),
        "kl_at_stop": _row("unmoved:kl_at_stop", "reward_mean", "episode_return"),
        "returns_stopped": _row("stopped:returns_stopped", "episode_return+episode_length"),
        "reward_lost": _row("onset:reward_lost", "episode_return", "reward_mean"),
        "gain_of_drift": _row("rewards:gain_of_drift", "episode_return", "reward_mean"),
        "reward_gain": _row("onset:reward_gain", "episode_return", "reward_mean"),
        "update_kl": _row("steps:update_kl", "approx_kl"),
        "lethal_update_kl": _row("steps:lethal_update_kl", "approx_kl+entropy"),
        "first_updates_kl": _row("steps:first_updates_kl", "approx_kl"),
        "early_entropy_share": _row("entropy:early_entropy_share", "entropy"),
        "clipped_share": _row("steps:clipped_share", "clip_fraction"),
        "first_update_clipped": _row("steps:first_update_clipped", "clip_fraction"),
        "gradient_spikes": _row("steps:gradient_spikes", "grad_norm"),
        "spike_aftermath": _row("steps:spike_aftermath", "grad_norm+reward_mean", "grad_norm+episode_return"),
        "steps_after_spike": _row("spikes:steps_after_spike", "grad_norm+approx_kl", "grad_norm+clip_fraction"),
        "unclipped_cliff": _row(
            "spikes:unclipped_cliff", "approx_kl+entropy+max_grad_norm", "ratio_std+entropy+max_grad_norm"
        ),
        "unclipped_spike": _row("spikes:unclipped_spike", "grad_norm+max_grad_norm"),
        "movement_cliff": _row("cliffs:movement_cliff", "approx_kl+entropy", "ratio_std+entropy"),
        "gradient_growth": _row("steps:gradient_growth", "grad_norm"),
        "loss_leap": _row("steps:loss_leap", "policy_loss", "loss+kl_coef"),
        "kl_before_over_after": _row("steps:kl_before_over_after", "approx_kl+probe_kl"),
        "kl_per_squared_rate": _row("steps:kl_per_squared_rate", "approx_kl+learning_rate"),
        "learning_rate_leap": _row("leaps:learning_rate_leap", "learning_rate"),
        "reward_lost_to_leap": _row(
            "leaps:reward_lost_to_leap", "learning_rate+reward_mean", "learning_rate+episode_return"
        ),
        "entropy_left_at_once": _row("leaps:entropy_left_at_once", "entropy"),
        "divergence_over_evenness": _row(
            "evenness:divergence_over_evenness", "entropy+approx_kl", "entropy+clip_fraction"
        ),
        "choice_entropy": _row("entropy:choice_entropy", "entropy"),
        "entropy_share": _row("entropy:entropy_share", "entropy"),
        "entropy_over_start": _row("entropy:entropy_over_start", "entropy+episode_return"),
        "entropy_rise": _row("entropy:entropy_rise", "entropy"),
        "solved_level": _row("entropy:solved_level", "reward_mean+frac_reward_zero_std"),
        "kl_follows_entropy": _row("sampling:kl_follows_entropy", "approx_kl+entropy"),
        "kl_against_entropy": _row("sampling:kl_against_entropy", "approx_kl+entropy"),
        "kl_of_entropy_lost": _row("sampling:kl_of_entropy_lost", "approx_kl+entropy"),
        "clipping_after_first": _row("sampling:clipping_after_first", "clip_fraction"),
        "kl_after_first": _row("sampling:kl_after_first", "approx_kl"),
        "kl_scatter": _row("sampling:kl_scatter", "approx_kl"),
        "reference_kl_asleep": _row("sampling:reference_kl_asleep", "ref_kl+clip_fraction"),
        "gain_per_root_kl": _row("sampling:gain_per_root_kl", "policy_loss+approx_kl"),
        "mean_ratio_above_one": _row("sampling:mean_ratio_above_one", "ratio_mean", "approx_kl+approx_kl_k1"),
        "clipping_trend": _row("sampling:clipping_trend", "clip_fraction"),
        "clipped_at_first": _row("sampling:clipped_at_first", "clip_fraction+reward_mean"),
        "clipped_at_last": _row("sampling:clipped_at_last", "clip_fraction+reward_mean+entropy"),
        "differential_entropy_fall": _row("entropy:differential_entropy_fall", "entropy"),
        "clip_high_share": _row("sampling:clip_high_share", "clip_fraction_low+clip_fraction_high"),
        "kl_trend": _row("sampling:kl_trend", "approx_kl"),
        "losses_above_zero": _row("surrogates:losses_above_zero", "policy_loss", "loss"),
        "loss_below_zero": _row("surrogates:loss_below_zero", "policy_loss"),
        "loss_trend": _row("surrogates:loss_trend", "policy_loss", "loss"),
        "passes_without_gain": _row("surrogates:passes_without_gain", "policy_loss+approx_kl+clip_fraction+ppo_epochs"),
        "clipped_at_generation": _row("mismatch:clipped_at_generation", "clip_fraction+reward_mean"),
        "loss_before_update": _row("mismatch:loss_before_update", "policy_loss"),
        "mean_ratio_off": _row("mismatch:mean_ratio_off", "ratio_mean", "approx_kl+approx_kl_k1"),
        "ratio_change_over_offset": _row("ratio:ratio_change_over_offset", "ratio_mean+ratio_batch_var"),
        "first_cell_off": _row("mismatch:first_cell_off", "ratio_mean+ratio_batch_var"),
        "sampler_gap_growth": _row("mismatch:sampler_gap_growth", "rollout_logp_diff", "rollout_kl"),
        "reference_kl_at_sampling": _row("mismatch:reference_kl_at_sampling", "ref_kl"),
        "reference_kl_at_start": _row("mismatch:reference_kl_at_start", "ref_kl"),
        "reference_kl_deficit": _row("mismatch:reference_kl_deficit", "ref_kl"),
        "reference_kl_sinks": _row("lagging:reference_kl_sinks", "ref_kl"),
        "reference_kl_turns": _row("lagging:reference_kl_turns", "ref_kl"),
        "reference_kl_returns": _row("mismatch:reference_kl_returns", "ref_kl"),
        "gain_without_entropy": _row("entropy:gain_without_entropy", "entropy+reward_mean", "entropy+episode_return"),
        "answer_length_spread": _row(
            "entropy:answer_length_spread", "response_length_min+response_length_max", "response_length"
        ),
        "sampler_gap": _row("mismatch:sampler_gap", "rollout_logp_diff"),
        "completions": _row("sample_kind:completions", "response_length", "episode_return"),
        "samples": _row("sample_kind:samples", "response_length", "episode_return"),
        "actions": _row("sample_kind:actions", "action_std", "entropy", "response_length"),
        "critic": _row("sample_kind:critic", "value_loss", "explained_variance"),
        "rollout_engine": _row("sample_kind:rollout_engine", "rollout_logp_diff", "rollout_kl"),
        "action_spread": _row("mismatch:action_spread", "action_std"),
        "mean_ratio_contradiction": _row("identities:mean_ratio_contradiction", "ratio_mean+approx_kl+approx_kl_k1"),
        "kl_over_unclipped": _row("identities:kl_over_unclipped", "approx_kl+clip_fraction"),
        "surrogate_while_moving": _row("identities:surrogate_while_moving", "policy_loss+approx_kl"),
        "clip_over_spread": _row("identities:clip_over_spread", "clip_fraction+approx_kl"),
        "clip_kl_contradiction": _row("identities:clip_kl_contradiction", "clip_fraction+approx_kl"),
        # catalogue: repeated batches, what arithmetic allows, whether the reward is the goal
        "batch_repeats": _row(
            "repeats:batch_repeats", "explained_variance", "response_length", "returns_mean", "objective_entropy"
        ),
        "update_scatter": _row("repeats:update_scatter", "policy_loss+approx_kl"),
        "returns_spread": _row("endings:returns_spread", "value_loss+explained_variance+episode_length+gamma"),
        "critic_scatter": _row("repeats:critic_scatter", "value_loss"),
        "equal_episodes": _row("repeats:equal_episodes", "episode_return_min+episode_return_max+env_steps"),
        "group_bound_excess": _row("limits:group_bound_excess", "advantages_abs_max", "advantages_min+advantages_max"),
        "returns_over_endless": _row("limits:returns_over_endless", "returns_mean+reward_mean+episode_length+gamma"),
        "ratio_at_clamp": _row("limits:ratio_at_clamp", "ratio_max"),
        "clamped_share": _row("clamps:clamped_share", "ratio_mean", "approx_kl", "approx_kl+approx_kl_k1"),
        "loss_size": _row("limits:loss_size", "loss"),
        "reference_kl_worst": _row("limits:reference_kl_worst", "ref_kl"),
        "reference_kl_burst": _row("bursts:reference_kl_burst", "ref_kl"),
        "reference_kl_spread": _row("limits:reference_kl_spread", "ref_kl"),
        "reference_kl_over_target": _row("limits:reference_kl_over_target", "ref_kl+ref_kl_target"),
        "value_steps_needed": _row("limits:value_steps_needed", "value_loss+clip_range_vf"),
        "critic_relearns": _row("baselines:critic_relearns", "explained_variance+value_loss"),
        "cold_critic_dip": _row(
            "baselines:cold_critic_dip", "explained_variance+reward_mean", "explained_variance+episode_return"
        ),
        "advantages_before_collapse": _row(
            "baselines:advantages_before_collapse",
            *("advantages_raw_std+reward_mean", "advantages_raw_std+episode_return", "value_loss+episode_return"),
        ),
        "loss_tokens_per_written": _row(
            "baselines:loss_tokens_per_written", "tokens_in_loss+response_length+rollout_size+ppo_epochs"
        ),
        "sampler_gap_at_rest": _row("baselines:sampler_gap_at_rest", "rollout_logp_diff+learning_rate"),
        "evaluation_lost": _row("goal:evaluation_lost", "eval_return+reward_mean", "eval_return+episode_return"),
        "reward_follows_length": _row("goal:reward_follows_length", "reward_mean+response_length"),
        "kl_without_gain": _row("goal:kl_without_gain", "ref_kl+reward_mean"),
        "accuracy_since_format": _row("goal:accuracy_since_format", "reward_component"),
        "pretraining_loss_rise": _row("goal:pretraining_loss_rise", "ptx_loss"),
        "value_loss_leap": _row("value_losses:value_loss_leap", "value_loss"),
        "value_loss_follow": _row("value_losses:value_loss_follow", "value_loss+reward_mean"),
        "critic_spread_share": _row("value_losses:critic_spread_share", "values_std+value_loss+values_mean"),
        "value_loss_floor": _row("value_losses:value_loss_floor", "value_loss"),
        "clipped_values_leap": _row("value_losses:clipped_values_leap", "value_clip_fraction"),
        "explained_variance_best": _row("value_losses:explained_variance_best", "explained_variance"),
        "costs_escaped": _row("payment:costs_escaped", "reward_mean+entropy"),
        "steady_kl_spread": _row("advantage_signs:steady_kl_spread", "approx_kl+entropy"),
        "nats_for_nothing": _row("advantage_signs:nats_for_nothing", "ref_kl+reward_mean+entropy"),
        "value_mean_slope": _row("value_losses:value_mean_slope", "values_mean+returns_mean"),
        "episodes_asked_for": _row("limits:episodes_asked_for", "returns_mean+reward_mean+episode_length+gamma"),
        "returns_over_longest": _row(
            "payment:returns_over_longest", "returns_mean+reward_mean+episode_return+episode_length+gamma"
        ),
        "pay_per_step_growth": _row("payment:pay_per_step_growth", "episode_return+episode_length"),
        "pay_rate_growth": _row("payment:pay_rate_growth", "episode_return+episode_length"),
        "entropy_sum_growth": _row("payment:entropy_sum_growth", "objective_entropy+entropy"),
        "reward_follows_entropy_sum": _row("payment:reward_follows_entropy_sum", "reward_mean+objective_entropy"),
        "ends_left": _row("payment:ends_left", "end_tokens"),
        "reward_follows_ends": _row("payment:reward_follows_ends", "reward_mean+end_tokens"),
        "one_length_share": _row("payment:one_length_share", "response_length+entropy"),
        "discount_of_unknown_episodes": _row("payment:discount_of_unknown_episodes", "gamma+episode_return"),
        "surprise_over_entropy": _row("surprise:surprise_over_entropy", "objective_entropy+response_length+entropy"),
        "answer_entropy": _row("samples:answer_entropy", "entropy+response_length"),
        "first_explained": _row("samples:first_explained", "explained_variance"),
        "explained_late": _row("samples:explained_late", "explained_variance"),
        "explained_late_low": _row("samples:explained_late_low", "explained_variance"),
        "explained_high": _row("samples:explained_high", "explained_variance"),
        "critic_foresight": _row("samples:critic_foresight", "explained_variance+entropy"),
        "raw_advantage_share": _row("samples:raw_advantage_share", "advantages_raw_std+returns_std"),
        "group_spread_share": _row("samples:group_spread_share", "reward_group_std+reward_std"),
        "lengths_by_prompt": _row("prompts:lengths_by_prompt", "response_length+num_generations+minibatch_size"),
        "answers_share": _row("prompts:answers_share", "reward_group_std+reward_component_std"),
        "least_ratio_taught": _row("discarded:least_ratio_taught", "rollout_ratio_min"),
        "mean_ratio_taught": _row("discarded:mean_ratio_taught", "rollout_ratio_mean"),
        "reward_spread_range": _row("prompts:reward_spread_range", "frac_reward_zero_std+reward_std+entropy"),
        "reward_moves_in_spreads": _row("prompts:reward_moves_in_spreads", "frac_reward_zero_std+reward_std"),
        "kl_term_share": _row("samples:kl_term_share", "loss+ref_kl+kl_coef"),
        "negative_estimate": _row("identities:negative_estimate", "approx_kl", "ref_kl"),
    }
    | {
        name: Derived(f"ppo_doctor.signals.{module}:{name}", tuple(tuple(a.split("+")) for a in alternatives))
        for name, (module, alternatives) in SIGNALS.items()
    }
)
