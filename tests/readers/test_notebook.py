"""Notebooks and Kaggle's logs of streams: what was printed is read like a console, code not at all."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.request import Request

BOX = "| train/           |        |\n|    approx_kl     | 0.0{}   |\n|    n_updates     | {}0     |\n"
RULE = "-" * 29 + "\n"
TABLE = (
    "<table border='1'><thead><tr><th>Step</th><th>Training Loss</th><th>rewards / format / mean</th></tr></thead>"
    "<tbody><tr><td>1</td><td>0.5</td><td>0.25</td></tr><tr><td>2</td><td>0.4</td><td>0.5</td></tr></tbody></table><p>"
)


def lines(text):
    return text.splitlines(keepends=True)


def stream(text):
    return {"name": "stdout", "output_type": "stream", "text": lines(text)}


def shown(html):
    return {
        "output_type": "display_data",
        "data": {"text/html": lines(html), "text/plain": ["<IPython>"]},
        "metadata": {},
    }


def notebook(*outputs, code="model.learn(10)\nprint({'approx_kl': 5.0, 'step': 3})"):
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": list(outputs), "source": lines(code)}
    prose = {"cell_type": "markdown", "metadata": {}, "source": ["# Training\n", "| approx_kl | 3 |"]}
    return {"cells": [prose, cell], "metadata": {"kernelspec": {}}, "nbformat": 4, "nbformat_minor": 5}


def written(document, indent):
    return json.dumps(document, indent=indent)


@pytest.mark.parametrize("indent", [1, 2, None])
def test_boxes_that_a_cell_printed(reading, indent):
    text = RULE + RULE.join(BOX.format(n, n) for n in (1, 2, 3)) + RULE
    got = reading(written(notebook(stream(text)), indent))
    assert got.container == "notebook"
    assert [record["train/approx_kl"] for record in got.records] == [0.01, 0.02, 0.03]


def test_records_stand_at_their_lines_of_the_file(reading):
    text = written(notebook(stream("{'loss': 0.5, 'kl': 0.1}\n{'loss': 0.25, 'kl': 0.2}\n")), 1)
    got = reading(text)
    at = [n for n, line in enumerate(text.splitlines(), 1) if "'loss'" in line]
    assert [record["loss"] for record in got.records] == [0.5, 0.25]
    assert got.lines == at


@pytest.mark.parametrize("indent", [1, None])
def test_a_table_of_progress(reading, indent):
    got = reading(written(notebook(shown(TABLE)), indent))
    assert got.records == [
        {"Step": 1, "Training Loss": 0.5, "rewards/format/mean": 0.25},
        {"Step": 2, "Training Loss": 0.4, "rewards/format/mean": 0.5},
    ]


def test_a_table_of_something_else_is_no_record(reading):
    html = (
        "<table><tr><th></th><th>price</th></tr><tr><th>0</th><td>3.5</td></tr><tr><th>1</th><td>4.5</td></tr></table>"
    )
    assert reading(written(notebook(shown(html)), 1)).records == []


@pytest.mark.parametrize("indent", [1, None])
@pytest.mark.parametrize("first", [1, 9], ids=["that start over", "that go on"])
def test_trainings_of_two_cells_are_two_runs(first, indent, tmp_path):
    one, two = (
        notebook(stream("".join(f"{{'step': {n}, 'approx_kl': {kl + n / 1e6}}}\n" for n in range(at, at + 8))))
        for at, kl in ((1, 0.01), (first, 0.02))
    )
    one["cells"] += two["cells"]
    path = tmp_path / "two.ipynb"
    path.write_text(written(one, indent), encoding="utf-8")
    runs = read_runs(str(path), Request())
    assert [set(run.series["approx_kl"].values.round(2).tolist()) for run in runs] == [{0.01}, {0.02}]


def test_a_table_that_is_shown_again_with_more_rows_is_read_once(reading):
    more = TABLE.replace("</tbody>", "<tr><td>3</td><td>0.3</td><td>0.75</td></tr></tbody>")
    got = reading(written(notebook(shown(TABLE), shown(more)), 1))
    assert [record["Step"] for record in got.records] == [1, 2, 3]


def test_code_and_prose_are_not_read(reading):
    assert reading(written(notebook(code="print({'approx_kl': 0.1, 'step': 1})\n"), 1)).records == []


def test_a_notebook_that_is_cut_off_gives_what_it_had(reading):
    text = written(notebook(stream("{'loss': 0.5, 'kl': 0.1}\n{'loss': 0.25, 'kl': 0.2}\n")), 1)
    got = reading(text[: text.index("'loss': 0.25")])
    assert [record["loss"] for record in got.records] == [0.5]


def rewards(*values):
    return stream("".join(f"Episode: {n} | Reward: {value}\n" for n, value in enumerate(values)))


def test_notebooks_of_a_folder_are_looked_into_and_each_is_a_run_of_its_own(tmp_path):
    (tmp_path / "later").mkdir()
    (tmp_path / "PPO.ipynb").write_text(json.dumps(notebook(stream((BOX + RULE).format(1, 1) * 3))), encoding="utf-8")
    (tmp_path / "later" / "b.ipynb").write_text(json.dumps(notebook(rewards(1.5, 2.5, 3.5))), encoding="utf-8")
    (tmp_path / "empty.ipynb").write_text(json.dumps(notebook()), encoding="utf-8")
    runs = read_runs(str(tmp_path), Request())
    assert [set(run.series) & {"approx_kl", "reward_mean", "episode_return"} != set() for run in runs] == [True, True]
    assert len({run.sources[0].path for run in runs}) == 2


def test_a_notebook_beside_a_log_is_not_read_again(tmp_path):
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook(rewards(1.5, 2.5, 3.5))), encoding="utf-8")
    (tmp_path / "progress.csv").write_text("train/approx_kl,train/loss\n0.01,0.5\n0.02,0.4\n", encoding="utf-8")
    (run,) = read_runs(str(tmp_path), Request())
    assert [source.path for source in run.sources] == [str(tmp_path / "progress.csv")]


@pytest.mark.parametrize("indent", [1, 2, None])
def test_a_notebook_whose_cells_stand_behind_pages_of_widgets(reading, indent):
    whole = notebook(stream("{'loss': 0.5, 'kl': 0.1}\n{'loss': 0.25, 'kl': 0.2}\n"))
    widgets = {str(n): {"state": {"text": "", "value": "<p>" * 40}} for n in range(600)}
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"widgets": widgets}, "cells": whole["cells"]}
    got = reading(written(document, indent))
    assert got.container == "notebook"
    assert [record["loss"] for record in got.records] == [0.5, 0.25]


def test_a_frame_numbers_its_rows_in_a_column_without_a_name(reading):
    head = "<tr><th></th><th>step</th><th>reward</th><th>kl</th></tr>"
    body = "".join(f"<tr><th>{i}</th><td>{i * 10}</td><td>{i}.5</td><td>0.0{i}</td></tr>" for i in range(4))
    output = {"output_type": "display_data", "data": {"text/html": [f"<table>{head}{body}</table>"]}, "metadata": {}}
    cell = {"cell_type": "code", "source": [], "metadata": {}, "outputs": [output]}
    got = reading(json.dumps({"cells": [cell], "nbformat": 4, "metadata": {}}, indent=1))
    assert got.records[3] == {"step": 30, "reward": 3.5, "kl": 0.03}


def test_a_cell_that_says_no_log_is_an_empty_one(tmp_path):
    rows = "".join(f"<tr><td>{n}</td><td>0.{n}</td><td>No Log</td><td>0.5</td></tr>" for n in range(1, 9))
    head = "<tr><th>Step</th><th>reward</th><th>entropy</th><th>kl</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    (tmp_path / "run.ipynb").write_text(written(notebook(shown(table)), 1))
    (run,) = read_runs(str(tmp_path), Request())
    assert "entropy" not in run.series
    assert not [note for note in run.notes if note.kind in ("lost", "dropped")]


def saved(*pieces):
    lines = [json.dumps({"stream_name": name, "time": float(i), "data": text}) for i, (name, text) in enumerate(pieces)]
    return "[" + "\n,".join(lines) + "\n]"


def test_pieces_are_the_console_that_they_were_written_to(reading):
    got = reading(
        saved(("stderr", "warning\n"), ("stdout", "{'reward': 0.5, 'kl': 0.01}\n{'reward': 0.6, 'kl': 0.02}\n"))
    )
    assert got.container == "stream-log"
    assert [record["reward"] for record in got.records] == [0.5, 0.6]
    assert got.lines == [2, 2]


def test_a_line_in_two_pieces_among_those_of_another_stream(reading):
    got = reading(saved(("stdout", "{'reward': 0.5, "), ("stderr", "50%|###  |"), ("stdout", "'kl': 0.25}\n")))
    assert got.records == [{"reward": 0.5, "kl": 0.25}]
    assert got.lines == [3]


def test_a_file_that_is_cut_off_keeps_what_came_before(reading):
    whole = saved(("stdout", "{'reward': 0.5, 'kl': 0.01}\n"), ("stdout", "{'reward': 0.6, 'kl': 0.02}\n"))
    assert [record["reward"] for record in reading(whole[:-60]).records] == [0.5]
