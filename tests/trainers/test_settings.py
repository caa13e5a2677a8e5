"""What the commands say of settings outside their domains: alone, and beside a log; the place, the cause, the code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.check_config import check_file
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.trainers import settings as domains

ROOT = Path(__file__).resolve().parent.parent.parent
# Read before conftest scrubs our variables from the environment.
FOLDER = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))
ACCUSING = {f"fact.{limit.counted_by}" for limit in domains.WRONG} | {"fact.settings_misspelt"}

SOUND = {"n_steps": 2048, "n_envs": 1, "gae_lambda": 0.95, "n_epochs": 10, "vf_coef": 0.5}


def written(folder, **changes):
    path = folder / "config.yaml"
    settings = SOUND | changes
    path.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()), encoding="utf-8")
    return path, {key: number for number, key in enumerate(settings, 1)}


def analysed(cli, *arguments):
    return cli("analyze", *arguments, "--format", "json").json


@pytest.mark.parametrize(
    ("changes", "rule", "verdict", "cause"),
    [
        ({"gamma": 1.5}, "discount-out-of-range", "unhealthy", "gamma-lambda-mismatch"),
        ({"gae_lambda": 2}, "discount-out-of-range", "unhealthy", "gamma-lambda-mismatch"),
        ({"learning_rate": 0}, "rate-always-zero", "unhealthy", "lr-zero"),
        ({"learning_rate": -0.0003}, "configured-rate-negative", "unhealthy", "advantage-sign-flipped"),
        ({"n_epochs": 0}, "no-update-configured", "unhealthy", "epochs-not-executed"),
        ({"clip_range": 0.0}, "clip-range-closed", "unhealthy", "clip-range-too-small"),
        ({"max_grad_norm": 0}, "gradient-bound-closed", "unhealthy", "grad-clip-starves"),
        ({"vf_coef": 0}, "critic-untrained", "unhealthy", "critic-not-learning"),
        ({"clip_range_vf": 0}, "settings-impossible", "unhealthy", "dead-hyperparameter"),
        ({"clip_rnge": 0.1}, "settings-misspelt", "warning", "dead-hyperparameter"),
    ],
)
def test_a_setting_that_no_run_can_mean_leads_at_its_line(cli, tmp_path, changes, rule, verdict, cause):
    path, lines = written(tmp_path, **changes)
    report = analysed(cli, path)
    assert report["verdict"] == verdict
    leading = report["causes"][0]
    assert leading["id"] == cause
    assert leading["confidence"] == ("established" if verdict == "unhealthy" else "suspected")
    (key,) = changes
    (finding,) = [f for f in report["checks"] if f["name"] == rule]
    assert {evidence["source"] for evidence in finding["evidence"]} == {f"{path}:{lines[key]}"}
    checked = cli("check-config", path)
    assert checked.code == 1
    assert any(line.startswith(f"{path}:{lines[key]}: ") and rule in line for line in checked.out.splitlines())


@pytest.mark.parametrize(("changes", "default"), [({"learning_rate": 0.1}, "0.0003"), ({"gamma": 0.5}, "0.99")])
def test_what_is_unusual_is_a_note_with_the_default(cli, tmp_path, changes, default):
    path, lines = written(tmp_path, **changes)
    report = analysed(cli, path)
    assert (report["verdict"], report["causes"]) == ("inconclusive", [])
    checked = cli("check-config", path)
    (key,) = changes
    assert checked.code == 0
    assert f"{path}:{lines[key]}: low" in checked.out
    assert default in checked.out


def test_each_place_of_one_finding_has_its_line(cli, tmp_path):
    path, lines = written(tmp_path, gamma=1.5, gae_lambda=2)
    told = [line for line in cli("check-config", path).out.splitlines() if "discount-out-of-range" in line]
    assert [line.split(" ", 1)[0] for line in told] == [f"{path}:{lines['gae_lambda']}:", f"{path}:{lines['gamma']}:"]


@pytest.mark.parametrize(("value", "word"), [(".nan", "nan"), (".inf", "inf")])
def test_what_is_not_finite_is_told_as_it_stands(cli, tmp_path, value, word):
    path, _ = written(tmp_path, learning_rate=value)
    assert f"learning_rate is {word}" in cli("check-config", path).out
    told = [f for f in analysed(cli, path)["checks"] if f["answer"] == "yes" and f["name"].startswith("settings-")]
    assert [evidence["raw"] for finding in told for evidence in finding["evidence"]] == ["learning_rate"]


def test_a_batch_that_does_not_divide_is_told_though_no_environments_are(cli, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("n_steps: 2048\nbatch_size: 65\nn_epochs: 10\ngae_lambda: 0.95\n", encoding="utf-8")
    assert f"{path}:2: low" in cli("check-config", path).out


def test_a_clean_check_says_what_it_checked(cli, tmp_path):
    path, lines = written(tmp_path)
    outcome = cli("check-config", path)
    assert outcome.code == 0
    assert all(key in outcome.out for key in lines)
    report = analysed(cli, path)
    assert report["verdict"] == "inconclusive"
    assert all(any(key in note for note in report["run"]["notes"]) for key in lines)


def test_a_check_that_only_tells_what_is_so_is_clean(cli, tmp_path):
    """One pass in one minibatch is one update per batch: that accuses nothing."""
    path, lines = written(tmp_path, batch_size=2048, n_epochs=1)
    *told, last = cli("check-config", path).out.splitlines()
    assert told
    assert all(": info: " in line for line in told)
    assert "nothing impossible, pointless or unusual" in last
    assert all(key in last for key in lines)


def log(folder, **columns):
    records = [
        {"step": n, "approx_kl": 0.01, "clip_fraction": 0.1, "entropy": 1.2 - n / 100} | columns for n in range(30)
    ]
    path = folder / "run.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("where", ["named", "beside"])
def test_the_same_checks_hold_beside_a_log(cli, tmp_path, where):
    config = tmp_path / "config.json"
    config.write_text('{\n"ppo_epochs": 4,\n"learning_rate": -0.0003\n}', encoding="utf-8")
    given = [log(tmp_path), config] if where == "named" else [log(tmp_path)]
    report = analysed(cli, *given)
    assert report["verdict"] == "unhealthy"
    assert report["causes"][0]["id"] == "advantage-sign-flipped"
    (finding,) = [f for f in report["checks"] if f["name"] == "configured-rate-negative"]
    assert finding["evidence"][0]["source"] == f"{config}:3"


def test_a_log_that_shows_the_rate_overrules_the_configuration(cli, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"ppo_epochs": 4, "learning_rate": -0.0003}', encoding="utf-8")
    report = analysed(cli, log(tmp_path, learning_rate=3e-4), config)
    assert "advantage-sign-flipped" not in [cause["id"] for cause in report["causes"]]


@pytest.mark.parametrize("folder", [ROOT / "sample_logs", FOLDER], ids=["samples", "real"])
def test_no_configuration_that_somebody_trained_with_is_called_wrong(folder):
    """A run may be sick of other things; its settings are ones that a trainer took."""
    if not folder.is_dir():
        pytest.skip("real logs are not at hand")
    pack = load_pack()
    accusing = {rule.name for rule in pack.rules if {clause.quantity for clause in rule.when} & ACCUSING}
    names = ("*config*.json", "*args*.json", "*param*.json", "*.yaml", "*.yml", "*.toml")
    files = sorted({path for name in names for path in folder.rglob(name) if path.is_file()})
    judged, offenders = 0, []
    for path in files:
        try:
            checked = check_file(path, pack)
        except DoctorError:
            continue  # another file of that name, or one that is broken on purpose
        judged += len(checked.judged)
        offenders += [(path, f.rule) for f in checked.findings if f.status == "fired" and f.rule in accusing]
    assert judged > 100
    assert offenders == []
