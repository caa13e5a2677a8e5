import json
from math import inf, isnan, nan

import pytest

from ppo_doctor.model.run import CodePlace
from ppo_doctor.readers.jsonl import LONGEST_CODE, MOST_ALSO, MOST_ENTRIES


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_records_of_several_layouts_keep_their_order_and_lines(reading):
    got = reading(lines({"a": 1, "b": 2.5}, {"a": 2}, {"a": 3, "b": 4}) + "\n" + lines({"a": 5, "b": 6}))
    assert got.container == "jsonl"
    assert got.records == [{"a": 1, "b": 2.5}, {"a": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
    assert got.lines == [1, 2, 3, 5]
    assert got.notes == []


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NaN", nan),
        ("Infinity", inf),
        ("-Infinity", -inf),
        ('"nan"', nan),
        ('"NaN"', nan),
        ('"-inf"', -inf),
        ('"Infinity"', inf),
        ('"1.2e-05"', 1.2e-05),
        ("\"'0.5'\"", 0.5),
        ('"np.float64(0.25)"', 0.25),
        ("true", 1.0),
        ("1e400", inf),
        ("1" + "0" * 400, inf),
        ("-1" + "0" * 400, -inf),
        ("123456789012345678901234567890", 123456789012345678901234567890.0),
        ('"12.5%"', 0.125),
        ('"12/400"', 12.0),
    ],
)
def test_every_spelling_of_a_number_is_a_value(reading, written, value):
    # The good line before puts the layout on the fast path, the one behind proves that it works on.
    got = reading(f'{{"x": 1.0, "y": 2.0}}\n{{"x": {written}, "y": 2.0}}\n{{"x": 3.0, "y": 2.0}}\n')
    assert [record["y"] for record in got.records] == [2.0, 2.0, 2.0]
    x = got.records[1]["x"]
    assert isnan(x) if isnan(value) else x == value
    assert got.records[2]["x"] == 3.0
    assert got.skipped == 0


@pytest.mark.parametrize("written", ["null", '""', '"  "', '"None"', '"null"'])
def test_null_and_blank_are_absent_keys(reading, written):
    got = reading(f'{{"x": 1.0, "y": 2.0}}\n{{"x": {written}, "y": 2.0}}\n')
    assert got.records[1] == {"y": 2.0}


def test_a_share_of_a_thousand_digits_is_no_number(reading):
    """Whether it is one takes the square of its length to tell, and no log has any."""
    got = reading('{"x": "' + "5" * 1000 + '%"}\n{"x": "50%"}\n')
    assert [record.get("x") for record in got.records] == [None, 0.5]


def test_overflow_percent_and_totals_are_noted_once_per_key(reading):
    got = reading('{"x": 1e400, "y": "5%", "z": "1/9"}\n' * 5)
    assert [note.source.key for note in got.notes if "percent" in note.text] == ["y"]
    assert [note.source.key for note in got.notes if "“1/9”" in note.text] == ["z"]
    assert got.says("too large for a float")


def test_nan_lines_after_good_ones_stay_exact(reading):
    records = [{"a": i / 7, "b": nan if i > 3 else 1.0, "c": -inf if i % 2 else 2.0} for i in range(50)]
    got = reading(lines(*records))
    assert [r["a"] for r in got.records] == [r["a"] for r in records]
    assert [isnan(r["b"]) for r in got.records] == [i > 3 for i in range(50)]
    assert [r["c"] for r in got.records] == [r["c"] for r in records]


def test_a_word_that_holds_nan_is_left_alone(reading):
    got = reading('{"a": NaN, "note": "x"}\n{"a": NaN, "note": "NaN-free Infinity"}\n{"NaN": NaN, "a": 1.0}\n')
    assert got.texts["note"] == [(0, "x"), (1, "NaN-free Infinity")]
    assert isnan(got.records[2]["NaN"])
    assert got.records[2]["a"] == 1.0


def test_nested_keys_are_joined_and_wrappers_dropped(reading):
    got = reading(
        lines({"step": 3, "data": {"actor/lr": 1, "x": {"y": 2}}}, {"step": 4, "metrics": {"a": {"b": 5}}})
        + lines({"info": {"learner": {"kl": 0.5}}, "step": 5})
    )
    assert got.records[0] == {"step": 3, "actor/lr": 1, "x/y": 2}
    assert got.records[1] == {"step": 4, "a/b": 5}
    assert got.records[2] == {"step": 5, "info/learner/kl": 0.5}


def test_lists_are_left_out_with_one_note_per_key(reading):
    got = reading(lines(*[{"a": i, "hist": [1, 2], "h": {"l": []}} for i in range(30)]))
    assert got.records == [{"a": i} for i in range(30)]
    assert sorted(note.source.key for note in got.notes) == ["h/l", "hist"]


def test_texts_are_kept_and_bounded(reading):
    got = reading(lines(*[{"a": 1.0, "t": "x" * 300} for _ in range(1100)]))
    assert len(got.texts["t"]) == 1000
    assert {len(text) for _, text in got.texts["t"]} == {200}
    assert got.says("only the first 1,000 texts")


