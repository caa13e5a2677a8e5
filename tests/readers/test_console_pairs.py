"""Names and numbers without a sign between them are a record where they come again, and prose where they do not."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.readers.console_pairs import MOST_HELD, words_of


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("epoch 3 reward 12.5 kl 0.01 clipfrac 0.1", 4),
        ("  epoch 3, policy loss -1e-3, kl 0.01", 3),
        ("2024-05-01 10:00:00 INFO iter 3 | reward 12.5 | kl nan | entropy 1.2", 4),
        ("loaded 12 files and found 3 tasks", 0),
        ("epoch 3 reward 12.5 kl 0.01 saved", 0),
        ("12 files 3 tasks 4", 0),
        ("12\tT_sample 2.5\tR_min -10.5\tR_avg nan", 4),
        ("Last 10 training episodes: mean reward 20.5, max reward 35.0", 3),
        ("Episode 10\tLast reward: 22.0\tAverage reward 21.5", 3),
        ("Update 3 -> reward 22.0, kl 0.1", 3),
        ("iter 3 - reward 22.0 - kl -0.1", 3),
        ("average episode rewards is -89.5", 1),
        ("act -0.005 crit 0.06351 bits 2.3200 | gn 0.260 steps 8", 5),
        ("act -0.005 spread 0.06 bits | gn 0.260", 3),
        ("[wave 002] pts -0.64 kl 0.1", 3),
        ("kl", 0),
        ("", 0),
    ],
)
def test_a_line_is_read_whole_or_not_at_all(text, pairs):
    assert len(words_of(text)) == pairs


def test_lines_of_the_same_names_are_records(reading):
    lines = [f"epoch {i} policy loss {i / 8} kl nan" for i in range(3)]
    got = reading("found 3 tasks 4 files 5 errors 0\n" + "\nsaved\n".join(lines) + "\n")
    assert [record["policy loss"] for record in got.records] == [0, 1 / 8, 2 / 8]
    assert [record["epoch"] for record in got.records] == [0, 1, 2]
    assert all(math.isnan(record["kl"]) for record in got.records)
    assert any(note.text.endswith("not read: 3") for note in got.notes)


def test_what_comes_once_is_prose(reading):
    got = reading("epoch 3 reward 12.5 kl 0.01\nstep=1, loss=0.5\nstep=2, loss=0.4\n")
    assert got.records == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]


def test_a_line_that_the_file_ends_in_loses_its_last_value(reading):
    got = reading("epoch 1 reward 2 kl 0.5\nepoch 2 reward 3 kl 0.25\nepoch 3 reward 4 kl 0.1")
    assert got.records[:2] == [{"epoch": 1, "reward": 2, "kl": 0.5}, {"epoch": 2, "reward": 3, "kl": 0.25}]
    assert all("kl" not in record for record in got.records[2:])


def test_layouts_without_end_are_not_kept(reading):
    other = "".join(f"a{chr(97 + i // 26)}{chr(97 + i % 26)} 1 b 2 c 3\n" for i in range(3 * MOST_HELD))
    assert reading("e 1 f 2 g 3\n" + other + "e 4 f 5 g 6\n").records == [
        {"e": 1, "f": 2, "g": 3},
        {"e": 4, "f": 5, "g": 6},
    ]


BLOCKS = """\
23/11/2026 13:35:10 [INFO] Iteration 1:
\t\t\t\trewards -138.5 vf_loss [1432.125]
\t\t\t\tentropy 1.5  kl 2.5e-05
23/11/2026 13:35:10 [INFO] ----------
23/11/2026 13:35:17 [INFO] Iteration 2:
\t\t\t\trewards -190.25 vf_loss [2674.5]
\t\t\t\tentropy nan  kl 1.25e-05
"""


def test_indented_names_and_numbers_belong_to_the_counter_above(reading):
    got = reading(BLOCKS).records
    assert got[0] == {"Iteration": 1, "rewards": -138.5, "vf_loss": 1432.125, "entropy": 1.5, "kl": 2.5e-05}
    assert [record["vf_loss"] for record in got] == [1432.125, 2674.5]
    assert math.isnan(got[1]["entropy"])


def test_an_array_of_several_numbers_is_no_value(reading):
    text = BLOCKS.replace("[1432.125]", "[1432.125 7.0]").replace("[2674.5]", "[2674.5, 7.0]")
    assert all("vf_loss" not in record for record in reading(text).records)


def test_a_sentence_that_says_what_one_number_is_comes_again(reading):
    got = reading("".join(f"updates of {n} envs\naverage episode rewards is -{n}.5\n" for n in (1, 2)))
    assert got.records == [{"average episode rewards": -n - 0.5} for n in (1, 2)]
    assert reading("the importance ratio is 1\n").records == []


def test_marks_of_a_script_between_names_and_numbers(reading):
    rows = "".join(f"ep {i} :: G -{100 - i}.2 ; La 0.0{i} ; ent 0.{i}\n" for i in range(1, 9))
    assert reading(rows).records[7] == {"ep": 8, "G": -92.2, "La": 0.08, "ent": 0.8}


def test_an_arrow_names_a_number_and_joins_no_two(reading):
    rows = "".join(f"[{i}/8] reward -> {i}.5 | kl -> 0.0{i} | entropy -> 0.{i}\n" for i in range(1, 9))
    assert reading(rows).records[0] == {"reward": 1.5, "kl": 0.01, "entropy": 0.1}
