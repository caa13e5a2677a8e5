"""How a log is written down never changes its diagnosis: layout, order and number of its files."""

from __future__ import annotations

import pytest

from tests.layouts import SUFFIXES, WAYS, changes, read
from tests.test_sample_logs import LOGS, SAMPLES

PATHS = [log["path"] for log in LOGS if log["verdict"] != "error" and "torn" not in log["path"]]
#: Ways that move records: each judged for a quarter of the logs, even where the run that is read looks the same. The
#: others hang on the container and not on the log: each is read for a third of them.
MOVED = ("on one line", "split in three", "resumed in two files", "reversed")
ROUNDED = ("%.6g", "%.4g")
#: Only its entropies have decimals: nobody can tell whether its zeros were rounded like them or are zeros in full.
UNTOLD = "sick/adv-exactly-zero.trl-grpo/trainer_state.json"


@pytest.mark.parametrize(("number", "path"), list(enumerate(PATHS)), ids=PATHS)
def test_no_way_of_writing_a_log_changes_its_diagnosis(number, path):
    others = [way for way in WAYS if way not in (*ROUNDED, *MOVED)]
    ways = [*MOVED, *others[number % 3 :: 3]]
    assert changes(SAMPLES / path, ways, always=MOVED[number % 4 :: 4]) == {}


def test_fewer_digits_change_no_diagnosis_or_leave_it_open():
    changed = {path: told for path in [*PATHS[::2], UNTOLD] if (told := changes(SAMPLES / path, ROUNDED))}
    assert set(changed) <= {UNTOLD}, changed
    assert not any("became [('healthy'" in told for told in changed.get(UNTOLD, {}).values())


def test_the_ways_write_the_same_log():
    assert {SUFFIXES["." + path.rpartition(".")[2]] for path in PATHS} == {"jsonl", "json", "csv"}
    assert all(len(read(SAMPLES / path).records) >= 3 for path in PATHS)
