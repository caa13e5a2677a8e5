"""Language task: a toy autoregressive policy writes short strings; a verifier scores them against a target.

A token is one row: its features are the prompt, the token before it and its position, all one-hot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .advantages import explained_variance, gae, group_advantages, normalized
from .agent import Agent, Batch
from .distributions import gather
from .nets import F32, Int, log_softmax, sample
from .records import Completions, RolloutRecord
from .settings import Progress, Setup, TrainConfig

VOCABULARY, PROMPTS, EOS = 10, 16, 0
PROMPT_TOKENS = 6


@dataclass(frozen=True, slots=True)
class Generation:
    """Sequences × tokens; `mask` covers the tokens up to and with EOS."""

    prompts: Int
    inputs: F32
    actions: Int
    mask: F32
    ended: F32
    scores: F32
    parts: dict[str, F32]

    @property
    def lengths(self) -> F32:
        counts: F32 = self.mask.sum(axis=1)
        return counts


@dataclass(frozen=True, slots=True)
class _Signal:
    """Advantages before and after normalisation, and what the critic is asked to predict."""

    raw: F32
    used: F32
    values: F32
    returns: F32
    sampled: F32
    reference: F32 | None


class LanguageTask:
    actions = VOCABULARY

    def __init__(self, setup: Setup, rng: np.random.Generator) -> None:
        self.setup, self.rng, self.global_step = setup, rng, 0
        tokens = setup.config.max_tokens
        self.features = PROMPTS + VOCABULARY + 1 + tokens
        lengths = np.arange(PROMPTS) % (tokens - 3) + 1
        words = np.random.default_rng(7).integers(1, VOCABULARY, (PROMPTS, tokens))
        self.targets: Int = np.where(np.arange(tokens) < lengths[:, None], words, EOS)
        self.target_lengths: Int = lengths + 1

    def rollout(self, agent: Agent, progress: Progress) -> tuple[Batch, RolloutRecord]:
        generation = self._generate(agent, progress)
        self.global_step += len(generation.prompts)
        signal = self._signal(agent, generation, progress)
        batch = Batch(
            inputs=generation.inputs,
            actions=generation.actions,
            mask=generation.mask,
            old_log_prob=signal.sampled,
            sampled_log_prob=signal.sampled.copy(),
            ref_log_prob=signal.reference,
            values=signal.values,
            advantages=signal.used,
            returns=signal.returns,
        )
        return batch, _rollout_record(generation, signal, self.setup.config)

    def _generate(self, agent: Agent, progress: Progress) -> Generation:
        config = self.setup.config
        drawn = self.rng.choice(PROMPTS, config.num_prompts, replace=config.num_prompts > PROMPTS)
        prompts = np.repeat(drawn, config.num_generations)
        shape = (len(prompts), config.max_tokens)
        inputs, actions = np.zeros((*shape, self.features), np.float32), np.zeros(shape, np.int64)
        previous = np.full(len(prompts), VOCABULARY)
        for position in range(config.max_tokens):
            inputs[:, position] = self.setup.stages.observation(self._encode(prompts, previous, position), progress)
            logits = self.setup.stages.rollout_logits(agent, inputs[:, position], progress)
            actions[:, position] = previous = sample(logits, self.rng)
        open_before = np.cumsum(actions == EOS, axis=1) - (actions == EOS) == 0
        mask = open_before.astype(np.float32)
        if config.token_budget is not None:
            mask[:, config.token_budget :] = 0
        ended = ((actions == EOS) & (mask > 0)).any(axis=1).astype(np.float32)
        verified = self.setup.stages.answer_score(self._verify(prompts, actions, mask), mask, prompts, progress)
        parts = self.setup.stages.answer_parts(verified, mask, progress)
        scores = self.setup.stages.reward(sum(parts.values(), np.zeros_like(verified)) if parts else verified, progress)
        return Generation(prompts, inputs, actions, mask, ended, scores, parts)

    def _encode(self, prompts: Int, previous: Int, position: int) -> F32:
        rows = np.zeros((len(prompts), self.features), np.float32)
        index = np.arange(len(prompts))
        rows[index, prompts] = 1
        rows[index, PROMPTS + previous] = 1
        rows[index, PROMPTS + VOCABULARY + 1 + position] = 1
        return rows

    def _verify(self, prompts: Int, actions: Int, mask: F32) -> F32:
        """Share of positions that agree with the target string, EOS included."""
        wanted = np.arange(actions.shape[1]) < self.target_lengths[prompts][:, None]
        matches = ((actions == self.targets[prompts]) & wanted & (mask > 0)).sum(axis=1)
        positions = np.maximum(self.target_lengths[prompts], mask.sum(axis=1))
        share: F32 = (matches / positions).astype(np.float32)
        return share

    def _signal(self, agent: Agent, generation: Generation, progress: Progress) -> _Signal:
        sampled = self._stored_log_prob(agent, generation, progress)
        reference = None
        if agent.reference is not None:
            reference = agent.log_prob(generation.inputs, generation.actions, policy=agent.reference)
        if self.setup.config.algorithm == "grpo":
            return self._group_signal(generation, sampled, reference, progress)
        return self._critic_signal(agent, generation, sampled, reference, progress)

    def _stored_log_prob(self, agent: Agent, generation: Generation, progress: Progress) -> F32:
        rows = generation.inputs.reshape(-1, self.features)
        stages = self.setup.stages
        logits = (stages.stored_logits or stages.rollout_logits)(agent, rows, progress)
        log_prob = gather(log_softmax(logits), generation.actions.ravel()).reshape(generation.actions.shape)
        return self.setup.stages.stored_log_prob(log_prob, generation.mask)

    def _group_signal(self, generation: Generation, sampled: F32, reference: F32 | None, progress: Progress) -> _Signal:
        groups = generation.scores.reshape(-1, self.setup.config.num_generations)
        raw, used = group_advantages(groups, self.setup.stages, progress)
        spread = np.ones_like(sampled)
        zeros = np.zeros_like(sampled)
        used = self.setup.stages.advantages(used.reshape(-1, 1) * spread, progress)
        return _Signal(raw.reshape(-1, 1) * spread, used, zeros, zeros, sampled, reference)

    def _critic_signal(
        self, agent: Agent, generation: Generation, sampled: F32, reference: F32 | None, progress: Progress
    ) -> _Signal:
        config, mask = self.setup.config, generation.mask
        values = self.setup.stages.values(agent.value(generation.inputs), progress) * mask
        penalty = np.zeros_like(sampled) if reference is None else sampled - reference
        last = mask - np.concatenate([mask[:, 1:], np.zeros((len(mask), 1), np.float32)], axis=1)
        rewards = generation.scores[:, None] * last - np.float32(config.kl_coef) * penalty * mask
        next_values = np.concatenate([values[:, 1:], np.zeros((len(mask), 1), np.float32)], axis=1)
        raw = gae(rewards.T, values.T, next_values.T, last.T, config.gamma, config.gae_lambda).T * mask
        returns = raw + values
        raw = self.setup.stages.advantages(raw, progress)
        used = normalized(raw, mask) * mask if config.normalize == "batch" else raw
        return _Signal(raw, used, values, returns, sampled, reference)


def _rollout_record(generation: Generation, signal: _Signal, config: TrainConfig) -> RolloutRecord:
    alive = generation.mask > 0
    raw, used, values, returns = (x[alive] for x in (signal.raw, signal.used, signal.values, signal.returns))
    critic = config.algorithm == "ppo"
    nan = float("nan")
    return RolloutRecord(
        steps=int(generation.mask.sum()),
        reward_mean=float(generation.scores.mean()),
        reward_std=float(generation.scores.std(ddof=1)),
        advantages_raw_mean=float(raw.mean()),
        advantages_raw_std=float(raw.std()),
        advantages_mean=float(used.mean()),
        advantages_std=float(used.std()),
        advantages_abs_max=float(np.abs(used).max()),
        returns_mean=float(returns.mean()) if critic else nan,
        returns_std=float(returns.std()) if critic else nan,
        values_mean=float(values.mean()) if critic else nan,
        values_std=float(values.std()) if critic else nan,
        explained_variance=explained_variance(values, returns) if critic else nan,
        completions=_completions(generation, signal, config),
    )


def _group_std(scores: F32, num_generations: int) -> F32:
    if num_generations < 2:
        return np.full(1, np.nan, np.float32)
    stds: F32 = scores.reshape(-1, num_generations).std(axis=1, ddof=1)
    return stds


def _completions(generation: Generation, signal: _Signal, config: TrainConfig) -> Completions:
    lengths = generation.lengths
    terminated = lengths[generation.ended > 0]
    if not terminated.size:
        terminated = np.zeros(1, np.float32)
    group_std = _group_std(generation.scores, config.num_generations)
    kl = np.zeros_like(signal.sampled) if signal.reference is None else signal.sampled - signal.reference
    return Completions(
        mean_length=float(lengths.mean()),
        std_length=float(lengths.std(ddof=1)),
        min_length=int(lengths.min()),
        max_length=int(lengths.max()),
        mean_terminated_length=float(terminated.mean()),
        min_terminated_length=int(terminated.min()),
        max_terminated_length=int(terminated.max()),
        truncated_fraction=float(1 - generation.ended.mean()),
        num_eos=int(generation.ended.sum()),
        num_tokens=int(lengths.sum()) + PROMPT_TOKENS * len(lengths),
        score_mean=float(generation.scores.mean()),
        score_std=float(generation.scores.std(ddof=1)),
        group_std_mean=float(group_std.mean()),
        frac_reward_zero_std=None if config.num_generations < 2 else float(np.isclose(group_std, 0).mean()),
        ref_kl_sum=float((kl * generation.mask).sum(axis=1).mean()),
        parts={name: (float(part.mean()), float(part.std(ddof=1))) for name, part in generation.parts.items()},
        neg_log_prob_sum=float(-(signal.sampled * generation.mask).sum(axis=1).mean()),
    )
