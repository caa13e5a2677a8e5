"""A few of the lab's dumps, written and judged: `python -m lab.numpy_lab.dumps` does all of them."""

from __future__ import annotations

import pytest

from lab.numpy_lab.dumps.files import write
from lab.numpy_lab.dumps.judge import judge_folder, line
from lab.numpy_lab.dumps.kinds import KINDS
from lab.numpy_lab.dumps.schemes import LATER, TABLE, asked, schemes
from lab.numpy_lab.dumps.variety import varied
from ppo_doctor.checks.rulepack import load_pack

SOUND = ("sound-gae", "sound-minibatches", "sound-single", "sound-half")
#: One of each family of faults.
FAULTY = (
    *("aliased-module", "resync-per-epoch-npz", "shift-by-one-first", "temperature", "dropout-three", "padding"),
    *("stale", "dtype-noise", "frozen", "permuted", "sign-flip", "empty-mask", "zero-advantages"),
)
#: In other sizes, layouts, types and under other names.
VARIED = ("sound-gae", "temperature", "permuted")


@pytest.mark.parametrize("name", [*SOUND, *FAULTY])
def test_a_dump_of_the_lab_is_judged_right(name, tmp_path):
    kind = KINDS[name]
    judged = judge_folder(kind, 7, write(kind, 7, tmp_path / name), load_pack())
    assert judged.good, line(judged)
    assert not (judged.sound and judged.alarms), line(judged)


@pytest.mark.parametrize("name", VARIED)
def test_it_is_judged_right_in_another_layout(name, tmp_path):
    kind = varied(KINDS[name], 12)
    judged = judge_folder(kind, 12, write(kind, 12, tmp_path / name), load_pack())
    assert judged.good, line(judged)


@pytest.mark.parametrize(("table", "right"), [(TABLE, 0.95), (LATER, 0.95)], ids=["first", "later"])
def test_arrays_are_read_under_the_names_of_other_people(table, right):
    answers = [each.answer for each in asked(table)]
    assert len(schemes(table)) >= 10
    assert answers.count("right") >= right * len(answers)
    assert answers.count("wrong") <= 0.01 * len(answers)
