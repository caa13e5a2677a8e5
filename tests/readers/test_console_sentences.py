"""Prose with the same words in every iteration is a record; a number is named by what stands around it."""

from __future__ import annotations

import pytest

from ppo_doctor.readers.console_sentences import MOST_NUMBERS, body_of, names_of, paired, template_of
from ppo_doctor.readers.notes import Unread


def named_numbers(text):
    body = body_of(text)
    return dict(paired(names_of(body), body))


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("The gardener earned 3.25 coins.", {"gardener earned": "3.25"}),
        (
            "Round 7: mean yield was -4.5 over 8 plots (lowest -9, highest 2.5).",
            {"Round": "7", "mean yield": "-4.5", "plots": "8", "mean yield min": "-9", "mean yield max": "2.5"},
        ),
        (
            "yield so far 2.5 on average over 16 plots (worst -1)",
            {"yield": "2.5", "plots": "16", "yield min": "-1"},
        ),
        (
            "[lap 3] made 2 of 12 turns, drift 1e-3 nats",
            {"lap": "3", "turns": "2", "turns planned": "12", "drift nats": "1e-3"},
        ),
        ("12.5% of the seeds hit the wall", {"seeds hit wall %": "12.5"}),
        ("the keeper's doubt is nan", {"keeper doubt": "nan"}),
        ("pulled with 0.5 (0.25 after capping)", {"pulled": "0.5", "pulled after capping": "0.25"}),
        ("it went 0.5 nats from there", {"nats": "0.5"}),
        ("that took 1.5 s", {"took seconds": "1.5"}),
        ("12", {}),
        ("", {}),
    ],
)
def test_a_number_is_named_by_its_clause(text, cells):
    assert (named_numbers(text)) == cells


def test_a_template_is_what_two_iterations_share():
    assert template_of("2024-05-01 10:00:00 INFO lap 3 cost 1.5") == template_of("lap 12 cost nan")
    assert template_of("cost     9.5  gain  0.1") == template_of("cost   119.5  gain   nan")
    assert template_of("lap 3 cost 1.5") != template_of("lap 3 price 1.5")


def lap(n):
    return (
        f"[lap {n}] the gardener earned {n / 4} coins.\n"
        f"[lap {n}] made {2 + n % 2} of 12 turns, with a doubt of {1 - n / 64}.\n"
    )


def test_the_sentences_of_an_iteration_are_one_record(reading):
    got = reading("Welcome to run 12!\n" + "".join(map(lap, range(8))))
    assert len(got.records) == 8
    ours = {"lap": 3, "gardener earned": 0.75, "turns": 3, "turns planned": 12, "doubt": 1 - 3 / 64}
    assert got.records[3] == ours


def test_a_sentence_without_a_counter_begins_a_record_when_it_comes_again(reading):
    got = reading("".join(f"earned {n / 4} coins\ndoubt is {n / 8}, drift {n / 16}\n" for n in range(6)))
    assert [record["doubt"] for record in got.records] == [n / 8 for n in range(6)]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"Saved file {n} of 8 to the disk\n" for n in range(8)),  # one column that moves
        "The gardener earned 3.25 coins and had a doubt of 1.5, drift 2\n" * 8,  # nothing moves
        "".join(lap(n) for n in range(2)),  # not often enough
    ],
)
def test_what_is_no_prose_of_training(reading, text):
    assert reading(text).records == []


def test_sentences_that_come_as_often_as_other_records_are_parts_of_them(reading):
    said = "The gardener has {} pots, {} cans and {} hats\n"
    lines = [(f"reward: {n / 4}, kl: {n / 8}\n", said.format(n, n + 1, n + 2)) for n in range(8)]
    for order in (1, -1):
        records = reading("".join("".join(pair[::order]) for pair in lines)).records
        assert [(record["reward"], record["cans"]) for record in records] == [(n / 4, n + 1) for n in range(8)]


