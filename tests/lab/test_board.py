"""The lab of third-party trainers: labels that can be read, archives that hold what they name, grades, the ratchet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lab import board, corpus
from lab.board import Judged, changes, fallen, paired, table
from lab.environments import REQUIREMENTS, trainers
from lab.labels import Label, labelled, labels
from lab.pairs import merged
from lab.score import Grade, grade
from ppo_doctor.checks.rulepack import load_pack

LABEL = Label(
    case="sb3-1",
    trainer="sb3",
    fault="lr-zero",
    column="bare",
    files=("progress.csv",),
    identifiable="yes",
    accept=frozenset({"lr-zero", "lr-too-small"}),
)
SOUND = replace(LABEL, fault="healthy", accept=frozenset({"HEALTHY", "benign-single-update"}))
HELD_BACK = replace(LABEL, identifiable="no", accept=frozenset({"lr-zero", "ABSTAIN"}))


def cause(name, *, confidence="likely", severity="critical", benign=False, level_with=()):
    told = {"id": name, "confidence": confidence, "severity": severity, "benign": benign}
    return told | {"level_with": list(level_with)}


def marks(label, *causes, verdict="unhealthy"):
    found = grade(label, {"verdict": verdict, "causes": list(causes), "run": {"records": 20}})
    return {name for name in ("first", "third", "alarm", "silent", "wrong") if getattr(found, name)}


def test_a_faulty_run_is_right_where_an_accepted_cause_is_first_or_level_with_the_first():
    assert marks(LABEL, cause("lr-too-small")) == {"first", "third"}
    assert marks(LABEL, cause("no-grad-path", level_with=["lr-zero"])) == {"first", "third"}
    many = ["lr-zero", "nan-inf", "over-reuse"]
    assert marks(LABEL, cause("no-grad-path", level_with=many)) == {"wrong"}
    assert marks(LABEL, cause("no-grad-path"), cause("nan-inf"), cause("lr-zero")) == {"third", "wrong"}
    assert marks(LABEL, cause("no-grad-path", confidence="suspected")) == set()


def test_a_faulty_run_that_is_called_healthy_is_silent():
    assert marks(LABEL, verdict="healthy") == {"silent"}
    assert marks(LABEL, verdict="inconclusive") == set()


def test_a_benign_cause_counts_only_where_it_is_the_answer():
    single = cause("benign-single-update", benign=True, severity="info")
    assert marks(LABEL, single, cause("lr-zero")) == {"first", "third"}
    assert marks(SOUND, single, verdict="healthy") == {"first", "third"}


def test_a_sound_run_may_be_suspected_but_not_accused():
    assert marks(SOUND, cause("lr-zero", confidence="suspected"), verdict="warning") == {"first", "third"}
    assert marks(SOUND, cause("lr-zero", severity="medium"), verdict="unhealthy") == {"third"}
    assert marks(SOUND, cause("lr-zero"), verdict="warning") == {"alarm"}
    cut = replace(SOUND, accept=SOUND.accept | {"truncation-dominates"})
    assert cut.group == "sound"
    assert marks(cut, cause("truncation-dominates"), verdict="warning") == {"first", "third"}


def test_holding_back_is_right_where_the_evidence_is_missing():
    assert marks(HELD_BACK, verdict="healthy") == {"first", "third"}
    assert marks(HELD_BACK, cause("nan-inf", confidence="suspected"), verdict="warning") == {"first", "third"}
    assert marks(HELD_BACK, cause("nan-inf")) == {"wrong"}


def test_what_cannot_be_judged_is_no_success():
    found = grade(LABEL, {"error": {"message": "no run"}})
    assert (found.first, found.third, found.silent) == (False, False, False)
    assert "no run" in found.says


def judged(first=True, alarm=False, **label):
    return Judged(replace(LABEL, **label), Grade(first=first, third=first, alarm=alarm, says="unhealthy lr-zero(l)"))


def test_the_ratchet_breaks_where_fewer_are_first_or_more_alarm():
    before = board.told([judged(), judged(case="sb3-2", first=False), judged(case="sb3-3")])
    assert fallen(before, [judged(), judged(case="sb3-2"), judged(case="sb3-3", first=False)]) == []
    assert fallen(before, [judged(first=False), judged(case="sb3-2", first=False)]) != []
    assert fallen(before, [judged(alarm=True)]) != []
    assert fallen(before, [judged(case="new", first=False)]) == [], "what the board does not know breaks nothing"


def test_changes_name_the_case_and_the_direction():
    before = board.told([judged(), judged(case="sb3-2", first=False)])
    lines = changes(before, [judged(first=False), judged(case="sb3-2"), judged(case="sb3-3")])
    assert [line.split()[0] for line in lines] == ["better", "other", "worse"]
    assert "sb3/sb3-1/bare" in lines[-1]


def test_each_trainer_has_a_row_and_ours_is_in_no_sum():
    rows = table([judged(), judged(trainer="rllib", first=False), judged(trainer=board.OURS)], "bare").splitlines()
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["1.00 (1)", "0.00 (1)", "0.50 (2)", "1.00 (1)"]


def test_pairs_are_of_runs_that_the_bare_log_tells_something_of():
    told = [judged(first=False), replace(judged(), label=replace(LABEL, column="config"))]
    untold = [Judged(replace(HELD_BACK, case="sb3-2", column=column), judged().grade) for column in board.COLUMNS]
    assert paired([*told, *untold]) == "sb3: 1 runs, bare 0, 1\n"


# What lies in the repository

KNOWN = {cause.id for cause in load_pack().causes} | {"HEALTHY", "ABSTAIN"}


@pytest.mark.parametrize("trainer", labelled())
def test_labels_name_known_causes_and_files_of_the_archive(trainer):
    found = list(labels(trainer))
    assert found
    folder = corpus.unpacked(trainer)
    for label in found:
        assert label.accept
        assert label.accept <= KNOWN, label.case
        assert label.sound or "HEALTHY" in label.accept or label.fault in KNOWN, label.case
        assert all((folder / label.case / name).is_file() for name in label.files), label.case


@pytest.mark.parametrize("trainer", [name for name in trainers() if name != board.OURS])
def test_versions_are_pinned(trainer):
    lines = (REQUIREMENTS / f"{trainer}.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line.split("#")[0].strip() for line in lines]
    assert all("==" in line or line.startswith("-") for line in wanted if line)


def test_the_archives_stay_small():
    assert sum(path.stat().st_size for path in corpus.ARCHIVES.glob("*.tar.xz")) <= corpus.MOST_BYTES


def test_the_same_files_make_the_same_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "ARCHIVES", tmp_path / "archives")
    monkeypatch.setattr(corpus, "labels", lambda _: [LABEL])
    runs = tmp_path / "runs"
    (runs / "sb3" / "sb3-1").mkdir(parents=True)
    (runs / "sb3" / "sb3-1" / "progress.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (runs / "sb3" / "cases.jsonl").write_text('{"case": "sb3-1", "name": "lr-zero/1"}\n', encoding="utf-8")
    (runs / "sb3" / "sb3-1.done.json").write_text('{"ended": "finished"}\n', encoding="utf-8")
    once = corpus.pack("sb3", runs).read_bytes()
    assert corpus.pack("sb3", runs).read_bytes() == once


def test_the_archive_does_not_tell_where_it_was_made():
    place = bytes(corpus.ROOT.parent)
    assert corpus._neutral(b'File "' + place + b'/lab/cases.py"') == b'File "/project/lab/cases.py"'
    assert corpus._neutral(b"\0" + place) == b"\0" + place, "records of event files have lengths and sums"


def plain(given: Any) -> Any:
    return given


@dataclass(frozen=True)
class Made:
    """A recipe as trainers of the lab have them."""

    env: str = "A"
    settings: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = plain


def test_two_recipes_are_followed_at_once_unless_both_set_the_same():
    one, other = (
        Made(env="B", settings={"lr": 0}, wrap=lambda x: x + 1),
        Made(env="C", settings={"clip": 1}, wrap=lambda x: 2 * x),
    )
    both = merged(one, other)
    assert (both.env, both.settings, both.wrap(3)) == ("B", {"lr": 0, "clip": 1}, 8)
    assert merged(one, replace(other, settings={"lr": 1})) is None
