"""Profiles: what the TOML files say, and each written and read back."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.toml_files import parse_folder, parse_toml, toml_files
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.packing import COMPONENTS
from ppo_doctor.trainers.settings import SETTINGS

from .dialects import WILD, canonical_values, native_key, read_back, written

PROFILES = detection.profiles()


PPO = sorted(name for name, profile in PROFILES.items() if profile.ppo_family)


MINIMAL: dict[str, Any] = {
    "name": "mine",
    "title": "Mine",
    "algorithm": "ppo",
    "sources": ["mine.py"],
    "traps": ["the loss is a sum (mine.py)"],
    "fingerprint": {"any": [["mine/loss"]]},
    "traits": {"samples": "episodes"},
    "axis": {"step": ["step"]},
    "metrics": {"policy_loss": {"keys": ["mine/loss"]}},
    "config": {"ppo_epochs": ["epochs"]},
    "updates": [{"function": "direct", "arguments": {"updates": "ppo_epochs"}}],
}


def built(**changes: Any) -> dict[str, Any]:
    raw = deepcopy(MINIMAL)
    raw.update(changes)
    return detection.build({"mine.toml": raw})["profiles"][0]


@pytest.mark.parametrize("path", toml_files(detection.FOLDER), ids=lambda path: path.stem)
def test_every_file_loads(path: Any) -> None:
    raw = parse_toml(path)
    assert raw["name"] in PROFILES
    assert PROFILES[raw["name"]].title == raw["title"]


def test_the_whole_folder_builds() -> None:
    assert len(parse_folder(detection.FOLDER, detection.build)["profiles"]) == len(PROFILES)


def test_the_least_profile_builds() -> None:
    assert built()["name"] == "mine"


BAD = (
    ({"metrics": {"policy_lose": {"keys": ["a"]}}}, "policy_lose"),
    ({"metrics": {"policy_loss": {"keys": ["a"], "scael": 2}}}, "scael"),
    ({"metrics": {"policy_loss": {"keys": []}}}, "'keys' is empty"),
    ({"metrics": {"policy_loss": {"keys": "a"}}}, "keys: expected a list"),
    ({"metrics": {"policy_loss": {"keys": ["a"], "scale": 0}}}, "scale of 0"),
    ({"metrics": {"approx_kl": {"keys": ["a"], "estimator": "k4"}}}, "k4"),
    ({"metrics": {"approx_kl": {"keys": ["a"], "aggregation": "some"}}}, "some"),
    ({"metrics": {"approx_kl": {"keys": ["a"], "reference": "nobody"}}}, "nobody"),
    ({"metrics": {"approx_kl": {"keys": ["a"], "constant_when": {"use_kl": False}}}}, "use_kl"),
    ({"config": {"epoch_count": ["epochs"]}}, "epoch_count"),
    ({"defaults": {"epoch_count": 1}}, "epoch_count"),
    ({"unset": ["epoch_count"]}, "epoch_count"),
    ({"unset": [1]}, "unset '1'"),
    ({"updates": [{"function": "guess", "arguments": {}}]}, "guess"),
    ({"updates": [{"function": "direct", "arguments": {"k": "ppo_epochs"}}]}, "takes updates"),
    ({"updates": [{"function": "direct", "arguments": {"updates": "epochs"}}]}, "epochs"),
    ({"facts": {"fun_fact": 1}}, "fun_fact"),
    ({"facts": {"generation_marker": "stepz"}}, "stepz"),
    ({"axis": {"time": ["t"]}}, "time"),
    ({"colour": "red"}, "colour"),
    ({"fingerprint": {"any": []}}, "needs 'any'"),
    ({"fingerprint": {"any": [["a"]], "all": []}}, "all"),
    ({"extends": "nobody"}, "'nobody', which does not exist"),
    ({"versions": [{"name": "1", "any": [["a"]], "colour": 1}]}, "colour"),
    ({"versions": [{"name": "1", "any": [["a"]], "metrics": {"nope": {"keys": ["a"]}}}]}, "nope"),
)


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[f"{index}" for index in range(len(BAD))])
def test_what_does_not_exist_is_an_error_with_the_file(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DoctorError) as caught:
        built(**changes)
    assert "trainers/mine.toml" in caught.value.message
    assert message in caught.value.message
    assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize("missing", ["name", "title", "algorithm", "fingerprint"])
def test_what_must_be_there(missing: str) -> None:
    raw = {key: value for key, value in MINIMAL.items() if key != missing}
    with pytest.raises(DoctorError, match=missing):
        detection.build({"mine.toml": raw})


def test_two_files_of_one_name() -> None:
    with pytest.raises(DoctorError, match="is taken"):
        detection.build({"a.toml": MINIMAL, "b.toml": MINIMAL})


def test_no_such_framework() -> None:
    with pytest.raises(DoctorError) as caught:
        detection.profile("tensorfaux")
    assert caught.value.code is ExitCode.USAGE
    assert "verl" in caught.value.hint


def test_prefixes_and_tags_are_spelled_out() -> None:
    raw = built(prefixes=["", "train/"], tags=True, metrics={"policy_loss": {"keys": ["a b"]}})
    assert raw["metrics"]["policy_loss"]["keys"] == ["a b", "train/a b", "a_b", "train/a_b"]


def test_an_heir_inherits_and_overrides() -> None:
    heir = {
        "name": "heir",
        "title": "Heir",
        "algorithm": "grpo",
        "extends": "mine",
        "fingerprint": {"any": [["heir"]]},
        "metrics": {"policy_loss": {"scale": -1.0}},
        "traps": ["x (a.py)"],
    }
    base = {**MINIMAL, "traps": ["y (b.py)"], "import_names": ["mine"]}
    pack = detection.build({"mine.toml": base, "heir.toml": heir})
    child = next(raw for raw in pack["profiles"] if raw["name"] == "heir")
    assert child["metrics"]["policy_loss"] == {"keys": ["mine/loss"], "scale": -1.0}
    assert child["traps"] == ["y (b.py)", "x (a.py)"]
    assert child["config"] == MINIMAL["config"]
    assert "import_names" not in child
    assert child["fingerprint"]["any"] == [["heir"]]


#: What a profile lacks → what the error says to write.
LACKING = (
    ({"sources": []}, "missing sources", "sources = "),
    ({"traps": []}, "'traps' needs", "traps = "),
    ({"traps": ["kl is k1"]}, "ends in a file", "(pkg/ppo.py)"),
    ({"axis": {}}, "[axis] needs 'step'", "step = "),
    ({"traits": {}}, "[traits] needs 'samples'", 'samples = "episodes"'),
    ({"updates": []}, "missing updates", "[[updates]]"),
    ({"config": {}}, "'ppo_epochs' is not in [config]", "ppo_epochs = "),
    ({"metrics": {"approx_kl": {"keys": ["kl"]}}}, "approx_kl needs 'estimator'", "k3"),
    ({"metrics": {"approx_kl": {"keys": ["kl"], "estimator": "k3"}}}, "approx_kl needs 'reference'", "old policy"),
    ({"metrics": {"ref_kl": {"keys": ["kl"]}}}, "ref_kl needs 'reference'", "reference model"),
    ({"metrics": {"clip_fraction": {"keys": ["c"]}}}, "clip_fraction needs 'estimator'", "both sides"),
)


@pytest.mark.parametrize(("changes", "message", "hint"), LACKING, ids=[row[1] for row in LACKING])
def test_a_profile_that_lacks_something_is_told_what_to_write(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(DoctorError) as caught:
        built(**changes)
    assert caught.value.message.startswith("trainers/mine.toml: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_names_that_are_of_no_trainer_need_no_settings() -> None:
    assert built(is_trainer=False, updates=[], traits={})["name"] == "mine"


@pytest.mark.parametrize("name", PPO)
def test_a_native_setting_is_not_taken_for_another(name: str) -> None:
    """A configuration is also searched by the last part of its keys, and for canonical names."""
    profile = PROFILES[name]
    wanted = {*profile.config, *profile.defaults, *profile.unset}
    for setting, keys in profile.config.items():
        for key in keys:
            tail = key.rpartition(".")[2]
            if tail in wanted - {setting}:
                assert key in profile.config.get(tail, ()) or tail in profile.config.get(tail, ()), (key, tail)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_no_key_stands_for_two_metrics_by_accident_and_all_are_kept(name: str) -> None:
    meant_twice = {
        "env_steps",
        "iteration",
        "optimizer_steps_total",
        "reward_group_std",
        "values_std",
        "episode_length",
    }
    owners: dict[str, set[str]] = {}
    for metric in PROFILES[name].metrics.values():
        for key in metric.keys:
            owners.setdefault(key, set()).add(metric.name)
    assert not {key: held for key, held in owners.items() if len(held - meant_twice) > 1}
    profile = PROFILES[name]
    named = {key for metric in profile.metrics.values() for key in metric.keys}
    named |= {key for keys in profile.axis.values() for key in keys}
    plain = frozenset(key.replace("*", "x") for key in named)
    assert detection.meaningful(plain | {"extra/number_1"}) == plain


def test_canonical_names_stand_for_themselves() -> None:
    canonical = PROFILES["canonical"]
    assert set(canonical.metrics) | COMPONENTS == set(METRICS)  # parts of a reward go by names of their own
    assert all(metric.keys[0] == name for name, metric in canonical.metrics.items())
    assert set(SETTINGS) <= set(canonical.config)


ESTIMATORS = (
    ("verl", "approx_kl", "k1", 1.0),
    ("openrlhf", "approx_kl", "k1", 1.0),
    ("slime", "approx_kl", "k1", 1.0),
    ("areal", "approx_kl", "k1", -1.0),
    ("areal", "rollout_kl", "k1", -1.0),
    ("roll", "approx_kl_k1", "k1", -1.0),
    ("roll", "approx_kl", "k2", 1.0),
    ("trl-ppo-legacy", "approx_kl_k1", "k1", 1.0),
    ("trl-ppo-legacy", "approx_kl", "k2", 1.0),
    ("trl-ppo", "approx_kl", "k2", 1.0),
    ("torchtune", "approx_kl", "k2", 1.0),
    ("trlx", "approx_kl", "k3", 1.0),
    ("minimind", "approx_kl", "k2", 1.0),
    ("trl-grpo", "ref_kl", "k3", 1.0),
    ("trl-rloo", "ref_kl", "k1", 1.0),
    ("sb3", "approx_kl", "k3", 1.0),
    ("cleanrl", "approx_kl", "k3", 1.0),
    ("cleanrl", "approx_kl_k1", "k1", 1.0),
    ("pufferlib", "approx_kl", "k3", 1.0),
    ("rllib-old", "approx_kl", "exact", 1.0),
    ("rllib", "approx_kl", "exact", 1.0),
    ("rl-games", "approx_kl", "exact", 1.0),
    ("sample-factory", "approx_kl", "exact", 1.0),
    ("brax", "approx_kl", "exact", 1.0),
    ("torchrl", "approx_kl", "k1", 1.0),
    ("spinningup", "approx_kl", "k1", 1.0),
    ("baselines-ppo2", "approx_kl", "k2", 1.0),
    ("stable-baselines", "approx_kl", "k2", 1.0),
    ("baselines-ppo1", "approx_kl", "exact", 1.0),
    ("sb3", "entropy", None, -1.0),
    ("skrl", "entropy_loss", None, 1.0),
    ("brax", "entropy_loss", None, 1.0),
    ("rsl-rl", "entropy", None, 1.0),
    ("prime-rl", "mfu", None, 0.01),
)


@pytest.mark.parametrize(("name", "metric", "estimator", "scale"), ESTIMATORS)
def test_estimators_and_signs(name: str, metric: str, estimator: str | None, scale: float) -> None:
    found = PROFILES[name].metrics[metric]
    assert (found.estimator, found.scale) == (estimator, scale)


@pytest.mark.parametrize("name", ["ml-agents", "rsl-rl", "skrl", "tianshou", "trl-grpo", "nemo-rl", "nemo-aligner"])
def test_frameworks_that_log_no_kl_to_the_old_policy(name: str) -> None:
    assert not {"approx_kl", "approx_kl_k1"} & set(PROFILES[name].metrics)


@pytest.mark.parametrize("name", ["deepspeed-chat", "open-instruct", "prime-rl"])
def test_language_frameworks_that_log_no_kl_to_the_old_policy(name: str) -> None:
    assert "approx_kl" not in PROFILES[name].metrics


def test_means_over_padding_are_marked() -> None:
    marked = {(name, metric.name) for name, p in PROFILES.items() for metric in p.metrics.values() if metric.diluted}
    assert {
        ("trl-ppo", "approx_kl"),
        ("trl-ppo", "ratio_mean"),
        ("trlx", "approx_kl"),
        ("torchtune", "approx_kl"),
    } <= marked
    assert not any(metric == "clip_fraction" for _, metric in marked)


def test_gradient_norms_after_clipping_are_marked() -> None:
    clipped = {name for name, p in PROFILES.items() if p.facts.get("grad_norm_after_clipping")}
    assert clipped == {"rllib-old", "sample-factory"}
    for name in clipped:
        assert PROFILES[name].metrics["grad_norm"].aggregation == "after clipping"


def test_value_losses_keep_their_factors() -> None:
    assert all(p.metrics["value_loss"].scale == 1.0 for p in PROFILES.values() if "value_loss" in p.metrics)


def test_no_path_of_a_machine_is_shipped() -> None:
    for path in detection.FOLDER.rglob("*.toml"):
        assert not re.search(r"/(home|work|tmp|Users)/", path.read_text(encoding="utf-8")), path


PPO_NAMES = sorted(name for name, profile in detection.profiles().items() if profile.ppo_family)


@pytest.mark.parametrize("name", PPO_NAMES)
def test_values_come_back(name: str) -> None:
    profile = detection.profile(name)
    values = canonical_values(profile)
    series = read_back(profile, written(profile, values))
    assert set(series) == set(values)
    for metric, expected in values.items():
        np.testing.assert_allclose(series[metric].values, expected, rtol=1e-12, err_msg=metric)
        assert series[metric].name == metric


@pytest.mark.parametrize("name", PPO_NAMES)
def test_what_kind_of_estimate_comes_back(name: str) -> None:
    profile = detection.profile(name)
    table = written(profile, canonical_values(profile))
    for metric, series in read_back(profile, table).items():
        known = profile.resolved(table.columns).metrics[metric]
        assert (series.estimator, series.aggregation, series.reference) == (
            known.estimator,
            known.aggregation,
            known.reference,
        )


@pytest.mark.parametrize("name", PPO_NAMES)
def test_steps_come_back(name: str) -> None:
    profile = detection.profile(name)
    series = read_back(profile, written(profile, canonical_values(profile)))
    for found in series.values():
        assert found.axis.steps.tolist() == [10 * (index + 1) for index in range(len(found))]


def test_signs_are_turned() -> None:
    for name, metric in (("sb3", "entropy"), ("areal", "approx_kl"), ("roll", "approx_kl_k1")):
        profile = detection.profile(name)
        values = {metric: np.linspace(0.1, 0.9, 24)}
        table = written(profile, values)
        assert (table.columns[native_key(profile.metrics[metric])] < 0).all()
        assert (read_back(profile, table)[metric].values > 0).all()


def test_a_pattern_is_filled() -> None:
    profile = detection.profile("ml-agents")
    key = f"Policy/{WILD} Value Estimate"
    table = written(profile, {"policy_loss": np.ones(24)})
    table.columns[key] = np.full(24, 2.0)  # type: ignore[index]
    assert read_back(profile, table)["values_mean"].raw == key
