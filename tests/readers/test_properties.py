"""What holds for any input: no crash, no loss without a note, and the numbers that were written."""

import json
from math import isfinite, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers import READERS
from ppo_doctor.readers.sniffing import sniff

KEYS = ("loss", "train/approx_kl", "reward", "clip_frac", "lr")
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)
#: tables with the same keys in every record
TABLES = st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=30)
#: records in which keys are missing now and then
RAGGED = st.lists(st.dictionaries(st.sampled_from(KEYS), NUMBERS, min_size=1), min_size=1, max_size=90)
BITS = st.sampled_from(
    [
        *('{"a": 1}', "{'a': 1.0}", '"', "'", "{", "}", "[", "]", ",", "\n", "\n", "\r", "\t", ";", "|", "-----", "#"),
        *("| kl | 0.1 |", "step:1 - a:0.1", "a=1, b=2", "a: 1", "nan", "1e400", "\\", "\0", "## ", "-- | --", "9" * 30),
        *("Learning iteration 1/2", "epoch: 0|step: 1|", "{'a': ", "1,2,3", "a,b,c", "\x1b[36m", "'a': 1}", "{}", "("),
        "50%|##| 1/2 [0:1<0:2, 3it/s, a=1, b=2]",
    ]
)
HOSTILE = st.one_of(st.binary(max_size=400), st.lists(BITS, max_size=40).map("".join).map(str.encode))


def python(value):
    return repr(value) if isfinite(value) else {"nan": "nan", "inf": "inf", "-inf": "-inf"}[repr(value)]


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_array(rows):
    return json.dumps(rows, indent=1)


def as_state(rows):
    return json.dumps({"epoch": 1.0, "log_history": rows, "max_steps": 3})


def as_csv(rows, delimiter=","):
    head = delimiter.join(KEYS)
    return "\n".join([head, *(delimiter.join(python(r[k]) if k in r else "" for k in KEYS) for r in rows)]) + "\n"


def as_tsv(rows):
    return as_csv(rows, "\t")


def as_dicts(rows):
    return "".join("{" + ", ".join(f"'{k}': {python(v)}" for k, v in row.items()) + "}\n" for row in rows)


def as_quoted_dicts(rows):
    return "".join("{" + ", ".join(f"'{k}': '{v!r}'" for k, v in row.items()) + "}\n" for row in rows)


def as_verl(rows):
    return "".join(" - ".join(["step:1", *(f"{k}:np.float64({v!r})" for k, v in row.items())]) + "\n" for row in rows)


def as_boxes(rows):
    body = ("".join(f"| {k:<20} | {python(v):<25} |\n" for k, v in row.items()) for row in rows)
    return "".join("-" * 50 + "\n" + box + "-" * 50 + "\n" for box in body)


def as_rsl_rl(rows):
    body = ("".join(f"{k + ':':>30} {python(v)}\n" for k, v in row.items()) for row in rows)
    return "".join("#" * 80 + f"\n    Learning iteration 1/9\n\n{block}" + "-" * 80 + "\n" for block in body)


def as_pipes(rows):
    lines = (" | ".join(python(v) for v in row.values()) for row in rows)
    return "\n".join([" | ".join(rows[0]), " | ".join("--" for _ in rows[0]), *lines]) + "\n"


def as_pairs(rows):
    return "".join(", ".join(f"{k}={python(v)}" for k, v in row.items()) + "\n" for row in rows)


def as_colons(rows):
    return "".join(" | ".join(f"{k}: {python(v)}" for k, v in row.items()) + "\n" for row in rows)


def same(got, want):
    """Tell whether two records hold the same keys and numbers, NaN being a number."""
    return {k: repr(v + 0.0) for k, v in got.items()} == {k: repr(float(v) + 0.0) for k, v in want.items()}


@pytest.mark.parametrize(
    "write", [as_jsonl, as_array, as_state, as_dicts, as_quoted_dicts, as_verl, as_boxes, as_rsl_rl]
)
@given(rows=RAGGED)
def test_ragged_records_come_back_as_written(reading, write, rows):
    got = reading(write(rows))
    added = {"step", "Learning iteration"}
    records = [{k: v for k, v in record.items() if k not in added} for record in got.records]
    assert len(records) == len(rows)
    assert all(map(same, records, rows))
    assert got.skipped == 0


@pytest.mark.parametrize("write", [as_csv, as_tsv])
@given(rows=RAGGED)
def test_ragged_tables_come_back_as_written(reading, write, rows):
    got = reading(write(rows), "csv")
    assert all(map(same, got.records, rows))
    assert len(got.records) == len(rows)
    assert got.skipped == 0


