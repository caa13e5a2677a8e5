"""Event files: what a reader makes of sound ones."""

import json
import struct
import time
from math import inf, isnan, nan
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.readers import points, tfevents
from ppo_doctor.readers.points import written
from ppo_doctor.readers.tfrecord import STRETCH
from ppo_doctor.readers.tfrecord import crc32c as fast_crc
from tests.readers.event_files import event, event_file, field, scalar, scalars, tensor

ROWS = [(step, {"loss": step / 8, "a/kl": 0.25 * step, "lr": 0.0003}) for step in range(0, 4000, 100)]


def values(record):
    return {key: value for key, value in record.items() if key != "wall_time"}


def test_events_of_a_step_are_one_record(reading):
    read = reading(event_file(*scalars(ROWS)))
    assert read.container == "tfevents"
    assert [values(record) for record in read.records] == [{"step": s, **row} for s, row in ROWS]
    assert read.lines == [2 + 3 * i for i in range(len(ROWS))]  # record 1 is the version
    assert read.notes == []
    assert {record["wall_time"] for record in read.records} == {1.5}


def test_a_file_that_goes_tag_by_tag_gives_the_same_records(reading):
    by_tag = [event(step, scalar(tag, row[tag])) for tag in ("loss", "a/kl", "lr") for step, row in ROWS]
    ordered = reading(event_file(*scalars(ROWS)))
    assert reading(event_file(*by_tag)).records == ordered.records


def test_several_values_in_one_event(reading):
    events = [event(step, *(scalar(tag, value) for tag, value in row.items())) for step, row in ROWS]
    read = reading(event_file(*events))
    assert [values(record) for record in read.records] == [{"step": s, **row} for s, row in ROWS]
    assert read.lines == list(range(2, 2 + len(ROWS)))


def test_tags_at_steps_of_their_own_are_neither_lost_nor_invented(reading):
    read = reading(event_file(*scalars([(1, {"a": 1.0}), (2, {"b": 2.0}), (3, {"a": 3.0, "b": 4.0})])))
    expected = [{"step": 1, "a": 1}, {"step": 2, "b": 2}, {"step": 3, "a": 3, "b": 4}]
    assert [values(record) for record in read.records] == expected


def test_a_tag_that_stands_twice_at_a_step_begins_another_record(reading):
    events = [event(7, scalar(tag, v)) for tag, v in [("r", 1.0), ("l", 10.0), ("r", 2.0), ("l", 20.0), ("kl", 0.5)]]
    read = reading(event_file(*events))
    assert [values(r) for r in read.records] == [{"step": 7, "r": 1, "l": 10, "kl": 0.5}, {"step": 7, "r": 2, "l": 20}]


def test_after_a_resume_both_branches_are_there_and_the_later_one_is_later(reading):
    first = [(step, {"a": 1.0, "b": 1.0}) for step in (10, 20, 30)]
    again = [(step, {"a": 2.0, "b": 2.0}) for step in (20, 30, 40)]
    read = reading(event_file(*scalars(first + again)))
    assert [(r["step"], r["a"], r["b"]) for r in read.records] == [(s, r["a"], r["b"]) for s, r in first + again]


def test_windows_change_nothing(reading, monkeypatch):
    rows = [*ROWS, *[(step, {"loss": 9.0, "late": 1.0}) for step in range(2000, 5000, 50)]]
    whole = reading(event_file(*scalars(rows)))
    monkeypatch.setattr(points, "WINDOW", 5)
    monkeypatch.setattr("ppo_doctor.readers.tfrecord.CHUNK", 64)
    monkeypatch.setattr("ppo_doctor.readers.source.BLOCK", 100)
    small = reading(event_file(*scalars(rows)))
    assert len(small.tables) > 10
    assert small.records == whole.records
    assert small.lines == whole.lines


