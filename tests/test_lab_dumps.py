"""A few of the lab's dumps, written and judged: `python -m tests.lab.dumps` does all of them."""

from __future__ import annotations

import pytest

from ppo_doctor.rulepack import load_pack
from tests.lab.dumps.files import write
from tests.lab.dumps.judge import judge_folder, line
from tests.lab.dumps.kinds import KINDS
from tests.lab.dumps.variety import varied

SOUND = ("sound-gae", "sound-minibatches", "sound-rows", "sound-single", "sound-half", "sound-logged")
FAULTY = (
    *(
        "aliased-module",
        "equal-copies",
        "resync-per-epoch-npz",
        "resync-per-minibatch-safetensors",
        "shift-by-one-first",
    ),
    *("temperature", "top-p", "dropout-three", "padding", "stale", "noisy-sampler", "dtype-noise", "bf16-swallowed"),
    *("frozen", "orphaned", "permuted", "permuted-gae", "wrong-groups", "sign-flip", "loss-flipped", "empty-mask"),
    *("zero-advantages", "log-counts-unclipped", "cached-sampler", "collided-groups"),
)
#: In other sizes, layouts, types and under other names.
VARIED = ("sound", "sound-gae", "sound-minibatches", "resync-per-epoch-npz", "temperature", "padding", "permuted")


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
