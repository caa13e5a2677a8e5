"""The patch of a run: its configuration differs in the named settings only, and the cause is gone."""

from __future__ import annotations

import ast
import configparser
import json
import os
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, runs_of
from ppo_doctor.model.request import Request
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.run import Run
from ppo_doctor.report.patch import Change, FileChange, Patch, combined, propose, propose_spelling
from ppo_doctor.runs.discover import gather

CONFIGURATIONS = {
    "verl.sh": (
        """set -x
# GRPO on GSM8K
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.clip_ratio=0.0 \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.rollout.temperature=0
""",
        {"clip_ratio=0.0": "clip_ratio=0.2", "temperature=0": "temperature=1"},
    ),
    "verl.yaml": (
        """actor_rollout_ref:
  actor:
    clip_ratio: 0.0       # was 0.2
    optim: {lr: 1e-6, weight_decay: 0.01}
  rollout: {n: 8, temperature: 0.0}
data:
  train_batch_size: 1024
algorithm:
  adv_estimator: grpo
""",
        {"clip_ratio: 0.0": "clip_ratio: 0.2", "temperature: 0.0": "temperature: 1.0"},
    ),
    "overrides.yaml": (
        """- algorithm.adv_estimator=grpo
- actor_rollout_ref.actor.optim.lr=1e-6
- +actor_rollout_ref.actor.clip_ratio=0.0
- actor_rollout_ref.rollout.n=5
""",
        {"clip_ratio=0.0": "clip_ratio=0.2"},
    ),
    "trl.yaml": (
        "\ufefflearning_rate: 1.0e-06\r\nnum_generations: 8\r\nbeta: 0.04\r\nepsilon: 0.0 # off\r\nnum_iterations: 4",
        {"epsilon: 0.0": "epsilon: 0.2"},
    ),
    "trl.sh": (
        """accelerate launch --config_file zero3.yaml grpo.py \\
  --learning_rate 1e-6 \\
  --num_generations 8 \\
  --beta 0.04 \\
  --epsilon 0.0 \\
  --num_iterations 4
""",
        {"--epsilon 0.0": "--epsilon 0.2"},
    ),
    "rl_games.yaml": (
        """params:
  seed: ${...seed}
  config:
    normalize_advantage: True
    gamma: 1.5
    learning_rate: 3e-4
    e_clip: 0.0
    horizon_length: 16
    minibatch_size: 32768
    mini_epochs: 4
""",
        {"gamma: 1.5": "gamma: 0.99", "e_clip: 0.0": "e_clip: 0.2"},
    ),
    "zoo.yml": (
        """CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  n_steps: 32
  gamma: 1.98
  n_epochs: 20
  learning_rate: lin_0.001
""",
        {"gamma: 1.98": "gamma: 0.99"},
    ),
    "rsl_rl.py": (
        """@configclass
class RunnerCfg(RslRlOnPolicyRunnerCfg):
    num_steps_per_env = 24
    algorithm = RslRlPpoAlgorithmCfg(
        clip_param=0.0,  # 0.0 for now
        num_learning_epochs=5,
        num_mini_batches=4,
        learning_rate=1.0e-3,
        gamma=0.99,
        entropy_coef=0.0,
    )
""",
        {"clip_param=0.0": "clip_param=0.2"},
    ),
    "cleanrl.py": (
        """def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=2.5e-4,
        help="the learning rate of the optimizer")
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument(
        "--clip-coef",
        type=float,
        default=0.0,
    )
    parser.add_argument("--ent-coef", type=float, default=0.0)
""",
        {"type=float,\n        default=0.0": "type=float,\n        default=0.2"},
    ),
    "tyro.py": (
        """@dataclass
class Args:
    learning_rate: float = 2.5e-4
    num_steps: int = 128
    update_epochs: int = 4
    clip_coef: float = 0.0
    ent_coef: float = 0.0
""",
        {"clip_coef: float = 0.0": "clip_coef: float = 0.2"},
    ),
    "skrl.py": (
        """cfg_ppo = {
    "rollouts": 16,
    "learning_epochs": 8,
    "mini_batches": 2,
    "discount_factor": 0.99,
    "learning_rate": 3e-4,
    "ratio_clip": 0.0,
    "entropy_loss_scale": 0.0,
}
""",
        {'"ratio_clip": 0.0': '"ratio_clip": 0.2'},
    ),
    "params.json": (
        '{"gamma": 1.5, "lambda": 0.95, "lr": 5e-05, "clip_param": 0.3, "num_sgd_iter": 30, "model": {"x": [1.5]}}',
        {'"gamma": 1.5': '"gamma": 0.99'},
    ),
    "mlagents.yaml": (
        """behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      buffer_size: 12000
      learning_rate: 0.0003
      epsilon: 0.0
      lambd: 0.99
      num_epoch: 3
""",
        {"epsilon: 0.0": "epsilon: 0.2"},
    ),
    "torchtune.yaml": (
        """optimizer:
  lr: 3e-6
loss:
  _component_: torchtune.rlhf.loss.PPOLoss
  epsilon: 0.0
gamma: 1.5
kl_coeff: 0.01
ppo_epochs: 2
ppo_batch_size: 32
""",
        {"epsilon: 0.0": "epsilon: 0.2", "gamma: 1.5": "gamma: 0.99"},
    ),
    "own.toml": (
        """[ppo]
learning_rate = 3e-4
clip_range = 0.0 # clip_range = 0.0
gamma = 1.5
n_epochs = 10
""",
        {"clip_range = 0.0 #": "clip_range = 0.2 #", "gamma = 1.5": "gamma = 0.99"},
    ),
    "own.ini": (
        "[ppo]\n; the usual\nlearning_rate = 3e-4\nclip_range = 0.0\ngamma = 0.99\nn_epochs = 10\nn_steps = 2048\n",
        {"clip_range = 0.0": "clip_range = 0.2"},
    ),
}


