"""A batch holds a whole number of groups, or the trainer refuses to start."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.batches import broken_groups
from ppo_doctor.checks.config import words_unknown
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.testing import case_run


def seen(**config):
    return RunView(case_run({"framework": "trl-grpo", "config": config}))


@pytest.mark.parametrize(
    ("config", "broken"),
    [
        ({"num_generations": 7, "per_device_train_batch_size": 6}, True),
        ({"num_generations": 7, "per_device_train_batch_size": 6, "use_vllm": True}, False),
        ({"num_generations": 7, "per_device_train_batch_size": 6, "num_processes": 7}, False),
        ({"num_generations": 8, "per_device_train_batch_size": 1}, False),
        ({"num_generations": 8, "per_device_train_batch_size": 1, "num_processes": 4}, True),
        ({"num_generations": 8, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, False),
        ({"num_generations": 5, "per_device_train_batch_size": 8}, True),
        ({"num_generations": 8, "generation_batch_size": 12}, True),
        ({"num_generations": 8, "generation_batch_size": 64}, False),
        ({"num_generations": 8}, False),
    ],
)
def test_groups_that_no_batch_holds_a_whole_number_of(config, broken):
    assert bool(list(broken_groups(seen(**config)))) is broken


@pytest.mark.parametrize(
    ("word", "meant"), [("dapoo", "dapo"), ("grop", "grpo"), ("sigmoid", None), ("DR_GRPO", ...), ("${loss}", ...)]
)
def test_words_are_held_against_the_list(word, meant):
    found = [near for _, _, near in words_unknown(seen(loss_type=word, num_generations=8))]
    assert found == ([] if meant is ... else [meant])