def test_junk_is_skipped_with_its_line_and_counted(reading):
    got = reading('{"a": 1}\noops\n{"a": 2}\n[1, 2]\n"x"\n{"a": 3}\n')
    assert [record["a"] for record in got.records] == [1, 2, 3]
    assert got.skipped == 3
    assert [note.source.line for note in got.notes] == [2, 4, 5]


def test_many_bad_lines_give_few_notes_whose_counts_add_up(reading):
    got = reading('{"a": 1}\n' * 600 + "oops\n" * 500)
    skipped = [note for note in got.notes if note.kind == "skipped"]
    assert len(skipped) == 21
    assert got.skipped == 500
    assert skipped[-1].source.line == 621


def test_keys_that_stand_twice_are_noted_and_the_later_one_wins(reading):
    got = reading('{"a": 1, "a": 2, "b": 3}\n{"a": 4, "a": 5, "b": 6}\n')
    assert got.records == [{"a": 2, "b": 3}, {"a": 5, "b": 6}]
    assert got.says("a stands twice")


def test_our_own_config_line_and_a_first_config_record(reading):
    ours = lines({"ppo_doctor": 1, "config": {"ppo": {"lr": 3e-4, "betas": [0.9, 0.95]}}}, {"a": 1}, {"a": 2})
    got = reading(ours)
    assert got.configs[0].values == {"ppo.lr": 3e-4, "ppo.betas": "[0.9, 0.95]"}
    assert got.configs[0].source.line == 1
    assert got.records == [{"a": 1}, {"a": 2}]
    for key in ("config", "args", "hyperparameters", "hparams"):
        got = reading(lines({key: {"n": 3}}, {"a": 1}))
        assert got.configs[0].values == {"n": 3}
        assert got.records == [{"a": 1}]


def test_a_config_repeated_in_every_record_is_told_once(reading):
    got = reading(lines(*[{"a": i, "config": {"lr": 0.1, "env": "x"}} for i in range(9)]))
    assert len(got.configs) == 1
    assert got.records == [{"a": i} for i in range(9)]


def test_deep_nesting_is_a_note(reading):
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    got = reading('{"a": 1}\n{"a": 1}\n' + deep + '\n{"a": 2}\n')
    assert [record["a"] for record in got.records] == [1, 1, 2]
    assert got.skipped == 1
    got = reading(json.dumps({"a": 1}) + "\n" + '{"a":' * 200 + "1" + "}" * 200 + "\n")
    assert got.says("nested deeper")


def test_broken_utf8_and_lone_surrogates_are_read(reading):
    got = reading(b'{"a": 1, "t": "\xff\xfe"}\n{"a": 2, "t": "\\ud800"}\n')
    assert [record["a"] for record in got.records] == [1, 2]


def test_more_records_than_one_flush_holds(reading):
    got = reading("".join(f'{{"a": {i}, "b": {i}.5}}\n' if i % 3 else f'{{"a": {i}}}\n' for i in range(70_000)))
    assert [record["a"] for record in got.records] == list(range(70_000))
    assert got.lines == list(range(1, 70_001))
    assert max(len(table.records) for table in got.tables) < 16_384  # of each layout, and at the end of a block


def test_layouts_without_end_are_bounded_and_complete(reading, monkeypatch):
    monkeypatch.setattr("ppo_doctor.readers.jsonl._EVERY", 1_024)
    monkeypatch.setattr("ppo_doctor.readers.pack._MOST_LAYOUTS", 256)
    # Every tenth record has keys that come again, also behind the flush that forgets all layouts.
    keys = ["a" if i % 10 == 0 else f"k{i}" for i in range(5_000)]
    got = reading("".join(f'{{"{key}": {i}, "b": 1}}\n' for i, key in enumerate(keys)))
    assert [record[key] for key, record in zip(keys, got.records, strict=True)] == list(range(5_000))


def test_ranges_and_totals_are_read_in_every_record(reading):
    lines = "".join(f'{{"loss": {n}.5, "r_span": [0.{n}, 1.{n}], "laps": "{n}/4"}}\n' for n in range(1, 5))
    records = reading(lines).records
    assert [record["r_span min"] for record in records] == [0.1, 0.2, 0.3, 0.4]
    assert [record["r_span max"] for record in records] == [1.1, 1.2, 1.3, 1.4]
    assert [(record["laps"], record["laps planned"]) for record in records] == [(n, 4) for n in range(1, 5)]


def header(**more):
    return {"ppo_doctor": 1, **more}


def code(line=205, **more):
    return {"file": "train.py", "line": line, "function": "update", "text": "ratio = (new - old).exp()", **more}


def test_lines_of_the_script_are_no_records_and_a_later_one_counts(reading):
    config, places = {"clip_range": 0.2}, {"ratio_std": code(7), "update_norm": code(220)}
    got = reading(
        lines(
            header(config=config, places=places),
            {"step": 1, "ratio_std": 0.5},
            header(places={"ratio_std": code()}),
            {"step": 2, "ratio_std": 0.25},
        )
    )
    assert got.records == [{"step": 1, "ratio_std": 0.5}, {"step": 2, "ratio_std": 0.25}]
    assert got.lines == [2, 4]
    ratio = CodePlace(file="train.py", line=205, function="update", text="ratio = (new - old).exp()")
    assert got.places == {"ratio_std": ratio, "update_norm": CodePlace(**code(220))}
    assert [found.values for found in got.configs] == [config]
    assert got.notes == []


