"""Faults that users of TRL's GRPOTrainer or RLOOTrainer make: methods to inherit from before the trainer's own."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch

Rewards = list[float]


class FlippedAdvantages:
    """A minus too many."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**output, "advantages": -output["advantages"]}


class ShuffledAdvantages:
    """Advantages come back from a pool of workers in another order."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        order = torch.randperm(len(output["advantages"]))
        return {**output, "advantages": output["advantages"][order]}


class ZeroAdvantages:
    """A mask of the wrong polarity wipes the advantages out."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**output, "advantages": output["advantages"] * 0.0}


class BreaksLater:
    """A loss that overflows once, after a good while."""

    breaks_at = 25

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        return loss * float("nan") if self.state.global_step == self.breaks_at else loss  # type: ignore[attr-defined]


class StuckBatch:
    """The buffer is filled when it is empty, and nobody empties it."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if getattr(self, "_kept", None) is None:
            self._kept = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return self._kept


def sampler_of(model: Any) -> Any:
    """Return a copy of the policy; the forward that TRL patched in would generate with the original's weights."""
    copied = copy.deepcopy(model)
    fused, plain = copied.forward, type(copied).forward

    @functools.wraps(plain)
    def forward(*told: Any, **more: Any) -> Any:
        return fused(*told, **more) if more.get("fused_lm_head") else plain(copied, *told, **more)

    copied.forward = forward
    return copied


class StaleSampler:
    """A sampler's own copy of the policy gives completions and old log-probs, and is synced every few generations."""

    every = 6

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        made = getattr(self, "_made", 0)
        if made % self.every == 0:
            self._sampler = sampler_of(self.model)  # type: ignore[has-type]
        self._made = made + 1
        here = self.model, self.model_wrapped  # type: ignore[has-type]
        self.model = self.model_wrapped = self._sampler
        try:
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        finally:
            self.model, self.model_wrapped = here


class NeverSynced:
    """A sampler's own copy of the policy gives completions, and is never synced; old log-probs are the trainer's."""

    def _generate_single_turn(self, *told: Any, **more: Any) -> Any:
        if not hasattr(self, "_sampler"):
            self._sampler = sampler_of(self.model_wrapped)  # type: ignore[has-type]
        here = self.model_wrapped  # type: ignore[has-type]
        self.model_wrapped = self._sampler
        try:
            return super()._generate_single_turn(*told, **more)  # type: ignore[misc]
        finally:
            self.model_wrapped = here


def constant_reward(prompts: list[str], **_: Any) -> Rewards:
    """A parser that fails on every answer and falls back to 0."""
    return [0.0 for _prompt in prompts]


class FailsLater:
    """A reward whose service times out after some calls, each time, and then gives its last resort."""

    __name__ = "remote_reward"

    def __init__(self, reward: Any, calls: int) -> None:
        self.reward, self.calls = reward, calls

    def __call__(self, **told: Any) -> Rewards:
        """Return the task's reward, or what stands for it."""
        self.calls -= 1
        rewards: Rewards = self.reward(**told)
        return rewards if self.calls >= 0 else [0.0 for _ in rewards]


def longer_is_better(completion_ids: list[list[int]], **_: Any) -> Rewards:
    """A judge that likes length and nothing else."""
    return [len(completion) / 20 for completion in completion_ids]


def forget_iterations(trainer: Any) -> None:
    """An override sets the trainer's own count back after the configuration was saved."""
    trainer.num_iterations = 1


def sample_hotter(trainer: Any) -> None:
    """A generation setting of the model that the trainer does not know of."""
    trainer.generation_config.temperature = 2.0


def freeze_most(trainer: Any) -> None:
    """All but one norm frozen, as adapters that match no module leave a model."""
    norms = [
        name for name, _ in trainer.model.named_parameters() if ".0." in name and ("norm" in name or "ln_1" in name)
    ]
    for name, weight in trainer.model.named_parameters():
        weight.requires_grad_(name == norms[0])


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=learning_rate)


def plain_sgd(model: Any, learning_rate: float) -> Any:
    """SGD, which does not rescale a gradient that was clipped."""
    return torch.optim.SGD(model.parameters(), lr=learning_rate)


def short_schedule(model: Any, learning_rate: float) -> Any:
    """A linear schedule of six steps, counted in generations of an older script."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / 6))


def to_bf16(model: Any) -> Any:
    """Weights in bf16, as from_pretrained loads them."""
    return model.to(torch.bfloat16)


class CachedCompletions:
    """A cache of completions whose key forgets the step: every batch of prompts gets the answers of the first."""

    def _generate_single_turn(self, *told: Any, **more: Any) -> Any:
        if not hasattr(self, "_kept"):
            self._kept = super()._generate_single_turn(*told, **more)  # type: ignore[misc]
        return copy.deepcopy(self._kept)
