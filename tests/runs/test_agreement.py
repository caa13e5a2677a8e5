"""Whether two readings are of one run, by what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.run import Axis, Run, Series
from ppo_doctor.runs.agreement import compared, overlap

numbers = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1.0, 0.5]))
points = st.lists(st.tuples(st.integers(0, 12), numbers), max_size=12)


def a_run(**metrics):
    series = {}
    for name, points_of in metrics.items():
        cells = sorted(points_of, key=lambda cell: cell[0])
        steps = np.array([step for step, _ in cells], dtype=np.int64)
        axis = Axis(path=name, steps=steps, lines=np.arange(len(steps), dtype=np.int64) + 1)
        series[name] = Series(name=name, raw=name, axis=axis, values=np.array([value for _, value in cells]))
    return Run(id="x", framework="canonical", algorithm="ppo", sources=(), series=series)


def wave(count=30, *, start=0, seed=0):
    noise = np.random.default_rng(seed).normal(size=count + start)[start:]
    return [(start + i, float(value)) for i, value in enumerate(noise)]


@given(points, points)
def test_any_two_readings_can_be_compared(first, second):
    agreement = compared(a_run(entropy=first), a_run(entropy=second))
    assert agreement.share is None or 0.0 <= agreement.share <= 1.0
    for difference in agreement.differences:
        assert 0 < difference.differing <= difference.shared
    assert 0.0 <= overlap(a_run(entropy=first), a_run(entropy=second)) <= 1.0


@given(points)
def test_a_reading_agrees_with_itself(cells):
    run = a_run(entropy=cells)
    agreement = compared(run, run)
    assert agreement.share in (None, 1.0)
    assert not agreement.differences


def test_a_part_of_a_run_is_found_again_without_any_shared_step():
    whole = wave(40)
    part = [(1000 + i, value) for i, (_, value) in enumerate(whole[5:25])]
    assert compared(a_run(entropy=whole), a_run(entropy=part)).share == 1.0
    other = [(1000 + i, value) for i, (_, value) in enumerate(wave(20, seed=9))]
    assert compared(a_run(entropy=whole), a_run(entropy=other)).share < 0.1


def test_counters_and_schedules_say_nothing_about_who_ran():
    counter = [(i, float(i)) for i in range(30)]
    first, second = a_run(entropy=wave(seed=1), env_steps=counter), a_run(entropy=wave(seed=2), env_steps=counter)
    assert compared(first, second).share == 0.0


def test_the_clock_tells_which_of_our_steps_theirs_are():
    ours = wave(12)
    theirs = [(100 * i, value) for i, value in ours]
    clock = compared(a_run(entropy=ours), a_run(entropy=theirs)).clock
    assert clock is not None
    assert clock[0].tolist() == [100 * i for i in range(12)]
    assert clock[1].tolist() == list(range(12))


@pytest.mark.parametrize("spelling", ["%.4g", "%.5g"])
def test_numbers_cut_to_so_many_digits_are_those_in_full_under_other_steps_too(spelling):
    scales = {"entropy": 1.0, "approx_kl": 1e-4, "value_loss": 30.0}
    full = {name: [(i, scale * value) for i, value in wave(20)] for name, scale in scales.items()}
    printed = {name: [(100 * i, float(spelling % value)) for i, value in cells] for name, cells in full.items()}
    assert compared(a_run(**full), a_run(**printed)).clock is not None
    other = {name: [(100 * i, value + 0.01 * scales[name]) for i, value in full[name]] for name in full}
    assert compared(a_run(**full), a_run(**other)).clock is None


def test_a_column_cut_to_so_many_digits_but_for_one_number_is_the_one_in_full():
    """SB3's console prints most numbers with three digits, and one of another type with all that it has."""
    full = [(i, 0.04 * value) for i, value in wave(30)]
    printed = [(i, float(f"{value:.6g}" if i == 17 else f"{value:.3g}")) for i, value in full]
    assert compared(a_run(loss=full), a_run(loss=printed)).share == 1.0
    other = [(i, value * 1.001) for i, value in full]
    assert compared(a_run(loss=full), a_run(loss=other)).share < 0.1


def late(cells, *, lost):
    """The same values one record later; `lost` is the end at which one is missing, as a loop logs or a run stops."""
    steps = [step for step, _ in cells]
    return [(step, value) for step, (_, value) in zip(steps[1:], cells, strict=False)] if lost else cells


def test_what_one_of_two_files_logs_a_record_late_is_no_difference():
    columns = {"policy_loss": wave(seed=1), "explained_variance": wave(seed=2), "episode_return": wave(seed=3)}
    shifted = {name: late(cells, lost=name != "episode_return") for name, cells in columns.items()}
    for first, second in ((columns, shifted), (shifted, columns)):
        agreement = compared(a_run(**first), a_run(**second))
        assert agreement.share == 1.0
        assert not agreement.differences
    other = {name: late(wave(seed=seed), lost=True) for seed, name in enumerate(columns, 11)}
    assert compared(a_run(**columns), a_run(**other)).share < 0.1


def test_a_single_metric_a_record_late_proves_nothing():
    """A moving average, or a lagged copy of one metric, may stand in two runs' logs."""
    ours = a_run(policy_loss=wave(seed=1), entropy=wave(seed=2))
    theirs = a_run(policy_loss=late(wave(seed=1), lost=True), entropy=wave(seed=4))
    assert compared(ours, theirs).share < 0.1


def test_the_clock_is_told_of_records_that_are_late_and_counted_otherwise():
    columns = {"policy_loss": wave(seed=1), "explained_variance": wave(seed=2)}
    moved = {name: [(512 * (step + 1), value) for step, value in cells[:-1]] for name, cells in columns.items()}
    clock = compared(a_run(**columns), a_run(**moved)).clock
    assert clock is not None
    assert clock[0].tolist() == [512 * (i + 1) for i in range(29)]
    assert clock[1].tolist() == list(range(29))


def test_the_first_difference_is_told_with_both_values():
    ours = wave(30)
    theirs = [(step, value + (5.0 if step in (7, 9) else 0.0)) for step, value in ours]
    (difference,) = compared(a_run(entropy=ours), a_run(entropy=theirs)).differences
    assert (difference.shared, difference.differing, difference.step) == (30, 2, 7)
    assert difference.theirs - difference.ours == 5.0
