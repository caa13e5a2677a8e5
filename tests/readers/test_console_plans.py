"""A banner tells what is planned; what it tells alone, or later, is none."""

from __future__ import annotations

import pytest

RECORDS = "".join(f"round {i} score {i / 8} kl {i / 100} steps 6\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("banner", "planned"),
    [
        ("skiff ppo   64 boats x 48 steps, 5 passes x 6 minibatches, 48 iterations", (5, 6)),
        ("mailroom | 64 envs x 32 steps | 4 epochs x 2 chunks | gru 48", (4, 2)),
        ("2 epoch(s) of everything", None),
        ("saved 100 epochs", None),
        ("0 epochs x 4 minibatches", None),
    ],
)
def test_a_banner_tells_passes_and_minibatches_together(reading, banner, planned):
    got = reading(f"{banner}\n{RECORDS}")
    found = [config.values for config in got.configs]
    expected = [] if planned is None else [{"ppo_epochs": planned[0], "num_minibatches": planned[1]}]
    assert found == expected


def test_a_banner_tells_the_answers_to_a_prompt(reading):
    got = reading(f"# count-up GRPO: 32 prompts x 8 samples, 60 steps\n{RECORDS}")
    assert [config.values for config in got.configs] == [{"num_generations": 8}]


def test_a_line_below_the_first_record_plans_nothing(reading):
    assert not reading(f"{RECORDS}did 5 passes x 6 minibatches\n{RECORDS}").configs


def test_settings_above_certain_records_are_read(reading):
    head = (
        "Namespace(actor_learning_rate=5e-07, eps_clip=0.2, init_kl_coef=0.0, max_epochs=1, n_samples_per_prompt=8,"
        " rollout_batch_size=128, train_batch_size=1024)\n"
    )
    body = "".join(f"step {i}: {{'policy_loss': 0.{i}, 'reward': 0.5, 'kl': 0.01}}\n" for i in range(1, 9))
    got = reading(head + body)
    assert len(got.records) == 8
    assert got.configs[0].values["max_epochs"] == 1
