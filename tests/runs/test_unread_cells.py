"""Cells of a metric that hold text are counted and told, and no run is healthy that lost some."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.run import Run
from ppo_doctor.runs.reading import Request
from tests.layouts import SETTINGS, Log, logs_in, read, write

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"
HEALTHY = logs_in([str(SAMPLES / "healthy")])
JUNK = "@@"


def damaged(log: Log, change: Callable[[int, str, Any], Any]) -> Log:
    """Return a log in which `change` of record, key and value takes the place of the value."""
    records = [{key: change(at, key, value) for key, value in record.items()} for at, record in enumerate(log.records)]
    return replace(log, records=records)


def run_of(log: Log, folder: Path, original: Path) -> Run:
    for name in SETTINGS:
        if (original.parent / name).is_file():
            (folder / name).write_bytes((original.parent / name).read_bytes())
    (folder / log.name).write_bytes(write(log))
    return read_run(str(folder / log.name), Request())


def lost_cells(run: Run) -> dict[str, int]:
    return {note.source.key: note.count for note in run.notes if note.kind == "lost" and note.source.key}


def column(run: Run, names: tuple[str, ...] = ("entropy", "approx_kl", "loss", "policy_loss")) -> str:
    return next(run.series[name].raw for name in names if name in run.series)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.parent.name)
def test_one_text_cell_of_a_metric_is_counted_and_keeps_a_run_from_being_healthy(path, tmp_path):
    sound = read_run(str(path), Request())
    key = column(sound)
    at = next(i for i, record in enumerate(read(path).records) if i > 4 and record.get(key) not in (None, ""))
    run = run_of(damaged(read(path), lambda i, k, v: JUNK if (i, k) == (at, key) else v), tmp_path, path)
    assert lost_cells(run) == {key: 1}
    verdict = diagnose(run, load_pack())
    assert verdict.verdict != "healthy"
    assert run.keys[key] in ("mapped", "guessed")


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.parent.name)
def test_a_metric_that_is_text_throughout_is_told_and_listed(path, tmp_path):
    sound = read_run(str(path), Request())
    key = column(sound)
    run = run_of(damaged(read(path), lambda _, k, v: JUNK if k == key and v not in (None, "") else v), tmp_path, path)
    assert lost_cells(run) == {key: sum(record.get(key) not in (None, "") for record in read(path).records)}
    assert run.keys[key] == "text"
    assert diagnose(run, load_pack()).verdict != "healthy"


def test_more_text_cells_than_are_kept_are_all_counted(tmp_path):
    lines = [{"step": i, "entropy": 1.0 if i % 3 else JUNK, "reward_mean": 0.1, "approx_kl": 0.01} for i in range(6000)]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert lost_cells(read_run(str(tmp_path / "run.jsonl"), Request())) == {"entropy": 2000}


def test_text_in_a_column_that_is_no_metric_is_told_and_loses_nothing(tmp_path):
    lines = [{"step": i, "entropy": 1.0, "node": 3 if i % 2 else "three", "policy": "mlp"} for i in range(20)]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(str(tmp_path / "run.jsonl"), Request())
    assert lost_cells(run) == {}
    assert [(note.source.key, note.count) for note in run.notes if note.kind == "dropped"] == [("node", 10)]
    assert run.keys["policy"] == "text"


def test_a_dash_is_a_blank_and_no_text(tmp_path):
    rows = [f"{i},{'-' if i % 5 else 0.5},{0.1 * i}" for i in range(1, 30)]
    (tmp_path / "run.csv").write_text("\n".join(["step,entropy,reward_mean", *rows]) + "\n")
    run = read_run(str(tmp_path / "run.csv"), Request())
    assert len(run.series["entropy"]) == 5
    assert lost_cells(run) == {}


#: Ways of printing loose pairs.
PRINTED = {
    "words": "step {step} policy_loss {value} approx_kl {kl} entropy {entropy}",
    "equals": "step={step} policy_loss={value} approx_kl={kl} entropy={entropy}",
    "colons": "step: {step} policy_loss: {value} approx_kl: {kl} entropy: {entropy}",
    "commas": "INFO step: {step}, policy_loss: {value}, approx_kl: {kl}, entropy: {entropy}",
    "bars": "step {step} | policy_loss {value} | approx_kl {kl} | entropy {entropy}",
    "lines": "step: {step}\npolicy_loss: {value}\napprox_kl: {kl}\nentropy: {entropy}",
    "block": "Step {step}\n  policy_loss: {value}\n  approx_kl: {kl}\n  entropy: {entropy}\n",
    "bar": "{step}%|##  | {step}/40 [00:01<00:10, 1.0it/s, policy_loss={value}, approx_kl={kl}, entropy={entropy}]",
}


@pytest.mark.parametrize("word", ["oops", "overflow!", "1.2.3", "None", "-"])
@pytest.mark.parametrize("form", PRINTED)
def test_a_word_among_loose_pairs_costs_its_cell_alone_and_is_told(tmp_path, form, word):
    rows = [
        PRINTED[form].format(step=n, kl=0.01 + n / 1000, entropy=1 - n / 100, value=word if n % 5 == 3 else n / 7)
        for n in range(40)
    ]
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = read_run(str(tmp_path / "train.log"), Request())
    counts = {name: len(run.series[name]) for name in ("policy_loss", "approx_kl", "entropy")}
    assert counts == {"policy_loss": 32, "approx_kl": 40, "entropy": 40}
    said = [note.text for note in run.notes if note.kind == "lost"]
    assert said == (
        []
        if word in ("None", "-")
        else [f"8 cells of policy_loss hold text, from “{word}” on, and no number; not read"]
    )


@pytest.mark.parametrize(
    "line",
    ["step 3, eval loss 0.2 kl 0.1", "eval step 3 loss 0.2 kl 0.1", "step 3 of loss and then kl", "step loss kl"],
)
def test_a_line_that_says_something_else_is_no_record_of_the_others(tmp_path, line):
    rows = [f"step {n} loss {n / 7:.4f} kl {0.01 + n / 1000:.4f}" for n in range(20)]
    rows.insert(10, line)
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = read_run(str(tmp_path / "train.log"), Request())
    assert len(run.series["approx_kl"]) == 20
    assert not [note for note in run.notes if note.kind == "lost"]
