"""What the runs of TRL's trainers for groups of completions (GRPO, RLOO) have in common: tasks, scales, and one run."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import Any

import torch

# Imported for the processes that are forked off: each would import it for its event file.
import torch.utils.tensorboard

from lab import language
from lab.cases import Case, write_settings
from lab.language import SINGING, SPELLING, Language

Reward = Callable[..., list[float]]
TASKS: Mapping[str, Language] = {"spelling": SPELLING, "singing": SINGING}
EVENTS = "runs/events.out.tfevents.0.host.0.0"


def spelling_reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Return the task's reward."""
    return [SPELLING.score(language.ids(p), c) for p, c in zip(prompts, completion_ids, strict=True)]


def singing_reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Return the task's reward."""
    return [SINGING.score([], completion) for completion in completion_ids]


def ends(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Return 1 for a completion that ends."""
    return [float(language.EOS in completion) for completion in completion_ids]


def letters_only(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Return the share of vowels: a task that is solved early, and then stays solved."""
    said = [language.body(completion) for completion in completion_ids]
    return [sum(token in language.VOWELS for token in words) / max(len(words), 2) for words in said]


def exact_answer(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Only one exact answer of eight words counts, which nobody finds by chance."""
    answer = [language.FIRST] * 8 + [language.EOS]
    return [float(completion == answer) for completion in completion_ids]


def times(reward: Reward, factor: float) -> Reward:
    """Return the reward in other units, under its name."""

    @wraps(reward)
    def scaled(**told: Any) -> list[float]:
        return [factor * each for each in reward(**told)]

    return scaled


OF_TASK: Mapping[str, Reward] = {"spelling": spelling_reward, "singing": singing_reward}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A size of run: how many generations, what is made of each, and how often it is logged."""

    generations: int
    settings: Mapping[str, Any]

    @property
    def steps(self) -> int:
        """Optimizer steps of one generation."""
        accumulated = self.settings.get("gradient_accumulation_steps", 1)
        minibatches = self.settings.get("steps_per_generation", accumulated)
        return max(1, self.settings["num_iterations"] * minibatches // accumulated)


def same(given: Any) -> Any:
    """Change nothing."""
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    task: str = "spelling"
    scale: str = "plain"
    kind: str = "llama"
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rewards: Sequence[Reward] = ()
    """Reward functions other than the task's."""
    fork: type[Any] | None = None
    """Methods that replace the trainer's own."""
    generations: int | None = None
    initial: Callable[[Any], Any] = same
    """What the user does to the model before the trainer sees it."""
    optimizer: Callable[[Any, float], Any] | None = None
    reference: Mapping[str, Any] | None = None
    """Configuration of a reference model that is another one than the model at its start."""
    before: Callable[[Any], Any] = same
    """What the user does to the trainer between making and training it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A trainer, its configuration, the settings that all of its runs share, and its scales."""

    trainer: type[Any]
    config: type[Any]
    scales: Mapping[str, Scale]

    def train(self, recipe: Recipe, seed: int, folder: Path) -> None:
        """Train in a folder, which is the working directory too."""
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        shutil.rmtree(folder / "runs", ignore_errors=True)  # of a run that was cut off
        gc.freeze()  # the trainer collects garbage, which walks all of torch
        try:
            self._train(recipe, seed, folder)
        finally:
            shutil.rmtree(folder / "start", ignore_errors=True)
            _rename_events(folder)

    def _train(self, recipe: Recipe, seed: int, folder: Path) -> None:
        spoken = TASKS[recipe.task]
        model = recipe.initial(language.policy(seed, recipe.kind, spoken, **recipe.model))
        args = self._arguments(recipe, seed)
        if args.beta:  # TRL takes the reference model from a path
            other = {} if recipe.reference is None else recipe.reference
            start = language.policy(seed + bool(other), recipe.kind, spoken, **recipe.model, **other)
            start.save_pretrained("start")
            model.config._name_or_path = "start"
        chosen = recipe.optimizer(model, args.learning_rate) if recipe.optimizer else None
        made = type(self.trainer.__name__, (recipe.fork, self.trainer), {}) if recipe.fork else self.trainer
        trainer = made(
            model=model,
            args=args,
            reward_funcs=list(recipe.rewards or [OF_TASK[recipe.task]]),
            train_dataset=language.prompts(seed, spoken),
            processing_class=language.tokenizer(spoken),
            optimizers=chosen if isinstance(chosen, tuple) else (chosen, None),
        )
        write_settings(folder, {**args.to_dict(), "model": {**model.config.to_dict(), "dtype": str(model.dtype)}})
        recipe.before(trainer)
        try:
            trainer.train()
        finally:
            trainer.save_state()

    def _arguments(self, recipe: Recipe, seed: int) -> Any:
        scale = self.scales[recipe.scale]
        size = Scale(generations=scale.generations, settings={**scale.settings, **recipe.settings})
        told = {"lr_scheduler_type": "constant", "max_completion_length": TASKS[recipe.task].length, **size.settings}
        steps = size.steps * (recipe.generations or size.generations)
        fixed = {"output_dir": ".", "max_steps": steps, "seed": seed, "use_cpu": True, "dataloader_pin_memory": False}
        quiet = {"report_to": "tensorboard", "save_strategy": "no", "disable_tqdm": True}
        return self.config(**fixed, **quiet, **{"bf16": False, **told})


FAMILIES = ("llama", "qwen2", "gpt2", "neox")
#: Dropout by another name in each family; in two of them in attention only.
DROPOUT = tuple({"resid_pdrop": 0.2} if kind == "gpt2" else {"attention_dropout": 0.4} for kind in FAMILIES)
#: Generations of a run with a fault: the sound ones learn enough by then to tell it.
BRIEF = {"plain": 10, "pairs": 9, "averaged": 12, "wide": 12, "few": 12, "once": 20}
Run = tuple[str, str, int, Recipe]
"""A fault, how it is made, a seed, and the run."""


def each(name: str, *values: Any) -> tuple[dict[str, Any], ...]:
    """Return a setting's values for the runs of a fault."""
    return tuple({name: value} for value in values)


def runs(fault: str, made: str | None, scales: tuple[str, ...], **changes: Any) -> Iterator[Run]:
    """Yield a run for each scale, the first half of them spelling; a tuple of changes holds one for each run."""
    for place, scale in enumerate(scales):
        own: dict[str, Any] = {"generations": BRIEF[scale]}
        own |= {name: value[place] if isinstance(value, tuple) else value for name, value in changes.items()}
        task = "spelling" if place < len(scales) // 2 else "singing"
        seed = place % max(1, len(scales) // 2) + 1
        recipe = Recipe(**{"task": task, "scale": scale, "kind": FAMILIES[place], **own})
        yield fault, (made or "").strip(), seed, recipe


def cases_of(
    library: Library, sound: Iterable[tuple[str, str, Recipe]], faulty: Iterable[Run], daily: set[str]
) -> Iterator[Case]:
    """Yield every run of a trainer."""
    healthy = ((f"healthy/{name}/1", place + 11, made, run) for place, (name, made, run) in enumerate(sound))
    named = ((f"{fault}/{run.task}/{seed}", seed, made, run) for fault, made, seed, run in faulty)
    for name, seed, made, run in chain(healthy, named):
        train = partial(library.train, run, seed)
        fault = name.split("/")[0]
        yield Case(name=name, fault=fault, made=made, task=run.task, seed=seed, train=train, daily=name in daily)


def _rename_events(folder: Path) -> None:
    """Give the event file a name without the machine's, the same in every training."""
    found = sorted(folder.glob("**/events.out.tfevents.*"))
    (folder / EVENTS).parent.mkdir(exist_ok=True)
    for place, path in enumerate(found):
        path.rename(folder / f"{EVENTS.removesuffix('0')}{place}")
        path.parent.rmdir()
