"""Settings: found, flattened, stripped of secrets, named canonically, each with where it came from; and K from them."""

from __future__ import annotations

import json

import pytest

import ppo_doctor
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.run import SourceRef
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.config_files import read_config
from ppo_doctor.trainers.config_formats import parse_value
from ppo_doctor.trainers.configuration import (
    REDACTED,
    Found,
    canonical_settings,
    flatten,
    parse_setting,
    redact,
    redact_text,
)
from ppo_doctor.trainers.updates import configured_updates

# Pieces, so that nobody's scanner takes these for real.
SECRETS = {
    "HF_TOKEN": "hf_" + "A1b2C3d4E5f6G7h8I9j0",
    "api_key": "not-a-known-form",
    "wandb.api-key": "c" * 40,
    "note": "sk-" + "proj-abcdefghijklmnop",
    "database": "postgres://me:" + "hunter2@db/run",
    "cache": "redis://:" + "hunter3@cache:6379",
    "aws": "AKIA" + "ABCDEFGHIJKLMNOP",
    "git": "ghp_" + "a1B2" * 9,
    "slack": "xoxb-" + "123456789012-abcdef",
    "session": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0abcdef." + "signature",
    "client_secret": "s3cr3t-word",
    "DB_PASSWORD": "hunter4-word",
    "openaiApiKey": "camel-case-word",
    "Authorization": "Bearer abcdef-word",
}


@pytest.mark.parametrize(("key", "value"), SECRETS.items(), ids=SECRETS)
def test_secrets_are_redacted(key, value):
    assert redact(key, value) == REDACTED


@pytest.mark.parametrize("key", ["password", "db_password", "api_key"])
def test_a_secret_may_be_a_number(key):
    assert redact(key, 48151623) == REDACTED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 3e-4),
        ("max_tokens", 512),
        ("num_tokens", 10),
        ("model", "org/name-7b"),
        ("url", "https://host/x"),
        ("lr", "1e-5"),
    ],
)
def test_settings_are_not_redacted(key, value):
    assert redact(key, value) == value


def test_a_line_of_text_loses_its_secrets_only():
    line = f"loss 0.1 {SECRETS['HF_TOKEN']} kl 0.2"
    assert redact_text(line) == f"loss 0.1 {REDACTED} kl 0.2"


@pytest.fixture
def leaky(tmp_path, samples):
    """Return a run whose configuration is full of secrets, nested and flat."""
    log = tmp_path / "run.jsonl"
    log.write_bytes((samples / "sick" / "lr-zero.sb3" / "progress.csv").read_bytes())
    nested = {"env": SECRETS, "hub": {"token": {"value": "wrapped-" + "word"}}, "n_epochs": 4}
    (tmp_path / "config.json").write_text(json.dumps(SECRETS | nested), encoding="utf-8")
    return log


@pytest.mark.parametrize(
    "arguments", [["--format", "json"], ["--all", "--why"], ["--format", "json", "--set", "n_epochs=4"]]
)
def test_no_secret_reaches_a_report(cli, leaky, arguments):
    outcome = cli("analyze", leaky, *arguments)
    assert outcome.code == 0
    assert [word for word in [*SECRETS.values(), "wrapped-" + "word"] if word in outcome.out + outcome.err] == []


def test_no_secret_of_the_command_line_reaches_a_report(cli, samples):
    log = samples / "sick" / "lr-zero.canonical" / "run.jsonl"
    outcome = cli("analyze", log, "--set", f"hub_token={SECRETS['HF_TOKEN']}", "--format", "json")
    assert SECRETS["HF_TOKEN"] not in outcome.out


def test_no_secret_inside_a_log_reaches_a_report(cli, tmp_path):
    log = tmp_path / "run.jsonl"
    header = {"ppo_doctor": 1, "config": {"deep": SECRETS}}
    lines = [json.dumps(header), *(json.dumps({"step": k, "approx_kl": k / 100}) for k in range(1, 20))]
    log.write_text("\n".join([*lines, f"torn {{ {SECRETS['HF_TOKEN']}"]), encoding="utf-8")
    for arguments in (["--format", "json"], ["--all"]):
        outcome = cli("analyze", log, *arguments)
        assert [word for word in SECRETS.values() if word in outcome.out + outcome.err] == []


