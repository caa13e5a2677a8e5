"""Names that users give to columns and settings: on the command line, beside the log, in the project's file."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ppo_doctor.cli.application import app, register
from ppo_doctor.cli.options import complete_alias
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.trainers.aliases import beside, parse_alias, save, targets

RECORDS = 40


def rows():
    """Return the records of a run in names that nobody can know."""
    at = range(RECORDS)
    return [
        {"n": i, "zz": -50.0 + i + i % 3, "x9": 0.02 - i % 2 * 0.03, "ww": 1.09 - i / 100, "yy": 0.004 + i % 5 / 900}
        for i in at
    ]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Return a log in a folder of its own, with the working directory elsewhere."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "run"
    for each in (elsewhere, folder):
        each.mkdir()
    (elsewhere / ".git").mkdir()
    monkeypatch.chdir(elsewhere)
    path = folder / "train.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()), encoding="utf-8")
    return path


NAMED = ("--alias", "zz=episode_return", "--alias", "ww=entropy", "--alias", "yy=approx_kl")


def analyzed(*arguments):
    register("analyze")
    result = CliRunner().invoke(app, ["analyze", *map(str, arguments), "--format", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)["run"]


@pytest.fixture
def command(cli):
    """Run the command line, and return its code, output and complaints."""

    def run(*arguments):
        done = cli(*arguments)
        return done.code, done.out, done.err

    return run


def test_a_log_of_unknown_names_is_refused_with_the_way_out(command, log):
    code, _, said = command("analyze", log)
    assert code == 3
    assert "--alias zz=METRIC" in said


def test_named_columns_are_read_and_are_no_guess(command, log):
    run = analyzed(log, *NAMED)
    assert run["keys"]["guessed"] == 0
    assert run["inferred"] == {}
    assert run["not_understood"] == ["x9"]
    _, page, _ = command("inspect", log, *NAMED)
    assert "zz" in page.partition("episode_return")[0]


def test_what_is_not_understood_stands_on_the_screen(command, log):
    _, page, _ = command("analyze", log, *NAMED)
    assert "1 column not understood: x9" in " ".join(page.split())
    assert "--alias x9=METRIC" in page


def test_a_sign_can_be_turned(log):
    def first(target):
        from ppo_doctor.diagnosis.analyze import read_run
        from ppo_doctor.model.request import Request

        return read_run(str(log), Request(aliases=dict([parse_alias(f"zz={target}")]))).series

    assert first("policy_loss")["policy_loss"].values[0] == -first("-policy_loss")["policy_loss"].values[0]


def test_a_column_can_be_the_clock(log):
    lines = [json.dumps({"T": 100 * row["n"], **row}) for row in rows()]
    log.write_text("\n".join(lines), encoding="utf-8")
    assert analyzed(log, *NAMED, "--alias", "T=step")["steps"] == [0, 100 * (RECORDS - 1)]


def test_a_setting_can_be_named(command, log):
    (log.parent / "config.json").write_text('{"inner_loops": 7, "lr": 0.001}', encoding="utf-8")
    _, page, _ = command("inspect", log, *NAMED, "--alias", "inner_loops=ppo_epochs")
    assert "= 7" in page.partition("ppo_epochs")[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("alias", "says"), [("zz=epsiode_return", "episode_return"), ("zz", "NAME=METRIC"), ("=entropy", "NAME=METRIC")]
)
def test_what_means_nothing_is_a_usage_error_that_helps(command, log, alias, says):
    code, _, said = command("analyze", log, "--alias", alias)
    assert code == 2
    assert says in said


def test_a_name_that_the_log_lacks_is_told(log):
    notes = analyzed(log, *NAMED, "--alias", "zzz=loss")["notes"]
    assert any("zzz" in note and "near: zz" in note for note in notes)


@pytest.mark.parametrize("verb", ["gate", "inspect", "compare", "watch"])
def test_other_commands_take_names_too(command, log, verb):
    further = {"compare": (log,), "watch": ("--until-idle", "1s", "--interval", "500ms", "--plain")}.get(verb, ())
    code, page, said = command(verb, log, *further, *NAMED)
    assert code in (0, 1, 4), said
    assert page
    refused, _, _ = command(verb, log, *further, "--alias", "zz=nothing")
    assert refused == 2


def test_names_beside_the_log_and_of_the_project_hold_and_the_nearer_outweighs(command, log, tmp_path):
    project = tmp_path / "elsewhere" / "ppo-doctor.toml"
    project.write_text('[alias]\nzz = "policy_loss"\nww = "entropy"\nyy = "approx_kl"\n', encoding="utf-8")
    assert analyzed(log)["not_understood"] == ["x9"]
    (log.parent / "ppo-doctor.toml").write_text('[alias]\nx9 = "policy_loss"\nzz = "episode_return"\n')
    assert analyzed(log)["not_understood"] == []
    _, page, _ = command("inspect", log, "--alias", "x9=loss")
    found = {line.split()[0]: line.split()[2] for line in page.splitlines() if "→" in line and "records" in line}
    assert found == {"zz": "episode_return", "ww": "entropy", "yy": "approx_kl", "x9": "loss"}


def test_a_pyproject_holds_names_too(command, log, tmp_path):
    table = '[tool.ppo-doctor.alias]\nzz = "episode_return"\nww = "entropy"\nyy = "approx_kl"\n'
    (tmp_path / "elsewhere" / "pyproject.toml").write_text(table, encoding="utf-8")
    assert analyzed(log)["not_understood"] == ["x9"]
    code, _, said = command("gate", log)
    assert code in (0, 1, 4), said


def test_names_are_kept_beside_the_log_only_if_asked(log):
    file = log.parent / "ppo-doctor.toml"
    analyzed(log, *NAMED)
    assert not file.exists()
    analyzed(log, *NAMED, "--save-alias")
    assert beside(log) == {"zz": "episode_return", "ww": "entropy", "yy": "approx_kl"}
    assert analyzed(log)["not_understood"] == ["x9"]


def test_saving_without_a_name_or_a_file_is_a_usage_error(command, log):
    assert command("analyze", log, "--save-alias")[0] == 2
    assert command("analyze", "-", *NAMED, "--save-alias")[0] == 2


def test_a_file_that_is_there_keeps_the_rest(tmp_path):
    file = tmp_path / "ppo-doctor.toml"
    file.write_text('# ours\nfail-on = "high"\n\n[alias]\n"G" = "loss"  # no\n"H" = "entropy"\n\n[thresholds]\n')
    with pytest.raises(DoctorError, match="cannot add"):
        save(tmp_path, {"G": "episode_return"})  # its line has a remark, and TOML allows one line for a name
    save(tmp_path, {"H": "loss", "q=1": "value_loss"})
    text = file.read_text()
    assert text.startswith('# ours\nfail-on = "high"\n')
    assert beside(tmp_path / "log") == {"G": "loss", "H": "loss", "q=1": "value_loss"}


@pytest.mark.parametrize("text", ["alias = 3", '[alias]\nG = "nothing"', "[alias]\nG = 1", "x = ["])
def test_a_file_that_means_nothing_is_a_usage_error(command, log, text):
    (log.parent / "ppo-doctor.toml").write_text(text, encoding="utf-8")
    code, _, said = command("analyze", log, *NAMED)
    assert code == 2
    assert "ppo-doctor.toml" in said


def test_a_file_of_names_is_no_configuration_of_the_run(log):
    (log.parent / "ppo-doctor.toml").write_text('gamma = 2\nlr = 1\n[alias]\nzz = "loss"\n', encoding="utf-8")
    assert analyzed(log.parent, *NAMED)["config"] == {}


def test_completion_is_for_the_right_side():
    assert complete_alias("G=approx_kl_k") == ["G=approx_kl_k1", "G=approx_kl_k2"]
    assert complete_alias("app") == []
    assert {"episode_return", "ppo_epochs", "step"} <= {*targets()}
    assert "ratio_p01" not in targets()