@pytest.mark.parametrize("write", [as_pipes, as_pairs, as_colons])
@given(table=TABLES)
def test_loose_text_comes_back_as_written(reading, write, table):
    rows = [dict(zip(KEYS, row, strict=False)) for row in table]
    got = reading(write(rows))
    assert got.container == "console"
    assert all(map(same, got.records, rows))
    assert len(got.records) == len(rows)


@pytest.mark.parametrize("container", sorted(READERS))
@given(data=HOSTILE)
def test_no_bytes_crash_a_reader(reading, container, data):
    try:
        got = reading(data, container)
    except DoctorError as error:
        assert error.message
    else:
        assert len(got.records) == len(got.lines)
        assert got.skipped <= data.count(b"\n") + data.count(b"\r") + data.count(b"{") + data.count(b",") + 2


@given(data=HOSTILE)
def test_no_bytes_crash_the_choice_of_a_reader(reading, data):
    assert sniff(data) in {None, *READERS}
    try:
        got = reading(data)
    except DoctorError as error:
        assert error.message
    else:
        assert got.container in READERS


@given(junk=st.lists(st.sampled_from(["oops", "{", "[1]", '{"a": }', "3", '"x"', '{"a"', "nul"]), max_size=60))
def test_every_bad_line_is_accounted_for(reading, junk):
    lines = [line for bad in junk for line in (bad, '{"loss": 1.0, "kl": 2.0}')]
    got = reading("\n".join(['{"loss": 1.0, "kl": 2.0}', *lines, ""]), "jsonl")
    assert len(got.records) == len(junk) + 1
    assert got.skipped == len(junk)


ROWS = [{"loss": 0.5 + i, "train/approx_kl": 0.01 * i, "reward": -1.25 * i} for i in range(4)]


@pytest.mark.parametrize(
    "write", [as_jsonl, as_csv, as_tsv, as_dicts, as_verl, as_boxes, as_pipes, as_pairs, as_colons]
)
def test_a_file_torn_anywhere_gives_all_complete_records(reading, write):
    data = write(ROWS).encode()
    ends = ends_of_records(data, write)
    container = {as_jsonl: "jsonl", as_csv: "csv", as_tsv: "csv"}.get(write, "console")
    for cut in range(len(data) + 1):
        got = reading(data[:cut], container)
        complete = sum(end <= cut for end in ends)
        records = [{k: v for k, v in record.items() if k != "step"} for record in got.records]
        assert len(records) >= complete
        assert all(map(same, records[:complete], ROWS))


def ends_of_records(data, write):
    """Return the offsets behind which each record is complete, its newline included."""
    ends = [i + 1 for i, char in enumerate(data) if char == ord("\n")]
    if write is as_boxes:
        return ends[4::5]
    return ends[{as_csv: 1, as_tsv: 1, as_pipes: 2}.get(write, 0) :]


@pytest.mark.parametrize("write", [as_jsonl, as_csv, as_array, as_dicts, as_boxes, as_pairs])
@pytest.mark.parametrize("block", [1, 3, 64, 1000])
def test_where_blocks_are_cut_makes_no_difference(reading, monkeypatch, write, block):
    text = write([{key: value + i for key, value in ROWS[1].items()} for i in range(200)])
    want = reading(text)
    monkeypatch.setattr("ppo_doctor.readers.source.BLOCK", block)
    got = reading(text)
    assert (got.container, got.records, got.lines, got.decimals) == (
        want.container, want.records, want.lines, want.decimals
    )  # fmt: skip


def test_an_unfinished_last_value_is_never_used(reading):
    for text in ("step:1 - loss:0.12345", "loss=1, kl=0.12345", "Step | loss\n-- | --\n1 | 0.12345"):
        got = reading(text, "console")
        assert not any(0.1 < value < 0.2 for record in got.records for value in record.values())


@given(value=st.integers(min_value=-(10**420), max_value=10**420))
def test_integers_of_any_length_are_numbers(reading, value):
    for text in (f'{{"a": {value}, "b": 1}}\n' * 2, f"a,b\n{value},1\n{value},1\n", f"{{'a': {value}, 'b': 1}}\n"):
        record = reading(text).records[0]
        assert record["a"] == (float(value) if abs(value) < 10**308 else float("inf") * (1 if value > 0 else -1))
        assert record["b"] == 1
        assert not isnan(record["a"])
