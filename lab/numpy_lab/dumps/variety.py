"""The kinds of dumps in other sizes, layouts, types and names, drawn from a seed: what no rule was made with."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ppo_doctor.readers.tensors.naming import role

from .capture import Plan, Update
from .kinds import Kind

Change = Callable[[dict[str, object], Update, np.random.Generator], None]

#: Names that trainers give the tensors of the lab.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "log_probs": ("new_logprobs", "actlogprobs", "current_logprobs", "curr_log_probs"),
    "old_log_probs": ("old_logprobs", "prev_logprobs", "old_per_token_logps", "b_logprobs", "old_action_log_probs"),
    "rollout_log_probs": ("generation_logprobs", "sampling_per_token_logps", "vllm_logprobs", "rollout_logprobs"),
    "advantages": ("adv", "b_advantages", "token_level_advantages"),
    "response_mask": ("loss_mask", "completion_mask", "action_mask"),
    "rewards": ("scores", "reward", "total_rewards"),
    "responses": ("completion_ids", "response_ids"),
    "group_ids": ("uid", "group_index", "question_id"),
    "values": ("vpreds", "state_values"),
    "returns": ("value_targets", "b_returns"),
    "epoch": ("ppo_epoch", "epoch_id"),
    "minibatch": ("minibatch_id", "mini_batch"),
}
#: What a plan says of itself is kept, and so is what its fault rests on.
_SIZES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "grpo": {"num_prompts": (8, 16, 24, 32)},
    "ppo": {"num_prompts": (64, 128, 192)},
}
_SHAPES: Mapping[str, tuple[Any, ...]] = {
    "max_tokens": (8, 12, 16),
    "num_minibatches": (2, 3, 4),
    "epochs": (3, 4, 5),
    "hidden": ((24,), (32,), (48, 24)),
}


def varied(kind: Kind, seed: int) -> Kind:
    """Return a kind in another size, layout, type and with other names."""
    rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode())])
    names = {name: str(rng.choice([name, *others])) for name, others in _NAMES.items()}
    wrong = {name: new for name, new in names.items() if role(name) != role(new)}
    if wrong:
        raise ValueError(f"not the same to a reader of names: {wrong}")
    types = {"npz": ("float32", "float16"), "jsonl": ("float32",)}.get(kind.form, ("float32", "float16", "bfloat16"))
    stackable = kind.shape == "updates" and kind.form != "jsonl"
    return replace(
        kind,
        plan=_resized(kind, rng),
        change=_masked(kind) if rng.random() < 0.5 else kind.change,
        keys=names,
        stored=str(rng.choice(types)),  # type: ignore[arg-type]
        stacked=bool(stackable and rng.random() < 0.4),
    )


def _resized(kind: Kind, rng: np.random.Generator) -> Callable[[int], Plan]:
    """Return the plan with drawn sizes; a log beside the dumps tells its own, which stay."""
    drawn = int(rng.integers(1 << 32))

    def plan(seed: int) -> Plan:
        made = kind.plan(seed)
        own = np.random.default_rng(drawn)
        sizes = {**_SIZES[made.algorithm], **_SHAPES}
        found = {name: _pick(own, choices) for name, choices in sizes.items()}
        if kind.shape == "logged":
            return made
        if made.fault == "benign-single-update":
            found = {name: value for name, value in found.items() if name not in ("epochs", "num_minibatches")}
        if kind.name.startswith("cached"):
            found.pop("max_tokens")  # of which the fault knows the places
        return replace(made, config={**found, **made.config})

    return plan


def _pick(rng: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _masked(kind: Kind) -> Change:
    """Leave a quarter of the tokens out of the loss, as those that a tool wrote; not where returns run through them."""

    def change(held: dict[str, object], update: Update, rng: np.random.Generator) -> None:
        if kind.change:
            kind.change(held, update, rng)
        if "values" in held:
            return
        own = rng.random(update.batch.mask.shape) < 0.75
        own[:, 0] = True
        held["response_mask"] = np.asarray(held["response_mask"]) & own[np.concatenate(update.samples)]

    return change
