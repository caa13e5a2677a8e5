"""Other people's runs are read whole, recognised, and judged as an expert judged them.

`PPO_DOCTOR_REAL_LOGS` names the folder of logs; without it, `../shared/real-logs` beside the repository is used. The
tests are skipped where there is no such folder.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.errors import DoctorError, ExitCode, worst
from ppo_doctor.model.request import Request
from ppo_doctor.model.words import Severity
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.merging import read_source

ROOT = Path(__file__).resolve().parent.parent
# Read before conftest scrubs our variables from the environment.
FOLDER = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))
HERE = (FOLDER / "manifest.csv").is_file()

#: Framework as the manifest words it → the profiles that may answer to it.
FRAMEWORKS = {
    "sb3": {"sb3"},
    "sb3 (rl-baselines3-zoo)": {"sb3"},
    "cleanrl": {"cleanrl"},
    "unity ml-agents PPO": {"ml-agents"},
    "unity ml-agents POCA (self-play)": {"ml-agents"},
    "rllib PPO": {"rllib", "rllib-old"},
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
#: A word in the manifest's column → the container that we find; the first that fits counts.
CONTAINERS = {
    "tfevents": "tfevents",
    ".wandb": "wandb",
    "wandb run folder": "wandb",
    "wandb-summary": None,
    "trainer_state.json": "json",
    "step_logs.json": "json",
    "result.json": "jsonl",
    "jsonl": "jsonl",
    "csv": "csv",
    "progress.txt": "csv",
    "console": "console",
    "step lines": "console",
    "notebook table": "console",
}
#: Runs whose record count differs from the manifest's: by how many, and why.
COUNTED_OTHERWISE = {
    "mjlab__issue174": (-1, "its second block breaks off before its first metric"),
    "qwen35": (-1, "the closing summary of the trainer is no record"),
    "flat_logs": (7, "TensorBoard's own reader counts 4824, as we do"),
    "ep200": (20, "a summary line every ten episodes is a record too"),
    "ep300": (30, "a summary line every ten episodes is a record too"),
    "morikatron": (-100, "the manifest adds up log.txt and progress.csv, which hold the same run"),
    "wandb_swwj8mgr": (1, "the manifest counts to the last step, 872; they begin at 0"),
    "wandb_offline": (16, "the manifest counts records of PPO; these are of a reward model"),
}


#: Runs whose verdict is not the expert's. Take a run out when it is judged right; none may come in.
MISSED = {
    "MoniFarsang__ppo-clipping__CartPole-v1_3",
    "HyLora__CACLAvsCleanRL__ppo_1762362740",
    "HyLora__CACLAvsCleanRL__wandb_swwj8mgr_ppo",
    "ocg2347__spinningup-thesis__ppo_cnp_2",
    "GHOSTCODERRRRAHAHA__edon__training_log_ep200",
    "GHOSTCODERRRRAHAHA__edon__training_log_ep200_bold",
    "GHOSTCODERRRRAHAHA__edon__training_log_ep300_aligned",
    "Sunshine535__nips-grpo__gates_gate1_adq_seed42",
    "Sunshine535__nips-grpo__gates_gate2_rho1.00_seed43",
    "Sunshine535__nips-grpo__qwen35_rho0.70_seed42",
}


@dataclass(frozen=True)
class Row:
    """One run of the manifest with the expert's verdict."""

    id: str
    framework: str
    container: str
    records: int
    configured: bool
    confidence: str
    expected: tuple[str, ...]

    @property
    def given(self) -> Path:
        """Return what the tool is given: the only file, else the folder."""
        files = [path for path in (FOLDER / self.id).rglob("*") if path.is_file()]
        return files[0] if len(files) == 1 else FOLDER / self.id

    @property
    def refusable(self) -> bool:
        return bool({"NODATA", "NOTPPO", "*"} & set(self.expected))


@dataclass(frozen=True)
class Found:
    """The diagnoses of the runs of a row, and an error for each run that could not be judged."""

    diagnoses: tuple[Diagnosis, ...]
    errors: tuple[DoctorError, ...]

    @property
    def code(self) -> ExitCode:
        return worst([error.code for error in self.errors])


