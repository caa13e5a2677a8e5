"""Tables in native names become series: order, duplicates, gaps, shared axes, and how finely a column was printed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.run import EXACT, Resolution
from ppo_doctor.readers.table import Table
from ppo_doctor.runs.log import Log
from ppo_doctor.trainers.profiles import Fingerprint, MetricProfile, Profile
from tests.synthetic import NAN, a_run, a_series


def a_metric(name, **fields):
    return MetricProfile(name=name, keys=fields.pop("keys", (name,)), **fields)


def a_profile(*metrics, axis=("step",), **further):
    clocks = {"step": axis, "update": ("update",), "epoch": ("epoch",), "minibatch": ("minibatch",)}
    return Profile(
        name="test",
        title="test",
        algorithm="ppo",
        fingerprint=Fingerprint(any_of=(("step",),)),
        axis={name: keys for name, keys in clocks.items() if name == "step" or further.get("fine")},
        metrics={metric.name: metric for metric in metrics},
    )


def a_table(records, columns, *, decimals=None):
    held = np.array(records, dtype=np.int64)
    arrays = {key: np.array(values, dtype=np.float64) for key, values in columns.items()}
    return Table(path="log", records=held, lines=held + 1, columns=arrays, decimals=decimals or {})


def built(profile, *tables):
    log = Log(path="log", tables=list(tables))
    return log.series(profile), log.notes


def one(columns, *metrics, **fields):
    size = len(next(iter(columns.values())))
    return built(a_profile(*(metrics or (a_metric("entropy"),)), **fields), a_table(range(size), columns))


def numbered(values):
    return {"step": range(1, len(values) + 1), "entropy": values}


# Order


def test_records_are_ordered_by_step():
    series, notes = one({"step": [3, 1, 2], "entropy": [30, 10, 20]})
    assert series["entropy"].axis.steps.tolist() == [1, 2, 3]
    assert series["entropy"].values.tolist() == [10, 20, 30]
    assert series["entropy"].axis.lines.tolist() == [2, 3, 1]
    assert notes == []


def test_tables_interleave():
    tables = [
        a_table([0, 2], {"step": [1, 3], "entropy": [10, 30]}),
        a_table([1, 3], {"step": [2, 4], "entropy": [20, 40]}),
    ]
    series, _ = built(a_profile(a_metric("entropy")), *tables)
    assert series["entropy"].values.tolist() == [10, 20, 30, 40]


def test_of_equal_steps_the_later_record_wins():
    series, notes = one({"step": [1, 2, 2, 3], "entropy": [10, 20, 21, 30]})
    assert series["entropy"].values.tolist() == [10, 21, 30]
    assert [(note.kind, note.count) for note in notes] == [("merged", 1)]


def test_a_resumed_run_replaces_what_it_repeats():
    steps = [*range(1, 11), *range(6, 16)]
    series, notes = one({"step": steps, "entropy": [k + 100 * (i >= 10) for i, k in enumerate(steps)]})
    assert series["entropy"].axis.steps.tolist() == list(range(1, 16))
    assert series["entropy"].values.tolist() == [*range(1, 6), *range(106, 116)]
    assert [note.count for note in notes if note.kind == "merged"] == [5]


def test_episodes_that_end_in_one_step_are_all_kept():
    metric = a_metric("episode_return")
    series, notes = one({"step": [1, 1, 2, 2], "episode_return": [1, 2, 3, 4]}, metric)
    assert series["episode_return"].values.tolist() == [1, 2, 3, 4]
    assert notes == []


def test_a_resumed_run_replaces_what_repeats_within_its_steps():
    metric = a_metric("episode_return")
    table = a_table(range(7), {"step": [1, 2, 2, 3, 2, 2, 3], "episode_return": [1, 2, 3, 4, 5, 6, 7]})
    series, _ = built(a_profile(metric), table)
    found = series["episode_return"]
    assert found.axis.steps.tolist() == [1, 2, 2, 3]
    assert found.values.tolist() == [1, 5, 6, 7]


def test_a_log_written_newest_first_is_turned():
    """A record without a step belongs to the one before it, which stands after it there."""
    steps, loss = [1, 2, 3, 4, 5], [0.1, 0.2, 0.3, 0.4, 0.5]
    tables = [a_table([0, 2, 4, 6, 8], {"step": steps, "loss": loss}), a_table([1, 3, 5, 7, 9], {"kl": loss})]
    back = [a_table([1, 3, 5, 7, 9], {"step": steps[::-1], "loss": loss[::-1]}),
            a_table([0, 2, 4, 6, 8], {"kl": loss[::-1]})]  # fmt: skip
    profile = a_profile(a_metric("loss"), a_metric("kl"))
    for held in (tables, back):
        log = Log(path="log", tables=held)
        log.turn_forward(profile)
        series = log.series(profile)
        assert series["kl"].axis.steps.tolist() == steps
        assert series["kl"].values.tolist() == loss


@pytest.mark.parametrize(
    ("column", "records", "turned"),
    [
        ("episodes so far", 30, True),
        ("episodes so far", 10, False),  # short: lengths of episodes may shrink for so long
        ("weight of a bonus", 30, False),  # a schedule that decays is none
    ],
)
def test_a_log_without_a_step_is_turned_where_what_was_added_up_only_falls(column, records, turned):
    down = np.arange(records, 0.0, -1) * (3.0 if column.startswith("episodes") else 0.01)
    loss = np.sin(np.arange(records)) + 2.0
    log = Log(path="log", tables=[a_table(range(records), {column: down, "loss": loss})])
    log.turn_forward(a_profile(a_metric("loss")))
    found = log.series(a_profile(a_metric("loss")))["loss"].values.tolist()
    assert found == (loss[::-1] if turned else loss).tolist()


def test_a_log_that_is_resumed_again_and_again_is_not_turned():
    log = Log(path="log", tables=[a_table(range(6), {"step": [3, 4, 2, 3, 1, 2], "loss": [0.0] * 6})])
    held = list(log.tables)
    log.turn_forward(a_profile(a_metric("loss")))
    assert log.tables == held


def test_minibatches_of_one_step_are_no_duplicates():
    columns = {"step": [1] * 4, "epoch": [0, 0, 1, 1], "minibatch": [0, 1, 0, 1], "entropy": [1, 2, 3, 4]}
    series, notes = one(columns, fine=True)
    assert series["entropy"].values.tolist() == [1, 2, 3, 4]
    assert series["entropy"].axis.epoch.tolist() == [0, 0, 1, 1]
    assert notes == []


def test_without_a_step_records_are_counted():
    series, _ = one({"entropy": [5, 6, 7]})
    assert series["entropy"].axis.steps.tolist() == [1, 2, 3]


def test_a_record_without_a_step_takes_the_one_before():
    tables = [a_table([0, 2], {"step": [10, 20], "entropy": [1, 2]}), a_table([1], {"grad_norm": [0.5]})]
    series, notes = built(a_profile(a_metric("entropy"), a_metric("grad_norm")), *tables)
    assert series["grad_norm"].axis.steps.tolist() == [10]
    assert len(notes) == 1


def test_a_first_record_without_a_step_takes_the_first_step():
    tables = [a_table([0], {"grad_norm": [0.5]}), a_table([1], {"step": [7], "entropy": [1]})]
    series, _ = built(a_profile(a_metric("entropy"), a_metric("grad_norm")), *tables)
    assert series["grad_norm"].axis.steps.tolist() == [7]


@pytest.mark.parametrize("broken", [NAN, math.inf, -math.inf, 1e300, 9e18, -9e18])
def test_a_step_that_is_no_integer_takes_the_one_before(broken):
    series, _ = one({"step": [1, broken, 3], "entropy": [1, 2, 3]})
    assert series["entropy"].axis.steps.tolist() == [1, 3]


def test_the_first_key_of_a_step_wins():
    columns = {"global_step": [100, 200], "step": [1, 2], "entropy": [1, 2]}
    assert one(columns, axis=("step", "global_step"))[0]["entropy"].axis.steps.tolist() == [1, 2]
    assert one(columns, axis=("global_step", "step"))[0]["entropy"].axis.steps.tolist() == [100, 200]


def test_a_count_in_a_summary_at_the_end_counts_no_records():
    columns = {"step": [NAN, NAN, NAN, 30], "env_steps": [10, 20, 30, NAN], "entropy": [1, 2, 3, NAN]}
    assert one(columns, axis=("step", "env_steps"))[0]["entropy"].axis.steps[:3].tolist() == [10, 20, 30]


# Names


def test_series_of_the_same_records_share_their_axis():
    tables = [a_table([0, 1], {"step": [1, 2], "a": [1, 2], "b": [1, 2]}), a_table([2], {"step": [3], "a": [3]})]
    metrics = [a_metric("entropy", keys=("a",)), a_metric("grad_norm", keys=("b",)), a_metric("loss", keys=("a",))]
    series, _ = built(a_profile(*metrics), *tables)
    assert series["entropy"].axis is series["loss"].axis
    assert series["entropy"].axis is not series["grad_norm"].axis
    assert len(series["grad_norm"]) == 2


def test_a_metric_keeps_its_name_as_written_and_what_it_is_an_estimate_of():
    metric = a_metric(
        "approx_kl", keys=("kl", "approx"), estimator="k3", aggregation="last epoch", reference="old policy"
    )
    found = one({"step": [1], "approx": [0.5]}, metric)[0]["approx_kl"]
    assert (found.raw, found.estimator, found.aggregation, found.reference) == (
        "approx",
        "k3",
        "last epoch",
        "old policy",
    )
    assert found.unit == "nats"


def test_a_scale_turns_the_sign_of_an_entropy_loss():
    assert one({"step": [1, 2], "entropy": [-1.5, -2]}, a_metric("entropy", scale=-1.0))[0][
        "entropy"
    ].values.tolist() == [1.5, 2]


def test_unknown_keys_are_listed(tmp_path):
    import ppo_doctor

    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "approx_kl": 0.1, "odd_gauge": 1, "strange_gauge": 2}\n', encoding="utf-8")
    assert set(ppo_doctor.load_run(path).unknown_keys) == {"odd_gauge", "strange_gauge"}


def test_what_a_log_lacks_is_no_series():
    assert one({"step": [1, 2], "odd": [1, 2]})[0] == {}


# What a metric cannot be


def dropped(name, values, **fields):
    series, notes = one({"step": range(len(values)), name: values}, a_metric(name, **fields))
    return len(values) - len(series[name]), [(note.kind, note.count, note.source.line) for note in notes]


@pytest.mark.parametrize(
    ("name", "usual", "damaged"),
    [
        ("clip_fraction", 0.1, 9e18),
        ("clip_fraction", 0.1, -0.2),
        ("reward_component_std.format", 0.5, -1.0),
        ("grad_norm", 0.5, -1.0),
        ("ratio_mean", 1.0, -9e18),
        ("explained_variance", -3.0, 2.0),
        ("logratio_advantage_corr", -0.1, -1.5),
        ("time_update", 2.0, -1e300),
        ("episode_length", 20.0, -7.0),
    ],
)
def test_a_value_that_a_metric_cannot_have_is_left_out_and_told_with_its_place(name, usual, damaged):
    assert dropped(name, [usual] * 7 + [damaged] + [usual] * 12) == (1, [("dropped", 1, 8)])


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("clip_fraction", 1 + 1e-6),
        ("clip_fraction", NAN),
        ("clip_fraction", math.inf),
        ("learning_rate", -1.0),
        ("approx_kl", -9e18),
        ("entropy", -3.0),
        ("grad_norm", 9e18),
    ],
)
def test_what_a_run_may_log_at_its_worst_stays(name, odd):
    assert dropped(name, [0.5] * 7 + [odd] + [0.5] * 12) == (0, [])


@pytest.mark.parametrize(
    "values", [[2.0] * 20, [0.0, 40.0] * 10, [0.0, 2.0], [7.0]], ids=["all", "half", "one", "lone"]
)
def test_a_metric_that_is_mostly_impossible_is_another_and_stays(values):
    assert dropped("clip_fraction", values) == (0, [])


def test_limits_are_those_of_the_metric_and_not_of_what_is_logged():
    assert dropped("mfu", [35.0] * 19 + [120.0], scale=0.01) == (1, [("dropped", 1, 20)])
    assert dropped("ratio_mean", [-1.0] * 19 + [1.0], scale=-1.0) == (1, [("dropped", 1, 20)])


# Resolution


def rounded(decimals, size=60, scale=1.0):
    return np.round(np.random.default_rng(decimals).normal(size=size) * scale, decimals)


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 5])
def test_rounding_shows_in_many_values(decimals):
    found = one(numbered(rounded(decimals, scale=10)))[0]["entropy"]
    assert found.resolution == Resolution(absolute=0.5 * 10.0**-decimals)


def test_zeros_in_a_rounding_log_are_zeros_in_print_only():
    columns = numbered(rounded(3)) | {"approx_kl": np.zeros(60), "loss": rounded(2)}
    series, _ = one(columns, a_metric("entropy"), a_metric("approx_kl"), a_metric("loss"))
    assert series["approx_kl"].resolution.absolute == 0.0005


def test_a_column_of_few_values_with_more_decimals_speaks_against_a_common_rounding():
    profile = a_profile(a_metric("entropy"), a_metric("loss"), a_metric("learning_rate"))
    columns = {"entropy": np.round(np.linspace(0.1, 0.9, 60), 4), "loss": [0.04264] * 60, "learning_rate": [0.0] * 60}
    series = built(profile, a_table(range(60), columns))[0]
    assert series["learning_rate"].resolution.exact


def test_zeros_in_a_log_of_full_precision_are_zeros():
    columns = numbered(np.random.default_rng(0).normal(size=60)) | {"approx_kl": np.zeros(60), "loss": rounded(2)}
    series, _ = one(columns, a_metric("entropy"), a_metric("approx_kl"), a_metric("loss"))
    assert series["approx_kl"].resolution.exact


def test_counters_stay_exact_in_a_rounding_log():
    columns = numbered(rounded(3)) | {"optimizer_steps": np.full(60, 16.0)}
    series, _ = one(columns, a_metric("entropy"), a_metric("optimizer_steps"))
    assert series["optimizer_steps"].resolution == EXACT


@pytest.mark.parametrize(("digits", "absolute"), [(3, 0.0005), (6, 0.5e-6), (16, 0.0)])
def test_printed_digits_are_believed_before_values(digits, absolute):
    profile = a_profile(a_metric("entropy"))
    table = a_table(range(60), numbered(np.zeros(60)), decimals={"entropy": digits})
    assert built(profile, table)[0]["entropy"].resolution == Resolution(absolute=absolute)


def test_the_most_digits_of_several_tables_count():
    tables = [
        a_table([i], {"step": [i + 1], "entropy": [0.0]}, decimals={"entropy": d}) for i, d in enumerate((1, 4, 2))
    ]
    assert built(a_profile(a_metric("entropy")), *tables)[0]["entropy"].resolution == Resolution(absolute=0.5e-4)


def test_a_framework_that_always_rounds_says_so_itself():
    found = one(numbered(np.zeros(60)), a_metric("entropy", resolution=5e-5))[0]["entropy"]
    assert found.resolution == Resolution(absolute=5e-5)


def test_a_scale_scales_the_resolution_too():
    found = one(numbered(rounded(2)), a_metric("entropy", scale=100.0))[0]["entropy"]
    assert found.resolution == Resolution(absolute=0.5)


# Round trips

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(values=st.lists(NUMBERS, min_size=1, max_size=40), gaps=st.lists(st.integers(1, 1000), min_size=40, max_size=40))
def test_what_goes_in_comes_out(values, gaps):
    steps = np.cumsum(gaps[: len(values)])
    found = one({"step": steps, "entropy": values})[0]["entropy"]
    assert np.array_equal(found.values, np.array(values), equal_nan=True)
    assert np.array_equal(found.axis.steps, steps)


@given(steps=st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_one_record_per_step_and_it_is_the_last(steps):
    found = one({"step": steps, "entropy": range(len(steps))})[0]["entropy"]
    last = {step: index for index, step in enumerate(steps)}
    assert dict(zip(found.axis.steps.tolist(), found.values.tolist(), strict=True)) == last
    assert found.axis.steps.tolist() == sorted(last)


# Frames


def test_a_run_is_a_table_of_steps_and_metrics():
    frame = a_run(a_series("entropy", [1.0, 2.0], steps=[1, 3]), a_series("loss", [5.0, 6.0], steps=[2, 3])).to_frame()
    assert frame.index.name == "step"
    assert frame.index.tolist() == [1, 2, 3]
    assert frame.loc[3].to_dict() == {"entropy": 2.0, "loss": 6.0}
    assert math.isnan(frame.loc[2, "entropy"])


def test_of_a_step_that_repeats_the_frame_shows_the_last_value():
    frame = a_run(a_series("entropy", [1.0, 2.0, 3.0, NAN], steps=[1, 1, 2, 2])).to_frame()
    assert frame.loc[1, "entropy"] == 2.0
    assert math.isnan(frame.loc[2, "entropy"]), "a NaN that was logged last is not hidden by a number before it"


def test_a_loaded_log_is_a_frame(samples):
    import ppo_doctor

    run = ppo_doctor.load_run(samples / "healthy" / "healthy.sb3")
    frame = run.to_frame()
    assert len(frame) == 80
    assert set(frame.columns) == set(run.series)
    assert run.steps == (frame.index[0], frame.index[-1])


def test_records_of_no_metric_are_not_counted():
    said, held = a_table([0, 1, 3], {"word": [1, 2, 3]}), a_table([2, 4], {"policy_loss": [0.1, 0.2]})
    series, _ = built(a_profile(a_metric("policy_loss")), said, held)
    assert series["policy_loss"].axis.steps.tolist() == [1, 2]


def test_as_many_records_without_a_step_as_stand_before_are_these():
    table = a_table([0, 1, 2], {"step": [10, 20, 30], "loss": [1, 2, 3]})
    below = a_table([3, 4, 5], {"policy_loss": [0.1, 0.2, 0.3]})
    series, _ = built(a_profile(a_metric("policy_loss"), a_metric("loss")), table, below)
    assert series["policy_loss"].axis.steps.tolist() == [10, 20, 30]


def test_a_step_that_hundreds_of_records_share_counts_nothing():
    table = a_table(range(300), {"step": [7] * 300, "policy_loss": np.arange(300)})
    series, _ = built(a_profile(a_metric("policy_loss")), table)
    assert series["policy_loss"].axis.steps.tolist() == list(range(1, 301))


def test_the_mean_of_several_columns_has_the_name_of_none():
    metric = MetricProfile(name="policy_loss", keys=("a_0/loss",), columns=("a_0/loss", "a_1/loss"))
    table = a_table([0, 1], {"step": [1, 2], "a_0/loss": [1, 3], "a_1/loss": [3, 5]})
    series, _ = built(a_profile(metric), table)
    loss = series["policy_loss"]
    assert (loss.raw, loss.values.tolist()) == ("mean of a_*/loss", [2, 4])
