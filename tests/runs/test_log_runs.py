"""What a recorder's log states beside numbers is kept in its run: lines of the script, and what was not observed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run, read_runs
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import CodePlace
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.merging import read_source
from tests.runs.folders import as_csv, sb3_rows, write

RATIO = CodePlace(file="train.py", line=205, function="update", text="ratio = (new - old).exp()")
PLACE = {"file": "train.py", "line": 205, "function": "update", "text": "ratio = (new - old).exp()"}
UNSEEN = {"policy_pull": "the loss is compiled"}
CONFIG = {"ppo_epochs": 4, "num_minibatches": 2}


OPTIONS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--gamma", type=float, default=0.97)
parser.add_argument("--lr", type=float, default=3e-4)
"""


def log(path, records, places=None, unseen=UNSEEN):
    """Write a log whose first lines state settings, lines of the script, and what was not observed."""
    heads = [{"config": CONFIG}, {"places": {"ratio_std": PLACE} if places is None else places}, {"unseen": unseen}]
    lines = [json.dumps(record) for record in (*({"ppo_doctor": 1} | head for head in heads), *records)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def frozen_ratio(count, begin=1):
    return [{"step": n, "ratio_std": 0.0, "update_norm": 0.1, "loss": 1 / (n + 1)} for n in range(begin, begin + count)]


def test_a_finding_is_at_the_line_where_its_metric_was_observed(tmp_path):
    run = read_run(log(tmp_path / "run.jsonl", frozen_ratio(12)), Request())
    assert run.places == {"ratio_std": RATIO}
    fired = {f.rule: f.place for f in diagnose(run, load_pack()).findings if f.status == "fired"}
    assert fired["ratio-identically-one"] == RATIO


def test_what_was_not_observed_is_a_note_of_the_run(tmp_path):
    diagnosis = diagnose(read_run(log(tmp_path / "run.jsonl", frozen_ratio(12)), Request()), load_pack())
    assert any(
        note.endswith("not observed, so unknown: policy_pull: the loss is compiled") for note in diagnosis.run.notes
    )


def test_secrets_in_a_line_of_code_are_hidden(tmp_path):
    text = 'wandb.login(key="0123456789abcdef0123456789abcdef01234567")'
    places = {"ratio_std": PLACE | {"text": text, "also": [PLACE | {"text": text, "role": "called"}]}}
    place = read_run(log(tmp_path / "run.jsonl", frozen_ratio(3), places), Request()).places["ratio_std"]
    assert place.also[0].role == "called"
    assert not [each for each in (place, *place.also) if "0123456789abcdef" in each.says]


def test_each_run_of_one_file_has_the_places(tmp_path):
    records = [record | {"seed": seed} for seed in (1, 2) for record in frozen_ratio(12)]
    found = read_runs(log(tmp_path / "run.jsonl", records), Request())
    assert [run.places for run in found] == [{"ratio_std": RATIO}] * 2


def test_a_log_beside_it_is_the_same_run_with_the_places(tmp_path):
    rows = sb3_rows(40)
    write(tmp_path, {"progress.csv": as_csv(rows)})
    records = [{"step": step, "approx_kl": values["train/approx_kl"], "ratio_std": 0.0} for step, values in rows]
    log(tmp_path / "run.jsonl", records)
    (run,) = read_runs(str(tmp_path), Request())
    assert len(run.sources) == 2
    assert "explained_variance" in run.series
    assert run.places == {"ratio_std": RATIO}


@pytest.mark.parametrize("length", [12, 400])
def test_a_log_of_an_observed_script_adds_what_was_not_observed_by_its_own_steps(tmp_path, length):
    observed = [{"step": 16 * n, "policy_pull": 1.0, "ratio_std": 0.1, "loss": 1 / n} for n in (1, 2, 8)]
    log(tmp_path / "run.jsonl", observed)
    rows = [f"{n},{2048 * n},{n / length},{2 + n / 3}" for n in range(1, length + 1)]
    write(tmp_path, {"progress.csv": "\n".join(["iteration,timesteps,episode_return,loss", *rows]) + "\n"})
    (source,), _ = gather([str(tmp_path / "run.jsonl"), str(tmp_path / "progress.csv")], together=True)
    (run,) = read_source(source, Request()).runs
    assert [Path(each.path).name for each in run.sources] == ["run.jsonl", "progress.csv"]
    assert (len(run.series["loss"]), len(run.series["episode_return"])) == (3, length)
    assert run.places == {"ratio_std": RATIO}
    notes = [str(note) for note in run.notes]
    assert any("progress.csv: is the log of the observed script and adds " in note for note in notes)
    assert not any("differ from those" in note for note in notes)


@pytest.mark.parametrize(("metric", "used"), [("policy_pull", False), ("ratio_std", True)])
def test_settings_of_files_beside_an_observation_may_be_of_another_script(tmp_path, metric, used):
    write(tmp_path, {"other.py": OPTIONS})
    log(tmp_path / "run.jsonl", [{"step": 16 * n, metric: 1.0, "approx_kl": 0.01, "loss": 1 / n} for n in (1, 2, 8)])
    run = read_run(str(tmp_path / "run.jsonl"), Request())
    assert ("gamma" in run.config) is used


@pytest.mark.parametrize("places", [{"ratio_std": {"file": "train.py", "line": "x"}}, 5])
def test_a_damaged_line_of_places_is_a_note_and_costs_no_record(tmp_path, places):
    run = read_run(log(tmp_path / "run.jsonl", frozen_ratio(12), places), Request())
    assert run.places == {}
    assert run.sources[0].records == 12
    assert any("not used" in str(note) and ":2:" in str(note) for note in run.notes)
