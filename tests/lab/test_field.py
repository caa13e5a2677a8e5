"""Published runs: which are there, how they are counted, and when the counts are worse."""

from __future__ import annotations

import csv
import shutil
import sys
import tarfile

import pytest

from lab import corpus, field, met
from lab.field import MOST_OF_ONE, FieldRun, Said, counts, exceeded, field_runs, judge, rates, table
from lab.labels import HEAD


@pytest.fixture
def folder(tmp_path, samples):
    """Return a folder of three runs, of which one is missing and one is not of the PPO family."""
    for part in ("classic", "llm"):
        (tmp_path / part).mkdir()
    shutil.copytree(samples / "healthy" / "healthy.sb3", tmp_path / "classic" / "one__repo" / "a")
    shutil.copytree(samples / "sick" / "nan-inf.sb3", tmp_path / "classic" / "one__repo" / "b")
    rows = ["id,outcome,ppo", "one__repo/a,learned,1", "one__repo/b,collapsed,0", "one__repo/gone,learned,1"]
    (tmp_path / "classic" / "outcomes.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def said(verdict="healthy", outcome="learned", name="repo/run", **more):
    return Said(FieldRun("classic", name, outcome, more.pop("ppo", True)), verdict, **more)


def test_the_runs_that_are_there_are_told_with_their_outcome(folder):
    found = list(field_runs(folder))
    assert [(run.name, run.outcome, run.ppo) for run in found] == [
        ("one__repo/a", "learned", True),
        ("one__repo/b", "collapsed", False),
    ]
    assert {run.repository for run in found} == {"classic/one__repo"}


def test_a_run_is_judged_as_it_lies(folder, monkeypatch):
    monkeypatch.setattr(field, "FIELD", folder)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(folder)
    sound, broken = map(judge, field_runs(folder))
    assert (sound.verdict, sound.runs, sound.leaders) == ("healthy", 1, ())
    assert broken.verdict == "unhealthy"
    assert "nan-inf" in broken.leaders
    assert broken.shown[0] in broken.yes
    (folder / "classic" / "empty").mkdir()
    assert judge(FieldRun("classic", "empty", "learned", True)).verdict == "unread"


def test_counts_are_of_runs_of_the_family_by_what_their_reward_did():
    found = [
        *(said("healthy"), said("unhealthy"), said("warning", "solved", runs=2)),
        *(said("healthy", "collapsed"), said("healthy", "flat"), said("unread", "flat")),
        said("unhealthy", ppo=False),
    ]
    told = counts(found)
    assert (told["learned"], told["alarms"], told["warned"]) == (3, 1, 1)
    assert (told["lost_but_healthy"], told["flat_but_healthy"], told["unread"]) == (1, 1, 1)
    assert (told["several"], told["others_judged"]) == (1, 1)


def test_rates_are_of_runs_that_learned_at_most_five_of_a_repository():
    many = [said(name=f"one/{n}", yes=("loud",), no=("calm",)) for n in range(MOST_OF_ONE + 3)]
    others = [said(name="two/a", no=("loud",)), said("unhealthy", "flat", "two/b", yes=("calm",))]
    others.append(said(name="two/c", yes=("calm",), ppo=False))
    assert rates([*many, *others]) == {"loud": (MOST_OF_ONE, MOST_OF_ONE + 1), "calm": (0, MOST_OF_ONE)}


def test_what_is_more_than_the_floor_is_worse_and_more_runs_are_not():
    floor = {"learned": 10, "alarms": 1, "warned": 4}
    assert exceeded(floor, {"learned": 20, "alarms": 1, "warned": 2}) == []
    worse = exceeded(floor, {"learned": 10, "alarms": 2, "warned": 4})
    assert len(worse) == 1
    assert worse[0].startswith("alarms")


def test_the_table_tells_what_alarms_runs_that_learned():
    told = table([said("unhealthy", shown=("loud", "calm")), said("warning", "flat"), said(ppo=False)])
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
    assert rows["flat"][0] == "1"
    assert "learned, unhealthy: 1 loud\n" in told
    assert "not PPO" in told


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
