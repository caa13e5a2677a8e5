import json
from math import isnan

RECORDS = [{"loss": 0.5, "step": 1}, {"loss": 0.25, "step": 2}, {"eval_loss": 0.1, "step": 2}]


def test_trainer_state_gives_records_with_lines_and_settings(reading):
    state = {"best_metric": None, "epoch": 0.1, "log_history": RECORDS, "max_steps": 250, "train_batch_size": 1}
    got = reading(json.dumps(state, indent=2))
    assert got.container == "json"
    assert got.records == RECORDS
    assert got.lines == [5, 9, 13]
    assert got.configs[0].values == {"best_metric": None, "epoch": 0.1, "max_steps": 250, "train_batch_size": 1}


def test_a_compact_trainer_state_is_one_too(reading):
    got = reading(json.dumps({"epoch": 0.1, "log_history": RECORDS * 2000, "max_steps": 250}))
    assert got.container == "json"
    assert got.records == RECORDS * 2000
    assert got.configs[0].values["max_steps"] == 250


def test_a_bare_list_of_records(reading):
    for indent in (None, 2):
        got = reading(json.dumps(RECORDS, indent=indent))
        assert (got.container, got.records, got.skipped) == ("json", RECORDS, 0)


def test_an_object_of_columns(reading):
    got = reading('{"loss": [0.5, NaN, null], "kl": ["0.1", 2, 3], "odd": [1]}')
    assert got.container == "json"
    assert got.records[0] == {"loss": 0.5, "kl": 0.1}
    assert isnan(got.records[1]["loss"])
    assert got.records[2] == {"kl": 3}
    assert got.says("odd has 1 values")


def test_a_configuration_in_a_list_is_one_as_in_json_lines(reading):
    config = {"ppo_doctor": 1, "config": {"ppo_epochs": 4}}
    lines = reading("".join(json.dumps(row) + "\n" for row in (config, *RECORDS)))
    for indent in (None, 2):
        got = reading(json.dumps([config, *RECORDS], indent=indent))
        assert (got.container, got.records) == ("json", lines.records)
        assert [found.values for found in got.configs] == [{"ppo_epochs": 4}] == [c.values for c in lines.configs]


def test_a_configuration_that_each_record_repeats_is_told_once(reading):
    got = reading(json.dumps([row | {"config": {"lr": 0.1}} for row in RECORDS]))
    assert got.records == RECORDS
    assert [found.values for found in got.configs] == [{"lr": 0.1}]


def test_a_second_list_of_records_is_told_apart_by_its_name(reading):
    got = reading(json.dumps({"train": [{"loss": 1}], "eval": [{"loss": 2}]}))
    assert got.records == [{"loss": 1}, {"eval/loss": 2}]


def test_objects_in_a_row_are_records(reading):
    got = reading("\n".join(json.dumps(record, indent=1) for record in RECORDS))
    assert got.records == RECORDS
    assert got.lines == [1, 5, 9]


def test_bare_nan_and_huge_numbers(reading):
    got = reading('[\n{"a": NaN, "b": -Infinity},\n{"a": 1' + "0" * 400 + "}\n]")
    assert isnan(got.records[0]["a"])
    assert got.records[0]["b"] == float("-inf")
    assert got.records[1]["a"] == float("inf")
    assert got.says("too large")


def test_a_torn_document_gives_the_complete_records(reading):
    text = json.dumps({"epoch": 1, "log_history": RECORDS}, indent=2)
    complete = [i for i, char in enumerate(text) if char == "}"][:3]
    for cut in range(30, len(text)):
        got = reading(text[:cut], "json")
        assert got.records == RECORDS[: sum(end < cut for end in complete)]
        assert got.notes


def test_a_damaged_record_costs_only_itself(reading):
    got = reading('[{"a": 1}, {"a": oops}, {"a": 3}, 4, {"a": 5}]')
    assert [record["a"] for record in got.records] == [1, 3, 5]
    assert got.skipped == 2


def test_what_follows_a_stray_sign_is_read(reading):
    got = reading('[{"a": 1}, {"a": 2}}, "x": 4}, {"a": 3}, {"a": 5}]')
    assert [record["a"] for record in got.records] == [1, 2, 3, 5]
    assert got.notes


def test_a_configuration_beside_the_records(reading):
    got = reading(json.dumps({"config": {"lr": 0.1, "net": {"n": 2}}, "seed": 3, "history": [{"a": 1}]}))
    assert got.configs[0].values == {"seed": 3, "lr": 0.1, "net.n": 2}
    assert got.records == [{"a": 1}]


