"""GRPO in the style of McGill-NLP/nano-aha-moment on a model of characters: sound runs, and a fault each.

The loop and its loss are after that repository's nano_r1_script.py: one step over all answers, gradients summed over
micro-batches, no ratio; its names of settings and metrics, and its log lines. The entropy is the mean over tokens.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from lab.cases import Case, main, write_settings

from . import character_answers as characters
from .character_answers import Answers, Score, answers, log_probs, pretrained

SETTINGS: Mapping[str, Any] = {
    "LEARNING_RATE": 3e-3,
    "KL_COEFFICIENT": 0.01,
    "GENERATIONS_PER_SAMPLE": 8,
    "EPISODES_PER_ITERATION": 128,
    "PER_DEVICE_BATCH_SIZE": 64,
    "TEMPERATURE": 1.0,
    "MAX_RESPONSE_TOKENS": 10,
    "NUM_ITERATIONS": 60,
    "gradient_clipping": 1.0,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
}
#: What the log shows of an iteration.
KEY_METRICS = ["kl_penalty", "rewards", "reward_metrics/format_reward", "reward_metrics/equation_reward"]
KEY_METRICS += ["response_lengths"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    pretraining: int = 42
    """The seed of the pretrained model."""
    score: Score = characters.score
    forks: frozenset[str] = frozenset()
    """What lines of the script were changed; each is named where it acts."""

    def train(self, folder: Path) -> None:
        """Train, and write the script's log and what it sends to wandb."""
        torch.set_num_threads(1)
        told = {**SETTINGS, **self.settings, "seed": self.seed}
        write_settings(folder, told)
        loop = Loop(told, self.forks, self.score, pretrained(self.pretraining))
        random.seed(self.seed)
        torch.manual_seed(self.seed)
        with (
            (folder / "run.log").open("w", encoding="utf-8") as log,
            (folder / "wandb_history.jsonl").open("w", encoding="utf-8") as history,
        ):
            for iteration in range(told["NUM_ITERATIONS"]):
                found, metrics = loop.iterate(iteration)
                named = {f"train/{name}": value for name, value in metrics.items()}
                history.write(json.dumps({"_step": iteration, "iteration": iteration, **named}) + "\n")
                log.write(_lines(iteration, told, found, {f"train/{n}": metrics[n] for n in KEY_METRICS}))


def _lines(iteration: int, told: Mapping[str, Any], found: Answers, key: Mapping[str, Any]) -> str:
    lines = f"Iteration {iteration}/{told['NUM_ITERATIONS']}", f"Generated {len(found.tokens)} responses"
    lines += f"Example: {found.texts[0].rstrip('#')!r}", f"KEY METRICS: {key}"
    return "".join(f"[INFO] {line}\n" for line in lines)


class Loop:
    """A model, its reference and its optimizer."""

    def __init__(self, told: Mapping[str, Any], forks: frozenset[str], score: Score, model: Any) -> None:
        self.told, self.forks, self.score, self.model = told, forks, score, model
        # "shared-reference": the same module was passed for both
        self.reference = model if "shared-reference" in forks else copy.deepcopy(model).eval()
        self.optimizer = optim.AdamW(model.parameters(), lr=told["LEARNING_RATE"], weight_decay=0.0)

    def iterate(self, iteration: int) -> tuple[Answers, dict[str, float]]:
        """Sample, do one step, and return the answers with means of all metrics."""
        told, greedy = self.told, "greedy" in self.forks  # "greedy": the engine's default is not to sample
        count = told["EPISODES_PER_ITERATION"] // told["GENERATIONS_PER_SAMPLE"]
        sizes = count, told["GENERATIONS_PER_SAMPLE"], told["MAX_RESPONSE_TOKENS"]
        found = answers(self.model, *sizes, told["TEMPERATURE"], self.score, greedy=greedy)
        rate = self.optimizer.param_groups[0]["lr"] = told["LEARNING_RATE"] * self._share(iteration)
        metrics = {**_statistics(found), **self._step(found), "learning_rate": [rate]}
        return found, {name: float(np.mean(values)) for name, values in metrics.items()}

    def _share(self, iteration: int) -> float:
        """Return the part of the learning rate that the schedule gives to an iteration."""
        if self.told["warmup_steps"]:
            return min(iteration / self.told["warmup_steps"], 1.0)
        return 1.0 - iteration / self.told["NUM_ITERATIONS"] if self.told["lr_scheduler_type"] == "linear" else 1.0

    def _step(self, found: Answers) -> dict[str, list[float]]:
        rewards, size = found.rewards, self.told["PER_DEVICE_BATCH_SIZE"]
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        if "flipped" in self.forks:  # a minus too many
            advantages = -advantages
        with torch.no_grad():
            reference = log_probs(self.reference, found.tokens)
        given = found.tokens, found.mask, reference, advantages.reshape(-1, 1)
        self.model.zero_grad()
        parts = [
            self._backward(*(each[start : start + size] for each in given), found.mask.sum().item())
            for start in range(0, len(found.tokens), size)
        ]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.told["gradient_clipping"])
        self.optimizer.step()
        return {**{name: [part[name] for part in parts] for name in parts[0]}, "grad_norm": [norm.item()]}

    def _backward(self, tokens: Any, mask: Any, reference: Any, advantages: Any, total: float) -> dict[str, float]:
        """Add the gradients of a micro-batch, and return what is logged of it."""
        logps = log_probs(self.model, tokens)
        ref_logratio = reference - logps
        kl_penalty = (torch.exp(ref_logratio) - 1 - ref_logratio) * mask
        policy_loss = -logps * advantages * mask
        coefficient = self.told["KL_COEFFICIENT"] * (-1 if "kl-flipped" in self.forks else 1)
        loss = (policy_loss + coefficient * kl_penalty).sum() / total
        loss.backward()
        told = {"loss": loss.item(), "policy_loss": policy_loss.sum().item() / total}
        told |= {"kl_penalty": kl_penalty.sum().item() / total}
        return told | {"entropy": -((logps * mask).sum() / mask.sum()).item()}


