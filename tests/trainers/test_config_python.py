"""Settings of a program are read from its text; nothing in it is run."""

from __future__ import annotations

import pytest

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.runs.config_runs import run_of_settings
from ppo_doctor.trainers.config_formats import UnreadableError, parse


def values(text):
    return dict(parse(".py", text).values)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("GRPOConfig(learning_rate=1e-3, beta=-1)", "learning_rate", 1e-3),
        ("GRPOConfig(learning_rate=1e-3, beta=-1)", "beta", -1),
        ("PPO('MlpPolicy', env, n_steps=10 * 64)", "n_steps", 640),
        ("PPO('MlpPolicy', env, n_steps=10 * 64)", "policy", "MlpPolicy"),
        ("x.add_argument('--lr', '-l', type=float, default=3e-4)", "lr", 3e-4),
        ("x.add_argument('--clip-coef', default=0.2)", "clip_coef", 0.2),
        ("x.add_argument('--anneal', action='store_true')", "anneal", False),
        ("GAMMA = 0.97", "GAMMA", 0.97),
        ("PI_LR, V_LR = 3e-4, 1e-3", "V_LR", 1e-3),
        ("class Args:\n    num_steps: int = 2 ** 11", "num_steps", 2048),
        ("class Args:\n    seed: int = field(default=3)", "seed", 3),
        ("config = {'lr': 0.1, 'net': {'width': 64}}", "lr", 0.1),
        ("LR = 2e-4\nPPO('MlpPolicy', env, learning_rate=LR)", "learning_rate", 2e-4),
        ("p.add_argument('--g', default=0.9)\nPPO('M', env, gamma=args.g)", "gamma", 0.9),
        ("envs = make_vec_env('A-v1', n_envs=8)\nPPOConfig(x=1)", "envs.n_envs", 8),
        ("critic_optim = Adam(net.parameters(), lr=0.01)\nx = 1", "critic_optim.lr", 0.01),
        ("PPOConfig(betas=(0.9, 0.95))", "betas", [0.9, 0.95]),
    ],
)
def test_literals_are_settings(text, key, value):
    assert values(text)[key] == value


def test_a_setting_has_the_line_of_its_value():
    written = parse(".py", "c = GRPOConfig(\n    beta=0.1,\n    epsilon=0.3,\n)\n")
    assert written.lines == {"beta": 2, "epsilon": 3}


def test_of_two_values_none_is_taken():
    assert values("a = GRPOConfig(beta=0.1, epsilon=0.2)\nb = GRPOConfig(beta=0.2, epsilon=0.2)") == {"epsilon": 0.2}


def test_what_only_a_running_program_knows_is_left_out():
    assert values("PPOConfig(lr=float(os.environ['LR']), gamma=0.9, steps=9 ** 9 ** 9, n=f())") == {"gamma": 0.9}


def test_nothing_is_run(tmp_path):
    target = tmp_path / "touched"
    text = f"open({str(target)!r}, 'w')\nPPOConfig(gamma=__import__('os').getpid(), lr=1.0)\n"
    assert values(text) == {"lr": 1.0}
    assert not target.exists()


@pytest.mark.parametrize(
    "text",
    ["def (:", "x = " + "(" * 5000, "\0", "a" * (1 << 19), "import os\nprint(os)\n", "x = " + "-" * 90_000 + "1"],
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(UnreadableError):
        parse(".py", text)


def test_what_a_program_imports_names_its_framework(tmp_path):
    def framework(text):
        path = tmp_path / "train.py"
        path.write_text(text, encoding="utf-8")
        return run_of_settings(path, Request(configs=(path,))).framework

    assert framework("from stable_baselines3 import PPO\nPPO('MlpPolicy', 'A-v1', gamma=0.9)\n") == "sb3"
    assert framework("from trl import GRPOConfig, GRPOTrainer\nGRPOConfig(learning_rate=1e-6)\n") == "trl-grpo"
    with pytest.raises(DoctorError):
        framework("from stable_baselines3 import DQN\nDQN('MlpPolicy', 'A-v1', gamma=0.9)\n")


def test_the_class_of_an_optimizer_is_a_setting():
    assert values("optim = torch.optim.SGD(net.parameters(), lr=0.05)") == {"optim.optimizer": "SGD", "optim.lr": 0.05}


def test_a_default_that_names_another_option_is_left_out() -> None:
    text = "parser.add_argument('--a', default=args.b)\nparser.add_argument('--clip', default=0.2)\n"
    assert parse(".py", text).values == {"clip": 0.2}
