"""Forks and mistakes of users around torchtune's PPO recipe, which users copy and change."""

from __future__ import annotations

from typing import Any

import torch

from lab import language
from lab.edits import edited

from .torchtune_run import RECIPE

Original = RECIPE.PPOFullFinetuneRecipeSingleDevice


def _fork(doc: str, method: str, changes: dict[str, str]) -> type[Any]:
    """Return the recipe with lines of a method changed."""
    return type("Fork", (Original,), {method: edited(getattr(Original, method), changes), "__doc__": doc})


AliasedOldPolicy = _fork(
    "the copied recipe takes the old log-prob from the policy that it is updating",
    "ppo_step",
    {"trajectory.logprobs,": "pi_logprobs.detach(),"},
)
FlippedAdvantages = _fork(
    "a minus too many",
    "train",
    {"advantages[backward_batch_idxs]": "-advantages[backward_batch_idxs]"},
)
ZeroAdvantages = _fork(
    "a mask of the wrong polarity wipes the advantages out",
    "train",
    {"masks=~trajectory.response_padding_masks": "masks=trajectory.response_padding_masks"},
)
DetachedLogProbs = _fork(
    "log-probs come back without their graph",
    "ppo_step",
    {"(pi_logits, context_length)": "(pi_logits, context_length).detach()"},
)
ColderPass = _fork(
    "the update's pass forgets the sampling temperature",
    "ppo_step",
    {"[:, context_length:], self._temperature": "[:, context_length:], 1.0"},
)
MisalignedOldLogProbs = _fork(
    "old log-probs shifted by one token against the new ones",
    "ppo_step",
    {"trajectory.logprobs,": "trajectory.logprobs.roll(1, dims=1),"},
)
ShiftedLogits = _fork(
    "the sampler's logits are off by one token",
    "generate_trajectory",
    {"(logits, responses, self._temperature)": "(logits.roll(1, dims=1), responses, self._temperature)"},
)
OrphanedCritic = _fork(
    "the optimizer is given the policy only",
    "_setup_optimizer",
    {"chain(self._policy_model.parameters(), self._value_model.parameters())": "self._policy_model.parameters()"},
)
BreaksLater = _fork(
    "a loss that overflows once, after a good while",
    "ppo_step",
    {"loss.backward()": "(loss * (float('nan') if self._steps_run == self._total_steps // 2 else 1)).backward()"},
)


def one_epoch(recipe: Any) -> None:
    """A second configuration sets ppo_epochs back to 1 after the script's was saved."""
    recipe._ppo_epochs = 1


def other_reference(recipe: Any) -> None:
    """The reference is another model."""
    torch.manual_seed(7)
    for part in recipe._ref_policy_model.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.Embedding):
            part.reset_parameters()


def constant(_prompt: list[int], _completion: list[int]) -> float:
    """A reward model whose head was never loaded gives every text the same score."""
    return 0.5


def fine_tune(policy: Any, spoken: language.Language) -> None:
    """Teach the policy good answers of spelling first, as supervised fine-tuning does."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    vowels = torch.tensor(sorted(language.VOWELS))
    for _ in range(120):
        asked = torch.randint(len(spoken.words), (32, spoken.asked), generator=generator) + language.FIRST
        letters = vowels[torch.randint(3, (32, 6), generator=generator)]
        said = torch.cat([letters, torch.full((32, 1), language.EOS)], 1)
        logits = policy(torch.cat([asked, said], 1))[:, spoken.asked - 1 : -1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), said.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
