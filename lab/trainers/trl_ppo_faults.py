"""Forks, wrappers and mistakes of users around TRL's PPOTrainer of the newer generation."""

from __future__ import annotations

import copy
import gc
from typing import Any

import torch
from trl.experimental.ppo import PPOTrainer

from lab import language
from lab.edits import edited

_LOGITS = "= output.logits[:, context_length - 1 : -1]"


def _fork(doc: str, changes: dict[str, str]) -> type[Any]:
    """Return a PPOTrainer with lines of its training loop changed."""
    return type("Fork", (PPOTrainer,), {"train": edited(PPOTrainer.train, changes), "__doc__": doc})


AliasedOldPolicy = _fork(
    "the fork takes the old log-prob from the policy that it is updating",
    {"logprobs_diff = new_logprobs - mb_logprobs": "logprobs_diff = new_logprobs - new_logprobs.detach()"},
)
FlippedAdvantages = _fork(
    "a minus too many",
    {"mb_advantage = advantages[micro_batch_inds]": "mb_advantage = -advantages[micro_batch_inds]"},
)
ZeroAdvantages = _fork(
    "a mask of the wrong polarity wipes the advantages out",
    {"torch.masked_fill(advantages, padding_mask, 0)": "torch.masked_fill(advantages, ~padding_mask, 0)"},
)
DetachedLogProbs = _fork(
    "log-probs come back without their graph",
    {"(logits, mb_responses)": "(logits.detach(), mb_responses)"},
)
MisalignedOldLogProbs = _fork(
    "old log-probs shifted by one token against the new ones",
    {"mb_logprobs = logprobs[micro_batch_inds]": "mb_logprobs = logprobs[micro_batch_inds].roll(1, dims=1)"},
)
ColderPass = _fork(
    "the update's pass forgets the sampling temperature",
    {_LOGITS: f"{_LOGITS} * args.temperature"},
)
MisplacedAdvantages = _fork(
    "advantages are not shuffled with the rest of the batch",
    {"mb_advantage = advantages[micro_batch_inds]": "mb_advantage = advantages[sorted(micro_batch_inds)]"},
)
BreaksLater = _fork(
    "a loss that overflows once, after a good while",
    {"vf_coef * vf_loss": "vf_coef * vf_loss * (float('nan') if update == args.num_total_batches // 2 else 1)"},
)


def dropout_on(trainer: Any) -> None:
    """Dropout put back after TRL had switched it off: sampling and update draw different masks."""
    head = trainer.accelerator.unwrap_model(trainer.model).policy.get_output_embeddings()
    head.register_forward_pre_hook(lambda part, seen: (torch.nn.functional.dropout(seen[0], 0.3, part.training),))


def optimizer_of_copy(model: Any, args: Any) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=args.learning_rate)


def one_epoch(trainer: Any) -> None:
    """A second configuration sets num_ppo_epochs back to 1 after the script's was saved."""
    trainer.args.num_ppo_epochs = 1


def fine_tune(policy: Any, spoken: language.Language) -> None:
    """Teach the policy good answers first, as supervised fine-tuning does."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        asked = torch.randint(len(spoken.words), (32, spoken.asked), generator=generator) + language.FIRST
        said = _answers(spoken, generator)
        rows = torch.cat([asked, said], 1)
        logits = policy(rows).logits[:, spoken.asked - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), said.flatten(), ignore_index=language.PAD)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    gc.collect()


def _answers(spoken: language.Language, generator: torch.Generator) -> Any:
    """Return good answers of a language: vowels, or syllables in rising order, and an end."""
    if spoken is language.SPELLING:
        letters = torch.tensor(sorted(language.VOWELS))[torch.randint(3, (32, 6), generator=generator)]
    else:
        steps = torch.randint(1, 5, (32, 10), generator=generator).cumsum(1)
        start = torch.randint(len(spoken.words), (32, 1), generator=generator)
        letters = (start + steps) % len(spoken.words) + language.FIRST
    return torch.cat([letters, torch.full((32, 1), language.EOS)], 1)