@pytest.mark.parametrize("step", [0, 1, 127, 128, 2**31, 2**53, -1, -(2**62)])
def test_steps(reading, step):
    (record,) = reading(event_file(event(step, scalar("a", 1.0)))).records
    assert record["step"] == step


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, 3e-4, -1.25e-30, 1e-45, 3.4e38, 16777217.0, inf, -inf, nan])
def test_values_are_those_that_were_stored(reading, value):
    (record,) = reading(event_file(event(1, scalar("a", value)))).records
    assert struct.pack("<f", record["a"]) == struct.pack("<f", value)


@pytest.mark.parametrize("decimal", [0.1, 0.0003, 2.5e-4, 0.99, 123456.0, -7e-9, 1.5e20, 0.123456])
def test_a_short_decimal_is_read_as_it_was_meant(decimal):
    assert written(np.array([decimal], dtype=np.float32)).tolist() == [decimal]


def test_what_is_no_short_decimal_stays_as_it_is():
    numbers = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    read = written(numbers)
    assert np.array_equal(read.astype(np.float32), numbers)
    assert (read == numbers.astype(np.float64)).mean() > 0.9


TENSORS = [
    (1, field(4, struct.pack("<f", 0.5)), 0.5),
    (1, field(5, struct.pack("<f", 0.5)), 0.5),  # float_val, packed
    (1, b"\x2d" + struct.pack("<f", 0.5), 0.5),  # float_val, one by one
    (1, field(2, b"") + field(4, struct.pack("<f", 0.1)), 0.1),  # a shape without dimensions
    (1, field(2, field(2, field(1, 1))) + field(4, struct.pack("<f", 0.25)), 0.25),  # a shape of [1]
    (2, field(4, struct.pack("<d", 0.1)), 0.1),
    (2, field(6, struct.pack("<d", 0.1)), 0.1),
    (3, field(7, -3), -3.0),
    (3, field(4, struct.pack("<i", -3)), -3.0),
    (9, field(10, 12345678901), 12345678901.0),
    (10, field(11, 1), 1.0),
    (14, field(4, b"\x80\x3f"), 1.0),  # bfloat16
    (14, field(13, 0x3FC0), 1.5),
    (19, field(4, struct.pack("<e", 0.5)), 0.5),
    (19, field(13, 0x3800), 0.5),
    (1, b"", 0.0),
]


@pytest.mark.parametrize(("dtype", "body", "value"), TENSORS)
def test_scalars_as_tensors(reading, dtype, body, value):
    events = [event(step, tensor("a", dtype, body)) for step in (1, 2, 3)]
    assert [record["a"] for record in reading(event_file(*events)).records] == [value] * 3


def test_larger_tensors_and_histograms_are_counted_not_read(reading):
    vector = tensor("v", 1, field(2, field(2, field(1, 3))) + field(4, b"\0" * 12))
    histogram = field(1, "h") + field(5, field(1, 1.0))
    read = reading(event_file(event(1, vector), event(1, histogram), event(1, scalar("a", 1.0))))
    assert [values(record) for record in read.records] == [{"step": 1, "a": 1}]
    assert read.says("not read: 2")


def test_a_shape_of_very_many_dimensions_takes_no_longer_than_its_bytes(reading):
    dimensions = field(2, field(1, 2**62)) * 60_000
    began = time.process_time()
    read = reading(event_file(event(1, tensor("v", 1, field(2, dimensions))), event(1, scalar("a", 1.0))))
    assert time.process_time() - began < 5
    assert [values(record) for record in read.records] == [{"step": 1, "a": 1}]


def test_a_tag_called_step_does_not_replace_the_step(reading):
    read = reading(event_file(event(5, scalar("step", 9.0))))
    assert values(read.records[0]) == {"step": 5, "step_": 9}
    assert read.says("step is read as step_")


@pytest.mark.parametrize("tag", ["äöü/损失", "a b (c)", "", "x" * 3000, "a\nb", "\x1b[31m"])
def test_odd_tags(reading, tag):
    read = reading(event_file(event(1, scalar(tag, 1.0)), event(2, scalar(tag, 2.0))))
    assert [record[tag] for record in read.records] == [1, 2]