# Flat settings


def test_nested_settings_are_joined_by_dots():
    assert flatten({"a": {"b": {"c": 1}}, "d": None, "e": True}) == {"a.b.c": 1, "d": None, "e": True}


def test_wrappers_of_wandb_are_unwrapped():
    raw = {"lr": {"value": 0.1, "desc": None}, "_wandb": {"value": {"cli": "x"}}, "n": {"value": 4}}
    assert flatten(raw) == {"lr": 0.1, "_wandb.cli": "x", "n": 4}


@pytest.mark.parametrize("betas", [[0.9, 0.95], (0.9, 0.95), "(0.9, 0.95)", "[0.9, 0.95]"])
def test_adams_betas_are_two_settings(betas):
    flat = flatten({"optim": {"betas": betas, "milestones": [1, 2]}})
    assert (flat["optim.betas[0]"], flat["optim.betas[1]"]) == (0.9, 0.95)
    assert "optim.milestones[0]" not in flat


@pytest.mark.parametrize("betas", [[0.9], [0.9, 0.95, 0.99], ["a", "b"], [True, False], "0.9", 0.9, None])
def test_other_betas_are_none(betas):
    assert "betas[0]" not in flatten({"betas": betas})


def test_flat_settings_of_a_tutorials_script_are_torchrls():
    flat = {"num_epochs": 10, "mini_batch_size": 256, "frames_per_batch": 1024, "clip_epsilon": 0.3, "lr": 1e-4}
    settings = canonical_settings(detection.profile("torchrl"), [found(flat)])
    names = ("ppo_epochs", "minibatch_size", "rollout_size", "clip_range", "learning_rate")
    assert [settings[name].value for name in names] == [10, 256, 1024, 0.3, 1e-4]


@pytest.mark.parametrize(
    ("framework", "given", "told"),
    [
        ("verl", {"actor_rollout_ref.actor.optim.betas[1]": 0.95, "critic.optim.betas[1]": 0.5}, (1e-8, 0.9, 0.95)),
        ("trl-grpo", {"adam_epsilon": 1e-6}, (1e-6, 0.9, 0.999)),
        ("ms-swift", {}, (1e-8, 0.9, 0.95)),
        ("sb3", {"optimizer_kwargs.eps": 1e-8}, (1e-8, 0.9, 0.999)),
        ("cleanrl", {}, (1e-5, 0.9, 0.999)),
        ("openrlhf", {"adam_betas[1]": 0.98}, (1e-8, 0.9, 0.98)),
        ("canonical", {"optim.eps": 1e-7, "optim.betas[0]": 0.8, "optimizer.beta2": 0.7}, (1e-7, 0.8, 0.7)),
    ],
)
def test_adams_settings_are_known_by_the_frameworks_keys_and_defaults(framework, given, told):
    settings = canonical_settings(detection.profile(framework), [found(given)])
    assert tuple(settings[name].value for name in ("adam_eps", "adam_beta1", "adam_beta2")) == told


def test_a_setting_named_value_is_no_wrapper():
    assert flatten({"head": {"value": 1, "size": 2}}) == {"head.value": 1, "head.size": 2}


def test_endless_nesting_is_no_obstacle():
    deep = {}
    for _ in range(500):
        deep = {"x": deep}
    assert flatten(deep) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("-1", -1),
        ("3e-4", 3e-4),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("gspo", "gspo"),
        ("", ""),
    ],
)
def test_values_of_the_command_line(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_a_setting_of_the_command_line():
    assert parse_setting(" a.b = c=d ") == ("a.b", "c=d")


@pytest.mark.parametrize("text", ["ppo_epochs", "=4", "  =4", ""])
def test_a_setting_without_key_or_value_is_wrong_usage(text):
    with pytest.raises(DoctorError) as caught:
        parse_setting(text)
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("name", "text"), [("c.json", '{"a": {"b": 1}}'), ("c.toml", "[a]\nb = 1"), ("c.json", '\ufeff{"a": {"b": 1}}')]
)
def test_a_configuration_file_is_read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert dict(read_config(path).values) == {"a.b": 1}


