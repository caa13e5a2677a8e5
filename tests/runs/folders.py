"""Run folders as trainers leave them, small: one run's rows, written in every form that a trainer writes them in."""

import csv
import io
import json
import random

from tests.readers.event_files import event_file, scalars


def sb3_rows(count=20, *, seed=0, start=1, batch=2048):
    """The rows of a Stable-Baselines3 run: (step, {tag: value}), float32-exact values so that every form agrees."""
    rng = random.Random(seed)
    return [
        (
            batch * i,
            {
                "rollout/ep_rew_mean": round(10.0 + i + rng.random(), 3),
                "train/approx_kl": round(0.01 + 0.005 * rng.random(), 6),
                "train/clip_fraction": round(0.1 + 0.05 * rng.random(), 5),
                "train/entropy_loss": round(-1.0 + 0.01 * i + 0.001 * rng.random(), 5),
                "train/explained_variance": round(0.5 + 0.01 * rng.random(), 5),
                "train/policy_gradient_loss": round(-0.01 - 0.01 * rng.random(), 6),
                "train/value_loss": round(1.0 + rng.random(), 5),
                "train/learning_rate": 0.0003,
            },
        )
        for i in range(start, start + count)
    ]


def _flat(rows, step):
    return [{**values, step: at} for at, values in rows]


def as_csv(rows, step="time/total_timesteps", *, delimiter=","):
    records = _flat(rows, step)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().encode()


def as_jsonl(rows, step="time/total_timesteps"):
    return "".join(json.dumps(record) + "\n" for record in _flat(rows, step)).encode()


def as_events(rows):
    return event_file(*scalars(rows))


def as_state(rows):
    """A Hugging Face trainer's state: GRPO metrics under their plain names."""
    return json.dumps(
        {"log_history": [{**values, "step": at} for at, values in rows], "global_step": rows[-1][0]}
    ).encode()


def grpo_rows(count=20, *, seed=0, start=1):
    rng = random.Random(seed)
    return [
        (
            i,
            {
                "loss": round(0.01 * rng.random(), 6),
                "grad_norm": round(0.5 + rng.random(), 4),
                "reward": round(0.02 * i + 0.1 * rng.random(), 5),
                "reward_std": round(0.3 + 0.1 * rng.random(), 5),
                "frac_reward_zero_std": 0.25,
                "kl": round(0.001 * rng.random(), 7),
                "completions/mean_length": round(100 + 10 * rng.random(), 3),
                "learning_rate": 1e-6,
            },
        )
        for i in range(start, start + count)
    ]


def write(folder, files):
    """Write files by relative path; text or bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def events_name(stamp=1700000000, number=0):
    return f"events.out.tfevents.{stamp}.host.1.{number}"
