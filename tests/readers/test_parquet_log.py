"""Parquet: histories and completions; without pyarrow one line says what is missing."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from ppo_doctor.model.errors import DoctorError
from tests.readers.conftest import read_back

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")


def test_without_pyarrow_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DoctorError, match="pyarrow") as caught:
        read_back(b"PAR1" + b"\0" * 100 + b"PAR1")
    assert "ppo-doctor[parquet]" in caught.value.hint


def parquet(columns):
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


@needs_pyarrow
def test_a_history(reading):
    read = reading(parquet({"_step": [1, 2, 3], "loss": [0.5, None, float("nan")], "name": ["a", "b", "c"]}))
    assert read.container == "parquet"
    assert read.records[:2] == [{"_step": 1, "loss": 0.5}, {"_step": 2}]
    assert np.isnan(read.records[2]["loss"])
    assert read.lines == [1, 2, 3]


@needs_pyarrow
def test_completions_are_summed_up_per_step(reading):
    advantages = [0.0, 0.0, 0.0, 0.0, 1.0, -1.0, 2.0, -2.0]
    columns = {"step": [7] * 4 + [8] * 4, "prompt": list("abcdefgh"), "advantage": advantages, "acc": [1.0] * 8}
    read = reading(parquet(columns))
    first, second = read.records
    assert first == {
        "step": 7,
        "rows": 4,
        "advantage/mean": 0,
        "advantage/std": 0,
        "advantage/min": 0,
        "advantage/max": 0,
        "acc/mean": 1,
        "acc/std": 0,
        "acc/min": 1,
        "acc/max": 1,
    }
    assert second["advantage/std"] == pytest.approx(np.std(advantages[4:]))
    assert (second["advantage/min"], second["advantage/max"]) == (-2, 2)
    assert read.lines == [1, 5]
    assert read.says("8 rows at 2 steps")


@needs_pyarrow
def test_a_reward_that_misses_at_a_step_is_left_out(reading):
    read = reading(parquet({"step": [1, 1, 2, 2], "a": [1.0, 2.0, None, None], "b": [1.0, None, 3.0, 5.0]}))
    assert [record["b/mean"] for record in read.records] == [1, 4]
    assert "a/mean" not in read.records[0]


@needs_pyarrow
def test_every_truncation_is_refused_in_words():
    whole = parquet({"step": [1, 2, 3], "loss": [0.5, 1.5, 2.5]})
    for cut in range(5, len(whole)):
        with pytest.raises(DoctorError, match="cut off or damaged"):
            read_back(whole[:cut], "parquet")


@needs_pyarrow
def test_flipped_bits_end_in_records_or_words():
    whole = parquet({"step": list(range(50)), "loss": [step / 4 for step in range(50)]})
    for place in range(len(whole)):
        raw = bytearray(whole)
        raw[place] ^= 16
        try:
            read_back(bytes(raw), "parquet")
        except DoctorError as error:
            assert error.message
