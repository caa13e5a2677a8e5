"""`--patch`, `--fix` and `--apply`: a pure diff on stdout; files are replaced whole, with a copy beside them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from ppo_doctor.cli.patch import apply_patch
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.report.patch import FileChange, Patch

SOUND = "learning_rate: 1.0e-06\nnum_generations: 8\nbeta: 0.04\nepsilon: 0.2\nnum_iterations: 4\n"
SICK = SOUND.replace("epsilon: 0.2", "epsilon: 0.0  # \x1b[31m")
MISSPELT = SOUND.replace("learning", "learnig")


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    """Return a configuration with a closed clip range, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("config.yaml")
    path.write_text(SICK.replace("\x1b", ""))
    return path


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_diff_can_be_piped_into_git_apply(cli, config):
    result = cli("analyze", config, "--patch")
    assert result.code == cli("analyze", config).code == 0
    assert result.out.startswith("--- a/config.yaml\n")
    assert "epsilon: 0 → 0.2" in result.err
    subprocess.run(["git", "apply"], input=result.out.encode(), check=True)
    assert "epsilon: 0.2  #" in config.read_text()
    assert cli("analyze", config, "--patch").out == ""


def test_the_exit_code_is_that_of_the_diagnosis(cli, config):
    assert cli("analyze", config, "--patch", "--fail-on", "high").code == 1


def test_json_contains_the_patch(cli, config, validate):
    report = cli("analyze", config, "--patch", "--format", "json").json
    validate(report)
    assert report["patch"]["diff"].startswith("--- a/config.yaml")
    assert report["patch"]["changes"] == [
        {
            "cause": "clip-range-too-small",
            "key": "epsilon",
            "from": 0.0,
            "to": 0.2,
            "at": "config.yaml:4",
            "in_diff": True,
            "reason": None,
        }
    ]
    assert "patch" not in cli("analyze", config, "--format", "json").json


def test_a_report_in_a_file_goes_with_a_diff_on_stdout(cli, config):
    result = cli("analyze", config, "--patch", "--format", "json=report.json")
    assert result.out == json.loads(Path("report.json").read_text())["patch"]["diff"]


@pytest.mark.parametrize("other", [("--format", "text"), ("-i",)])
def test_what_else_needs_stdout_is_refused(cli, config, other):
    assert cli("analyze", config, "--patch", *other).code == 2


def test_several_runs_share_a_patch(cli, config):
    again = Path("other.yaml")
    again.write_bytes(config.read_bytes())
    result = cli("analyze", config, again, "--patch")
    assert result.out.count("+epsilon: 0.2") == 2


def test_apply_keeps_a_copy_and_the_permissions(cli, config):
    before = config.read_bytes()
    config.chmod(0o640)
    Path("config.yaml.bak").write_text("mine")
    result = cli("analyze", config, "--apply")
    assert result.out.startswith("--- a/config.yaml")
    assert "config.yaml.bak1" in result.err
    assert Path("config.yaml.bak").read_text() == "mine"
    assert Path("config.yaml.bak1").read_bytes() == before
    assert "epsilon: 0.2" in config.read_text()
    if os.name != "nt":
        assert stat.S_IMODE(config.stat().st_mode) == stat.S_IMODE(Path("config.yaml.bak1").stat().st_mode) == 0o640
    assert sorted(path.name for path in Path().iterdir()) == ["config.yaml", "config.yaml.bak", "config.yaml.bak1"]


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_apply_changes_what_a_link_leads_to(cli, config):
    link = Path("link.yaml")
    link.symlink_to(config)
    cli("analyze", link, "--apply")
    assert link.is_symlink()
    assert "epsilon: 0.2" in config.read_text()
    assert Path("config.yaml.bak").exists()


@pytest.mark.usefixtures("config")
def test_a_file_that_has_changed_is_refused_and_no_other_is_written():
    other = Path("other.yaml")
    other.write_bytes(b"a: 1\n")
    patch = Patch(
        files=(
            FileChange(path="other.yaml", before=b"a: 1\n", after=b"a: 2\n"),
            FileChange(path="config.yaml", before=b"stale", after=b"new"),
        )
    )
    with pytest.raises(DoctorError, match="has changed") as refused:
        apply_patch(patch)
    assert refused.value.code == 2
    assert other.read_bytes() == b"a: 1\n"
    assert sorted(path.name for path in Path().iterdir()) == ["config.yaml", "other.yaml"]


def test_check_config_fixes_the_spelling(cli, config):
    config.write_text(MISSPELT)
    result = cli("check-config", config, "--fix")
    assert result.code == 1
    assert "+learning_rate: 1.0e-06" in result.out
    assert "settings-misspelt" in result.err
    assert config.read_text() == MISSPELT
    assert cli("check-config", config, "--apply").code == 1
    assert config.read_text() == SOUND
    assert cli("check-config", config).code == 0


@pytest.mark.parametrize(("options", "said"), [((), True), (("--framework", "sb3"), False)])
def test_check_config_says_when_spelling_is_not_checked(cli, tmp_path, options, said):
    config = tmp_path / "config.yaml"
    config.write_text("learnig_rate: 0.001\nn_epochs: 4\nbatch_size: 64\n")
    result = cli("check-config", config, "--fix", *options)
    assert ("--framework" in result.err) is said
    assert ("+learning_rate" in result.out) is not said


def test_a_file_and_a_link_to_it_are_changed_once(cli, tmp_path, samples):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(samples / "sick" / "lr-zero.sb3" / "progress.csv", tmp_path / name)
    config = tmp_path / "a" / "config.yaml"
    config.write_text("learning_rate: 0.0\nn_epochs: 4\n")
    (tmp_path / "b" / "config.yaml").symlink_to(config)
    result = cli("analyze", tmp_path / "a", tmp_path / "b", "--apply")
    assert "changed since" not in result.err
    assert config.read_text() == "learning_rate: 0.0003\nn_epochs: 4\n"
    assert [path.name for path in config.parent.glob("*.bak*")] == ["config.yaml.bak"]


def test_a_run_without_a_configuration_changes_nothing(cli, samples):
    result = cli("analyze", samples / "sick" / "clip-range-too-small.canonical", "--apply")
    assert result.code == 0
    assert result.out == ""
    assert "no file is changed" in result.err
