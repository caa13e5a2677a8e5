"""Tables of answers: what each trainer writes is read, within bounds, and damage is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_doctor.readers import samples
from ppo_doctor.readers.samples import KEPT, answers_in, is_rollout_dump, tables_below


def verl(folder: Path, step: int, answers: list[tuple[str, float]]) -> Path:
    """Write the answers of one step as verl does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step}.jsonl"
    rows = [
        {"input": f"q{i}", "output": text, "gts": "4", "score": score, "step": step, "acc": i % 2}
        for i, (text, score) in enumerate(answers)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def wandb(folder: Path, step: int, columns: list[str], rows: list[list[object]]) -> Path:
    """Write a table as W&B does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"completions_{step}_0123abcd.table.json"
    path.write_text(json.dumps({"columns": columns, "data": rows}), encoding="utf-8")
    return path


def test_the_answers_of_verl(tmp_path):
    verl(tmp_path / "rollout", 1, [("short", 0.1), ("x" * 50, 0.9)])
    verl(tmp_path / "rollout", 10, [("y" * 80, 0.5), ("z", 1.0)])
    tables = tables_below(tmp_path)
    assert [path.name for path in tables] == ["1.jsonl", "10.jsonl"]
    found = answers_in(tables)
    assert [(s.answer[0], s.reward, s.step) for s in found.highest[:2]] == [("z", 1.0, 10), ("x", 0.9, 1)]
    assert [s.length for s in found.longest] == [80, 50, 5, 1]
    assert (found.rows, found.steps, found.reward) == (4, (1, 10), "score")
    assert found.highest[0].parts == {"acc": 1.0}
    assert found.highest[0].source.line == 2


def test_the_answers_of_trl(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {
        "step": [5, 5],
        "prompt": ["p", "p"],
        "completion": ["a", "bb"],
        "accuracy": [1.0, None],
        "style": [0.5, 0.25],
        "advantage": [0.7, -0.7],
    }
    folder = tmp_path / "completions"
    folder.mkdir()
    parquet.write_table(arrow.table(rows), folder / "completions_00005.parquet")
    found = answers_in(tables_below(tmp_path))
    assert [(s.answer, s.reward, s.advantage) for s in found.highest] == [("a", 1.5, 0.7), ("bb", 0.25, -0.7)]
    assert found.reward == "accuracy + style"


def test_the_tables_of_wandb(tmp_path):
    media = tmp_path / "wandb" / "run-1" / "files" / "media" / "table"
    wandb(media, 3, ["step", "prompt", "completion", "reward"], [["3", "p", "a", 0.25], ["3", "p", "b", None]])
    found = answers_in(tables_below(tmp_path))
    assert [(s.answer, s.reward, s.step) for s in found.highest] == [("a", 0.25, 3)]
    assert found.rows == 2


def test_the_dumps_of_nemo_rl(tmp_path):
    row = {"content": "2+2? 4", "rewards": 1.0, "input_lengths": 9, "generation_logprobs": [-0.5, -0.1], "idx": 0}
    (tmp_path / "train_data_step7.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    [sample] = answers_in(tables_below(tmp_path)).highest
    assert (sample.answer, sample.reward, sample.step, dict(sample.parts)) == ("2+2? 4", 1.0, 7, {})


def test_a_conversation_is_read_as_its_text(tmp_path):
    turns = [{"role": "user", "content": "2+2?"}, {"role": "system", "content": "be brief"}]
    path = wandb(tmp_path, 1, ["prompt", "completion", "reward"], [[turns, [{"role": "x", "content": "4"}], 1]])
    [sample] = answers_in([path]).longest
    assert (sample.prompt, sample.answer) == ("2+2?\nbe brief", "4")


def test_only_tables_from_the_onset_on_count_if_there_are_any(tmp_path):
    tables = [verl(tmp_path, step, [(f"s{step}", 1.0)]) for step in (1, 2, 3)]
    assert answers_in(tables, since=2).steps == (2, 3)
    assert answers_in(tables, since=9).steps == (1, 3)


def test_the_same_answer_is_kept_once_and_the_latest_first(tmp_path):
    tables = [verl(tmp_path, step, [("same", 1.0), (f"other {step}", 1.0)]) for step in range(1, 9)]
    found = answers_in(tables)
    assert [s.answer for s in found.highest[:2]] == ["other 8", "same"]
    assert len(found.highest) == len(found.longest) == KEPT


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a_1_ab.table.json", '{"columns": [', "cut off"),
        ("a_1_ab.table.json", "[1, 2]", "no table"),
        ("a_1_ab.table.json", '{"columns": ["x"], "data": [[1]]}', "no column holds answers"),
        ("1.jsonl", "x" * 200, "more than"),
    ],
)
def test_a_damaged_table_is_named_and_the_others_are_read(tmp_path, monkeypatch, name, text, says):
    monkeypatch.setattr(samples, "LONGEST_LINE", 150)
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = answers_in([tmp_path / name, verl(tmp_path / "b", 2, [("a", 1.0)])])
    assert found.rows == 1
    assert says in found.left_out[0]


def test_texts_tables_and_rows_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MOST_ROWS", 3)
    monkeypatch.setattr(samples, "MOST_TABLES", 2)
    tables = [verl(tmp_path, step, [("x" * 10_000 + str(i), 1.0) for i in range(5)]) for step in (1, 2, 3)]
    found = answers_in(tables)
    assert found.rows == 6
    assert found.left_out == ("1 table before the last 2",)
    assert max(len(s.answer) for s in found.longest) <= samples.LONGEST_TEXT < found.longest[0].length


def test_numbers_that_are_none_do_not_count(tmp_path):
    path = wandb(tmp_path, 1, ["completion", "reward"], [["a", float("nan")], ["b", "high"], ["c", True], ["d", 1]])
    text = path.read_text(encoding="utf-8").replace("NaN", "1e999")
    path.write_text(text, encoding="utf-8")
    assert [s.answer for s in answers_in([path]).highest] == ["d"]


def test_secrets_in_answers_are_hidden(tmp_path):
    path = verl(tmp_path, 1, [("the key is hf_abcdefghijklmnopqrstuvwxyz", 1.0)])
    assert "abcdefgh" not in answers_in([path]).highest[0].answer


def test_a_log_with_a_number_for_a_name_is_no_dump(tmp_path):
    log = tmp_path / "1.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n', encoding="utf-8")
    assert not is_rollout_dump(log)
    assert not is_rollout_dump(tmp_path / "2.jsonl")
    assert tables_below(tmp_path) == []


def test_folders_of_another_run_are_not_entered(tmp_path):
    verl(tmp_path / "mine", 1, [("a", 1.0)])
    verl(tmp_path / "other", 1, [("b", 1.0)])
    (tmp_path / "other" / "progress.csv").touch()
    assert [path.parent.name for path in tables_below(tmp_path, of_another_run=("progress.csv",))] == ["mine"]
