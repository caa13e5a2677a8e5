"""Sets of runs are packed without what trained them and without a trace of the machine, and are read as labelled."""

from __future__ import annotations

import csv
import tarfile

import pytest

from lab import corpus, met
from lab.labels import HEAD


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A set of one run, packed."""
    run = tmp_path / "set" / "ours" / "r01"
    run.mkdir(parents=True)
    (run / "run.jsonl").write_text('{"step": 1, "path": "/tmp/here", "loss": 0.5}\n')
    (run / "train.py").write_text("print()\n")
    (run / "beside.txt").write_text("nothing that a label names\n")
    labels = tmp_path / "set" / "labels"
    labels.mkdir()
    row = dict.fromkeys(HEAD, "") | {"case": "r01", "fault": "lr-zero", "bare": "run.jsonl"}
    row |= {"config": "run.jsonl;train.py", "bare_identifiable": "yes", "bare_accept": "lr-zero"}
    row |= {"config_identifiable": "yes", "config_accept": "lr-zero"}
    with (labels / "ours.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerow(row)
    monkeypatch.setattr(met, "FOLDER", tmp_path / "met")
    monkeypatch.setattr(corpus, "BUILD", tmp_path / "build")
    met.pack(tmp_path / "set", "ours")
    return tmp_path / "met"


def test_an_archive_holds_what_labels_name_and_no_code(kept):
    with tarfile.open(kept / "ours.tar.xz") as archive:
        assert archive.getnames() == ["ours/r01/run.jsonl"]
        assert b"/tmp/" not in archive.extractfile("ours/r01/run.jsonl").read()


def test_its_runs_are_asked_for_by_both_labels(kept):
    asked = list(met.met_runs(kept))
    assert [(label.column, label.case, label.files) for label, _ in asked] == [
        ("bare", "ours/r01", ("run.jsonl",)),
        ("config", "ours/r01", ("run.jsonl",)),
    ]


def test_every_label_that_is_kept_names_files_that_are_kept():
    for path in sorted((met.ROOT / "met" / "labels").glob("*.csv")):
        with tarfile.open(met.ROOT / "met" / f"{path.stem}.tar.xz") as archive:
            names = set(archive.getnames())
        with path.open(newline="") as file:
            named = {
                f"{path.stem}/{row['case']}/{name}"
                for row in csv.DictReader(file)
                for name in (row["bare"] + ";" + row["config"]).split(";")
                if name
            }
        assert named == names
