"""Logs of other people: the container is found by content, and as many records as an expert counted.

The logs are no part of this repository; without them these tests are skipped. `-s` prints the differences.
"""

import csv
import os
from pathlib import Path

import pytest

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers import read

DEFAULT = Path(__file__).parents[2] / ".." / "shared" / "real-logs"
ROOT = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", DEFAULT)).resolve()
NAMES = ("progress.csv", "progress.txt", "result.json", "step_logs.json", "trainer_state.json", "log.txt", "log.csv")
SUFFIXES = (".log", ".jsonl", ".rst", ".md", ".txt")
#: Containers that another reader's tests count.
BINARY = ("tfevents", "wandb run folder", "offline-run")
SUMMARY = "the summary of the whole run (train_runtime …) is a record too"
#: Where we count otherwise: by how many, and why.
DIFFERENT = {
    **{f"Sunshine535__nips-grpo__exp1a_rho{rho}_seed42": (1, SUMMARY) for rho in ("0.30", "0.70", "1.00")},
    **{f"Sunshine535__nips-grpo__exp1a_rho{rho}": (1, SUMMARY) for rho in ("2.00_seed43", "3.00_seed44")},
    "Sunshine535__nips-grpo__exp2_vanilla_rho1.0_seed43": (1, SUMMARY),
    "Sunshine535__nips-grpo__gates_gate1_adq_seed42": (1, SUMMARY),
    "Sunshine535__nips-grpo__gates_gate2_rho1.00_seed43": (1, SUMMARY),
    "Sunshine535__nips-grpo__w6_G3_rho3.00_seed42": (1, SUMMARY),
    "GHOSTCODERRRRAHAHA__edon__training_log_ep200": (20, "every tenth episode a summary line of means"),
    "GHOSTCODERRRRAHAHA__edon__training_log_ep200_bold": (20, "every tenth episode a summary line of means"),
    "GHOSTCODERRRRAHAHA__edon__training_log_ep300_aligned": (30, "every tenth episode a summary line of means"),
    "480284856__RLHF_Training__wandb_hist": (1, "one headerless row, which the expert did not count"),
}


def runs():
    manifest = ROOT / "manifest.csv"
    if not manifest.exists():
        return []
    with manifest.open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if not any(word in row["container"] for word in BINARY)]
    return [(row["id"], int(row["n_records"])) for row in rows if logs_of(row["id"])]


def logs_of(run):
    files = (path for path in sorted((ROOT / run).rglob("*")) if path.is_file() and "tfevents" not in path.name)
    return [path for path in files if path.name in NAMES or path.suffix in SUFFIXES]


def count(path):
    try:
        container, items = read(path)
    except DoctorError as error:
        return f"refused: {error.message.removeprefix(str(path)).strip()}", 0
    return container, sum(len(item.records) for item in items if hasattr(item, "columns"))


@pytest.mark.skipif(not ROOT.exists(), reason="the real logs are not here")
def test_real_logs_are_there_in_number():
    assert len(runs()) >= 40


@pytest.mark.parametrize(("run", "expected"), runs())
def test_a_real_log_holds_as_many_records_as_an_expert_counted(run, expected):
    counts = {path.name: count(path) for path in logs_of(run)}
    more, why = DIFFERENT.get(run, (0, ""))
    if more:
        print(f"{run}: {more} more than {expected}, {why}")
    assert sum(records for _, records in counts.values()) == expected + more, counts
    assert all(container in ("jsonl", "json", "csv", "console") or expected == 0 for container, _ in counts.values())
