"""Runs with two faults: both are named, and pairs that do not go together are refused with the reason."""

from __future__ import annotations

import pytest

from ppo_doctor.model import Diagnosis
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import load_pack
from tests.lab import doubles
from tests.lab.dialects import write
from tests.lab.double import Place, Told, judge, make, place, share, summary
from tests.lab.double import jobs as jobs_of
from tests.lab.double_draw import LOOKED_AT, draw
from tests.lab.doubles import PAIRS, SEEDS, Pair, RefusedError, compose, run_pair, sound_setup

PACK = load_pack(installed=False)


def judged(pair: Pair, dialect: str, folder, seed: int = 11) -> Diagnosis:
    return diagnose(read_run(str(write(run_pair(pair, dialect, seed), dialect, folder)), Request(debug=True)), PACK)


TOP, TWIN = {"top"}, {"top", "level"}  # a broken reward is level with one that is too sparse where no signal is left


@pytest.mark.parametrize(
    ("first", "second", "dialect", "stands"),
    [
        (("lr-too-small", 2), ("reward-part-broken", 2), "trl-grpo", TOP),
        (("reward-pipeline-broken", 1), ("clip-range-too-small", 2), "trl-grpo", TWIN),  # both open one complaint
        (("late-collapse", 2), ("critic-not-learning", 2), "sb3", TOP),  # the collapse hides what was there before
        (("lr-zero", 1), ("critic-worse-than-mean", 2), "canonical", TOP),  # later finds speak against nothing earlier
        (("lr-too-small", 2), ("rollout-trainer-mismatch", 2), "cleanrl", TOP),  # noise makes the KL that is missing
        (("lr-zero", 1), ("reward-pipeline-broken", 1), "cleanrl", TOP),  # episodes go on, and nothing is paid
        (("late-collapse", 2), ("weights-not-synced", 2), "cleanrl", TOP),  # before the rate leapt
    ],
)
def test_both_causes_are_among_the_first_three(first, second, dialect, stands, tmp_path):
    pair = Pair(first=first[0], second=second[0], severities=(first[1], second[1]))
    diagnosis = judged(pair, dialect, tmp_path)
    one, other = (place(diagnosis, fault, dialect).standing for fault, _ in pair.faults)
    assert one in stands
    assert other == "top"


def test_what_was_judged_before_the_break_says_until_when(tmp_path):
    diagnosis = judged(Pair(first="late-collapse", second="critic-not-learning"), "sb3", tmp_path)
    critic = next(c for c in diagnosis.complaints if c.leader == "critic-not-learning")
    assert critic.until_step is not None
    assert diagnosis.run.steps[0] < critic.until_step < diagnosis.run.steps[1]


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("reward-scale-off", "value-loss-explosion", "both change reward"),
        ("entropy-collapse", "entropy-explosion", "ent_coef"),
        ("lr-zero", "clip-range-too-small", "no step"),
        ("temperature-mismatch", "old-policy-aliased", "stored log-probs"),
    ],
)
def test_pairs_that_do_not_go_together_are_refused_with_the_reason(first, second, why):
    with pytest.raises(RefusedError, match=why):
        compose(sound_setup("sb3"), Pair(first=first, second=second))


def test_reasons_found_in_misses_count_only_for_sides_that_were_drawn_later():
    pair = {"first": "clip-range-too-small", "second": "weights-not-synced"}
    assert compose(sound_setup("sb3"), Pair(**pair, split="drawn"))
    with pytest.raises(RefusedError, match="hardly move"):
        compose(sound_setup("sb3"), Pair(**pair, split="fresh"))


@pytest.mark.parametrize(("seed", "side"), [(7, "fresh"), (8, "redrawn"), (9, "last")])
def test_a_drawn_side_is_the_draw_that_it_says(seed, side):
    ours = [pair for pair in PAIRS if pair.split == side]
    assert ours == draw(seed, len(ours), side)
    others = {frozenset((p.first, p.second)) for p in PAIRS if p.split != side} | {frozenset(p) for p in LOOKED_AT}
    assert not others & {frozenset((p.first, p.second)) for p in ours}


def test_a_pair_that_is_declared_as_masked_is_composed():
    masked = Pair(first="lr-zero", second="clip-range-too-small", masked=True)
    changed = doubles.changed(sound_setup("sb3"), compose(sound_setup("sb3"), masked))
    assert changed == {"clip_range", "learning_rate"}


def test_sides_share_neither_pair_nor_seed():
    names = [pair.name for pair in PAIRS]
    seeds = [seed for side in SEEDS.values() for seed in side]
    assert len(set(names)) == len(names) >= 30
    assert len(set(seeds)) == len(seeds)
    sizes = {split: sum(p.split == split and not p.masked for p in PAIRS) for split in SEEDS}
    assert sizes["held-out"] + sizes["unseen"] >= sizes["training"]


def test_a_run_is_judged_beside_its_faults_alone(tmp_path):
    pair = Pair(first="reward-scale-off", second="clip-range-too-small")
    for job in jobs_of([pair]):
        if job.dialect == "sb3" and job.seed == SEEDS["training"][0]:
            assert make(tmp_path, job)
    (told,) = judge(tmp_path, [pair], workers=1)
    assert told.strict
    assert told.alone == (True, True)


def test_a_level_cause_is_counted_apart_and_a_hidden_one_not_at_all():
    pair, masked = Pair(first="a", second="b"), Pair(first="a", second="b", masked=True)
    top, level, gone = (Place(fault="a", standing=s) for s in ("top", "level", "absent"))
    told = [
        Told(pair=p, dialect="sb3", seed=0, places=places, alone=(True, True), words="")
        for p, places in ((pair, (top, level)), (pair, (top, gone)), (masked, (top, gone)))
    ]
    assert [(t.strict, t.named) for t in told] == [(False, True), (False, False), (True, True)]
    assert share(told[:2], "named") == "1 of 2 (0.50)"
    assert "1 of 1" in summary(told)[-1]