@pytest.mark.parametrize(
    "place",
    [
        7,
        None,
        "train.py:205",
        [code()],
        code(line="205"),
        code(line=True),
        code(line=0),
        code(line=2.5),
        code(line=10**30),
        code(file=""),
        code(file=None),
        code(file="x" * 10_000),
        {"file": "train.py"},
    ],
)
def test_a_line_of_the_script_of_another_type_is_a_note(reading, place):
    got = reading(lines(header(places={"ratio_std": place, "update_norm": code()}), {"step": 1, "ratio_std": 0.5}))
    assert list(got.places) == ["update_norm"]
    assert got.records == [{"step": 1, "ratio_std": 0.5}]
    assert got.says("log:1: the line of code of 'ratio_std' is not used")


@pytest.mark.parametrize("key", ["places", "unseen"])
@pytest.mark.parametrize("value", [7, "text", ["a"], None])
def test_places_and_reasons_that_are_no_object_are_a_note(reading, key, value):
    got = reading(lines(header(**{key: value}), {"step": 1, "ratio_std": 0.5}))
    assert (got.places, got.records) == ({}, [{"step": 1, "ratio_std": 0.5}])
    assert [str(note) for note in got.notes] == [f"log:1: '{key}' is not an object, and is not used"]


def test_a_function_or_text_of_another_type_is_left_out(reading):
    got = reading(lines(header(places={"loss": code(function=3, text=None)}), {"step": 1, "loss": 0.5}))
    assert got.places == {"loss": CodePlace(file="train.py", line=205)}


def test_further_lines_of_the_script_have_their_roles(reading):
    others = [code(26, text="EPS = 2e-6", role="set"), code(31, function=7, role="dances"), code(32, role=["set"])]
    got = reading(lines(header(places={"ratio_std": code(role="used", also=others)}), {"step": 1, "ratio_std": 0.5}))
    place = got.places["ratio_std"]
    assert (place.role, place.line) == ("used", 205)
    assert [(each.line, each.role) for each in place.also] == [(26, "set"), (31, ""), (32, "")]
    assert [each.does for each in place.also[:1]] == ["set at train.py:26 in update: EPS = 2e-6"]
    assert got.notes == []


@pytest.mark.parametrize(
    ("also", "kept"),
    [
        ("train.py:26", []),
        ({"file": "train.py", "line": 26}, []),
        (None, []),
        ([code(26), None, code(line=-1), [code(27)], code(28, also=[code(29)])], [26, 28]),
        ([code(line) for line in range(1, 400)], list(range(1, MOST_ALSO + 1))),
    ],
)
def test_further_lines_of_another_type_or_too_many_are_a_note(reading, also, kept):
    got = reading(lines(header(places={"ratio_std": code(also=also)}), {"step": 1, "ratio_std": 0.5}))
    assert [each.line for each in got.places["ratio_std"].also] == kept
    assert [each.also for each in got.places["ratio_std"].also] == [()] * len(kept)
    assert got.says("log:1: lines of code beside that of 'ratio_std' are not used")


def test_places_and_reasons_are_bounded(reading):
    many = {f"metric_{number}": code(text=" x\n" * 500, function="f" * 500) for number in range(400)}
    why = {f"metric_{number}": f"{number} {'x' * 2_000}" for number in range(400)}
    got = reading(lines(header(places=many), header(unseen=why), header(places={"n" * 1_000: code()}), {"a": 1}))
    assert len(got.places) == MOST_ENTRIES
    assert max(len(place.text) for place in got.places.values()) <= LONGEST_CODE
    assert max(len(place.says) for place in got.places.values()) < 2 * LONGEST_CODE
    assert "\n" not in got.places["metric_0"].says
    assert sum(len(str(note)) for note in got.notes) < 10_000
    assert got.says("are not used")
    assert got.records == [{"a": 1}]


def test_what_was_not_seen_is_one_note_for_each_reason(reading):
    compiled = "the loss is compiled"
    got = reading(
        lines(
            header(unseen={"ratio": compiled, "policy_pull": compiled, "passes": "no minibatch was seen twice"}),
            header(unseen={"ratio": compiled, "entropy": 5}),
            {"step": 1, "loss": 0.5},
        )
    )
    assert [(str(note), note.kind) for note in got.notes] == [
        (f"log:2: not observed, so unknown: ratio, policy_pull: {compiled}", "said"),
        ("log:1: not observed, so unknown: passes: no minibatch was seen twice", "said"),
        ("log:2: not observed, so unknown: entropy: no reason is given", "said"),
    ]


def test_a_log_of_another_writer_may_have_a_metric_called_places(reading):
    got = reading(lines({"step": 1, "places": {"first": 3}}, {"step": 2, "places": {"first": 4}}))
    assert [record["places/first"] for record in got.records] == [3, 4]
    assert got.places == {}