def test_many_tags_of_one_length_are_all_read(reading):
    rows = [(step, {f"tag{i:04}": float(i) for i in range(300)}) for step in (1, 2)]
    read = reading(event_file(*scalars(rows)))
    assert [values(record) for record in read.records] == [{"step": s, **row} for s, row in rows]


TABLE = "|param|value|\n|-|-|\n|learning_rate|0.0003|\n|anneal_lr|True|\n|target_kl|None|\n|num_steps|2048|\n|note|a|b|"
LINES = (
    "\ttrainer_type:\tppo\n\thyperparameters:\t\n\t  batch_size:\t120\n\t  beta:\t0.001\n\tmax_steps:\t5\n\tinit:\tNone"
)
SETTINGS = [
    (
        TABLE,
        {"learning_rate": 0.0003, "anneal_lr": True, "target_kl": None, "num_steps": 2048, "note": "a|b"},
    ),
    (json.dumps({"lr": 1e-6, "optim": {"eps": 1e-8}}, indent=1), {"lr": 1e-6, "optim.eps": 1e-8}),
    (
        LINES,
        {
            "trainer_type": "ppo",
            "hyperparameters.batch_size": 120,
            "hyperparameters.beta": 0.001,
            "max_steps": 5,
            "init": None,
        },
    ),
]


def as_text(tag, words):
    return tensor(tag, 7, field(8, words), plugin="text")


@pytest.mark.parametrize(("words", "settings"), SETTINGS)
def test_settings_in_text(reading, words, settings):
    (config,) = reading(event_file(event(0, as_text("x/text_summary", words)), event(1, scalar("a", 1.0)))).configs
    assert config.values == settings


@pytest.mark.parametrize("words", ["hello: world", "", "{broken", "|a|b|", "[1, 2]", "Step 3: done"])
def test_other_text_is_no_configuration(reading, words):
    read = reading(event_file(event(0, as_text("x/text_summary", words)), event(1, scalar("a", 1.0))))
    assert read.configs == []
    assert len(read.records) == 1


def test_the_model_s_configuration_is_not_that_of_the_training(reading):
    model = as_text("model_config/text_summary", '{"hidden_size": 4096, "learning_rate": 7}')
    assert reading(event_file(event(0, model))).configs == []


def test_a_configuration_written_again_is_one(reading):
    text = event(0, as_text("x/text_summary", TABLE))
    assert len(reading(event_file(text, event(1, scalar("a", 1.0)), text)).configs) == 1


def test_gzip(reading):
    import gzip

    assert len(reading(gzip.compress(event_file(*scalars(ROWS)))).records) == len(ROWS)


def test_files_of_a_folder_are_ordered_by_their_begin():
    names = ["b/events.out.tfevents.99.h.1.0", "a/events.out.tfevents.200.h.7.0", "a/events.out.tfevents.100.h.7.10"]
    names += ["a/events.out.tfevents.100.h.7.9", "a/events.out.tfevents.100.h.7.9.v2"]
    ordered = tfevents.order(map(Path, names))
    assert [[path.as_posix() for path in run] for run in ordered] == [
        [
            "a/events.out.tfevents.100.h.7.9",
            "a/events.out.tfevents.100.h.7.9.v2",
            "a/events.out.tfevents.100.h.7.10",
            "a/events.out.tfevents.200.h.7.0",
        ],
        ["b/events.out.tfevents.99.h.1.0"],
    ]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 12, STRETCH - 1, STRETCH, STRETCH + 1, 3 * STRETCH + 7])
def test_checksums_of_any_length(length):
    from tests.readers.event_files import crc32c

    data = np.random.default_rng(length).integers(0, 256, size=(5, length), dtype=np.uint8)
    data[1:3] = data[0]  # rows that are alike take a shorter way
    assert fast_crc(data).tolist() == [crc32c(row.tobytes()) for row in data]


def test_the_checksum_of_the_standard():
    """RFC 3720, appendix B.4."""
    assert int(fast_crc(np.arange(32, dtype=np.uint8)[None])[0]) == 0x46DD794E


def test_nan_is_a_value(reading):
    (record,) = reading(event_file(event(1, scalar("ev", nan)))).records
    assert isnan(record["ev"])