def load_run(path: Path) -> Run:
    runs, _ = gather([str(path)])
    (run,) = runs_of(runs[0], Request())
    return run


def causes_of(path: Path) -> dict[str, str]:
    """Return the causes of a run with their confidence."""
    return {cause.id: cause.confidence for cause in diagnose(load_run(path), load_pack()).causes}


def proposed(path: Path) -> Patch:
    run = load_run(path)
    return propose(diagnose(run, load_pack()), run)


def load(path: Path) -> object:
    """Read a file as its own tools do; raise if they cannot."""
    text = path.read_text(encoding="utf-8-sig")
    match path.suffix:
        case ".yaml" | ".yml":
            return yaml.safe_load(text)
        case ".json":
            return json.loads(text)
        case ".toml":
            return tomllib.loads(text)
        case ".py":
            return ast.parse(text)
        case ".sh":
            return shlex.split(text, comments=True)
        case _:
            parser = configparser.ConfigParser()
            parser.read_string(text)
            return parser


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_patched_file_differs_in_the_named_settings_and_has_no_such_cause(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    text, changes = CONFIGURATIONS[name]
    path = Path(name)
    path.write_bytes(text.encode())
    patch = proposed(path)
    subprocess.run(["git", "apply"], input=patch.diff.encode(), check=True)
    expected = text
    for old, new in changes.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert path.read_bytes() == expected.encode() == patch.files[0].after
    load(path)
    causes = {change.cause for change in patch.changes}
    assert causes
    assert not causes & causes_of(path).keys()


def test_a_suspicion_changes_nothing(samples):
    folder = samples / "sick" / "old-policy-aliased.cleanrl"
    assert causes_of(folder)["old-policy-aliased"] == "suspected"
    patch = proposed(folder)
    assert not patch.files
    assert not patch.changes
    assert "old-policy-aliased" in " ".join(patch.notes)


def folder_of(samples: Path, tmp_path: Path, **changed: object) -> Path:
    """Return a copy of a run whose clip range is too small, with some settings changed; None removes one."""
    folder = tmp_path / "run"
    shutil.copytree(samples / "sick" / "clip-range-too-small.sb3", folder)
    config = json.loads((folder / "config.json").read_text()) | changed
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def test_the_configuration_beside_a_log_is_changed(samples, tmp_path):
    folder = folder_of(samples, tmp_path)
    patch = proposed(folder)
    assert [(change.file, change.old, change.new) for change in patch.changes] == [
        (str(folder / "config.json"), 0.001, 0.2)
    ]
    assert json.loads(patch.files[0].after)["clip_range"] == 0.2


def test_every_file_that_gives_the_value_is_changed(samples, tmp_path):
    folder = folder_of(samples, tmp_path)
    (folder / "train.py").write_text('model = PPO("MlpPolicy", env, clip_range=0.001, n_steps=64, batch_size=128)\n')
    patch = proposed(folder)
    assert {Path(file.path).name for file in patch.files} == {"config.json", "train.py"}
    (folder / "train.py").write_text('model = PPO("MlpPolicy", env, clip_range=0.1, n_steps=64, batch_size=128)\n')
    run = replace(load_run(folder), configs=(str(folder / "config.json"), str(folder / "train.py")))
    patch = propose(diagnose(run, load_pack()), run)
    assert {Path(file.path).name for file in patch.files} == {"config.json"}
    assert "train.py:1" in " ".join(patch.notes)


def test_a_configured_rate_that_the_log_contradicts_is_kept(samples):
    """The log shows 0, the configuration 0.001: the schedule is at fault, and no other rate is better."""
    run = load_run(samples / "sick" / "lr-zero.sb3")
    diagnosis = diagnose(run, load_pack())
    remedy = next(cause.remedies[0] for cause in diagnosis.causes if cause.id == "lr-zero")
    assert (remedy.now, remedy.then) == (0, 0.001)
    patch = propose(diagnosis, run)
    assert not patch.files
    assert [bool(change.reason) for change in patch.changes] == [True]


def with_remedy(path: Path, remedy: Remedy) -> Patch:
    """Return the patch of a run whose only cause has one remedy."""
    run = load_run(path)
    diagnosis = diagnose(run, load_pack())
    cause = replace(diagnosis.causes[0], confidence="likely", leader=True, benign=False, remedies=(remedy,))
    return propose(replace(diagnosis, causes=(cause,)), run)


TARGET = Remedy(do="Set it.", key="target_kl", setting="target_kl", to="= 0.03", then=0.03)


def test_a_setting_at_its_default_is_added(samples, tmp_path):
    folder = folder_of(samples, tmp_path, target_kl=None)
    patch = with_remedy(folder, TARGET)
    before, after = (json.loads(data) for data in (patch.files[0].before, patch.files[0].after))
    assert after == before | {"target_kl": 0.03}
    assert "add target_kl" in patch.changes[0].says


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.toml", "[ppo]\nclip_range = 0.0\nn_epochs = 10\nlearning_rate = 3e-4\n"),
        (
            "t.py",
            "from trl import GRPOConfig\no = optim.Adam(\n    x,\n    lr=1e-3,\n)\nGRPOConfig(epsilon=0.0, beta=0.1)\n",
        ),
    ],
)
def test_a_setting_is_not_added_to_what_may_not_have_it(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    patch = with_remedy(path, TARGET)
    assert not patch.files
    assert patch.changes[0].reason


def test_a_setting_that_several_sections_could_have_is_not_added(tmp_path):
    path = tmp_path / "zoo.yml"
    path.write_text("".join(CONFIGURATIONS["zoo.yml"][0].replace("CartPole", env) for env in ("A", "B")))
    patch = with_remedy(path, TARGET)
    assert not patch.files
    assert "several sections" in patch.changes[0].reason


def test_a_setting_of_another_section_is_left_and_named(tmp_path):
    path = tmp_path / "zoo.yml"
    path.write_text("".join(f"{env}-v1:\n  n_steps: 32\n  n_epochs: 4\n  gamma: 1.5\n" for env in ("A", "B")))
    patch = proposed(path)
    assert patch.files[0].after.count(b"gamma: 1.5") == 1
    assert "B-v1.gamma" in " ".join(patch.notes)


def test_an_override_of_the_command_line_is_named(tmp_path):
    folder = tmp_path / ".hydra"
    folder.mkdir()
    (folder / "config.yaml").write_text("beta: 0.04\nnum_generations: 8\nepsilon: 0.0\nnum_iterations: 4\n")
    (folder / "overrides.yaml").write_text("- num_generations=8\n- epsilon=0.0\n")
    patch = proposed(folder / "config.yaml")
    assert f"{folder / 'overrides.yaml'}:2" in " ".join(patch.notes)


def test_a_setting_of_the_log_is_told_and_not_changed(samples):
    patch = proposed(samples / "sick" / "clip-range-too-small.canonical")
    assert not patch.files
    change = patch.changes[0]
    assert change.line == 1
    assert "log" in change.reason
    assert "clip_range: 0.001 → 0.2" in change.says


@pytest.mark.parametrize("name", ["a b.yaml", 'quo"te.yaml', "naïve.yaml", "back\\slash.yaml"])
@pytest.mark.skipif(shutil.which("git") is None or os.name == "nt", reason="needs git and such names")
def test_the_diff_of_a_file_with_an_unusual_name_applies(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.write_text(CONFIGURATIONS["rl_games.yaml"][0])
    subprocess.run(["git", "apply"], input=proposed(path).diff.encode(), check=True)
    assert "gamma: 0.99" in path.read_text()


def test_the_context_of_a_diff_shows_no_secret():
    before = b"api_key: sk-abcdefghijklmnopqrstuv\na: 1\nlr: 0\nb: 1\n"
    change = FileChange(path="c.yaml", before=before, after=before.replace(b"lr: 0", b"lr: 1"))
    assert "+lr: 1" in change.diff
    assert "sk-" not in change.diff
    near = b"lr: 0\ntoken: hf_abcdefghijklmnopqrstuv\n"
    assert FileChange(path="c.yaml", before=near, after=near.replace(b"0", b"1", 1)).diff == ""


def test_runs_that_ask_for_different_changes_of_a_file_get_those_of_the_first():
    first = Patch(
        files=(FileChange(path="c", before=b"a: 0\n", after=b"a: 1\n"),), changes=(Change(key="a", old=0, new=1),)
    )
    second = Patch(files=(FileChange(path="c", before=b"a: 0\n", after=b"a: 2\n"),))
    both = combined([first, first, second])
    assert both.files == first.files
    assert both.changes == first.changes
    assert len(both.notes) == 1


def test_misspelt_keys_are_corrected(tmp_path):
    path = tmp_path / "config.yaml"
    text = "learnig_rate: 1e-6   # oops\nnum_generations: 8\nbeta: 0.04\nnum_iterations: 4\nepsilon: 0.2\n"
    path.write_text(text)
    patch = propose_spelling(load_run(path))
    assert patch.files[0].after.decode() == text.replace("learnig", "learning")


def test_a_configuration_behind_a_url_is_left_and_the_reason_is_said():
    from ppo_doctor.report.patch import NotEditableError, _opened

    with pytest.raises(NotEditableError, match="behind a URL"):
        _opened("s3://bucket/run/config.json")
