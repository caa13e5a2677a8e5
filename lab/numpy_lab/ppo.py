"""One PPO/GRPO update: epochs × minibatches of the clipped surrogate, with target-KL stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .advantages import normalized
from .agent import Agent, Batch
from .nets import F32, Int
from .records import MinibatchArrays, MinibatchRecord
from .settings import Setup, TrainConfig
from .surrogate import PolicyTerms, Rows, ValueTerms, policy_terms, value_terms


def improve(
    agent: Agent, batch: Batch, setup: Setup, learning_rate: float, rng: np.random.Generator
) -> list[MinibatchRecord]:
    """Run the epochs of one update and return a record per minibatch entered."""
    config, stages = setup.config, setup.stages
    records: list[MinibatchRecord] = []
    for epoch in range(stages.epochs(config)):
        stages.before_epoch(batch, agent)
        for minibatch, chosen in enumerate(_minibatches(config, rng)):
            stages.before_minibatch(batch, agent)
            rows = _rows(batch, chosen, setup, agent)
            record = _step(agent, rows, setup, learning_rate)
            records.append(replace(record, epoch=epoch, minibatch=minibatch))
            if not record.stepped:
                return records
        if _stop_after_epoch(records[-1], config):
            return records
    return records


def _minibatches(config: TrainConfig, rng: np.random.Generator) -> list[Int]:
    order = rng.permutation(config.rollout_size) if config.shuffle else np.arange(config.rollout_size)
    return np.array_split(order, config.num_minibatches)


def _rows(batch: Batch, chosen: Int, setup: Setup, agent: Agent) -> Rows:
    mask = setup.stages.loss_mask(batch.mask[chosen])
    advantages = batch.advantages[chosen]
    if setup.config.normalize == "minibatch":
        advantages = normalized(advantages, mask, guard=setup.stages.guard_single)
    reference = batch.ref_log_prob
    return Rows(
        inputs=batch.inputs[chosen].reshape(-1, batch.inputs.shape[-1]),
        actions=batch.actions[chosen].reshape(-1, *batch.actions.shape[2:]),
        mask=mask.ravel(),
        old_log_prob=setup.stages.old_log_prob(batch, chosen, agent).ravel(),
        ref_log_prob=None if reference is None else reference[chosen].ravel(),
        advantages=advantages.ravel(),
        values=batch.values[chosen].ravel(),
        returns=batch.returns[chosen].ravel(),
    )


def _step(agent: Agent, rows: Rows, setup: Setup, learning_rate: float) -> MinibatchRecord:
    config = setup.config
    logits, activations = agent.actor.forward(rows.inputs)
    policy = policy_terms(logits, rows, config)
    kl_rejects = config.stop_rule == "sb3" and config.target_kl is not None
    stepped = not (kl_rejects and _k3(policy, rows) > 1.5 * (config.target_kl or 0.0))
    overflowed, loss_scale = setup.stages.scaler()
    grad_norm = float("nan")
    if stepped:
        grads = setup.stages.gradients(agent.actor.backward(activations, policy.d_outputs))
        grad_norm = float("inf") if overflowed else _actor_step(agent, grads, setup, learning_rate)
    critic_rate = setup.stages.critic_rate(learning_rate)
    value, value_grad_norm = _critic_step(agent, rows, config, critic_rate, stepped and not overflowed)
    record = _record(policy, value, rows, setup, grad_norm, value_grad_norm, stepped)
    return replace(record, skipped=overflowed, loss_scale=loss_scale)


def _actor_step(agent: Agent, grads: list[F32], setup: Setup, learning_rate: float) -> float:
    norm = agent.actor_optimizer.step(setup.stages.trained(agent), grads, learning_rate)
    setup.stages.after_step(agent)
    return norm


def _critic_step(
    agent: Agent, rows: Rows, config: TrainConfig, learning_rate: float, stepped: bool
) -> tuple[ValueTerms | None, float]:
    if agent.critic is None:
        return None, float("nan")
    values, activations = agent.critic.forward(rows.inputs)
    terms = value_terms(values[:, 0], rows, config)
    if not stepped:
        return terms, float("nan")
    grads = agent.critic.backward(activations, terms.d_values[:, None])
    return terms, agent.critic_optimizer.step(agent.critic.params, grads, learning_rate)


def _k3(policy: PolicyTerms, rows: Rows) -> float:
    return rows.mean((policy.ratio - 1) - policy.log_ratio)


def _stop_after_epoch(last: MinibatchRecord, config: TrainConfig) -> bool:
    """The end-of-epoch rules: TRL legacy tests k1 at 1.5 × target, CleanRL k3 at the target itself."""
    if config.target_kl is None:
        return False
    if config.stop_rule == "trl-legacy":
        return last.k1 > 1.5 * config.target_kl
    return config.stop_rule == "cleanrl" and last.k3 > config.target_kl


def _record(
    policy: PolicyTerms,
    value: ValueTerms | None,
    rows: Rows,
    setup: Setup,
    grad_norm: float,
    value_grad_norm: float,
    stepped: bool,
) -> MinibatchRecord:
    ratio = policy.ratio[rows.mask > 0] if rows.mask.any() else np.ones(1, np.float32)
    beyond = setup.stages.clip_metric(policy.ratio, setup.config.clip_range)
    nan = float("nan")
    return MinibatchRecord(
        epoch=0,
        minibatch=0,
        tokens=int(rows.mask.sum()),
        mask_fraction=float(rows.mask.mean()),
        ratio_mean=rows.mean(policy.ratio),
        ratio_std=float(ratio.std()),
        ratio_min=float(ratio.min()),
        ratio_max=float(ratio.max()),
        k1=rows.mean(-policy.log_ratio),
        k2=rows.mean(np.float32(0.5) * np.square(policy.log_ratio)),
        k3=_k3(policy, rows),
        clip_fraction=rows.mean(beyond),
        clip_fraction_low=rows.mean(policy.clipped_low),
        clip_fraction_high=rows.mean(policy.clipped_high),
        policy_loss=policy.policy_loss,
        entropy=policy.entropy,
        entropy_unmasked=policy.entropy_unmasked,
        ref_kl=policy.ref_kl,
        value_loss=value.loss if value else nan,
        value_mse=value.mse if value else nan,
        value_clip_fraction=value.clip_fraction if value else nan,
        values_mean=value.mean if value else nan,
        loss=_total_loss(policy, value, setup.config),
        grad_norm=grad_norm,
        value_grad_norm=value_grad_norm,
        stepped=stepped,
        logratio_advantage_corr=_correlation(policy.log_ratio, rows),
        arrays=_arrays(policy, rows),
    )


def _arrays(policy: PolicyTerms, rows: Rows) -> MinibatchArrays:
    return MinibatchArrays(
        new_log_prob=policy.new_log_prob,
        old_log_prob=rows.old_log_prob,
        advantages=rows.advantages,
        mask=rows.mask,
        gradient=policy.d_log_prob,
    )


def _correlation(log_ratio: F32, rows: Rows) -> float:
    x, y = log_ratio[rows.mask > 0], rows.advantages[rows.mask > 0]
    return float(np.corrcoef(x, y)[0, 1]) if x.size > 2 and x.std() > 0 and y.std() > 0 else float("nan")


def _total_loss(policy: PolicyTerms, value: ValueTerms | None, config: TrainConfig) -> float:
    loss = policy.policy_loss
    if config.ent_coef:
        loss -= config.ent_coef * policy.entropy
    if config.algorithm == "grpo" and config.kl_coef:
        loss += config.kl_coef * policy.ref_kl
    return loss + config.vf_coef * value.loss if value else loss


def k3_of(new: F32, old: F32, mask: F32) -> float:
    """k3 over the tokens of the mask: of the updated policy against the log-probs stored at sampling, say."""
    delta: F32 = new - old
    return float(((np.exp(delta) - 1 - delta) * mask).sum() / mask.sum())