def rows() -> list[Row]:
    if not HERE:
        return []
    with (FOLDER / "expected.csv").open(encoding="utf-8") as file:
        expected = {row["id"]: tuple(row["expect"].split(";")) for row in csv.DictReader(file)}
    with (FOLDER / "manifest.csv").open(encoding="utf-8") as file:
        return [
            Row(
                row["id"],
                row["framework"],
                row["container"],
                int(row["n_records"] or 0),
                bool(row["has_config"].strip()),
                row["confidence"],
                expected[row["id"]],
            )
            for row in csv.DictReader(file)
        ]


ROWS = rows()
if HERE:
    each = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
else:
    each = pytest.mark.parametrize("row", [])


def judged(row: Row) -> Found:
    diagnoses: list[Diagnosis] = []
    sources, errors = gather([str(row.given)])
    for source in sources:
        try:
            outcome = read_source(source, Request(debug=True))
        except DoctorError as error:
            errors.append(error)
            continue
        errors += outcome.broken
        diagnoses += [diagnose(run, load_pack(), Request(debug=True)) for run in outcome.runs]
    return Found(tuple(diagnoses), tuple(errors))


@pytest.mark.skipif(not HERE, reason="the real logs are not at hand")
def test_the_whole_manifest_is_tested():
    assert len(ROWS) == 93


#: Folders that hold more runs than one.
SEVERAL = {"flat_logs": 54, "ObstacleCourse": 2, "SoccerPPO__ppo": 2, "wandb_offline": 2}


@each
def test_a_real_log_is_read_whole_and_judged_as_the_expert_did(row):
    found = judged(row)
    assert_read_or_refused_with_a_reason(row, found)
    runs = next((count for name, count in SEVERAL.items() if name in row.id), 1)
    assert len(found.diagnoses) + len(found.errors) == runs
    if row.framework in FRAMEWORKS:
        assert {diagnosis.run.framework for diagnosis in found.diagnoses} <= FRAMEWORKS[row.framework]
    container = next(container for word, container in CONTAINERS.items() if word in row.container)
    assert {diagnosis.run.sources[0].container for diagnosis in found.diagnoses} <= {container}
    if found.diagnoses:
        difference = next((by for word, (by, _) in COUNTED_OTHERWISE.items() if word in row.id), 0)
        assert sum(diagnosis.run.records for diagnosis in found.diagnoses) == row.records + difference
    if row.configured:
        assert all(diagnosis.run.config for diagnosis in found.diagnoses)
    assert false_alarms(row, found) == []
    assert as_expected(row, found) is (row.id not in MISSED), verdicts_of(found)


def assert_read_or_refused_with_a_reason(row: Row, found: Found) -> None:
    assert all(error.message and error.code == ExitCode.NOTHING_TO_JUDGE for error in found.errors)
    if not found.diagnoses:
        assert found.code == ExitCode.NOTHING_TO_JUDGE
        assert row.refusable
    elif found.errors:
        assert row.refusable  # a folder of many runs, some of which hold nothing
    if row.expected == ("NODATA",):
        assert not found.diagnoses


def as_expected(row: Row, found: Found) -> bool:
    """Tell whether every run of a row got a verdict that the expert accepts."""
    if not found.diagnoses:
        return row.refusable
    return all(accepted(row, diagnosis) for diagnosis in found.diagnoses)


def accepted(row: Row, diagnosis: Diagnosis) -> bool:
    leaders = [cause for cause in diagnosis.causes if cause.leader]
    grave = [c.id for c in leaders if not c.benign and c.severity.at_least(Severity.HIGH)]
    return (
        "*" in row.expected
        or ("HEALTHY" in row.expected and diagnosis.verdict in ("healthy", "warning") and not grave)
        or ("INCONCLUSIVE" in row.expected and diagnosis.verdict == "inconclusive")
        or bool({cause.id for cause in leaders} & set(row.expected))
    )


def false_alarms(row: Row, found: Found) -> list[str]:
    """Return the grave causes that the tool does not merely suspect in a run that its expert called healthy."""
    if "HEALTHY" not in row.expected:
        return []
    firm = [c for d in found.diagnoses for c in d.causes if c.leader and not c.benign and c.confidence != "suspected"]
    return [c.id for c in firm if c.severity.at_least(Severity.HIGH) and c.id not in row.expected]


def verdicts_of(found: Found) -> str:
    """Return the verdicts and leading causes of a row in a few words."""
    verdicts = [
        f"{d.verdict} {', '.join(f'{c.id} ({c.confidence})' for c in d.causes if c.leader)}".strip()
        for d in found.diagnoses
    ]
    return "; ".join(dict.fromkeys(verdicts)) or f"exit 3: {found.errors[0].message[-50:]}"