@pytest.mark.parametrize("text", ["{", "[]", "3", '"x"', "[" * 100_000])
def test_what_is_no_configuration_is_wrong_usage_and_named(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DoctorError) as caught:
        read_config(path)
    assert caught.value.code == ExitCode.USAGE
    assert "broken.json" in caught.value.message


# Precedence


@pytest.fixture
def canonical():
    return detection.profile("canonical")


def found(values, how="configured", path="x"):
    return Found(values=values, source=SourceRef(path=path), how=how)


def test_the_first_origin_wins(canonical):
    settings = canonical_settings(
        canonical, [found({"ppo_epochs": 1}, path="first"), found({"ppo_epochs": 2, "gamma": 0.9}, path="second")]
    )
    assert (settings["ppo_epochs"].value, settings["ppo_epochs"].source.path) == (1, "first")
    assert settings["gamma"].value == 0.9


def test_a_setting_is_found_under_native_canonical_and_nested_names(canonical):
    for key in ("ppo_epochs", "n_epochs", "algo.train.n_epochs"):
        assert canonical_settings(canonical, [found({key: 7})])["ppo_epochs"].value == 7


def test_a_setting_of_the_critic_is_not_the_policys(canonical):
    settings = canonical_settings(canonical, [found({"actor.learning_rate": 1e-6, "critic.learning_rate": 1e-5})])
    assert settings["learning_rate"].value != 1e-5


def test_defaults_come_last_and_say_so():
    sb3 = detection.profile("sb3")
    settings = canonical_settings(sb3, [found({"n_epochs": 4})])
    assert (settings["ppo_epochs"].value, settings["ppo_epochs"].how) == (4, "configured")
    assert settings["minibatch_size"].how == "default"
    assert (settings["target_kl"].value, settings["target_kl"].how) == (None, "default")


def test_every_origin_of_a_run_in_order(tmp_path, cli):
    def epochs(*arguments):
        report = cli("analyze", log, *arguments, "--format", "json").json
        return report["run"]["updates_per_batch"]["configured"]

    log, beside, named = tmp_path / "run.jsonl", tmp_path / "config.json", tmp_path / "named" / "c.json"
    rows = "".join(f'{{"step": {k}, "approx_kl": 0.0{k}}}\n' for k in range(1, 10))
    log.write_text(rows, encoding="utf-8")
    assert epochs() is None
    beside.write_text('{"ppo_epochs": 2, "num_minibatches": 1}', encoding="utf-8")
    assert epochs() == 2
    log.write_text('{"ppo_doctor": 1, "config": {"ppo_epochs": 3}}\n' + rows, encoding="utf-8")
    assert epochs() == 3
    named.parent.mkdir()
    named.write_text('{"ppo_epochs": 5, "num_minibatches": 1}', encoding="utf-8")
    assert epochs("--config", named) == 5
    assert epochs("--config", named, "--set", "ppo_epochs=7") == 7


def test_settings_may_come_from_a_caller(samples):
    log = samples / "healthy" / "healthy.canonical" / "run.jsonl"
    run = ppo_doctor.load_run(log, settings={"ppo_epochs": 9})
    assert (run.config["ppo_epochs"].value, run.config["ppo_epochs"].how) == (9, "configured")


# K


