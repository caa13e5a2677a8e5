"""What a hostile log costs grows with its bytes and no faster: work is counted in calls, memory in bytes at the peak.

Nothing here is timed. What a single call costs, such as a search with a pattern, no count of calls shows: the lengths
of what is searched are bounded instead.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ppo_doctor.cli.policy import read_policy
from ppo_doctor.diagnosis.analyze import read_run, read_runs
from ppo_doctor.model import toml_files
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.readers import pack, read
from ppo_doctor.readers.table import EmbeddedConfig, Table
from ppo_doctor.trainers.names import LONGEST, squashed

#: Twice the bytes may take so much more than twice the work: caches fill, and fixed costs come in.
FACTOR = 2.4
#: Bytes of memory for each byte of a log, beside a fixed amount.
PER_BYTE, FIXED = 60, 6 << 20


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions, Python's and C's, a piece of work calls."""
    made = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def new_key_in_every_line(size: int) -> str:
    return "".join(json.dumps({"step": i, "entropy": 1.0, f"k{i}": i}) + "\n" for i in range(size))


def signs_of_two_trainers(size: int) -> str:
    signs = ({"frac_reward_zero_std": 0.5, "loss": 0.1}, {"losses/old_approx_kl": 0.1, "losses/clipfrac": 0.1})
    return "".join(json.dumps({"step": i, **signs[i % 2], f"k{i}": i}) + "\n" for i in range(size))


def wide_objects(size: int) -> str:
    return "".join(json.dumps({"step": i, "entropy": 1.0} | {f"k{j}": j for j in range(size)}) + "\n" for i in range(9))


def nested_objects(size: int) -> str:
    return "".join(json.dumps({"step": i, "a": {"b": {f"k{i % 97}": {"c": 1.0}}}}) + "\n" for i in range(size))


def texts_in_every_cell(size: int) -> str:
    return "".join(json.dumps({"step": i, "entropy": "@@", "note": f"n{i}"}) + "\n" for i in range(size))


def document(size: int) -> str:
    return json.dumps({"log_history": [{"step": i, "entropy": 1.0, f"k{i}": i} for i in range(size)]})


def columns(size: int) -> str:
    return json.dumps({f"k{i}": [1.0, 2.0, 3.0] for i in range(size)} | {"entropy": [1.0, 2.0, 3.0]})


def wide_table(size: int) -> str:
    names = ["step", "entropy", *(f"c{i}" for i in range(size))]
    return "\n".join([",".join(names), *(f"{i},1.0" + ",1" * size for i in range(9))]) + "\n"


def quote_in_the_header(size: int) -> str:
    return 'step,"entropy\n' + "".join(f"{i},1.0\n" for i in range(size))


def quote_in_a_row(size: int) -> str:
    return 'step,entropy,note\n1,1.0,"a\n' + "".join(f"{i},1.0,a\n" for i in range(size))


def quotes_in_many_rows(size: int) -> str:
    return "step,entropy\n" + "".join(f'{i},"1.0\n' if i % 25 == 0 else f"{i},1.0\n" for i in range(size))


def pairs(size: int) -> str:
    return "".join(f"step={i} entropy=1.0 k{i}=2.0\n" for i in range(size))


def dictionaries(size: int) -> str:
    return "".join(f"{{'step': {i}, 'entropy': 1.0, 'k{i}': 2.0}}\n" for i in range(size))


def opened_and_never_closed(size: int) -> str:
    return "step=1 entropy=1.0 loss=2.0\n" * 20 + "".join(f"{{'a{i}': [\n" for i in range(size))


LOGS: dict[str, tuple[Callable[[int], str], int]] = {
    "a new key in every line.jsonl": (new_key_in_every_line, 300),
    "signs of two trainers.jsonl": (signs_of_two_trainers, 300),
    "wide objects.jsonl": (wide_objects, 300),
    "nested objects.jsonl": (nested_objects, 600),
    "texts.jsonl": (texts_in_every_cell, 1000),
    "document.json": (document, 300),
    "columns.json": (columns, 300),
    "wide table.csv": (wide_table, 300),
    "quote in the header.csv": (quote_in_the_header, 1500),
    "quote in a row.csv": (quote_in_a_row, 800),
    "quotes in many rows.csv": (quotes_in_many_rows, 1500),
    "pairs.txt": (pairs, 300),
    "dictionaries.txt": (dictionaries, 300),
    "never closed.txt": (opened_and_never_closed, 300),
}


def judged(path: Path) -> None:
    try:
        read_runs(str(path), Request())
    except DoctorError:
        return


def read_whole(path: Path) -> None:
    held = [item for item in read(path)[1] if isinstance(item, Table | EmbeddedConfig)]
    del held


