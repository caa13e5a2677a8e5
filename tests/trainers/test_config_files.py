"""Configurations of every trainer's kind are found and read, and nothing in them is ever run."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.runs.configs_beside import beside
from ppo_doctor.trainers.config_files import fenced_settings, read_config
from ppo_doctor.trainers.config_formats import parse
from ppo_doctor.trainers.detection import profile

ZOO = """!!python/object/apply:collections.OrderedDict
- - [batch_size, 256]
  - [n_epochs, 20]
  - [learning_rate, 'lin_0.001']
  - [gamma, 0.98]
"""
WANDB = "wandb_version: 1\nupdate_epochs:\n  desc: null\n  value: 4\nclip_coef:\n  value: 0.2\n"
HYDRA = "actor_rollout_ref:\n  actor:\n    ppo_epochs: 2\n    optim: {lr: 1e-6}\ndata: {train_batch_size: 64}\n"


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_zoo_wraps_its_settings_in_an_ordered_dict(tmp_path):
    assert read_config(put(tmp_path, "config.yml", ZOO)).values == {
        "batch_size": 256,
        "n_epochs": 20,
        "learning_rate": "lin_0.001",
        "gamma": 0.98,
    }


def test_a_tracker_wraps_each_value(tmp_path):
    values = read_config(put(tmp_path, "config.yaml", WANDB)).values
    assert (values["update_epochs"], values["clip_coef"]) == (4, 0.2)


def test_nested_settings_are_joined_by_dots(tmp_path):
    values = read_config(put(tmp_path, "config.yaml", HYDRA)).values
    assert values["actor_rollout_ref.actor.ppo_epochs"] == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"n_epochs": 4}'),
        ("config.toml", "n_epochs = 4"),
        ("args.yml", "n_epochs: 4"),
        ("x.json", '\ufeff{"n_epochs": 4}'),
    ],
)
def test_every_format_reads_alike(tmp_path, name, text):
    assert read_config(put(tmp_path, name, text)).values == {"n_epochs": 4}


def test_a_foreign_tag_runs_nothing(tmp_path):
    bomb = put(tmp_path, "config.yaml", "a: !!python/object/apply:os.system ['touch broken']\nn_epochs: 4\n")
    assert read_config(bomb).values["n_epochs"] == 4
    assert not (tmp_path / "broken").exists()


class Arguments:
    """Stands for transformers' TrainingArguments: plain values among objects."""

    def __init__(self):
        self.learning_rate, self.num_iterations, self.bf16, self.output_dir = 1e-6, 4, True, "out"
        self.parts = {"a": [1, 2]}


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def archive(path, value):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
    return path


def test_training_args_are_scanned_not_unpickled(tmp_path, capsys):
    path = archive(tmp_path / "training_args.bin", {"evil": Evil(), **vars(Arguments())})
    values = read_config(path).values
    assert (values["learning_rate"], values["num_iterations"], values["bf16"]) == (1e-6, 4, True)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "{"),
        ("config.json", "[1, 2]"),
        ("config.toml", "a = = 1"),
        ("config.yaml", "a: [1"),
        ("config.yaml", "just words"),
        ("training_args.bin", "no archive"),
        ("config.json", "[" * 100_000),
    ],
)
def test_a_bad_configuration_is_named(tmp_path, name, text):
    with pytest.raises(DoctorError) as caught:
        read_config(put(tmp_path, name, text))
    assert caught.value.code == ExitCode.USAGE
    assert name in caught.value.message


def test_a_missing_configuration_is_named(tmp_path):
    with pytest.raises(DoctorError):
        read_config(tmp_path / "none.json")


def test_a_huge_file_is_no_configuration(tmp_path):
    with pytest.raises(DoctorError):
        read_config(put(tmp_path, "config.yaml", "a: 1\n" * 400_000))


def found(folder, framework="sb3", log="progress.csv"):
    return [Path(one.found.source.path).name for one in beside(folder / log, profile(framework))[0]]


def test_known_names_are_found_in_their_order(tmp_path):
    for name in ("args.yml", "config.json"):
        put(tmp_path, name, '{"n_epochs": 4}')
    put(tmp_path, ".hydra/config.yaml", HYDRA)
    assert found(tmp_path)[:2] == ["config.json", "args.yml"]


