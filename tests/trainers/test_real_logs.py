"""Logs of other people's runs, where they are at hand: each is recognised as what its manifest says."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from ppo_doctor.trainers import detection as frameworks

REAL = Path(__file__).resolve().parents[3] / "shared" / "real-logs"
pytestmark = pytest.mark.skipif(not (REAL / "manifest.csv").is_file(), reason="real logs are not at hand")

#: How the manifest names a framework → how we do.
NAMES = (
    (r"^cleanrl SAC", "sac"),
    (r"^sb3", "sb3"),
    (r"^stable-baselines", "stable-baselines"),
    (r"^cleanrl", "cleanrl"),
    (r"^spinningup", "spinningup"),
    (r"^unity ml-agents", "ml-agents"),
    (r"^rllib DQN", "dqn"),
    (r"^rllib PPO", "rllib-old"),
    (r"^trl GRPO|^unsloth", "trl-grpo"),
    (r"^trl PPO", "trl-ppo"),
    (r"^verl", "verl"),
    (r"^DeepSpeed", "deepspeed-chat"),
    (r"^ms-swift", "ms-swift"),
    (r"^LLaMA-Factory PPO", "llama-factory"),
    (r"^rsl_rl", "rsl-rl"),
    (r"^custom PPO", "canonical"),
)


def rows() -> list[dict[str, str]]:
    if not (REAL / "manifest.csv").is_file():
        return []
    with (REAL / "manifest.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def expected(row: dict[str, str]) -> str | None:
    return next((name for pattern, name in NAMES if re.search(pattern, row["framework"])), None)


def listed_keys(row: dict[str, str]) -> list[str]:
    """Return the manifest's keys; it separates by spaces, so that names with spaces are put together again."""
    keys: list[str] = []
    for word in row["keys"].split():
        if "Policy/" in row["keys"] and "/" not in word and keys:
            keys[-1] += f" {word}"
        else:
            keys.append(word)
    return keys


#: What the manifest lists of texts is an excerpt.
TEXTS = ("console", "step lines", "notebook", "trainer_log", "progress.txt")
WITH_KEYS = [row for row in rows() if row["keys"] and expected(row) and not row["container"].startswith(TEXTS)]


@pytest.mark.parametrize("row", WITH_KEYS, ids=lambda row: row["id"])
def test_the_keys_of_the_manifest(row: dict[str, str]) -> None:
    keys = listed_keys(row)
    profile = frameworks.detect(keys)
    assert profile is not None
    assert profile.name == expected(row)
    if "POCA" in row["framework"] and "Losses/Baseline Loss" in keys:
        assert profile.algorithm == "poca"


def text_logs() -> list[tuple[str, Path, str]]:
    found = []
    for row in rows():
        name = expected(row)
        files = [
            path
            for path in sorted((REAL / row["id"]).glob("*"))
            if path.suffix in (".log", ".jsonl", ".csv", ".txt", ".rst", ".md")
        ]
        files = [path for path in files if "monitor" not in path.name]
        if name and files and row["n_records"] not in ("", "0"):
            found.append((row["id"], files[0], name))
    return found


@pytest.mark.parametrize(("path", "name"), [log[1:] for log in text_logs()], ids=[log[0] for log in text_logs()])
def test_logs_as_they_are_read(path: Path, name: str) -> None:
    readers = pytest.importorskip("ppo_doctor.readers")
    from ppo_doctor.readers.table import Table

    _, items = readers.read(path)
    keys = {key for item in items if isinstance(item, Table) for key in item.columns}
    profile = frameworks.detect(keys)
    assert profile is not None
    assert profile.name == name
    assert set(profile.uses(keys)) == keys
