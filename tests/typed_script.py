"""A script of a user, checked by mypy: what it must refuse is marked, and a mark too many is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import ppo_doctor
from ppo_doctor import Diagnosis, DoctorError, Run
from ppo_doctor.record import Recorder
from ppo_doctor.testing import assert_healthy


def judge(log: Path) -> Diagnosis:
    columns = {"step": np.arange(3), "approx_kl": [0.1, 0.2, 0.3]}
    records = [{"step": 1, "approx_kl": 0.1}]
    for each in (str(log), log):
        ppo_doctor.analyze(each)
    ppo_doctor.analyze(columns, settings={"gamma": 0.9}, rules=[log], target_return=1)
    ppo_doctor.analyze(records, aliases={"a": "approx_kl"})
    ppo_doctor.analyze(pd.DataFrame(columns))
    try:
        run: Run = ppo_doctor.load_run(log, framework="sb3")
    except DoctorError as error:
        raise SystemExit(error.hint) from error
    first: float = float(run.series["approx_kl"].values[0])
    frame: pd.DataFrame = run.to_frame()
    assert first and len(frame)
    return assert_healthy(log)


def show(diagnosis: Diagnosis) -> list[str]:
    diagnosis.plot("approx_kl").savefig("x.png")
    recorder = Recorder("run.jsonl")
    recorder.close()
    verdict: str = diagnosis.verdict
    return [verdict, *(finding.rule for finding in diagnosis.findings), diagnosis.full_run.id]


def wrong() -> None:
    ppo_doctor.analyze(3)  # type: ignore[arg-type]
    ppo_doctor.analyze("x", setting={})  # type: ignore[call-arg]
    ppo_doctor.load_run("x").series = {}  # type: ignore[misc]
