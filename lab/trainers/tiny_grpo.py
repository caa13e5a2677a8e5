"""GRPO in the style of open-thought/tiny-grpo on a model of characters: sound runs, and a fault each.

The loop and its loss are after that repository's train.py and loss.py, with its names of settings and metrics and its
prints; several epochs go over a batch in minibatches, each of which is logged.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

from lab.cases import Case, main, write_settings

from .character_answers import Answers, answers, log_probs, pretrained

SETTINGS: Mapping[str, Any] = {
    "lr": 3e-3,
    "kl_weight": 0.01,
    "clip_eps": 0.2,
    "group_size": 8,
    "rollouts_per_step": 16,
    "epochs_per_step": 2,
    "train_batch_size": 64,
    "max_norm": 1.0,
    "max_length": 10,
    "temperature": 1.0,
    "num_iterations": 60,
    "lr_schedule": "constant",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    forks: frozenset[str] = frozenset()
    """What lines of the script were changed; each is named where it acts."""

    def train(self, folder: Path) -> None:
        """Train, and write what the script prints and what it sends to wandb."""
        torch.set_num_threads(1)
        told = {**SETTINGS, **self.settings, "seed": self.seed}
        write_settings(folder, told)
        model = pretrained()
        random.seed(self.seed)
        torch.manual_seed(self.seed)
        with (
            (folder / "train.log").open("w", encoding="utf-8") as console,
            (folder / "wandb_history.jsonl").open("w", encoding="utf-8") as history,
        ):
            Loop(told, self.forks, model, console.write, Records(history)).run()


class Records:
    """What wandb keeps of a run: a numbered record for each call."""

    def __init__(self, file: Any) -> None:
        self.file, self.count = file, 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Write a record."""
        self.file.write(json.dumps({"_step": self.count, **record}) + "\n")
        self.count += 1


def group_advantages(returns: Any, eps: float) -> Any:
    """Return advantages within each row."""
    return (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + eps)


def approx_kl_divergence(log_probs: Any, log_probs_ref: Any) -> Any:
    """Return the k3 estimate of each token, see http://joschu.net/blog/kl-approx.html."""
    log_ratio = log_probs_ref - log_probs
    return log_ratio.exp() - log_ratio - 1


class Loop:
    """A model, its optimizer and where the loop writes to."""

    def __init__(
        self, told: Mapping[str, Any], forks: frozenset[str], model: Any, console: Callable[[str], Any], log: Records
    ) -> None:
        self.told, self.forks, self.model, self.print, self.log = told, forks, model, console, log
        self.reference = copy.deepcopy(model).eval()
        # "never-synced": the inference engine's weights, which stay as they were loaded
        self.sampler = copy.deepcopy(model) if "never-synced" in forks else model
        # "orphaned": the optimizer was made before the model was wrapped, which copied its tensors
        owned = copy.deepcopy(model) if "orphaned" in forks else model
        self.optimizer = optim.Adam(owned.parameters(), lr=told["lr"])

    def run(self) -> None:
        """Train from beginning to end."""
        total = self.told["num_iterations"]
        for step in range(total):
            if self.told["lr_schedule"] == "linear":
                self.optimizer.param_groups[0]["lr"] = self.told["lr"] * (1 - step / total)
            found = self._rollouts()
            returns = found.rewards.sum().item()
            self.print(f"returns of step {step}: {returns:.4f}\n")
            self.log({"returns": returns})
            self._learn(found)

    def _rollouts(self) -> Answers:
        told = self.told
        sizes = told["rollouts_per_step"], told["group_size"], told["max_length"]
        found = answers(self.sampler, *sizes, told["temperature"])
        for place, (text, right) in enumerate(found.asked):
            told_so_far, shape = place * told["group_size"], (told["group_size"], found.tokens.shape[1])
            self.print(
                f"rollout q='{text}', a='{right}', returns={found.rewards[place].sum().item():.2f}, "
                f"replay_buffer_size={told_so_far}, sequence_ids={shape}\n"
            )
        return found

    def _learn(self, found: Answers) -> None:
        """Go over the batch in minibatches, some epochs long."""
        size, tokens = self.told["train_batch_size"], found.tokens
        eps = 0.0 if "no-epsilon" in self.forks else 1e-8  # a spread of 0 was thought impossible
        advantages = group_advantages(found.rewards, eps).reshape(-1, 1)
        with torch.no_grad():
            old, reference = log_probs(self.model, tokens), log_probs(self.reference, tokens)
        for epoch in range(self.told["epochs_per_step"]):
            order = torch.randperm(len(tokens))
            for start in range(0, len(tokens) - size + 1, size):
                part = order[start : start + size]
                given = tokens[part], found.mask[part], old[part], reference[part], advantages[part]
                self._step(epoch, *given)

    def _step(self, epoch: int, tokens: Any, mask: Any, old: Any, reference: Any, advantages: Any) -> None:
        new, clip = log_probs(self.model, tokens), self.told["clip_eps"]
        kl = approx_kl_divergence(new, reference)
        ratio = (new - old).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
        loss = masked_mean(self.told["kl_weight"] * kl - surrogate, mask)
        if not loss.isfinite():
            self.print(f"Loss not finite, skipping backward, loss={loss}\n")
            self.print(f"experience.advantages={advantages[:8, 0].tolist()}\n")
            return
        self.optimizer.zero_grad()
        self.model.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.told["max_norm"]).item()
        self.optimizer.step()
        mean = masked_mean(kl, mask).item()
        self.print(f"{epoch}: kl={mean: .4f}, grad_norm={norm: .4f}\n")
        self.log({"kl": mean, "grad_norm": norm})


def masked_mean(values: Any, mask: Any) -> Any:
    """Return the mean over answers of means over tokens."""
    return ((values * mask).sum(-1) / mask.sum(-1)).mean()


def _runs() -> Iterator[tuple[str, str, str, Recipe]]:
    """Yield (cause, name, how it is made, recipe)."""
    yield "healthy", "plain", "settings of a common kind", Recipe(seed=3)
    once = {"lr_schedule": "linear", "epochs_per_step": 1}
    yield "healthy", "annealed", "one epoch, a linear schedule to 0", Recipe(seed=18, settings=once)
    orphaned = Recipe(seed=4, forks=frozenset({"orphaned"}))
    yield "optimizer-orphaned-params", "1", "the optimizer has copies of the tensors", orphaned
    unguarded = Recipe(seed=11, forks=frozenset({"no-epsilon"}))
    yield "nan-inf", "1", "groups of equal rewards are divided by a spread of 0", unguarded
    yield "lr-too-high", "1", "a rate of 0.1", Recipe(seed=12, settings={"lr": 0.1})
    never = Recipe(seed=13, settings={"num_iterations": 50}, forks=frozenset({"never-synced"}))
    yield "weights-not-synced", "1", "the sampler keeps the weights of the beginning", never
    yield "grad-clip-starves", "1", "a clip of 1e-11", Recipe(seed=14, settings={"max_norm": 1e-11})


def cases() -> Iterator[Case]:
    """Yield every run."""
    for fault, name, made, recipe in _runs():
        told = {"name": f"{fault}/{name}", "fault": fault, "made": made, "seed": recipe.seed}
        daily = name == "plain" or fault == "lr-too-high"
        yield Case(**told, task="digits", train=recipe.train, daily=daily)


if __name__ == "__main__":
    main("tiny_grpo", cases(), forks=True)
