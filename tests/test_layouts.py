"""How a log is written down never changes its diagnosis: layout, order and number of its files."""

from __future__ import annotations

import pytest

from tests.layouts import SUFFIXES, WAYS, changes, read
from tests.test_sample_logs import LOGS, SAMPLES

PATHS = [log["path"] for log in LOGS if log["verdict"] != "error" and "torn" not in log["path"]]
#: Ways that move records: judged for half of the logs each, even where the run that is read looks the same.
MOVED = ("on one line", "split in three", "resumed in two files", "reversed")
#: What a log with so few digits cannot tell any more is settled by the resolution of numbers, not by their layout.
ROUNDED = ("%.6g", "%.4g")


@pytest.mark.parametrize(("number", "path"), list(enumerate(PATHS)), ids=PATHS)
def test_no_way_of_writing_a_log_changes_its_diagnosis(number, path):
    ways = [way for way in WAYS if way not in ROUNDED]
    assert changes(SAMPLES / path, ways, always=MOVED[number % 2 :: 2]) == {}


def test_the_ways_write_the_same_log():
    assert {SUFFIXES["." + path.rpartition(".")[2]] for path in PATHS} == {"jsonl", "json", "csv"}
    assert all(len(read(SAMPLES / path).records) >= 3 for path in PATHS)
