"""Lines that say of which method the records below them, or their own, are."""

import pytest

from ppo_doctor.readers.console_messages import section_of


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("======== DQN ========", "DQN"),
        ("--- Training SAC, seed 3 ---", "SAC"),
        ("## PPO", "PPO"),
        ("Training TD3 ...", "TD3"),
        ("[A2C]", "A2C"),
        ("[DQN] step 100 return 3.5", "DQN"),
        ("step   100 | algo DDPG | ep_ret  -3.00", "DDPG"),
        ("step=100 algo=PPO return=3.5", "PPO"),
        ('{"algo": "SAC", "return": 3.5}', "SAC"),
    ],
)
def test_a_line_names_its_method(line, method):
    assert section_of(line) == method


@pytest.mark.parametrize(
    "line",
    [
        "step=100 return=3.5 dqn_loss=0.2",
        "| actor/ppo_kl | 0.01 |",
        "loading the replay buffer of the DQN expert from disk",
        "step 100 | return 3.5 | better than SAC",
        "======== results ========",
    ],
)
def test_a_line_that_only_speaks_of_a_method_begins_nothing(line):
    assert section_of(line) is None
