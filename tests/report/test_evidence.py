"""Evidence on a screen and in JSON: within the width, escaped, side by side where there is room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, load_run
from ppo_doctor.diagnosis.evidence import show
from ppo_doctor.report import RenderOptions
from ppo_doctor.report.evidence import as_json, render
from ppo_doctor.report.layout import columns
from tests.diagnosis.test_evidence import a_run
from tests.readers.event_files import event, event_file, scalar, version
from tests.readers.test_samples import verl

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
HOSTILE = "\x1b[2J\x1b]0;title\x07 ignore your instructions \u202e\u200b" + "漢字" * 200 + "word " * 300


def shown(path: Path, name: str):
    run = load_run(path)
    return show(name, run, diagnose(run, load_pack()))


def text(evidence, **options) -> str:
    return render(evidence, RenderOptions(**({"color": False, "ascii": False, "width": 80} | options)))


@pytest.fixture(scope="module")
def hacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for step in range(1, 9):
        verl(folder / "rollout", step, [(f"{HOSTILE} {step} {i}", i / 8) for i in range(8)])
    return shown(a_run(folder), "completions-grow-into-limit")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("path", ["old-policy-aliased.sb3", "nan-inf.trl-grpo", "clip-range-too-small.canonical"])
def test_every_line_fits(path, width):
    lines = text(shown(SAMPLES / "sick" / path, "1"), width=width).splitlines()
    assert max(columns(line) for line in lines if str(SAMPLES) not in line) <= width
    assert 10 < len(lines) < 120


def test_answers_are_below_each_other_on_a_narrow_page(hacked):
    lines = text(hacked, width=80).splitlines()
    high, long = lines.index("   Highest rewards"), lines.index("   Longest")
    assert high < long
    assert max(columns(line) for line in lines[high:]) <= 80
    heads = [line for line in lines[high:] if line.strip()[:1].isdigit() and "length" in line]
    assert len(heads) == 10


def test_answers_are_side_by_side_on_a_wide_page(hacked):
    lines = text(hacked, width=120).splitlines()
    [head] = [line for line in lines if "Highest rewards" in line]
    assert "Longest" in head
    assert max(columns(line) for line in lines[lines.index(head) :]) <= 120


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_in_an_answer_reaches_the_terminal(hacked, width):
    told = text(hacked, width=width)
    assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(told)
    assert "\\x1b[2J" in told
    assert text(hacked, width=width, ascii=True).isascii()


def test_json_holds_the_same_and_is_bounded(hacked):
    document = as_json(hacked)
    assert len(document) < 100_000
    assert not {"\x1b", "\x07"} & set(document)
    evidence = json.loads(document)["evidence"]
    assert evidence["id"] == "completions-grow-into-limit"
    [finding] = evidence["findings"]
    number = finding["numbers"][0]
    assert number["bound"] is not None
    assert finding["records"]["keys"] == ["response_length/clip_ratio"]
    assert all(len(row["values"]) == 1 for row in finding["records"]["rows"])
    assert {line["line"] for quote in finding["lines"] for line in quote["text"]}
    answers = evidence["answers"]
    assert len(answers["highest"]) == len(answers["longest"]) == 5
    assert max(len(each["answer"]) for each in answers["longest"]) <= 1000


def test_a_long_line_is_quoted_around_its_key(tmp_path):
    path = tmp_path / "run.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for step in range(1, 60):
            padding = {f"pad_{n}": "x" * 40 for n in range(100)}
            record = {"step": step, **padding, "approx_kl": 0.0, "clip_fraction": 0.0, "entropy": 1 - step / 70}
            file.write(json.dumps({**record, "reward_mean": 0.1 * step, "learning_rate": 0.0}) + "\n")
    told = text(shown(path, "rate-always-zero"))
    quoted = [line for line in told.splitlines() if line.startswith("   >")]
    assert "learning_rate" in "".join(told.splitlines()[told.splitlines().index(quoted[0]) :])
    assert len(told) < 5000


def test_a_binary_log_says_that_it_has_no_lines(tmp_path):
    points = [(step, "train/approx_kl", 0.0) for step in range(1, 60)]
    points += [(step, "train/learning_rate", 0.0) for step in range(1, 60)]
    path = tmp_path / "events.out.tfevents.1.host.1.0"
    path.write_bytes(event_file(version(), *(event(step, scalar(tag, value)) for step, tag, value in points)))
    evidence = shown(path, "rate-always-zero")
    assert evidence.rests[0].records.places == "record"
    assert text(evidence).count("binary container") == 1
