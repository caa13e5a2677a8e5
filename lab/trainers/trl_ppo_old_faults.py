"""Forks, wrappers and mistakes of users around TRL's PPOTrainer of the older generation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from trl import PPOTrainer

from lab import language
from lab.edits import edited

from .trl_ppo_old_run import Batch


class AliasedOldPolicy(PPOTrainer):
    """The fork takes the ratio of the new log-probs to themselves, detached."""

    loss = edited(PPOTrainer.loss, {"torch.exp(logprobs - old_logprobs)": "torch.exp(logprobs - logprobs.detach())"})


class FlippedAdvantages(PPOTrainer):
    """The fork's loss lost a minus."""

    loss = edited(
        PPOTrainer.loss,
        {
            "pg_losses = -advantages * ratio": "pg_losses = advantages * ratio",
            "pg_losses2 = -advantages * ": "pg_losses2 = advantages * ",
        },
    )


class LeakyMask(PPOTrainer):
    """The advantages are masked by the prompt's mask, which leaves none of them."""

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        """Return values, advantages and returns."""
        values, advantages, returns = super().compute_advantages(values, rewards, mask)
        return values, advantages * (1 - mask), returns


class Cached:
    """A cache for debugging that was left on: each batch is the first one again."""

    def __init__(self) -> None:
        self.kept: Batch | None = None

    def __call__(self, batch: Batch, _: int) -> Batch:
        """Return the first batch."""
        self.kept = self.kept or batch
        return self.kept


def sorted_rewards(batch: Batch, _: int) -> Batch:
    """The reward model's service sorts its answers, and nobody puts them back in order."""
    queries, responses, rewards = batch
    return queries, responses, sorted(rewards, key=float)


def times(factor: float) -> Callable[[Batch, int], Batch]:
    """Rewards in other units."""
    return lambda batch, _: (*batch[:2], [factor * reward for reward in batch[2]])


def with_prompts(batch: Batch, _: int) -> Batch:
    """The answers are handed over with their prompts, as `generate` returns them by default."""
    queries, responses, rewards = batch
    return queries, [torch.cat(pair) for pair in zip(queries, responses, strict=True)], rewards


class Breaks:
    """A reward model that overflows for one answer, after a good while."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, batch: Batch, passed: int) -> Batch:
        """Return the batch, one of its rewards NaN."""
        queries, responses, rewards = batch
        return queries, responses, [torch.tensor(float("nan")), *rewards[1:]] if passed == self.after else rewards


def constant_score(_prompt: list[int], _completion: list[int]) -> float:
    """A reward model that fails on every answer and falls back to a constant."""
    return 0.5


def long_winded(_prompt: list[int], completion: list[int]) -> float:
    """A reward model that likes long answers and nothing else."""
    return len(language.body(completion)) / 8


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.Adam(copy.deepcopy(model).parameters(), lr=learning_rate)


def freeze(trainer: Any) -> None:
    """The decoder is frozen, as adapters that match no module leave it; the value head learns."""
    trainer.accelerator.unwrap_model(trainer.model).pretrained_model.requires_grad_(requires_grad=False)


def the_policy_itself(model: Any, _seed: int) -> Any:
    """The reference is the policy: the copy was forgotten."""
    return model


def another_start(model: Any, seed: int) -> Any:
    """The reference is another checkpoint."""
    torch.manual_seed(seed + 50)
    other = copy.deepcopy(model)
    for weight in other.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return other


def fine_tune(policy: Any, spoken: language.Language) -> None:
    """Teach the policy answers of vowels first, as supervised fine-tuning does."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    vowels = torch.tensor(sorted(language.VOWELS))
    for _ in range(100):
        asked = torch.randint(len(spoken.words), (32, spoken.asked), generator=generator) + language.FIRST
        said = vowels[torch.randint(3, (32, 6), generator=generator)]
        rows = torch.cat([asked, said, torch.full((32, 1), language.EOS)], 1)
        logits = policy(rows).logits[:, spoken.asked - 1 : -1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, spoken.asked :].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
