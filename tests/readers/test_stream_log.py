"""A console that Kaggle saved as a JSON list of pieces is read as the console that it was."""

import json


def saved(*pieces):
    lines = [json.dumps({"stream_name": name, "time": float(i), "data": text}) for i, (name, text) in enumerate(pieces)]
    return "[" + "\n,".join(lines) + "\n]"


def test_pieces_are_the_console_that_they_were_written_to(reading):
    got = reading(
        saved(("stderr", "warning\n"), ("stdout", "{'reward': 0.5, 'kl': 0.01}\n{'reward': 0.6, 'kl': 0.02}\n"))
    )
    assert got.container == "stream-log"
    assert [record["reward"] for record in got.records] == [0.5, 0.6]
    assert got.lines == [2, 2]


def test_a_line_in_two_pieces_among_those_of_another_stream(reading):
    got = reading(saved(("stdout", "{'reward': 0.5, "), ("stderr", "50%|###  |"), ("stdout", "'kl': 0.25}\n")))
    assert got.records == [{"reward": 0.5, "kl": 0.25}]
    assert got.lines == [3]


def test_a_file_that_is_cut_off_keeps_what_came_before(reading):
    whole = saved(("stdout", "{'reward': 0.5, 'kl': 0.01}\n"), ("stdout", "{'reward': 0.6, 'kl': 0.02}\n"))
    assert [record["reward"] for record in reading(whole[:-60]).records] == [0.5]
