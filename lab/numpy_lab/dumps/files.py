"""From captured updates to the files of a run, in the layouts of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .capture import LONGEST_PADDING, Plan, Update, train
from .kinds import HALF_RATE, Kind
from .writing import Alias, bfloat16, npz, pt, rows_jsonl, safetensors

GENERATIONS = 8
CLIP_RANGE = 0.2


def write(kind: Kind, seed: int, folder: Path) -> Path:
    """Train one run of a kind, write what it dumps, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = kind.plan(seed)
    rng = np.random.default_rng([seed, 17])
    updates = train(plan, seed)
    if kind.shape == "logged":
        _logged(kind, updates, folder)
    if kind.shape != "checkpoints" and kind.stacked:
        _in_one_file(kind, [_held(kind, plan, update, rng) for update in updates], folder)
        return folder
    for update in updates:
        if kind.shape == "checkpoints":
            _checkpoint(kind, plan, update, folder)
        else:
            _dumped(kind, plan, update, rng, folder)
    return folder


def _in_one_file(kind: Kind, updates: list[dict[str, Any]], folder: Path) -> None:
    """Write the rows of all updates one after the other, each with the number of its update."""
    sizes = [len(held["log_probs"]) for held in updates]
    numbers = [held.pop("step") for held in updates]
    joined = {
        name: np.concatenate([_by_row(held[name], size) for held, size in zip(updates, sizes, strict=True)])
        for name in updates[0]
    }
    _save(kind, folder / "all", {**joined, "update": np.repeat(numbers, sizes)})


def _by_row(value: Any, rows: int) -> Any:
    return value if isinstance(value, np.ndarray) else np.full(rows, value)


def _logged(kind: Kind, updates: list[Update], folder: Path) -> None:
    """Write the log of the updates as Stable-Baselines3 names it: means over their minibatches."""
    lines = []
    for update in updates:
        cells = zip(update.new, update.old, update.masks, strict=True)
        ratios = [np.exp((new - old)[mask > 0].astype(np.float64)) for new, old, mask in cells]
        clipped = float(np.mean([np.mean(np.abs(ratio - 1) > CLIP_RANGE) for ratio in ratios]))
        lines.append(
            {
                "time/total_timesteps": update.number,
                "train/approx_kl": float(np.mean([np.mean(ratio - 1 - np.log(ratio)) for ratio in ratios])),
                "train/clip_fraction": kind.clip_logged(clipped),
                "train/learning_rate": 6e-3,
                "train/n_updates": 4 * (update.number + 1),
                "rollout/ep_rew_mean": float(update.scores.mean()),
            }
        )
    rows_jsonl(folder / "log" / "metrics.jsonl", lines)


def _dumped(kind: Kind, plan: Plan, update: Update, rng: np.random.Generator, folder: Path) -> None:
    for suffix, part in _parts(kind, _held(kind, plan, update, rng)):
        _save(kind, folder / f"update_{update.number:03}{suffix}", part)


def _held(kind: Kind, plan: Plan, update: Update, rng: np.random.Generator) -> dict[str, Any]:
    """Return the tensors of an update with the kind's change, the step first."""
    held = tensors(plan, update)
    if kind.change:
        kind.change(held, update, rng)
    return {name: value for name, value in held.items() if name not in kind.without}


def _stored(kind: Kind, held: dict[str, Any]) -> dict[str, Any]:
    """Return tensors under the kind's names and log-probs in its type."""
    found = {}
    for name, value in held.items():
        narrow = value
        if name.endswith("log_probs") and kind.stored == "float16":
            narrow = np.asarray(value, np.float16)
        elif name.endswith("log_probs") and kind.stored == "bfloat16":
            narrow = bfloat16(np.asarray(value))
        found[kind.keys.get(name, name)] = narrow
    return found


