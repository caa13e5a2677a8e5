"""Dicts that programs print: results that nest their metrics, arrays of one number, lists of results."""

from math import isnan

import pytest

STATS = "'learner_stats': {'cur_kl_coeff': 0.2, 'policy_loss': %s, 'vf_loss': 30.5, 'kl': 0.01, 'entropy': 0.6}"


def test_a_nested_result_is_a_record(reading):
    line = (
        "{'info': {'learner': {'p0': {" + STATS % 0.5 + "}}}, 'episode_reward_mean': 12.0, 'training_iteration': %d}\n"
    )
    got = reading(line % 1 + line % 2)
    assert len(got.records) == 2
    assert got.configs == []
    assert got.records[1]["info/learner/p0/learner_stats/kl"] == 0.01
    assert got.records[1]["training_iteration"] == 2


def test_a_result_lends_the_configuration_in_it(reading):
    got = reading(
        "{'episode_reward_mean': 3.5, 'info': {" + STATS % 0.1 + "}, 'config': {'lr': 0.001, 'gamma': 0.9}}\n"
    )
    assert got.records[0]["episode_reward_mean"] == 3.5
    assert "config/lr" not in got.records[0]
    assert got.configs[0].values == {"lr": 0.001, "gamma": 0.9}


@pytest.mark.parametrize(
    "config",
    [
        "{'sampling': {'n': 4, 'temperature': 0.7, 'stop': False}, 'total_steps': -1}",
        "{'actor': {'lr': 1e-06, 'clip_ratio': 0.2, 'entropy_coeff': 0.0}, 'batches': {'train_batch_size': 64}}",
    ],
)
def test_nested_settings_stay_a_configuration(reading, config):
    got = reading(f"INFO 10:00:00 {config}\n")
    assert got.records == []
    assert len(got.configs) == 1


def test_a_list_of_results_is_as_many_records(reading):
    got = reading("[{" + STATS % 0.5 + "}, {" + STATS % 0.25 + "}, {" + STATS % 0.125 + "}]\n")
    assert [record["learner_stats/policy_loss"] for record in got.records] == [0.5, 0.25, 0.125]


def test_a_list_that_pprint_wrote(reading):
    got = reading("[{'kl': 0.01,\n  'policy_loss': -0.2},\n {'kl': 0.02,\n  'policy_loss': -0.1}]\n")
    assert got.records == [{"kl": 0.01, "policy_loss": -0.2}, {"kl": 0.02, "policy_loss": -0.1}]
    assert got.lines == [1, 3]


def test_a_list_that_is_cut_off_gives_its_whole_results(reading):
    got = reading("[{'kl': 0.01, 'policy_loss': -0.2}, {'kl': 0.02, 'policy_loss': -0.1}, {'kl': 0.0")
    assert [record["kl"] for record in got.records[:2]] == [0.01, 0.02]


def test_a_list_in_json_is_json(reading):
    assert reading('[{"kl": 0.01, "step": 1}, {"kl": 0.02, "step": 2}]').container == "json"


def test_arrays_of_one_number(reading):
    got = reading(
        "{'a': Array(0.5, dtype=float32), 'b': Array(nan, dtype=float32), 'c': DeviceArray(-2., dtype=float32),"
        " 'd': array([0.25], dtype=float32), 'e': Array(3, dtype=int32, weak_type=True), 'f': jax.Array(1e-3)}\n"
        "{'a': tensor([0.5], device='cuda:0'), 'b': tensor([1.0, 2.0]), 'c': 4.0}\n"
    )
    first, second = got.records
    assert isnan(first.pop("b"))
    assert first == {"a": 0.5, "c": -2, "d": 0.25, "e": 3, "f": 0.001}
    assert second == {"a": 0.5, "c": 4}


def test_arrays_among_pairs(reading):
    got = reading("step=1 loss=Array(0.5, dtype=float32) kl=0.01\nstep=2 loss=Array(0.25, dtype=float32) kl=0.02\n")
    assert [record["loss"] for record in got.records] == [0.5, 0.25]


def test_a_history_of_lists_is_a_record_for_each_place(reading):
    got = reading("history = {'reward': [1.5, 2.5, 3.5], 'kl': [0.01, 0.02, 0.03], 'seed': 7}\n")
    assert got.records == []
    got = reading("{'reward': [1.5, 2.5, 3.5], 'kl': [0.01, 0.02, 0.03], 'seed': 7}\n")
    assert got.records == [{"reward": 1.5, "kl": 0.01}, {"reward": 2.5, "kl": 0.02}, {"reward": 3.5, "kl": 0.03}]
