"""Sources behind URLs, in every command that takes sources: fetched, named by their URLs, and removed at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ppo_doctor.fleets import remote
from ppo_doctor.model.errors import DoctorError
from tests.runs.folders import as_csv, sb3_rows, write

pytest.importorskip("fsspec")
FORMATS = ("text", "json", "html", "markdown", "sarif", "junit", "github")


def called(tmp_path, *arguments):
    """Run a command; nothing that it fetched may be left."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "ppo_doctor", *map(str, arguments)]
    own = {"TMPDIR": str(tmp_path / "tmp"), "COLUMNS": "200"}
    run = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "Traceback" not in run.stderr
    return run


@pytest.fixture
def url(tmp_path):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows()), "a/config.yml": "n_epochs: 4\n"})
    return f"file://{tmp_path}/a"


def test_every_format_says_of_a_url_what_it_says_of_the_folder(tmp_path, url):
    names = {"here": tmp_path / "a", "there": url}
    for where, source in names.items():
        formats = [text for name in FORMATS for text in ("--format", f"{name}={where}.{name}")]
        assert called(tmp_path, "analyze", source, *formats).returncode == 0
    for name in FORMATS:
        here, there = ((tmp_path / f"{where}.{name}").read_text(encoding="utf-8") for where in names)
        assert str(tmp_path / "tmp") not in there
        if name != "sarif":
            assert there.replace("file://", "") == here.replace("file://", "")
    locations = json.loads((tmp_path / "there.sarif").read_text(encoding="utf-8"))["runs"][0]["results"][0]["locations"]
    assert locations[0]["physicalLocation"]["artifactLocation"] == {"uri": f"{url}/progress.csv"}


def test_inspect_gate_and_compare_take_urls(tmp_path, url):
    assert f"{url}/progress.csv" in called(tmp_path, "inspect", url).stdout
    assert "Gate" in called(tmp_path, "gate", url).stdout
    compared = json.loads(called(tmp_path, "compare", url, tmp_path / "a", "-f", "json").stdout)
    assert compared


def test_a_url_stands_beside_files_and_with_a_configuration(tmp_path, url):
    write(tmp_path, {"b.yaml": "n_epochs: 7\n", "c/progress.csv": as_csv(sb3_rows(seed=1))})
    several = called(tmp_path, "analyze", url, tmp_path / "c", "file:///no/such/place", "-f", "json")
    assert len(json.loads(several.stdout)["diagnoses"]) == 2
    assert "file:///no/such/place: no such file or folder" in several.stderr
    alone = json.loads(called(tmp_path, "analyze", url, tmp_path / "b.yaml", "-f", "json").stdout)
    assert 7 in alone["run"]["config"].values()


@pytest.mark.parametrize(
    "arguments", [("analyze", "--alias", "x=approx_kl", "--save-alias"), ("watch",)], ids=["save-alias", "watch"]
)
def test_what_needs_a_folder_of_this_machine_is_refused(tmp_path, url, arguments):
    run = called(tmp_path, *arguments, url)
    assert (run.returncode, run.stdout) == (2, "")
    assert "URL" in run.stderr


def test_many_runs_are_not_fetched_at_once(tmp_path, monkeypatch):
    write(tmp_path, {f"many/{n}/progress.csv": as_csv(sb3_rows(seed=n)) for n in range(12)})
    for limit, value in (("MOST_OPENED", 3), ("MOST_BYTES", 5000)):
        with monkeypatch.context() as patched:
            patched.setattr(remote, limit, value)
            with pytest.raises(DoctorError) as error, remote.opened(f"file://{tmp_path}/many"):
                pass
            assert "ppo-doctor fleet" in error.value.hint