def tensors(plan: Plan, update: Update) -> dict[str, Any]:
    """Return what the loss read, of shape [rows, tokens], and per row what tells its sample."""
    rows, batch = np.concatenate(update.samples), update.batch
    held: dict[str, Any] = {
        "step": update.number,
        "log_probs": np.concatenate(update.new),
        "old_log_probs": np.concatenate(update.old),
        "advantages": batch.advantages[rows],
        "response_mask": np.concatenate(update.masks) > 0,
        "responses": batch.actions[rows],
        "rewards": update.scores[rows],
        "attention_mask": _attention(update)[rows],
        "epoch": np.concatenate(update.epochs),
        "minibatch": np.concatenate(update.minibatches),
    }
    if plan.recomputed:
        held["rollout_log_probs"] = batch.sampled_log_prob[rows]
    if plan.algorithm == "ppo":
        mask = batch.mask
        last = mask - np.concatenate([mask[:, 1:], np.zeros((len(mask), 1), np.float32)], axis=1)
        penalty = 0.0 if batch.ref_log_prob is None else batch.sampled_log_prob - batch.ref_log_prob
        rewards = update.scores[:, None] * last - np.float32(plan.config.get("kl_coef", 0.01)) * penalty * mask
        held |= {"values": batch.values[rows], "returns": batch.returns[rows], "token_level_rewards": rewards[rows]}
    else:
        held["group_ids"] = (np.arange(len(update.prompts)) // GENERATIONS)[rows]
    held["prompt_ids"] = update.prompts[rows]
    return held


def _attention(update: Update) -> Any:
    """Return the mask of prompt and response; prompts are padded on the left."""
    prompt = np.arange(LONGEST_PADDING + 2) >= update.padding[:, None]
    return np.concatenate([prompt, update.batch.mask > 0], axis=1)


def _parts(kind: Kind, held: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what goes into one file each."""
    if kind.shape in ("updates", "logged"):
        yield "", held
        return
    epochs, minibatches = np.asarray(held["epoch"]), np.asarray(held["minibatch"])
    for epoch in np.unique(epochs):
        for minibatch in np.unique(minibatches):
            keep = (epochs == epoch) & (minibatches == minibatch)
            part = {
                name: value[keep] if isinstance(value, np.ndarray) and len(value) == len(keep) else value
                for name, value in held.items()
            }
            yield f"_{epoch}_{minibatch}", {**part, "epoch": int(epoch), "minibatch": int(minibatch)}
            if kind.shape == "first":
                return


def _save(kind: Kind, stem: Path, held: dict[str, Any]) -> None:
    if kind.form == "jsonl":
        number = stem.name.rpartition("_")[2]
        rows_jsonl(stem.with_name(f"train_data_step{int(number)}.jsonl"), _as_rows(held, kind.keys))
        return
    held = _stored(kind, held)
    if kind.form == "npz":
        npz(stem.with_suffix(".npz"), held)
    elif kind.form == "safetensors":
        safetensors(stem.with_suffix(".safetensors"), held)
    else:
        pt(stem.with_suffix(".pt"), {"batch": held})


def _as_rows(held: dict[str, Any], keys: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a dict per sample, its tokens without padding."""
    keep = held["response_mask"]
    count = len(keep)
    rows = []
    for at in range(count):
        row: dict[str, Any] = {}
        for name, value in held.items():
            if not isinstance(value, np.ndarray) or len(value) != count or name in ("response_mask", "attention_mask"):
                continue
            row[keys.get(name, name)] = value[at][keep[at]].tolist() if value.ndim == 2 else value[at].item()
        rows.append(row)
    return rows


def _checkpoint(kind: Kind, plan: Plan, update: Update, folder: Path) -> None:
    """Write the policy after an update, the old policy beside it and the optimizer's state."""
    half = plan.fault == "bf16-swallowed-update"
    names = [f"layers.{at // 2}.{('weight', 'bias')[at % 2]}" for at in range(len(update.after))]
    policy = dict(zip(names, map(bfloat16, update.after) if half else update.after, strict=True))
    if kind.form == "safetensors":
        safetensors(folder / f"step_{update.number:03}.safetensors", policy)
        return
    old: dict[str, Any] = dict(zip(names, map(bfloat16, update.before) if half else update.before, strict=True))
    if plan.fault == "old-policy-aliased":
        old = {name: Alias(f"policy.{name}") for name in names}
    elif plan.fault == "old-logp-resynced-per-minibatch":
        old = {name: value.copy() for name, value in policy.items()}
    tree = {"policy": policy, "old_policy": old, "optimizer": _optimizer(plan, update, half=half)}
    pt(folder / f"step_{update.number:03}.pt", tree)


def _optimizer(plan: Plan, update: Update, *, half: bool) -> dict[str, Any]:
    """Return torch.optim's state_dict; parameters without a gradient have no state."""
    kept = update.moments if plan.fault != "no-grad-path" else []
    width = bfloat16 if half else np.asarray
    state = {
        at: {"step": np.array(float(update.number), np.float32), "exp_avg": width(m), "exp_avg_sq": width(v)}
        for at, (m, v) in enumerate(kept)
    }
    rate = {"lr-zero": 0.0, "bf16-swallowed-update": HALF_RATE}.get(plan.fault, 6e-3)
    return {"state": state, "param_groups": [{"lr": rate, "params": list(range(len(update.after)))}]}