def test_rarer_sentences_are_counted_as_not_read(reading):
    text = "".join(
        f"reward: {n / 4}, kl: {n / 8}\n" + f"The gardener has {n} pots, {n + 1} cans and {n + 2} hats\n" * (n % 3 == 0)
        for n in range(18)
    )
    found = reading(text)
    assert [set(record) for record in found.records] == [{"reward", "kl"}] * 18
    assert any("not read: 6" in note.text for note in found.notes)


def test_a_unit_that_comes_again_is_no_name_and_a_statistic_is_of_what_stands_before_it():
    cells = named_numbers("cycle 3/20 finished, 99 picks; orchard profit 11.5 EUR on average, -4 EUR worst")
    assert cells == {
        "cycle": "3",
        "cycle planned": "20",
        "picks": "99",
        "orchard profit": "11.5",
        "orchard profit min": "-4",
    }


def test_sentences_beside_pairs_are_parts_of_their_records(reading):
    text = "".join(f"reward: {n / 4}, kl: {n / 8}\nThe gardener has {n} pots, {n + 1} cans\n" for n in range(8))
    assert [set(record) for record in reading(text).records] == [{"reward", "kl", "gardener", "cans"}] * 8


def test_sentences_that_come_rarely_are_counted_and_shown(reading):
    text = "".join(
        f"reward: {n / 4}, kl: {n / 8}\n" + (f"The gardener has {n} pots and {n + 1} cans\n" if n % 4 == 0 else "")
        for n in range(32)
    )
    got = reading(text)
    assert [set(record) for record in got.records] == [{"reward", "kl"}] * 32
    assert got.says("not read: 8; with numbers: 8 such as line 2 (“The gardener has 0 pots and 1 cans”)")


def test_the_numbers_of_a_line_are_bounded():
    assert len(named_numbers(", ".join(f"{'x' * (n + 1)} {n}" for n in range(100)))) == MOST_NUMBERS


def test_letters_right_behind_a_number_are_its_unit_and_no_part_of_the_next_name():
    named = named_numbers("tot -43.93 dock 0% | aim -0.053m crt 1.5335 r2 +0.107")
    assert named["crt"] == "1.5335"
    assert named["aim"] == "-0.053"


def test_prose_and_formulas_with_a_number_are_no_lines_that_may_hold_metrics():
    unread = Unread()
    for text in ("- Should be 2", "(13)", r"\[ 16^2 = 256 \]") * 8:
        unread.add(text, 1)
    assert str(unread) == "24"
    for text in ("gap 0.25", "gap: 3", "the gap is 3 of 7"):
        held = Unread()
        for line in range(8):
            held.add(text, line)
        assert text in str(held)


def test_a_number_behind_a_hash_is_a_counter():
    cells = named_numbers("#004 J -9.38 e_end 134.2cm sat 3% |g| 1.1")
    assert cells == {"step": "004", "J": "-9.38", "e_end cm": "134.2", "sat %": "3", "‖g‖": "1.1"}


def test_a_counter_that_is_one_word_with_what_it_counts():
    first, second = "d000 | tip 0.29 sd 0.4 | out 2.45%", "d001 | tip 0.33 sd 0.5 | out 0.27%"
    assert template_of(first) == template_of(second)
    assert (named_numbers(second)) == {"d": "001", "tip": "0.33", "tip std": "0.5", "out %": "0.27"}


def test_what_an_evaluation_tells_is_no_training_record(reading):
    lines = "".join(
        f"({i}) harvest {i}.5 coins, drift {i}.25 nats\n-- Probe (no noise): harvest {i}.75, {i}/12 fallen\n"
        for i in range(10, 20)
    )
    got = reading(lines)
    assert [record["harvest"] for record in got.records] == [i + 0.5 for i in range(10, 20)]
    assert [record["eval harvest"] for record in got.records] == [i + 0.75 for i in range(10, 20)]
