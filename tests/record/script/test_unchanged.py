"""Training under `ppo-doctor run` ends with the weights, bit for bit, that it ends with otherwise."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

SCRIPT = Path(__file__).with_name("trainings.py")
REPOSITORY = Path(__file__).parents[3]
#: Parts of the script that run one after the other in one process.
PARTS = {
    "eager": ("attention", "dropout", "recurrent", "devices", "loader", "foreign", "padded", "functional", "thread"),
    "compiled": ("scripted", "compiled_part", "compiled_attention"),
}


def run(folder, *command):
    """Run Python with the package importable; return its lines."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PPO_DOCTOR_DEBUG": "1", "COLUMNS": "200"}
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_weights_random_numbers_and_graph_breaks_are_the_same(tmp_path, parts):
    plain = run(tmp_path, str(SCRIPT), *parts)
    observed = run(
        tmp_path,
        *("-m", "ppo_doctor", "run", "--every", "1", "--out", "run.jsonl", "--output", "report"),
        str(SCRIPT),
        *parts,
    )
    assert len(plain) == len(parts)
    assert observed == plain
    assert any("ratio_min" in json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines())


def test_graphs_end_and_memory_stays_within_its_budget(tmp_path):
    plain = run(tmp_path, str(SCRIPT), "kept")
    observed = run(
        tmp_path,
        *("-m", "ppo_doctor", "run", "--every", "1", "--out", "run.jsonl", "--memory", "32M"),
        str(SCRIPT),
        "kept",
    )
    assert plain[0].partition(",")[0] == observed[0].partition(",")[0] == "kept 0 graphs"
    megabytes = [float(lines[0].split(", ")[1].split()[0]) for lines in (plain, observed)]
    assert megabytes[1] - megabytes[0] < 32 + 40  # and the package itself
