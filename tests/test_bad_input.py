"""Broken input gets a message with its place, or a note; every good record is used; never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import stat

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.request import Request

GOOD = [
    {
        "step": s,
        "policy_loss": 0.1 + 0.001 * s,
        "approx_kl": 0.01,
        "entropy": 1 - 0.01 * s,
        "grad_norm": 0.5,
        "reward_mean": 0.1 * s,
    }
    for s in range(20)
]
LINES = [json.dumps(row) for row in GOOD]


def lines(*rows):
    return ("\n".join(rows) + "\n").encode()


#: name → (bytes, good records that must be used, or None where there is nothing to judge)
INPUTS: dict[str, tuple[bytes, int | None]] = {
    "empty": (b"", None),
    "blank": (b"\n\n  \n", None),
    "binary": (bytes(range(256)) * 64, None),
    "zeros": (b"\0" * 4096, None),
    "torn last line": (lines(*LINES)[:-20], 19),
    "bad line in the middle": (lines(*LINES[:10], "{not json", *LINES[10:]), 20),
    "byte order mark": (b"\xef\xbb\xbf" + lines(*LINES), 20),
    "utf-16": (lines(*LINES).decode().encode("utf-16"), 20),
    "utf-16 without a mark": (lines(*LINES).decode().encode("utf-16-le"), 20),
    "gzip": (gzip.compress(lines(*LINES)), 20),
    "torn gzip": (gzip.compress(lines(*LINES))[:-30], 10),
    "carriage returns": (lines(*LINES).replace(b"\n", b"\r\n"), 20),
    "integers of 400 digits": (
        lines(*LINES[:-1], json.dumps(GOOD[-1])[:-1] + ', "num_tokens": 1' + "0" * 400 + "}"),
        20,
    ),
    "numbers as strings": (lines(*(json.dumps({k: str(v) for k, v in row.items()}) for row in GOOD)), 20),
    "a list": (json.dumps(GOOD).encode(), 20),
    "deep nesting": (lines(*LINES, '{"a":' * 50_000 + "1" + "}" * 50_000), 20),
    "lists as values": (lines(*(json.dumps(row | {"histogram": [1, 2, 3]}) for row in GOOD)), 20),
    "nulls": (lines(*(json.dumps(row | {"explained_variance": None}) for row in GOOD)), 20),
    "only unknown keys": (lines(*('{"foo": 1, "bar": 2}' for _ in range(20))), None),
    "rows of other widths": (
        b"step,approx_kl,entropy\n" + b"".join(b"%d,0.01,1.%d\n" % (i, i) for i in range(20)) + b"1,2,3,4,5\n",
        20,
    ),
    "prose": (b"Dear reader,\nthis is a letter and no log.\nYours\n" * 20, None),
}


@pytest.mark.parametrize("name", INPUTS)
def test_broken_input_is_used_or_refused(cli, tmp_path, name):
    data, usable = INPUTS[name]
    path = tmp_path / "run.log"
    path.write_bytes(data)
    outcome = cli("analyze", path, "--format", "json")
    assert "Traceback" not in outcome.out + outcome.err
    if usable is None:
        assert outcome.code == 3
        assert outcome.json["error"]["message"]
        assert "run.log" in outcome.err
    else:
        assert outcome.code == 0
        assert outcome.json["run"]["records"] >= usable


@pytest.mark.parametrize("name", ["torn last line", "bad line in the middle", "deep nesting"])
def test_what_was_skipped_is_noted_with_its_line(cli, tmp_path, name):
    path = tmp_path / "run.log"
    path.write_bytes(INPUTS[name][0])
    report = cli("analyze", path, "--format", "json").json
    assert any("run.log:" in note for note in report["run"]["notes"])


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", '"nan"', '"inf"', "1e999"])
def test_a_loss_that_is_no_number_is_never_healthy(cli, tmp_path, word):
    rows = [line.replace('"policy_loss": 0.', f'"policy_loss": {word}, "x": 0.') for line in LINES]
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines(*rows))
    report = cli("analyze", path, "--format", "json").json
    assert report["verdict"] == "unhealthy"
    assert report["causes"][0]["id"] == "nan-inf"


def test_a_gradient_that_is_always_nan_is_not_a_missing_one(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines(*(json.dumps(row | {"grad_norm": float("nan")}) for row in GOOD)))
    assert cli("analyze", path, "--format", "json").json["causes"][0]["id"] == "nan-inf"


def test_steps_logged_four_times_count_once(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines(*(line for line in LINES for _ in range(4))))
    report = cli("analyze", path, "--format", "json").json
    assert any("60 records repeat a step" in note for note in report["run"]["notes"])


def test_a_log_whose_tail_stops_being_text_keeps_its_head(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines(*LINES) + b"\xff\xfe\x00\x01garbage")
    assert cli("analyze", path, "--format", "json").json["run"]["records"] == 20


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user who can be refused")
def test_a_file_that_may_not_be_read_is_named(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines(*LINES))
    path.chmod(stat.S_IWUSR)
    outcome = cli("analyze", path)
    assert outcome.code == 3
    assert "run.jsonl" in outcome.err


def test_a_folder_without_a_log_is_named(cli, tmp_path):
    assert cli("analyze", tmp_path).code == 3


UNFILLED = ("policy_loss", "value_loss", "entropy", "learning_rate")


@pytest.mark.parametrize("filled", [(), *((name,) for name in UNFILLED)])
def test_columns_that_were_never_filled_say_nothing(tmp_path, filled):
    rows = [{"step": s, "eval_return": 0.5 * s} | dict.fromkeys(UNFILLED, 0.0) for s in range(1, 31)]
    rows = [row | dict.fromkeys(filled, 0.1 * row["step"]) for row in rows]
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (run,) = read_runs(str(path), Request())
    assert set(run.series) == {"eval_return"} if not filled else set(run.series) >= set(UNFILLED)
    assert any("never filled" in note.text for note in run.notes) is not bool(filled)


def merges(width, layers):
    rows = ["a0: &a0 {gamma: 0.99}"]
    rows += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}" for n in range(1, layers)]
    return "\n".join(rows)


def laughs(width, layers):
    rows = ["a0: &a0 {}"]
    rows += [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(width))}}}" for n in range(1, layers)]
    return "\n".join(rows)


#: name → (name of a configuration, its text, the line that a message names, if any)
BROKEN: dict[str, tuple[str, bytes | str, int | None]] = {
    "a bad character": ("config.yaml", b"gamma: 0.99\nn_epochs: \x07\n", 2),
    "bytes that are no UTF-8": ("config.yaml", b"gamma: 0.99\n\nn_epochs: \xff\n", 3),
    "a bool that is none": ("config.yaml", 'gamma: 0.99\nx: !!bool "x"\n', 2),
    "a time that is none": ("config.yaml", 'gamma: 0.99\nx: !!timestamp "x"\n', 2),
    "an int that is none": ("config.yaml", 'gamma: 0.99\nx: !!int "x"\n', 2),
    "a float that is none": ("config.yaml", 'gamma: 0.99\nx: !!float "x"\n', 2),
    "base64 that is none": ("config.yaml", 'gamma: 0.99\nx: !!binary "x"\n', 2),
    "pairs that are none": ("config.yaml", "gamma: 0.99\nx: !!omap {a: 1}\n", 2),
    "a month that is none": ("config.yaml", "gamma: 0.99\nx: 2001-99-99\n", 2),
    "an integer of 6,000 digits": ("config.yaml", f"gamma: 0.99\nx: {'9' * 6000}\n", 2),
    "a key that is a list": ("config.yaml", "gamma: 0.99\n? [a]\n: 1\n", 2),
    "deep YAML": ("config.yaml", "x: " + "[" * 3_000 + "]" * 3_000, None),
    "merges of merges": ("config.yaml", merges(8, 9), None),
    "references to references": ("config.yaml", laughs(9, 9), None),
    "a mapping in itself": ("config.yaml", "gamma: 0.99\nx: &x {y: *x, z: *x}\n", 2),
    "a mapping merged into itself": ("config.yaml", "gamma: 0.99\nx: &x {<<: *x}\n", 2),
    "a list of many": ("config.yaml", "x: [" + "1," * 100_000 + "1]", 1),
    "deep JSON": ("config.json", '{"a":' * 100_000 + "1" + "}" * 100_000, None),
    "JSON that is none": ("config.json", '{"gamma": 0.99,\n"x": }', 2),
    "JSON with an integer of 6,000 digits": ("config.json", '{"gamma": ' + "9" * 6000 + "}", None),
    "deep TOML": ("config.toml", "x = " + "[" * 3_000 + "]" * 3_000, None),
    "TOML that is none": ("config.toml", "gamma = 0.99\nx = \n", 2),
    "TOML with an integer of 6,000 digits": ("config.toml", "x = " + "9" * 6000, None),
    "no archive": ("training_args.bin", b"PK\x03\x04 and no more", None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_configuration_beside_a_log_is_a_note_and_by_name_an_error(cli, tmp_path, name):
    file, text, line = BROKEN[name]
    log, config = tmp_path / "run.jsonl", tmp_path / file
    log.write_bytes(lines(*LINES))
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    beside = cli("analyze", log, "--format", "json")
    assert beside.code == 0
    assert beside.json["run"]["records"] == 20
    assert any(file in note and "cannot read" in note for note in beside.json["run"]["notes"])
    named = cli("analyze", log, "--config", config)
    assert named.code == 2
    assert (f"{file}:{line}:" if line else file) in named.err
    assert len(named.err) < 1_000


@pytest.mark.parametrize("number", ["0x" + "f" * 8_000, "0b" + "1" * 2_000, "9" * 400])
def test_a_setting_larger_than_any_float_fails_no_check(cli, tmp_path, number):
    (tmp_path / "run.jsonl").write_bytes(lines(*LINES))
    (tmp_path / "config.yaml").write_text(f"n_epochs: {number}\nlearning_rate: {number}\n", encoding="utf-8")
    report = cli("analyze", tmp_path / "run.jsonl", "--format", "json", "--all").json
    assert not [check for check in report["checks"] if check["answer"] == "errored"]


@pytest.mark.parametrize("name", ["ppo-doctor.toml", "pyproject.toml"])
@pytest.mark.parametrize("value", ["[" * 3_000 + "]" * 3_000, "9" * 6_000, "{a = " * 3_000, "\x00"])
def test_a_policy_that_cannot_be_read_is_named(cli, tmp_path, monkeypatch, name, value):
    (tmp_path / "run.jsonl").write_bytes(lines(*LINES))
    (tmp_path / name).write_text(f"[tool.ppo-doctor]\nx = {value}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outcome = cli("gate", "run.jsonl")
    assert outcome.code == 2
    assert name in outcome.err


@pytest.mark.parametrize(
    "cell", ["{}", "[]", '{"a":1}', '"{}"', "{", "}", "]", "[1", "{{}}", "[{}]", "true", "1e999", "x"]
)
@pytest.mark.parametrize("at", [0, 300])
def test_a_cell_that_is_no_number_costs_itself_alone(cli, tmp_path, cell, at):
    rows = [f"{step},0.01,{1 - step / 1000}" for step in range(600)]
    rows[at] = f"{at},{cell},0.5"
    path = tmp_path / "run.csv"
    path.write_text("\n".join(["step,approx_kl,entropy", *rows]) + "\n", encoding="utf-8")
    outcome = cli("analyze", path, "--format", "json")
    assert outcome.code == 0
    assert outcome.json["run"]["records"] >= 599


@pytest.mark.parametrize(
    "text",
    ["gamma: {{1}}\n", "Namespace(gamma={{1}}, learning_rate=0.1)\n", "| ratio_mean | {{1}} |\n", "{'gamma': {{1}}}\n"],
)
def test_a_literal_that_python_cannot_hold_is_no_bug(cli, tmp_path, text):
    (tmp_path / "train.log").write_text(text + "| approx_kl | 0.1 |\n", encoding="utf-8")
    (tmp_path / "config.txt").write_text(text, encoding="utf-8")
    assert cli("analyze", tmp_path / "train.log").code in (0, 3)
    assert cli("check-config", tmp_path / "config.txt").code in (0, 2, 3)