@pytest.mark.parametrize("name", LOGS)
def test_twice_the_log_takes_twice_the_work(name, tmp_path):
    make, size = LOGS[name]
    judged_once, path = tmp_path / f"warm {name}", tmp_path / name
    judged_once.write_text(make(50))
    judged(judged_once)  # what is loaded once costs nobody twice
    path.write_text(make(size))
    once = calls_of(lambda: judged(path))
    (tmp_path / f"2 {name}").write_text(make(2 * size))
    twice = calls_of(lambda: judged(tmp_path / f"2 {name}"))
    assert twice < FACTOR * once, (once, twice)


@pytest.mark.parametrize("name", LOGS)
def test_memory_is_bounded_by_the_bytes_of_a_log(name, tmp_path):
    make, size = LOGS[name]
    path = tmp_path / name
    path.write_text(make(50))
    read_whole(path)
    path.write_text(make(4 * size))
    gc.collect()
    tracemalloc.start()
    try:
        read_whole(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < FIXED + PER_BYTE * path.stat().st_size, (peak, path.stat().st_size)


def test_columns_that_nothing_names_are_not_kept(tmp_path):
    """Of a log longer than a block of records only what it means is kept, with the values that a short log has."""
    chance = random.Random(0)
    named = ["policy_loss", "value_loss", "entropy", "approx_kl", "learning_rate", "episode_return"]
    further = [f"extra/number_{i}" for i in range(34)]
    rows = [json.dumps({"step": i} | {key: chance.random() for key in named + further}) for i in range(20_000)]
    (tmp_path / "short.jsonl").write_text("\n".join(rows[:900]))
    (tmp_path / "long.jsonl").write_text("\n".join(rows))
    short = read_run(str(tmp_path / "short.jsonl"), Request())
    tracemalloc.start()
    long = read_run(str(tmp_path / "long.jsonl"), Request())
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert set(long.series) == set(short.series) == set(named)
    assert set(long.unknown_keys) == set(short.unknown_keys) == set(further)
    assert all((long.series[name].values[:900] == short.series[name].values).all() for name in named)
    assert kept < 1.3 * 8 * len(rows) * (len(named) + 2) + 500_000


@pytest.mark.parametrize("blank", ["", " ", "\t\r"])
def test_blank_lines_are_not_parsed(tmp_path, blank):
    """Each once cost an exception of the parser: 4 MB of them took ten seconds."""
    record = json.dumps({"step": 1, "entropy": 1.0}) + "\n"
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    one.write_text(record * 5)
    many.write_text(record * 4 + f"{blank}\n" * 20_000 + record)
    read_whole(one)
    assert calls_of(lambda: read_whole(many)) < calls_of(lambda: read_whole(one)) + 45_000
    (table,) = (item for item in read(many)[1] if isinstance(item, Table))
    assert table.lines.tolist() == [1, 2, 3, 4, 20_005]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "json"])
def test_keys_beyond_the_limit_are_left_out_and_told(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "MOST_KEYS", 40)
    make = {"jsonl": new_key_in_every_line, "csv": wide_table, "json": document}[suffix]
    path = tmp_path / f"run.{suffix}"
    path.write_text(make(200))
    run = read_runs(str(path), Request())[0]
    assert len(run.keys) == 40
    assert [note.count for note in run.notes if note.kind == "lost"] == [1]
    assert len(run.series["entropy"]) == (9 if suffix == "csv" else 200)
    assert (run.series["entropy"].values == 1.0).all()


def test_a_key_that_is_no_name_is_left_out_and_told(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps({"step": i, "entropy": 1.0, "[" * 5000: i}) + "\n" for i in range(10)))
    run = read_runs(str(path), Request())[0]
    assert set(run.keys) == {"step", "entropy"}
    assert [note.kind for note in run.notes] == ["dropped"]


def test_no_more_of_a_name_is_searched_than_anybody_writes():
    assert squashed("[" * 1_000_000 + "kl") == squashed("[" * LONGEST)


def test_a_dotted_key_without_end_is_refused_with_its_line(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('fail-on = "high"\n' + ".".join(["a"] * 20_000) + " = 1\n")
    with pytest.raises(DoctorError, match="at line 2"):
        read_policy(path)
    assert toml_files.loads(".".join(["a"] * 50) + ' = "' + "1.0 " * 200 + '"\n')


def test_a_policy_behind_blank_lines_without_end_is_read(tmp_path):
    """Each blank line was once searched to the end of all of them, which took minutes here."""
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n" + "\n" * 300_000 + "[tool.ppo-doctor]\nfail-on = 'high'\n")
    assert read_policy(path).fail_on is not None