def _statistics(found: Answers) -> dict[str, Any]:
    return {
        "rewards": found.rewards.flatten().tolist(),
        "response_lengths": found.lengths,
        "non_stop_rate": [not each for each in found.ended],
        "reward_metrics/format_reward": [each[0] for each in found.parts],
        "reward_metrics/equation_reward": [each[1] for each in found.parts],
    }


def _set(seed: int, **settings: Any) -> Recipe:
    return Recipe(seed=seed, settings=settings)


def _forked(seed: int, fork: str, **settings: Any) -> Recipe:
    return Recipe(seed=seed, settings=settings, forks=frozenset({fork}))


def _runs() -> Iterator[tuple[str, str, str, Recipe]]:
    """Yield (cause, name, how it is made, recipe)."""
    yield "healthy", "plain", "settings of a common kind", Recipe(seed=42)
    yield "healthy", "other-model", "the same from another pretrained model", Recipe(seed=42, pretraining=1)
    solved = _set(17, KL_COEFFICIENT=0.0, LEARNING_RATE=6e-3, NUM_ITERATIONS=110)
    yield "healthy", "solved", "no KL penalty, a task that is solved and stays so", solved
    annealed = _set(19, lr_scheduler_type="linear", LEARNING_RATE=2e-3)
    yield "healthy", "annealed", "a linear schedule of the learning rate to 0", annealed
    yield "kl-penalty-too-strong", "1", "a coefficient of 100", _set(2, KL_COEFFICIENT=100.0)
    yield "advantage-sign-flipped", "1", "a minus too many", _forked(5, "flipped")
    yield "lr-too-high", "1", "a rate of 0.3", _set(6, LEARNING_RATE=0.3)
    cut = Recipe(seed=7, settings={"MAX_RESPONSE_TOKENS": 2}, score=characters.strict)
    yield "truncation-dominates", "1", "answers are cut before they can be right", cut
    misparsed = Recipe(seed=8, score=characters.misparsed)
    yield "reward-pipeline-broken", "misparsed", "the parser looks for a blank that no answer has", misparsed
    yield "ref-model-wrong", "1", "the reference is the policy itself", _forked(9, "shared-reference")
    yield "lr-schedule-horizon-wrong", "1", "a warmup of 200000 iterations", _set(10, warmup_steps=200_000)
    yield "duplicate-generations", "1", "sampling takes the likeliest character", _forked(15, "greedy")
    yield "length-hacking", "1", "the reward counts characters", Recipe(seed=16, score=characters.by_length)
    constant = Recipe(seed=20, score=characters.constant)
    yield "reward-pipeline-broken", "constant", "every answer is worth 1", constant
    yield "kl-loss-sign-flipped", "1", "the KL is paid for", _forked(21, "kl-flipped", KL_COEFFICIENT=0.3)


def cases() -> Iterator[Case]:
    """Yield every run."""
    for fault, name, made, recipe in _runs():
        told = {"name": f"{fault}/{name}", "fault": fault, "made": made, "seed": recipe.seed}
        daily = name == "plain" or fault in ("lr-too-high", "kl-penalty-too-strong")
        yield Case(**told, task="digits", train=recipe.train, daily=daily)


if __name__ == "__main__":
    main("nano_aha_moment", cases(), forks=True)