def test_deep_nesting_is_a_note(reading):
    for deep in ("[" * 100_000, '[{"a":' * 50_000, '[{"a": 1}, {"a":' + "[" * 100_000):
        got = reading(deep, "json")
        assert got.notes


def test_one_object_is_one_record(reading):
    got = reading('{\n "loss": 0.5,\n "_wandb": {"runtime": 3},\n "h": [1, 2]\n}')
    assert got.records == [{"loss": 0.5, "_wandb/runtime": 3}]


def test_columns_in_an_object_beside_a_summary(reading):
    columns = {"iteration": [1, 2, 3], "policy_losses": [-0.1, -0.2, -0.3]}
    got = reading(
        json.dumps({"progress": columns, "summary": {"best": 3.5, "steps": [1]}, "path": "model.pt"}, indent=2)
    )
    assert got.records == [{"iteration": n, "policy_losses": -n / 10} for n in (1, 2, 3)]


def test_two_objects_of_columns_are_no_one_log(reading):
    columns = {"iteration": [1, 2, 3], "loss": [0.1, 0.2, 0.3]}
    assert len(reading(json.dumps({"train": columns, "valid": columns}, indent=2)).records) < 2


def test_scalars_as_tensorboardx_exports_them(reading):
    folder = "/runs/results/run1/logs"
    points = {
        f"{folder}/value_loss/value_loss": [[1.5, 320, 0.5], [2.5, 640, 0.25]],
        f"{folder}/eval/reward": [[1.5, 320, -1.0], [2.5, 640, 2.0]],
    }
    got = reading(json.dumps(points)).records
    assert [{k: v for k, v in row.items() if k != "wall_time"} for row in got] == [
        {"step": 320, "value_loss": 0.5, "eval/reward": -1},
        {"step": 640, "value_loss": 0.25, "eval/reward": 2},
    ]


def test_curves_as_sacred_keeps_them(reading):
    curve = {"steps": [96, 480], "timestamps": ["2026-01-01T00:00:00", "2026-01-01T00:00:01"], "values": [0.5, 0.25]}
    got = reading(json.dumps({"pg_loss": curve, "return_mean": curve | {"values": [1, 2]}}, indent=2)).records
    assert [{k: v for k, v in row.items() if k != "wall_time"} for row in got] == [
        {"step": 96, "pg_loss": 0.5, "return_mean": 1},
        {"step": 480, "pg_loss": 0.25, "return_mean": 2},
    ]


def test_records_stand_under_their_steps(reading):
    got = reading(json.dumps({str(step): {"reward": step / 4, "kl": 0.1} for step in (0, 10, 20)}, indent=1))
    assert (got.container, got.skipped) == ("json", 0)
    assert got.records == [{"step": step, "reward": step / 4, "kl": 0.1} for step in (0, 10, 20)]


def test_a_record_under_a_number_keeps_its_own_step(reading):
    assert reading('{\n"0": {"step": 7, "kl": 0.1},\n"seed": 3}').records == [{"step": 7, "kl": 0.1}]


def test_a_key_of_more_digits_than_a_step_has_is_none(reading):
    got = reading('{\n"' + "9" * 5000 + '": {"kl": 0.1},\n"loss": 3\n}')
    assert [record["loss"] for record in got.records] == [3]


def test_an_object_behind_records_under_their_steps_is_a_record(reading):
    assert reading('{\n"0": {"kl": 0.1}\n}\n{\n"kl": 0.2\n}').records == [{"step": 0, "kl": 0.1}, {"kl": 0.2}]


def test_lists_with_their_steps_beside_them_as_pymarl_keeps_them(reading):
    returns = [{"dtype": "float64", "py/object": "numpy.float64", "value": value} for value in (0.5, 1.5, 0.0)]
    curves = {"loss": [3.0, 2.0, 1.0], "return_mean": returns, "test_return_mean": returns[:1]}
    steps = {"loss_T": [8, 16, 24], "return_mean_T": [8, 16, 24], "test_return_mean_T": [16]}
    got = reading(json.dumps(curves | steps)).records
    assert {(row["step"], key): row[key] for row in got for key in curves.keys() & row.keys()} == {
        (8, "loss"): 3,
        (16, "loss"): 2,
        (24, "loss"): 1,
        (8, "return_mean"): 0.5,
        (16, "return_mean"): 1.5,
        (24, "return_mean"): 0,
        (16, "test_return_mean"): 0.5,
    }


def test_one_line_of_lists_beside_a_few_settings(reading):
    got = reading('{"episode_rewards": [1.5, 2.5, 3.5], "moving_average": [1.5, 2.0, 2.5], "window": 3, "episodes": 3}')
    assert [record["episode_rewards"] for record in got.records] == [1.5, 2.5, 3.5]
