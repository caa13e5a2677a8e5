"""Several numbers under one name are pairs of their own, in one line and over several."""

from __future__ import annotations

import math
import time

import pytest

from ppo_doctor.readers.console_pairs import pairs_of, words_of
from ppo_doctor.readers.console_several import spelled_out


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("mean/median reward: 20.1/19.0, kl: 0.1", {"mean reward": "20.1", "median reward": "19.0", "kl": "0.1"}),
        ("Reward mean/std: 1.0 / nan", {"Reward mean": "1.0", "Reward std": "nan"}),
        ("losses (pi/v) = -0.01/0.5", {"policy loss": "-0.01", "value loss": "0.5"}),
        ("reward: -12.5 +/- 3.5, loss: 2", {"reward": "-12.5", "reward std": "3.5", "loss": "2"}),
        ("best: 3.5 ± 1e-3", {"best": "3.5", "best std": "1e-3"}),
        ("rz=[0.66;1.48] kl=1", {"rz_min": "0.66", "rz_max": "1.48", "kl": "1"}),
        ("statistics:[('value', -0.5), ('n_updates', 320)]", {"value": "-0.5", "n_updates": "320"}),
        ("episodic_return=[22.], step=3", {"episodic_return": "22.0", "step": "3"}),
        ("Score: ['1.0', '2.0', '3.0', '4.0'] kl: 1", {"Score": "2.5", "Score std": repr(math.sqrt(1.25)), "kl": "1"}),
        ("rewards: tensor([1., 1., 4.], device='cuda:0')", {"rewards": "2.0", "rewards std": repr(math.sqrt(2))}),
    ],
)
def test_each_number_has_a_name(text, pairs):
    assert dict(pairs_of(text)) == pairs


@pytest.mark.parametrize(
    "text",
    [
        "train/loss 3/10",
        "a/b/c: 1.5/2.5",
        "/data/runs/x 1.5",
        "clip range: [0.8, 1.2]",
        "shape: [x, 3, 4]",
        "x: [1, 2, 3",
    ],
)
def test_what_is_no_series_of_numbers_stays(text):
    assert spelled_out(text) == text


def test_the_size_of_what_is_no_number_is_a_name():
    assert spelled_out("|g| nan lr 0.1") == "‖g‖ nan lr 0.1"


@pytest.mark.parametrize("letters", ["μσmM", "x\u0304σmM"])
def test_letters_stand_for_statistics(letters):
    line = f"U 3 | F 006144 | rR:{letters}  0.50 0.10 0.00 0.75 | H 1.5 | ∇ 0.046"
    assert dict(words_of(line)) == {
        "U": "3",
        "F": "006144",
        "rR mean": "0.50",
        "rR std": "0.10",
        "rR min": "0.00",
        "rR max": "0.75",
        "H": "1.5",
        "∇": "0.046",
    }


def test_a_tensor_over_several_lines_is_one(reading):
    lines = "time: 0.02s     rewards: tensor([{0}, {0}, 2.25,\n        {0}, 2.25, {0}])\nanswers: x\n"
    got = reading("".join(lines.format(value) for value in (0.25, -0.75)))
    assert [record["rewards"] for record in got.records] == pytest.approx([5.5 / 6, 1.5 / 6])
    assert got.records[0]["rewards std"] == pytest.approx(0.9428, abs=1e-4)


def test_a_tensor_without_end_costs_only_itself(reading):
    got = reading("rewards: tensor([1., 2.,\nstep=1, loss=0.5\nstep=2, loss=0.25\nrewards: tensor([1., 2.,\n 3.")
    assert got.records == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


@pytest.mark.parametrize("part", ["a/b", "a b/c: 1.5/", "a: [1, ", "a: tensor(", "('a', 1), ", "a 1 +/- ", "9/", "[["])
def test_hostile_lines_are_searched_in_time(part):
    line = part * ((1 << 14) // len(part))
    began = time.process_time()
    pairs_of(line)
    words_of(line)
    assert time.process_time() - began < 2


def test_letters_of_a_terminal_without_greek(reading):
    row = "U {} | F 00{} | rR:usmM 0.25 0.5 0.0 1.0 | H 1.903 | V 0.054 | pL 0.001 | vL 0.002\n"
    got = reading(row.format(1, 2048) + row.format(2, 4096))
    assert got.records[1]["rR mean"] == 0.25
    assert got.records[1]["rR std"] == 0.5
    assert got.records[1]["rR max"] == 1


def test_an_evaluation_in_prose(reading):
    line = "Eval metrics at step {}: Reward: mean={}.5, std=1.2, min=0.5; Length: mean=120.5\n"
    got = reading("".join(line.format(i * 100, i) for i in range(1, 6)))
    assert got.records[4] == {
        "step": 500,
        "eval/Reward mean": 5.5,
        "eval/Reward std": 1.2,
        "eval/Reward min": 0.5,
        "eval/Length mean": 120.5,
    }
