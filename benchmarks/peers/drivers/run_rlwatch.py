"""Runs inside rlwatch's environment: feeds a log step by step, as its TRL callback would. Prints what fired."""

import csv
import json
import logging
import sys
import tempfile
from pathlib import Path

import rlwatch.config
import rlwatch.core

# rlwatch/core.py, on_log; the last name of each row is one that rlwatch leaves to the user to pass on.
MAP = {
    "entropy": ["entropy", "policy_entropy", "policy/entropy_avg", "entropy_loss"],
    "kl_divergence": ["kl", "kl_divergence", "objective/kl", "train/approx_kl"],
    "reward_mean": ["reward", "reward_mean", "objective/scores", "rollout/ep_rew_mean"],
    "reward_std": ["reward_std"],
    "loss": ["loss", "loss/policy_avg", "train/loss"],
    "learning_rate": ["learning_rate", "lr", "train/learning_rate"],
    "clip_fraction": ["clip_ratio/region_mean", "policy/clipfrac_avg", "train/clip_fraction"],
    "grad_norm": ["grad_norm"],
}


def records(log: Path) -> list[dict]:
    if log.suffix == ".json":
        return json.loads(log.read_text())["log_history"]
    with log.open() as file:
        rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    return [{**row, "entropy": -row["train/entropy_loss"]} if "train/entropy_loss" in row else row for row in rows]


logging.disable(logging.CRITICAL)
report = sys.stdout
sys.stdout = sys.stderr
fired = set()
with tempfile.TemporaryDirectory() as folder:
    config = rlwatch.config.RLWatchConfig(framework="manual", run_id="peer")
    config.storage.log_dir = folder
    monitor = rlwatch.core.RLWatch(config)
    monitor.start()
    for place, record in enumerate(records(Path(sys.argv[1]))):
        found = {name: next((record[key] for key in keys if key in record), None) for name, keys in MAP.items()}
        fired |= {alert.detector for alert in monitor.log_step(int(record.get("step", place)), **found)}
    monitor.stop()
report.write(json.dumps(sorted(fired)) + "\n")
