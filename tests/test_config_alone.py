"""A configuration without any log: every format, its lines, the framework, what is found, and what is not claimed."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from ppo_doctor.checks.cases import read_cases
from ppo_doctor.checks.engine import check
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose, runs_of
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.request import Request
from ppo_doctor.model.words import Severity
from ppo_doctor.runs.config_runs import run_of_settings
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.layouts import RunSource
from ppo_doctor.trainers.config_formats import parse
from ppo_doctor.trainers.detection import likeliest, profiles

ROOT = Path(__file__).resolve().parent.parent
# Read before conftest scrubs our variables from the environment.
FOLDER = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))

NESTED_YAML = """\
# a comment
actor_rollout_ref:
  actor:
    ppo_epochs: 2
    ppo_mini_batch_size: 256
    clip_ratio: 0.1
    clip_ratio_low: 0.2
    clip_ratio_high: ${actor_rollout_ref.actor.clip_ratio_low}
data: {train_batch_size: 1024}
"""
SHELL = """\
#!/bin/bash
clip=0.1
python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=1024 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_epochs=2 \\
    actor_rollout_ref.actor.clip_ratio=${clip} \\
    actor_rollout_ref.actor.clip_ratio_low=0.2 $@
"""
NAMESPACE = (
    "Namespace(exp_name='ppo', seed=1, track=False, env_id='CartPole-v1',\n  num_envs=4, num_steps=128, clip_coef=0.2,"
    " num_minibatches=4, update_epochs=4, norm_adv=True, target_kl=None)\n"
)
DATACLASS = """\
GRPOConfig(
adam_beta1=0.9,
beta=-0.04,
epsilon=0.2,
lr_scheduler_type=SchedulerType.COSINE,
num_generations=8,
num_iterations=2,
model_init_kwargs={'dtype': 'float32', 'k': (1, 2)},
steps_per_generation=None,
)
"""


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def run_of(path: Path, **request: object):
    (source,), missing = gather([str(path)])
    assert not missing
    return runs_of(source, Request(**request))[0]


def fired(path: Path) -> dict[str, str]:
    """Return rule → place, for what a configuration shows."""
    found = diagnose(run_of(path), load_pack())
    return {f.rule: str(f.evidence[0].source) for f in found.findings if f.status == "fired"}


# Lines


@pytest.mark.parametrize(
    ("suffix", "text", "key", "value", "line"),
    [
        (".yaml", NESTED_YAML, "actor_rollout_ref.actor.clip_ratio", 0.1, 6),
        (".yaml", NESTED_YAML, "data.train_batch_size", 1024, 9),
        (".yaml", "!!python/object/apply:c.OrderedDict\n- - [n_steps, 32]\n  - [gamma, 0.9]\n", "gamma", 0.9, 3),
        (".json", '{"a": {"b": [\n{"x": 1}], "c": 2},\n "d": "x: {\\"e\\": 1}",\n "f": 3}', "f", 3, 4),
        (".json", '{"a": {"b": [\n{"x": 1}], "c": 2},\n "d": 3}', "a.c", 2, 2),
        (".toml", 'a = 1\n[train]\nlr = 1e-3\ntext = """\nlr = 5\n"""\nn.k = 2\n', "train.n.k", 2, 7),
        (".txt", NAMESPACE, "num_minibatches", 4, 2),
        (".txt", DATACLASS, "num_iterations", 2, 7),
        (".sh", SHELL, "actor_rollout_ref.actor.clip_ratio", 0.1, 7),
        (".sh", "deepspeed --module x \\\n  --eps_clip 0.2 --value-clip=0.5 \\\n  --flag\n", "value_clip", 0.5, 2),
        (".log", "  clip_grad ....... 1.0\n  eps_clip ........ 0.2\n", "eps_clip", 0.2, 2),
        ("", "learning_rate: 3e-4\nn_epochs = 10\n", "n_epochs", 10, 2),
        (".log", "start\n{'actor': {'lr': 1e-6,\n 'clip': 0.2}}\n", "actor.clip", 0.2, 3),
    ],
)
def test_every_format_keeps_values_and_lines(suffix, text, key, value, line):
    from ppo_doctor.trainers.configuration import flatten

    written = parse(suffix, text)
    assert (flatten(written.values)[key], written.lines[key]) == (value, line)


@pytest.mark.parametrize("text", ["", "[1, 2]", "just words\nand more of them\n", "{" * 2000, "a: &a [*a]"])
def test_what_is_no_table_of_settings_is_refused(text):
    for suffix in (".yaml", ".json", ".toml", ".txt"):
        try:
            values = parse(suffix, text).values
        except ValueError:
            continue
        assert set(values) <= {"a"}  # an empty table in TOML, and one list in YAML


def test_references_that_unfold_without_end_are_refused(tmp_path):
    layers = ["a0: &a0 {x: 1, y: 2}"]
    layers += [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(30))}}}" for n in range(1, 8)]
    with pytest.raises(DoctorError, match="settings"):
        run_of(put(tmp_path, "bomb.yaml", "\n".join(layers)))


def test_references_between_settings_are_followed(tmp_path):
    run = run_of(put(tmp_path, "config.yaml", NESTED_YAML))
    assert run.config["clip_range_high"].value == 0.2


# Which framework


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        ("n_epochs n_steps batch_size gae_lambda", "sb3"),
        ("update_epochs clip_coef num_minibatches norm_adv", "cleanrl"),
        ("num_generations num_iterations beta epsilon max_completion_length", "trl-grpo"),
        ("num_ppo_epochs cliprange kl_estimator", "trl-ppo"),
        ("actor_rollout_ref.actor.ppo_epochs data.train_batch_size", "verl"),
        ("eps_clip n_samples_per_prompt actor_learning_rate init_kl_coef", "openrlhf"),
        ("actor.eps_clip rollout.n_samples_per_prompt train.max_epochs", "openrlhf"),
        ("grpo.num_prompts_per_step loss_fn.ratio_clip_min", "nemo-rl"),
        ("pg_clip actor_train.training_args.learning_rate num_return_sequences_in_group", "roll"),
        ("clip_param sgd_minibatch_size kl_coeff num_sgd_iter", "rllib"),
        ("pi_lr clip_ratio train_pi_iters steps_per_epoch", "spinningup"),
        ("colour shape gamma", None),
        ("learning_rate gamma", None),
    ],
)
def test_names_of_settings_show_the_framework(keys, framework):
    assert likeliest(keys.split(), profiles()).name == framework


def test_an_unknown_framework_is_told(tmp_path):
    run = run_of(put(tmp_path, "config.yaml", "clip_eps: 0.2\nppo_epochs: 4\nnum_minibatches: 8\n"))
    assert run.framework == "canonical"
    assert any("no framework" in str(note) for note in run.notes)
    assert run.facts["updates_configured"].value == 32


# Findings, each at its line


FOUND = [
    ("config.yaml", NESTED_YAML, "clip-range-overruled", 6),
    ("train.sh", SHELL, "clip-range-overruled", 7),
    ("args.txt", DATACLASS, "kl-coefficient-negative", 3),
    ("config.toml", "num_steps = 129\nnum_envs = 1\nnum_minibatches = 4\nclip_coef = 0.2", "last-minibatch-of-one", 3),
    ("a.json", '{"n_steps": 1000,\n"n_envs": 1,\n"batch_size": 64, "n_epochs": 4}', "settings-unusual", 3),
    ("training_args.json", '{"num_generations": 8, "num_iterations": 1,\n"warmup_steps": 500, "max_steps": 100}',
     "warm-up-fills-the-run", 2),
    ("c.yml", "n_epochs: 4\nn_steps: 128\nn_envs: 4\nbatch_size: 1\n", "minibatch-of-one-sample", 4),
    ("c.yml", "n_epochs: 4\nclip_range: 0.2\ntarget_kl: 0.0001\n", "target-kl-below-any-step", 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "rule", "line"), FOUND)
def test_what_a_configuration_shows_points_at_its_line(tmp_path, name, text, rule, line):
    path = put(tmp_path, name, text)
    assert fired(path)[rule] == f"{path}:{line}"


ALONE = [
    (rule, case)
    for rule in load_pack().rules
    if rule.code.startswith("CFG2")
    for case in read_cases(rule)
    if case["status"] == "fired" and not case["series"]
]


@pytest.mark.parametrize(("rule", "case"), ALONE, ids=[f"{rule.name}/{case['name']}" for rule, case in ALONE])
def test_every_rule_on_configurations_points_at_the_line_of_its_key(tmp_path, rule, case):
    path = put(tmp_path, "config.json", json.dumps(case["config"] | {"ppo_epochs_": 1}, indent=0))
    run = run_of_settings(path, Request(configs=(path,), framework=case.get("framework", "canonical")))
    finding = check(RunView(run), rule)
    assert finding.status == "fired"
    source = finding.evidence[0].source
    assert source.key in path.read_text(encoding="utf-8").splitlines()[source.line - 1]


def test_an_overruled_clip_range_is_an_established_cause(cli, tmp_path):
    outcome = cli("analyze", put(tmp_path, "config.yaml", NESTED_YAML), "--format", "json", "--fail-on", "high")
    cause = outcome.json["causes"][0]
    assert (cause["id"], cause["confidence"], outcome.code) == ("dead-hyperparameter", "established", 1)
    assert cause["do"][0]["say"]


# What is not claimed


QUIET = "n_epochs: 10\nn_steps: 2048\nn_envs: 1\nbatch_size: 64\ngamma: 0.99\nclip_range: 0.2\n"


def test_nothing_found_is_not_health(cli, validate, tmp_path):
    path = put(tmp_path, "config.yml", QUIET)
    outcome = cli("analyze", path, "--format", "json")
    report = outcome.json
    validate(report)
    assert (outcome.code, report["verdict"], report["causes"]) == (0, "inconclusive", [])
    assert report["run"]["updates_per_batch"]["effective"] == 320
    assert not any(report["coverage"][question] for question in ("movement", "signal", "numerics"))
    assert cli("analyze", path, "--fail-on", "high").code == ExitCode.INCONCLUSIVE


def test_checks_of_a_log_are_skipped_for_want_of_one(tmp_path):
    found = diagnose(run_of(put(tmp_path, "config.yml", QUIET)), load_pack())
    pack = {rule.name: rule for rule in load_pack().rules}
    of_logs = [f for f in found.findings if any(need in METRICS for need in pack[f.rule].needs)]
    assert len(of_logs) > 40
    assert {f.status for f in of_logs} == {"skipped"}
    reasons = {f.reason for f in of_logs if not f.reason.startswith("not for ")}
    assert reasons == {"needs a log, and only a configuration was given"}


@pytest.mark.parametrize("form", ["text", "markdown", "html", "sarif", "junit", "github", "json"])
def test_every_report_takes_a_configuration(cli, tmp_path, form):
    for name, text in (("quiet.yml", QUIET), ("bad.yaml", NESTED_YAML)):
        outcome = cli("analyze", put(tmp_path, name, text), "--format", form)
        assert outcome.code == 0
        assert "0 records" not in outcome.out
        if form == "sarif" and name == "bad.yaml":
            (result,) = [r for r in json.loads(outcome.out)["runs"][0]["results"] if r["ruleId"] == "CFG201"]
            assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 6}


def test_what_k_means_is_said_before_training(cli, tmp_path):
    one = put(tmp_path, "one.yaml", "num_generations: 8\nnum_iterations: 1\nepsilon: 0.2\n")
    many = put(tmp_path, "many.yaml", "num_generations: 8\nnum_iterations: 4\nepsilon: 0.2\n")
    assert (
        "K = 1: one batch serves one optimizer step" in cli("analyze", one, "--format", "json").json["run"]["notes"][1]
    )
    notes = " ".join(cli("analyze", many, "--format", "json").json["run"]["notes"])
    assert "K = 4" in notes
    assert "many.yaml:2" in notes


def test_settings_given_beside_it_count(cli, tmp_path):
    path = put(tmp_path, "one.yaml", "num_generations: 8\nepsilon: 0.2\n")
    report = cli("analyze", path, "--set", "num_iterations=3", "--format", "json").json
    assert report["run"]["updates_per_batch"]["effective"] == 3


# What is taken for a configuration, and what is not


def test_several_configurations_are_judged_one_by_one_or_together(cli, tmp_path):
    one, two = put(tmp_path, "a.yml", QUIET), put(tmp_path, "b.yml", QUIET.replace("64", "128"))
    apart = cli("analyze", one, two, "--format", "json").json
    assert [d["run"]["updates_per_batch"]["effective"] for d in apart["diagnoses"]] == [320, 160]
    assert (
        cli("analyze", one, two, "--together", "--format", "json").json["run"]["updates_per_batch"]["effective"] == 320
    )


def test_a_log_with_a_configuration_under_any_name_is_one_run(cli, samples, tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text((samples / "sick" / "lr-zero.canonical" / "run.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    args = put(tmp_path, "settings_of_it.txt", "ppo_epochs: 4\nclip_range: 0.2\nnum_minibatches: 8\n")
    report = cli("analyze", log, args, "--format", "json").json
    assert report["run"]["updates_per_batch"]["configured"] == 32


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summary.json", '{"losses/approx_kl": 0.01, "losses/clipfrac": 0.1, "update_epochs": 4, "clip_coef": 0.2}'),
        ("out.txt", NAMESPACE + "global_step=12, episodic_return=9\n" * 60),
        ("notes.txt", "gamma: 0.99\nlearning rate was too high\n"),
        ("log.json", '{"log_history": [{"loss": 1.0, "step": 1}]}'),
        (
            "saved.json",
            '{"took": {"s": 9}, "log_history": [{"loss": 1, "kl": 0}], "config": {"num_generations": 8, "beta": 0}}',
        ),
    ],
)
def test_a_log_is_no_configuration(tmp_path, name, text):
    (source,), _ = gather([str(put(tmp_path, name, text))])
    assert source.logs
    assert not source.config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("learning_rate: 1e-4\nlearning_starts: 1000\nexploration_fraction: 0.1\nbuffer_size: 100000\n", "replay"),
        ("colour: blue\nsize: 3\n", "no setting"),
        ("model_type: llama\nhidden_size: 64\n", "no setting"),
    ],
)
def test_another_method_or_none_is_nothing_to_judge(cli, tmp_path, text, says):
    outcome = cli("analyze", put(tmp_path, "config.yaml", text))
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE
    assert says in outcome.err


def test_a_saved_model_of_stable_baselines_is_a_configuration(cli, tmp_path):
    path = tmp_path / "model.zip"
    settings = {"n_steps": 128, "n_envs": 4, "batch_size": 1, "n_epochs": 4, "clip_range": 0.2, "gamma": 0.99}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(settings))
    report = cli("analyze", path, "--format", "json").json
    assert report["run"]["framework"] == "sb3"
    assert report["causes"][0]["id"] == "minibatch-of-one"


def test_secrets_of_a_command_line_are_not_shown(cli, tmp_path):
    path = put(
        tmp_path, "run.sh", SHELL + "python x.py --wandb-api-key abcdef123456 --hf_token hf_abcdefghijklmnopqrst\n"
    )
    for form in ("json", "html", "text"):
        out = cli("analyze", path, "--format", form, "--all").out
        assert "abcdef123456" not in out
        assert "hf_abcdefghij" not in out


# Real ones


def configurations() -> list[Path]:
    names = ("*.yaml", "*.yml", "*config*.json", "params.json", "files/config.yaml")
    return sorted({path for name in names for path in FOLDER.glob(f"*/{name}")})


@pytest.mark.skipif(not (FOLDER / "manifest.csv").is_file(), reason="real logs are not at hand")
def test_no_real_configuration_raises_an_alarm():
    pack = load_pack()
    known = 0
    for path in configurations():
        try:
            (run,) = runs_of(RunSource(logs=(), config=(path,)), Request())
        except DoctorError as error:
            assert error.code == ExitCode.NOTHING_TO_JUDGE, path
            continue
        known += 1
        firm = [c.id for c in diagnose(run, pack).causes if c.confidence != "suspected" and not c.benign]
        assert firm == [], path
        assert all(Severity(f.severity) for f in diagnose(run, pack).findings), path
    assert known >= 35


@pytest.mark.parametrize("piece", ["A(b=", "a=1\n", "{'a': ", "--a $b ", "v=$v$v$v\n", '"', "a: [", "Namespace(a='"])
def test_hostile_text_is_read_or_refused_in_bounded_time(piece):
    for suffix in (".txt", ".sh", ".json", ".yaml", ".toml"):
        try:
            parse(suffix, piece * 3000)
        except ValueError:
            continue


# The same faults in a log


def log_of(folder: Path, records: list[dict[str, float]], **config: object) -> Path:
    lines = [
        json.dumps({"ppo_doctor": 1, "config": config}),
        *(json.dumps({"step": n} | r) for n, r in enumerate(records)),
    ]
    return put(folder, "run.jsonl", "\n".join(lines) + "\n")


def test_a_schedule_that_is_over_early_is_named_with_what_follows_from_it(cli, tmp_path):
    def record(step: int) -> dict[str, float]:
        rate = max(0.0, 3e-4 * (1 - step / 50))
        size = (rate / 3e-4) ** 2
        return {
            "learning_rate": rate,
            "approx_kl": 0.01 * size * (1 + 0.1 * (step % 3)),
            "clip_fraction": 0.1 * size,
            "entropy": 1.0 - 0.01 * min(step, 50),
            "episode_return": 10.0 + min(step, 50) + step % 4,
            "policy_loss": -0.01 * size - 0.001 * (step % 5),
            "grad_norm": 0.5 + 0.01 * (step % 7),
            "advantages_std": 1.0,
        }

    path = log_of(tmp_path, [record(step) for step in range(100)], ppo_epochs=4, num_minibatches=4)
    report = cli("analyze", path, "--format", "json").json
    assert report["causes"][0]["id"] == "lr-schedule-horizon-wrong"
    assert "lr-zero" not in [cause["id"] for cause in report["causes"]]


@pytest.mark.parametrize(("sign", "named"), [(-1, True), (1, False)])
def test_a_kl_term_with_the_wrong_sign_is_named(cli, tmp_path, sign, named):
    records = [
        {"ref_kl": 0.001 * 1.1**n, "loss": sign * 0.04 * 0.001 * 1.1**n, "reward_mean": 0.5 + 0.01 * (n % 3)}
        for n in range(60)
    ]
    path = log_of(tmp_path, records, ppo_epochs=1, num_minibatches=1, kl_coef=0.04)
    report = cli("analyze", path, "--format", "json").json
    assert ("kl-loss-sign-flipped" in [cause["id"] for cause in report["causes"]]) is named
    if named:
        assert report["causes"][0]["confidence"] == "established"


def test_two_faults_of_one_configuration_are_no_rivals(cli, tmp_path):
    text = NESTED_YAML.replace("    clip_ratio: 0.1\n", "    clip_ratio: 0.1\n    optim: {lr_warmup_steps: 90}\n")
    path = put(tmp_path, "config.yaml", text + "trainer: {total_training_steps: 100}\n")
    report = cli("analyze", path, "--format", "json").json
    assert {cause["id"]: cause["confidence"] for cause in report["causes"]} == {
        "dead-hyperparameter": "established",
        "lr-schedule-horizon-wrong": "suspected",
    }
    assert {(problem["link"], problem["state"]) for problem in report["problems"]} == {
        ("configuration", "configuration")
    }


def test_a_long_command_is_no_log(tmp_path):
    lines = [f"V{n}={n}" for n in range(80)]
    (source,), _ = gather([str(put(tmp_path, "train.sh", "\n".join([*lines, SHELL])))])
    assert source.config


@pytest.mark.parametrize(
    ("weights", "rate", "verdict", "says"),
    [
        ("bf16", 1e-6, "warning", "16-bit"),
        ("fp32", 1e-6, "inconclusive", "whether it trains takes a log"),
        ("bf16", 2e-5, "inconclusive", "whether it trains takes a log"),
    ],
)
def test_16_bit_weights_and_a_tiny_rate_are_suspected_before_training(
    tmp_path: Path, weights: str, rate: float, verdict: str, says: str
) -> None:
    path = tmp_path / "verl.yaml"
    actor = {"optim": {"lr": rate}, "fsdp_config": {"model_dtype": weights}, "ppo_mini_batch_size": 64, "ppo_epochs": 2}
    path.write_text(json.dumps({"actor_rollout_ref": {"actor": actor}, "data": {"train_batch_size": 256}}))
    told = diagnose(run_of_settings(path, Request(configs=(path,))), load_pack(), Request())
    assert told.verdict == verdict and says in told.verdict_because
    suspected = [cause.confidence for cause in told.causes if cause.id == "bf16-swallowed-update"]
    assert suspected == (["suspected"] if verdict == "warning" else [])


def test_a_configuration_with_a_remark_is_not_said_to_be_without_one(tmp_path: Path) -> None:
    path = tmp_path / "sb3.yaml"
    path.write_text(json.dumps({"n_steps": 2048, "n_envs": 1, "batch_size": 100, "n_epochs": 10}))
    told = diagnose(run_of_settings(path, Request(configs=(path,))), load_pack(), Request())
    assert "settings-unusual" in [finding.rule for finding in told.findings if finding.status == "fired"]
    assert "speaks against" not in told.verdict_because


@pytest.mark.parametrize("written", ["1e-6", "1E-06", "1.0e-6", "'1e-6'", '"0.000001"', ".1e-5", "+1.e-6"])
def test_a_number_with_an_exponent_is_a_number_however_yaml_takes_it(tmp_path: Path, written: str) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(f"n_steps: 2048\nn_epochs: 10\nbatch_size: 64\nlearning_rate: {written}\n")
    run = run_of_settings(path, Request(configs=(path,)))
    assert run.config["learning_rate"].value == 1e-6


@pytest.mark.parametrize("written", ["e5", "1e", "2026-11-22", "1e-6x", "v1.0"])
def test_words_with_digits_stay_words(written: str) -> None:
    assert not isinstance(parse(".yaml", f"learning_rate: {written}\n").values["learning_rate"], float)


def test_a_minibatch_that_no_rollout_fills_is_no_single_update(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("behaviors: {A: {hyperparameters: {batch_size: 1024, buffer_size: 512, num_epoch: 3}}}\n")
    told = diagnose(run_of_settings(path, Request(configs=(path,))), load_pack(), Request())
    assert (told.verdict, [cause.id for cause in told.causes]) == ("unhealthy", ["epochs-not-executed"])