@pytest.mark.parametrize(
    ("framework", "settings", "updates", "how"),
    [
        ("canonical", {"ppo_epochs": 4, "num_minibatches": 3}, 12, "configured"),
        ("canonical", {"ppo_epochs": 4, "rollout_size": 100, "minibatch_size": 30}, 16, "configured"),
        ("canonical", {"updates_per_batch": 5, "ppo_epochs": 4, "num_minibatches": 3}, 5, "configured"),
        ("canonical", {"ppo_epochs": 4}, None, None),
        ("canonical", {"ppo_epochs": True, "num_minibatches": 3}, None, None),
        ("canonical", {"ppo_epochs": 0, "num_minibatches": 3}, None, None),
        ("canonical", {"ppo_epochs": "four", "num_minibatches": 3}, None, None),
        ("canonical", {"ppo_epochs": 4, "rollout_size": 1e11, "minibatch_size": 1e-300}, None, None),
        ("sb3", {"n_epochs": 10, "n_steps": 2048, "n_envs": 1, "batch_size": 64}, 320, "configured"),
        ("sb3", {"n_epochs": 10, "n_steps": 100, "n_envs": 1, "batch_size": 64}, 20, "configured"),
        ("sb3", {"n_epochs": 2}, 64, "default"),
        (
            "trl-grpo",
            {"num_iterations": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 2},
            4,
            "configured",
        ),
        (
            "trl-grpo",
            {"num_iterations": 1, "steps_per_generation": 8, "gradient_accumulation_steps": 2},
            4,
            "configured",
        ),
        ("trl-grpo", {"num_iterations": 3}, 3, "configured"),
        ("trl-grpo", {}, 1, "default"),
        ("trl-ppo", {"num_ppo_epochs": 4, "num_mini_batches": 2}, 8, "configured"),
    ],
)
def test_updates_per_batch(framework, settings, updates, how):
    profile = detection.profile(framework)
    fact = configured_updates(profile, canonical_settings(profile, [found(settings)]))
    assert (fact.value if fact else None) == updates
    assert (fact.how if fact else None) == how


def test_a_configuration_beats_a_default_formula(canonical):
    fact = configured_updates(
        canonical, canonical_settings(canonical, [found({"ppo_epochs": 2, "num_minibatches": 8})])
    )
    assert fact.source.key
    assert {"ppo_epochs", "num_minibatches"} <= set(fact.source.key.replace(",", " ").split())


def test_the_target_in_a_section_about_the_kl_is_no_early_stop(canonical):
    settings = canonical_settings(canonical, [found({"alg.kl_div.target_kl": 6.0, "alg.args.target_kl": 0.02})])
    assert (settings["target_kl"].value, settings["ref_kl_target"].value) == (0.02, 6.0)


def test_a_key_means_something_beside_another(canonical):
    answers = canonical_settings(canonical, [found({"num_generations": 8, "beta": 0.04, "epsilon": 0.2, "mu": 4})])
    assert {name: answers[name].value for name in ("kl_coef", "clip_range", "ppo_epochs")} == {
        "kl_coef": 0.04, "clip_range": 0.2, "ppo_epochs": 4,
    }  # fmt: skip
    assert "ppo_epochs" in canonical_settings(canonical, [found({"n_mini_batch": 4, "epochs": 3})])
    alone = canonical_settings(canonical, [found({"beta": 0.04, "epsilon": 1e-8, "epochs": 100})])
    assert not {"kl_coef", "clip_range", "ppo_epochs"} & alone.keys()


def test_of_several_keys_that_are_set_alike_the_shortest_counts(canonical):
    keys = {"algo.update_iters": 8, "increments.algo.update_iters": 8}
    assert canonical_settings(canonical, [found(keys)])["ppo_epochs"].key == "algo.update_iters"
    assert "ppo_epochs" not in canonical_settings(canonical, [found(keys | {"increments.algo.update_iters": 9})])


def test_a_file_that_names_a_setting_as_we_do_is_told_what_the_framework_reads(tmp_path, cli, samples):
    log = (samples / "healthy/healthy.trl-grpo/trainer_state.json").read_text(encoding="utf-8")
    (tmp_path / "trainer_state.json").write_text(log, encoding="utf-8")
    (tmp_path / "config.json").write_text('{"kl_coef": 0.04, "num_generations": 8}', encoding="utf-8")
    notes = cli("analyze", tmp_path, "--format", "json").json["run"]["notes"]
    assert [note for note in notes if "has no kl_coef" in note and "beta" in note]
    assert not [note for note in notes if "has no learning_rate" in note]
