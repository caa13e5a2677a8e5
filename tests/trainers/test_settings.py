"""Settings outside their domains, and what the commands say of them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.engine import check
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_kind import WITHOUT_CRITIC
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.cli.check_config import check_file
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.evidence import says
from ppo_doctor.trainers import settings as domains
from ppo_doctor.trainers.detection import names_of_settings, profiles, samples_of
from ppo_doctor.trainers.names import setting_of
from ppo_doctor.trainers.packing import TRAITS
from ppo_doctor.trainers.settings import SETTINGS, nearest, one_slip

ROOT = Path(__file__).resolve().parent.parent.parent


# Read before conftest scrubs our variables from the environment.
FOLDER = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))


ACCUSING = {limit.counted_by for limit in domains.WRONG} | {"settings_misspelt"}


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


PROFILES = {name: profile for name, profile in profiles().items() if profile.ppo_family}


COUNTED = {limit.counted_by for limit in domains.WRONG} | {domains.UNUSUAL, domains.IMPOSSIBLE}


RULES = {
    rule.when[0].quantity: rule
    for rule in load_pack().rules
    if rule.when[0].quantity in {*COUNTED, "settings_misspelt"}
}


#: Keys of environments, loggers and scripts, as they stand beside settings of PPO.
OTHER_KEYS = (
    *("env_id", "env_name", "seed", "verbose", "device", "cuda", "policy", "track", "torch_deterministic", "exp_name"),
    *(
        "capture_video",
        "wandb_project_name",
        "wandb_entity",
        "tensorboard_log",
        "log_interval",
        "save_freq",
        "net_arch",
    ),
    *(
        "eval_freq",
        "n_eval_episodes",
        "save_steps",
        "output_dir",
        "run_name",
        "report_to",
        "use_sde",
        "sde_sample_freq",
    ),
    *("ortho_init", "log_std_init", "hidden_size", "num_layers", "weight_decay", "adam_beta1", "adam_epsilon", "bf16"),
    *("max_prompt_length", "model_name_or_path", "dataset_name", "num_workers", "project_name", "frame_stack", "stack"),
    *("trainer.nnodes", "trainer.n_gpus_per_node", "data.train_files", "data.max_prompt_length", "use_vllm", "tau"),
)


def fired(framework, config, quantities=None):
    """Return rule → what it says, for a configuration that is all there is."""
    run = case_run({"framework": framework, "config": config})
    found = [check(RunView(run), rule) for name, rule in RULES.items() if quantities is None or name in quantities]
    return {finding.rule: says(finding) for finding in found if finding.status == "fired"}


def beyond(limit):
    """Return a value that breaks a limit and no graver one."""
    far = {"below": limit.bound - 1, "above": limit.bound + 0.5}
    return float(far.get(limit.test, limit.bound))


def judged(profile, name):
    """Tell whether a framework has a setting that its method reads."""
    critic = profile.algorithm not in WITHOUT_CRITIC and profile.defaults.get("advantage_estimator", "gae") == "gae"
    return name in profile.config and (critic or name not in domains.OF_CRITICS)


def test_every_quantity_has_a_rule():
    assert set(RULES) == {*COUNTED, "settings_misspelt"}


def test_limits_name_settings_and_traits_that_exist():
    assert set(SETTINGS) >= domains.JUDGED
    assert {f"{limit.trait}?" for limit in domains.WRONG if limit.trait} <= set(TRAITS)


def test_every_limit_is_found_in_every_framework_under_its_own_name():
    offenders = []
    for name, profile in PROFILES.items():
        for limit in domains.WRONG:
            if not judged(profile, limit.setting) or not limit.applies_to(name):
                continue
            key = profile.config[limit.setting][0]
            told = fired(name, {key: beyond(limit)}, {limit.counted_by}).get(RULES[limit.counted_by].name, "")
            if key not in told or limit.why not in told:
                offenders.append((name, key, beyond(limit), told))
    assert offenders == []


def test_what_is_no_number_is_found_in_every_framework():
    offenders = []
    for name, profile in PROFILES.items():
        held = [setting for setting in domains.JUDGED if judged(profile, setting)]
        config = {profile.config[setting][0]: math.nan for setting in held}
        told = fired(name, config, {domains.IMPOSSIBLE}).get("settings-impossible", "")
        offenders += [(name, key) for key in config if key not in told]
    assert offenders == []


def test_what_is_unusual_is_told_with_the_default():
    offenders = []
    for name, profile in PROFILES.items():
        for setting, ranges in domains.USUAL.items():
            low, high = ranges.get(samples_of(name), (0.0, math.inf))
            for value in (low / 2, high * 2):
                limit = domains.broken_limit(setting, value, name, samples_of(name))
                if (
                    setting not in profile.config
                    or limit is None
                    or limit.grade != "unusual"
                    or not judged(profile, setting)
                ):
                    continue
                told = fired(name, {profile.config[setting][0]: value}, {domains.UNUSUAL}).get("settings-unusual", "")
                default = profile.defaults.get(setting)
                if not told or (isinstance(default, float) and f"{default:g}" not in told):
                    offenders.append((name, setting, value, told))
    assert offenders == []


@pytest.mark.parametrize(
    ("setting", "low", "high"),
    [("learning_rate", 1e-7, 0.1), ("gamma", 0.5, None), ("ppo_epochs", None, 200), ("ent_coef", -0.1, 1.0)],
)
def test_some_values_are_unusual_wherever_samples_are_steps(setting, low, high):
    for value in filter(None, (low, high)):
        assert domains.broken_limit(setting, value, "sb3", domains.EPISODES).grade == "unusual"


def test_what_is_usual_differs_by_the_kind_of_samples():
    assert domains.broken_limit("learning_rate", 1e-7, "sb3", domains.EPISODES)
    assert domains.broken_limit("learning_rate", 1e-7, "trl-ppo", domains.COMPLETIONS) is None
    assert domains.broken_limit("learning_rate", 0.01, "sb3", domains.EPISODES) is None
    assert domains.broken_limit("learning_rate", 0.01, "trl-ppo", domains.COMPLETIONS)
    for value in (1e-7, 0.01):  # of our own names either may be meant
        assert domains.broken_limit("learning_rate", value, "canonical", "") is None


def test_documented_defaults_are_clean():
    offenders = {}
    for name, profile in PROFILES.items():
        config = {
            profile.config[setting][0]: value
            for setting, value in profile.defaults.items()
            if setting in profile.config
        }
        if told := fired(name, config):
            offenders[name] = told
    assert offenders == {}


@pytest.mark.parametrize(
    "value", ["linear", "lin_3e-4", "constant", "auto", "${train.lr}", "schedule:0.1", True, False, None]
)
def test_what_is_no_number_is_never_called_wrong(value):
    offenders = {}
    for name, profile in PROFILES.items():
        config = {profile.config[setting][0]: value for setting in domains.JUDGED & profile.config.keys()}
        if told := fired(name, config):
            offenders[name] = told
    assert offenders == {}


@pytest.mark.parametrize(
    ("framework", "config"),
    [
        ("tianshou", {"batch_size": -1, "repeat_per_collect": 4}),
        ("rl-games", {"params.config.num_actors": -1, "params.config.gamma": 0.99}),
        ("sample-factory", {"max_grad_norm": 0.0, "num_epochs": 1}),
        ("verl", {"actor_rollout_ref.rollout.n": 1, "data.train_batch_size": 64}),
        ("verl", {"actor_rollout_ref.rollout.temperature": 1.0, "actor_rollout_ref.rollout.val_kwargs.temperature": 0}),
        ("trl-grpo", {"epsilon": 3e-4, "importance_sampling_level": "sequence", "max_steps": -1}),
        ("sb3", {"gae_lambda": 1.0, "gamma": 1, "ent_coef": 0, "target_kl": None, "clip_range_vf": None}),
        ("sb3", {"max_grad_norm": math.inf, "n_steps": 5, "batch_size": 40, "n_envs": 8}),
        ("trl-grpo", {"vf_coef": 0.0, "num_generations": 8}),
        ("verl", {"critic.optim.lr": 0, "algorithm.adv_estimator": "grpo", "data.train_batch_size": 64}),
        ("openrlhf", {"critic_learning_rate": 0, "advantage_estimator": "reinforce", "eps_clip": 0.2}),
    ],
)
def test_legal_values_are_not_called_wrong(framework, config):
    assert fired(framework, config) == {}


def test_a_log_that_shows_another_value_overrules_the_configuration():
    case = {"framework": "sb3", "config": {"clip_range": 0}}
    shown = case_run(case | {"series": {"clip_range": "0.2x9"}})
    alike = case_run(case | {"series": {"clip_range": "0x9"}})
    without = case_run(case | {"series": {"approx_kl": "0.01x9"}})
    statuses = [check(RunView(run), RULES[domains.CLIP_CLOSED]).status for run in (shown, alike, without)]
    assert statuses == ["skipped", "fired", "fired"]


# Relations


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({"n_steps": 2048, "n_envs": 1, "batch_size": 4096}, {"settings-unusual"}),
        ({"n_steps": 2048, "n_envs": 2, "batch_size": 4096}, set()),
        ({"n_steps": 2048, "batch_size": 65}, {"settings-unusual"}),
        ({"batch_size": 4096}, {"settings-unusual"}),
        ({"n_steps": 2048, "batch_size": 256}, set()),
        ({"n_steps": 100, "batch_size": 40}, set()),
    ],
)
def test_a_minibatch_is_held_against_the_rollout(config, rules):
    assert set(fired("sb3", config)) == rules


# Names


def slips_of(name):
    return name[:1] + name[2:], name[:-2] + name[-1] + name[-2], name[:2] + "x" + name[2:]


def test_a_slip_in_the_name_of_a_setting_is_told_in_every_framework_that_is_known():
    offenders = []
    for name, profile in PROFILES.items():
        for setting, keys in profile.config.items() if name != "canonical" else ():
            before, dot, tail = keys[0].rpartition(".")
            for slip in slips_of(tail) if len(tail) > 5 else ():
                if slip in {*names_of_settings(), *SETTINGS} or slip == tail or setting_of(slip) == setting:
                    continue  # a name of its own, or one that is read by its meaning all the same
                told = fired(name, {before + dot + slip: 1}, {"settings_misspelt"}).get("settings-misspelt", "")
                if not told:
                    offenders.append((name, setting, slip))
    assert offenders == []


def test_how_a_trainer_that_nobody_knows_spells_its_settings_nobody_knows():
    assert not fired("canonical", {"learning_rat": 1, "ppo_epochz": 1}, {"settings_misspelt"})


def test_keys_of_other_things_are_no_slips():
    offenders = {}
    for name in PROFILES:
        if told := fired(name, dict.fromkeys(OTHER_KEYS, 1), {"settings_misspelt"}):
            offenders[name] = told
    assert offenders == {}


def test_a_slip_beside_the_setting_itself_is_none():
    assert not fired("sb3", {"clip_rnge": 0.2, "clip_range": 0.2}, {"settings_misspelt"})


def test_each_slip_stands_at_its_own_place_with_the_default_in_force():
    told = fired("sb3", {"clip_rnge": 0.1, "gae_lamda": 0.9}, {"settings_misspelt"})["settings-misspelt"]
    assert all(word in told for word in ("clip_rnge", "clip_range", "0.2", "gae_lamda", "gae_lambda", "0.95"))


@pytest.mark.parametrize(
    ("name", "other", "one"),
    [
        ("clip_rnge", "clip_range", True),
        ("clip_rangee", "clip_range", True),
        ("clip_rnage", "clip_range", True),
        ("clip_rangd", "clip_range", True),
        ("clip_range", "clip_range", False),
        ("clip_range_vf", "clip_range", False),
        ("kl_coef", "vf_coef", False),
    ],
)
def test_one_slip(name, other, one):
    assert one_slip(name, other) is one
    assert one_slip(other, name) is one


def test_names_that_differ_in_digits_or_are_short_are_not_near():
    assert nearest("hidden1", ["hidden2"]) is None
    assert nearest("lrr", ["lr"]) is None
    assert nearest("min_steps", ["max_steps"]) is None
    assert nearest("lerning_raet", ["learning_rate", "gamma"]) is None
    assert nearest("learnin_rates", ["learning_rate"]) == "learning_rate"
    assert nearest("gama", ["gamma", "lambd"]) == "gamma"
    assert nearest("type", ["dtype"]) is None
