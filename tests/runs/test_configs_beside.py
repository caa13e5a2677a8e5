"""A configuration beside a log is its run's by its name or a link, unless the log says otherwise."""

from __future__ import annotations

import pytest

from ppo_doctor import load_run
from ppo_doctor.diagnosis.analyze import read_run
from ppo_doctor.model.request import Request

HEADER = "time/total_timesteps,time/iterations,rollout/ep_rew_mean,train/approx_kl,train/learning_rate,train/clip_range"
HEADER += ",train/n_updates,train/loss,train/policy_gradient_loss"


def log(folder, rate="0.00025", name="progress.csv", rates=None):
    rates = rates or [rate] * 20
    rows = [
        f"{512 * n},{n},{10 + n},0.00{n % 7 + 1}3,{rate},0.15,{4 * n},0.4{n % 9},-0.01{n % 5}"
        for n, rate in enumerate(rates, start=1)
    ]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def put(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")


def notes(run):
    return " | ".join(map(str, run.notes))


def asked(run, name="gamma"):
    setting = run.config.get(name)
    return setting.value if setting is not None and setting.how == "configured" else None


SAME = "learning_rate: 0.00025\nclip_range: 0.15\nn_epochs: 4\ngamma: 0.97\n"
OTHER = "learning_rate: 0.02\nclip_range: 0.4\nn_epochs: 30\ngamma: 0.5\n"


def test_the_screen_can_say_which_file_settings_are_from(tmp_path):
    put(tmp_path, "config.yaml", SAME)
    run = load_run(log(tmp_path))
    assert asked(run) == 0.97
    assert "settings from config.yaml" in notes(run)


@pytest.mark.parametrize("name", ["config.yaml", "later.yaml", "ppo_config.yaml"])
def test_one_that_the_log_contradicts_is_refused_with_both_values(tmp_path, name):
    put(tmp_path, name, OTHER)
    run = load_run(log(tmp_path))
    assert asked(run) is None
    told = notes(run)
    assert all(part in told for part in (f"{name}: not used", "learning_rate is 0.02", "0.00025", "clip_range is 0.4"))


def test_one_that_is_linked_to_nothing_is_used_only_if_the_log_agrees(tmp_path):
    put(tmp_path, "later.yaml", "gamma: 0.97\ngae_lambda: 0.9\nvf_coef: 0.3\n")
    run = load_run(log(tmp_path))
    assert asked(run) is None
    assert "not used: later.yaml" in notes(run)
    put(tmp_path, "later.yaml", SAME)
    assert asked(load_run(tmp_path / "progress.csv")) == 0.97


def test_a_log_that_names_the_file_links_to_it(tmp_path):
    put(tmp_path, "later.yaml", "gamma: 0.97\ngae_lambda: 0.9\nvf_coef: 0.3\n")
    path = log(tmp_path, name="run.csv")
    path.write_text("# settings: later.yaml\n" + path.read_text(), encoding="utf-8")
    assert asked(load_run(path)) == 0.97


def test_a_file_named_as_the_log_or_its_folder_is_linked(tmp_path):
    folder = tmp_path / "walker"
    path = log(folder)
    put(folder, "walker.yaml", "gamma: 0.97\ngae_lambda: 0.9\nvf_coef: 0.3\n")
    assert asked(load_run(path)) == 0.97


def test_a_setting_that_the_trainer_does_not_follow_is_a_fault_and_no_other_run(tmp_path):
    put(tmp_path, "config.yaml", SAME.replace("n_epochs: 4", "n_epochs: 40"))
    run = load_run(log(tmp_path))
    assert asked(run, "ppo_epochs") == 40


def test_a_schedule_begins_at_the_configured_rate(tmp_path):
    put(tmp_path, "config.yaml", "learning_rate: 0.0004\ngamma: 0.97\nn_epochs: 4\n")
    run = load_run(log(tmp_path, rates=[f"{0.0004 * (1 - n / 21):.6f}" for n in range(1, 21)]))
    assert asked(run) == 0.97


def test_a_run_of_another_environment_is_refused(tmp_path):
    put(tmp_path, "config.yaml", "env_id: Hopper-v4\ngamma: 0.97\nn_epochs: 4\n")
    run = load_run(log(tmp_path / "CartPole-v1__ppo__1"))
    assert asked(run) is None
    put(tmp_path / "CartPole-v1__ppo__1", "config.yaml", "env_id: Hopper-v4\ngamma: 0.97\ngae_lambda: 0.9\n")
    run = load_run(tmp_path / "CartPole-v1__ppo__1" / "progress.csv")
    assert "env_id is Hopper-v4, and the log is of CartPole-v1" in notes(run)
    assert asked(run) is None


def test_a_configuration_of_the_run_in_the_folder_beside_is_refused(tmp_path):
    (tmp_path / "second").mkdir()
    path = log(tmp_path / "first")
    put(tmp_path / "first", "config.yaml", "run_name: second\ngamma: 0.97\ngae_lambda: 0.9\n")
    run = load_run(path)
    assert asked(run) is None
    assert "run_name is second, and the log lies in first" in notes(run)
    put(tmp_path / "first", "config.yaml", "run_name: third\ngamma: 0.97\ngae_lambda: 0.9\n")
    assert asked(load_run(path)) == 0.97


def test_what_somebody_names_is_used_and_told_of(tmp_path):
    put(tmp_path, "later.yaml", OTHER)
    run = read_run(str(log(tmp_path)), Request(configs=(tmp_path / "later.yaml",)))
    assert asked(run) == 0.5
    assert "used as told, though the log contradicts it" in notes(run)


def test_of_several_scripts_none_is_the_runs_unless_the_log_agrees(tmp_path):
    script = "from stable_baselines3 import PPO\nPPO('MlpPolicy', None, gamma={}, gae_lambda=0.9, learning_rate={})\n"
    put(tmp_path, "a.py", script.format(0.97, 0.00025))
    put(tmp_path, "b.py", script.format(0.5, 0.02))
    assert asked(load_run(log(tmp_path))) == 0.97


def test_a_folder_without_a_log_is_judged_by_its_configurations(cli, tmp_path):
    put(tmp_path, "setup.yaml", "n_epochs: 0\nlearning_rate: 0.0003\nn_steps: 512\nclip_range: 0.2\n")
    put(tmp_path, "compose.yaml", "services: {web: {image: x}}\n")
    result = cli("analyze", str(tmp_path))
    assert "n_epochs" in result.out
    assert "setup.yaml:1" in result.out


@pytest.mark.parametrize("digits", [20, 400])
def test_a_whole_number_beyond_every_float_is_no_reason_to_fail(tmp_path, digits):
    put(tmp_path, "later.yaml", f"n_epochs: {'9' * digits}\nlearning_rate: 0.00025\ngamma: 0.97\n")
    assert load_run(log(tmp_path)).series


OWN = (
    "env_id: Pong\nnum_steps: 512\nn_epochs: 4\ngae_lambda: 0.9\nclip_range: 0.2\nminibatch_size: 64\nent_coef: 0.01\n"
)


def own_log(folder, *, printed=""):
    """The log of a script of somebody's own, which perhaps prints the settings that it uses."""
    rows = [
        f"iter {n} steps {512 * n} return {n + n % 3}.5 pg_loss -0.01{n % 5} v_loss 0.{9 - n // 4} entropy 1.{60 - n}"
        f" approx_kl 0.00{3 + n % 5} clip_frac 0.0{5 + n % 4}"
        for n in range(1, 30)
    ]
    put(folder, "train.log", "\n".join([printed, *rows]) + "\n")
    return folder


@pytest.mark.parametrize("printed", ["", "using: n_epochs=4 gamma=0.99 gae_lambda=0.9 clip_range=0.2 ent_coef=0.01"])
def test_a_misspelt_key_beside_the_log_of_an_own_script_is_a_finding(tmp_path, cli, printed):
    put(tmp_path, "config.yaml", OWN + "gamna: 0.95\n")
    told = cli("analyze", own_log(tmp_path, printed=printed), "--format", "json").json
    assert told["causes"][0]["id"] == "dead-hyperparameter"
    (text,) = [
        e["statistic"] for check in told["checks"] if check["name"] == "settings-misspelt" for e in check["evidence"]
    ]
    assert "gamna" in text
    assert ("0.99" in text) == bool(printed)
    checked = cli("check-config", tmp_path / "config.yaml")
    assert "settings-misspelt" in checked.out


def test_a_key_that_is_given_as_well_is_not_misspelt(tmp_path, cli):
    put(tmp_path, "config.yaml", OWN + "gamna: 0.95\ngamma: 0.95\n")
    told = cli("analyze", own_log(tmp_path), "--format", "json").json
    assert not [check for check in told["checks"] if check["name"] == "settings-misspelt" and check["answer"] == "yes"]


def test_constants_of_a_program_are_settings_of_the_trainer(tmp_path):
    put(
        tmp_path,
        "train_settings.py",
        "N_STEPS = 512\nN_EPOCHS = 4\nLEARNING_RATE = 2.5e-4\nCLIP_RANGE = 0.15\nGAMMA = 0.97\n",
    )
    run = load_run(log(tmp_path))
    assert (run.framework, asked(run), asked(run, "rollout_steps"), asked(run, "ppo_epochs")) == ("sb3", 0.97, 512, 4)
    assert run.config["rollout_steps"].key == "N_STEPS"
