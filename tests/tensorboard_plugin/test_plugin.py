"""The tab by way of TensorBoard's application: what it lists, what it shows, and what nobody gets out of it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.tensorboard_plugin.conftest import Board, DoctorPlugin

ROOT = Path(__file__).resolve().parents[2]


def test_the_entry_point_is_the_plugin():
    with (ROOT / "pyproject.toml").open("rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["tensorboard_plugins"]
    (module, _, name), *others = (value.partition(":") for value in points.values())
    assert getattr(import_module(module), name) is DoctorPlugin
    assert not others


def test_tensorboard_lists_the_tab(board):
    listed = board.client.get("/data/plugins_listing").json["ppo_doctor"]
    assert listed["enabled"]
    assert listed["tab_name"] == "PPO Doctor"
    assert listed["loading_mechanism"] == {"type": "IFRAME", "module_path": "/data/plugin/ppo_doctor/index.js"}


def test_the_page_gets_its_files(board):
    assert "plugin/ppo_doctor/" in board.client.get("/data/plugin_entry.html?name=ppo_doctor").text
    for name, kind in (("index.js", "text/javascript"), ("index.css", "text/css"), ("report.css", "text/css")):
        answer = board.get(name)
        assert (answer.status_code, answer.mimetype) == (200, kind)
    assert "export function render()" in board.get("index.js").text


def test_nothing_is_looked_at_before_the_tab_is_opened(board):
    board.client.get("/data/plugins_listing")
    assert board.plugins[0]._list._thread is None


def test_each_run_has_its_verdict(board):
    runs = board.judged()
    assert {name: run["verdict"] for name, run in runs.items()} == {"sound": "healthy", "sweep/sick": "unhealthy"}
    assert "learning rate is 0" in runs["sweep/sick"]["headline"]
    assert runs["sound"]["step"] == 40960


def test_a_run_that_is_opened_gets_its_report(board, runs):
    answer = board.opened("sweep/sick")
    assert answer.mimetype == "text/html"
    assert "The learning rate is 0 in every record" in answer.text
    assert str(runs / "sweep" / "sick") in answer.text


def test_the_configuration_of_a_run_folder_counts(board):
    assert "n_epochs" in board.opened("sound").text


def test_the_policy_of_tensorboard_lets_the_script_of_a_report_run_and_no_other(board, caplog):
    answer = board.opened("sound")
    policy = answer.headers["Content-Security-Policy"]
    script = re.search(r"<script>(.*)</script>", answer.text, re.DOTALL)[1]
    assert f"'sha256-{_base64(script)}'" in policy
    scripts = next(part for part in policy.split(";") if part.startswith("script-src"))
    assert "unsafe-inline" not in scripts
    board.runs()
    assert "Content-Security-Policy" not in caplog.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def _base64(text: str) -> str:
    from base64 import b64encode

    return b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_report_has_the_colours_that_were_asked_for(board, theme):
    board.opened("sound")
    key = board.runs()["sound"]["key"]
    assert f'<html data-theme="{theme}" lang="en">' in board.get("report", run=key, theme=theme).text
    assert '<html lang="en">' in board.get("report", run=key, theme='"><script>').text


def test_there_is_no_report_before_a_run_is_judged(board):
    assert board.get("report", run="0" * 16).status_code == 404


def test_a_run_cannot_be_named_by_a_path(board, runs):
    (runs.parent / "secret.csv").write_text("secret", encoding="utf-8")
    board.opened("sound")
    near = ["../secret.csv", "../../etc/passwd", "/etc/passwd", str(runs / "sound" / "progress.csv"), "sound", "", "\0"]
    for text in near:
        assert board.get("report", run=text).status_code == 404
        board.get("runs", open=text)
    for path in ("index.js/../../../../pyproject.toml", "../../../pyproject.toml", "static/index.js", "plugin.py"):
        assert board.get(path).status_code == 404
        assert board.get(quote(path, safe="")).status_code == 404


def test_what_logs_say_is_text(board, runs):
    folder = runs / '<img src=x onerror="alert(1)">\u202e'
    folder.mkdir()
    table = (runs / "sound" / "progress.csv").read_text(encoding="utf-8")
    (folder / "progress.csv").write_text(table.replace("train/loss", "train/<b>loss</b>"), encoding="utf-8")
    answer = board.get("runs")
    assert answer.mimetype == "application/json"
    name = next(name for name in board.judged() if "img" in name)
    assert name == '<img src=x onerror="alert(1)">\\u202e'
    page = board.opened(name).text
    assert "<img" not in page
    assert "<b>" not in page


def test_the_folders_of_logdir_spec_have_their_names(runs):
    board = Board(logdir_spec=f"a:{runs / 'sound'},b:{runs / 'sweep'}")
    assert set(board.until(lambda found: len(found) == 2)) == {"a", "b/sick"}


def test_storage_of_others_is_not_looked_at():
    board = Board(logdir="gs://bucket/runs")
    assert not board.client.get("/data/plugins_listing").json["ppo_doctor"]["enabled"]


def test_a_folder_that_does_not_exist_is_said(tmp_path):
    board = Board(logdir=str(tmp_path / "none"))
    board.until(lambda _: board.get("runs").json["looked"])
    assert "none cannot be listed" in board.get("runs").json["notes"][0]


def test_a_start_of_tensorboard_imports_nothing_of_ours():
    code = (
        "import sys, argparse, tensorboard.backend.application as a\n"
        "before = set(sys.modules)\n"
        "from ppo_doctor.tensorboard_plugin.plugin import DoctorPlugin\n"
        "flags = dict(logdir='.', logdir_spec='', path_prefix='', samples_per_plugin={}, window_title='')\n"
        "app = a.TensorBoardWSGIApp(argparse.Namespace(**flags), [DoctorPlugin])\n"
        "from werkzeug.test import Client\n"
        "assert Client(app).get('/data/plugins_listing').json['ppo_doctor']['enabled']\n"
        "heavy = ('ppo_doctor', 'orjson', 'yaml', 'rich', 'pandas')\n"
        "print(sorted(name for name in set(sys.modules) - before if name.split('.')[0] in heavy))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    ours = ["", ".tensorboard_plugin", ".tensorboard_plugin.plugin", ".tensorboard_plugin.run_list"]
    assert done.stdout.strip() == str([f"ppo_doctor{name}" for name in ours])