def test_another_name_counts_when_its_settings_are_the_frameworks(tmp_path):
    put(tmp_path, "sweep.yaml", "n_epochs: 4\nbatch_size: 64\n")
    put(tmp_path, "shopping.yaml", "milk: 2\nbread: 1\n")
    assert found(tmp_path) == ["sweep.yaml"]


def test_a_checkpoint_folder_looks_one_up(tmp_path):
    put(tmp_path, "args.json", '{"num_iterations": 4}')
    (tmp_path / "checkpoint-10").mkdir()
    assert found(tmp_path / "checkpoint-10", "trl-grpo", "trainer_state.json") == ["args.json"]


def test_a_models_config_is_no_training_configuration(tmp_path):
    put(tmp_path, "config.json", json.dumps({"model_type": "llama", "vocab_size": 32000, "hidden_size": 64}))
    assert found(tmp_path) == []


def test_a_broken_configuration_beside_the_log_is_a_note(tmp_path):
    put(tmp_path, "config.json", "{")
    configs, notes = beside(tmp_path / "progress.csv", profile("sb3"))
    assert configs == []
    assert "config.json" in str(notes[0])


@pytest.mark.parametrize("filled", ["rate: 1{}x", "Namespace(rate=1{}x, steps=2)", "rate = 1 {}", "{}rate = 1"])
def test_a_line_of_blanks_is_read_in_one_pass(filled):
    text = "steps = 3\nepochs = 4\n" + filled.format(" " * 300_000) + "\n"
    assert "steps" in parse(".txt", text).values  # in quadratic time this is never reached


def test_settings_that_a_console_prints_before_its_records_do_not_make_it_a_configuration(tmp_path):
    from ppo_doctor.trainers.config_files import holds_settings

    settings = "{'lr': 0.001, 'eps_clip': 0.2, 'gamma': 0.99, 'gae_lambda': 0.95, 'epochs': 4, 'batch_size': 8}\n"
    path = tmp_path / "cout.txt"
    path.write_text(settings)
    assert holds_settings(path)
    path.write_text(settings + "".join(f"my_return: {n}\tmy_other: 2\n" for n in range(9)))
    assert not holds_settings(path)


COMMAND = "python train.py --env MPE --ppo_epoch 10 --num_mini_batch 1 --lr 1e-08 --episode_length 20 gamma=0.9\n"


def test_a_command_beside_the_log_holds_its_settings(tmp_path):
    (tmp_path / "cmd.sh").write_text(COMMAND, encoding="utf-8")
    found, _ = beside(tmp_path / "log.csv", profile("canonical"))
    assert [(f.found.values["ppo_epoch"], f.found.values["lr"], f.found.values["gamma"]) for f in found] == [
        (10, 1e-08, 0.9)
    ]


def test_a_dict_as_pprint_writes_it_is_read(tmp_path):
    text = (
        "{'agent': <class 'a.B'>,\n 'gamma': 0.98,\n 'env_args': {'n': 4,\n              'm': 5},\n 'ppo_epochs': 8}\n"
    )
    (tmp_path / "args.txt").write_text(text, encoding="utf-8")
    values = read_config(tmp_path / "args.txt").values
    assert (values["gamma"], values["ppo_epochs"]) == (0.98, 8)


def test_settings_pasted_above_a_log_are_read_from_their_block(tmp_path, cli):
    rows = "\n".join(f"{step},{10 + step},{0.01 + step / 1e4:.4f}" for step in range(1, 21))
    log = tmp_path / "issue.md"
    log.write_text(
        "Why is it slow?\n\n```python\nmodel = PPO('MlpPolicy', env, n_steps=512, batch_size=64,\n"
        "            n_epochs=7, clip_range=0.15)\n```\n\n```python\nmodel = PPO(\n```\n\n"
        f"```\nstep,rollout/ep_rew_mean,train/approx_kl\n{rows}\n```\n",
        encoding="utf-8",
    )
    blocks = list(fenced_settings(log))
    values = {key.rpartition(".")[2]: value for found in blocks for key, value in found.values.items()}
    assert values["n_epochs"] == 7
    assert {line for found in blocks for key, line in found.lines.items() if key.endswith("clip_range")} == {5}
    assert "issue.md" in cli("inspect", log).out.partition("Configuration")[2].partition("Time")[0]
