"""Other people's runs: read whole, named right, judged as an expert did; where the folder of real logs is at hand.

`PPO_DOCTOR_REAL_LOGS` names the folder; its default is `../shared/real-logs` beside the repository. The table is
printed with `pytest -s`. Counts below are a ratchet: they may only rise.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.model import Diagnosis, Severity
from ppo_doctor.pipeline import Request, diagnose, read_runs
from ppo_doctor.rulepack import load_pack
from ppo_doctor.sources import log_in

ROOT = Path(__file__).resolve().parent.parent
# Read before conftest scrubs our variables from the environment.
FOLDER = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))
HERE = (FOLDER / "manifest.csv").is_file()

#: Framework as the manifest words it → the profiles that may answer to it.
FRAMEWORKS = {
    "sb3": {"sb3"},
    "stable-baselines (TF1)": {"stable-baselines"},
    "spinningup ppo": {"spinningup"},
    "trl GRPO": {"trl-grpo"},
    "trl GRPO (transformers 5)": {"trl-grpo"},
    "trl PPO (PPOv2)": {"trl-ppo"},
    "unsloth/TRL GRPO": {"unsloth", "trl-grpo"},
    "unsloth GRPO": {"unsloth", "trl-grpo"},
    "ms-swift GRPO": {"ms-swift"},
    "verl PPO": {"verl"},
    "verl GRPO": {"verl"},
    "DeepSpeed-Chat PPO": {"deepspeed-chat"},
    "LLaMA-Factory PPO": {"llama-factory"},
    "rsl_rl": {"rsl-rl"},
    "rsl_rl (mjlab)": {"rsl-rl"},
    "custom PPO (baselines-style logger)": {"canonical", "baselines", "baselines-ppo2", "stable-baselines"},
    "custom PPO (EDON v7)": {"canonical"},
}
#: Runs whose record count differs from the manifest's, and why.
COUNTED_OTHERWISE = {
    "Sunshine535": "the closing summary of the trainer is a record too",
    "edon": "a summary line every ten episodes is a record too",
    "morikatron": "the manifest adds up log.txt and progress.csv, which hold the same run",
}


@dataclass(frozen=True)
class Row:
    """One run of the manifest with the expert's verdict."""

    id: str
    framework: str
    records: int
    confidence: str
    expected: tuple[str, ...]

    @property
    def log(self) -> Path:
        folder = FOLDER / self.id
        try:
            return log_in(folder)
        except DoctorError:
            return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def rows() -> list[Row]:
    if not HERE:
        return []
    with (FOLDER / "expected.csv").open(encoding="utf-8") as file:
        expected = {row["id"]: tuple(row["expect"].split(";")) for row in csv.DictReader(file)}
    with (FOLDER / "manifest.csv").open(encoding="utf-8") as file:
        found = [
            row for row in csv.DictReader(file) if not {"tfevents", "wandb", ".wandb"} & set(row["container"].split())
        ]
    texts = [row for row in found if "tfevents" not in row["container"] and "wandb" not in row["container"]]
    return [
        Row(row["id"], row["framework"], int(row["n_records"] or 0), row["confidence"], expected[row["id"]])
        for row in texts
    ]


ROWS = rows()
if HERE:
    each = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
else:
    each = pytest.mark.parametrize("row", [])


@cache
def judged(row: Row) -> list[Diagnosis] | DoctorError:
    try:
        return [diagnose(run, load_pack()) for run in read_runs(str(row.log), Request(debug=True))]
    except DoctorError as error:
        return error


@each
def test_a_real_log_is_read_or_refused_with_a_reason(row):
    found = judged(row)
    if isinstance(found, DoctorError):
        assert found.code == ExitCode.NOTHING_TO_JUDGE
        assert found.message
        assert {"NODATA", "NOTPPO"} & set(row.expected)
    else:
        assert len(found) == 1


@each
def test_its_framework_is_recognised(row):
    found = judged(row)
    if row.framework in FRAMEWORKS and not isinstance(found, DoctorError):
        assert found[0].run.framework in FRAMEWORKS[row.framework]


@each
def test_every_record_is_read(row):
    found = judged(row)
    if isinstance(found, DoctorError):
        assert row.records == 0 or {"NODATA", "NOTPPO"} & set(row.expected)
    elif any(word in row.id for word in COUNTED_OTHERWISE):
        assert found[0].run.records >= row.records // 2
    else:
        assert found[0].run.records == row.records


@each
def test_a_configuration_beside_the_log_is_found(row):
    found = judged(row)
    names = ("config.json", "config.yml", "args.yml", "params.json", "configuration.yaml")
    if not isinstance(found, DoctorError) and any((row.log.parent / name).is_file() for name in names):
        assert found[0].run.config


def as_expected(row: Row, found: list[Diagnosis] | DoctorError) -> bool:
    """Tell whether a verdict is one that the expert accepts."""
    if isinstance(found, DoctorError):
        return bool({"NODATA", "NOTPPO", "*"} & set(row.expected))
    diagnosis = found[0]
    if "*" in row.expected:
        return True
    if diagnosis.verdict == "healthy" and "HEALTHY" in row.expected:
        return True
    if diagnosis.verdict == "inconclusive" and "INCONCLUSIVE" in row.expected:
        return True
    leaders = [cause.id for cause in diagnosis.causes if cause.leader]
    return bool(set(leaders) & set(row.expected))


def alarms(row: Row, found: list[Diagnosis] | DoctorError) -> list[str]:
    """Return the firm, grave causes that a run was given whose expert saw none."""
    if isinstance(found, DoctorError) or "HEALTHY" not in row.expected:
        return []
    firm = [c for c in found[0].causes if c.leader and not c.benign and c.confidence != "suspected"]
    return [c.id for c in firm if c.severity.at_least(Severity.HIGH) and c.id not in row.expected]


@pytest.mark.skipif(not HERE, reason="the real logs are not at hand")
def test_verdicts_meet_the_experts():
    table = [(row, found := judged(row), as_expected(row, found), alarms(row, found)) for row in ROWS]
    for row, found, good, raised in table:
        said = found.message[-40:] if isinstance(found, DoctorError) else found[0].verdict
        causes = "" if isinstance(found, DoctorError) else ", ".join(c.id for c in found[0].causes if c.leader)
        print(f"{'ok  ' if good else 'MISS'} {row.id[:46]:<46} {row.confidence:<9} {said:<14} {causes} {raised or ''}")
    firm = [good for row, _, good, _ in table if row.confidence in ("stated", "confirmed")]
    soft = [good for row, _, good, _ in table if row.confidence not in ("stated", "confirmed")]
    print(f"stated or confirmed {sum(firm)} of {len(firm)}, judged {sum(soft)} of {len(soft)}")
    assert [row.id for row, _, _, raised in table if raised] == []
    assert sum(firm) >= FIRM
    assert sum(soft) >= SOFT


#: The ratchet.
FIRM, SOFT = 19, 25
