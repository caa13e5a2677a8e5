"""Comparisons of weights: memory, bits, norms, optimizer state."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps import checkpoints
from ppo_doctor.runs.dumps.checkpoints import (
    compare,
    nonfinite_of,
    optimizer_state,
    swallowed,
    weights_of,
    zero_adapters,
)


def weights(**named):
    return {name: Tensor.of(name, np.asarray(values)) for name, values in named.items()}


def bfloat16(name, values):
    bits = np.asarray(values, np.float32).view(np.uint32) >> 16
    return Tensor.of(name, bits.astype(np.uint16), dtype="bfloat16")


def test_pieces_add_up(monkeypatch):
    monkeypatch.setattr(checkpoints, "PIECE", 7)
    chance = np.random.default_rng(0)
    before, after = chance.normal(size=(9, 5)), chance.normal(size=(9, 5))
    after[3] = before[3]
    found = compare(weights(w=before), weights(w=after), one_file=False)
    assert found.delta == pytest.approx(float(np.linalg.norm(after - before)), rel=1e-12)
    assert found.changed == 40 / 45


def test_shared_memory_is_not_mere_equality():
    one, copy = weights(w=[1.0, 2.0]), weights(w=[1.0, 2.0])
    assert compare(one, one, one_file=True).shared == 1
    assert compare(one, one, one_file=False).shared == 0, "two files have no memory in common"
    apart = {"w": dataclasses.replace(copy["w"], storage="memory:other")}
    found = compare(one, apart, one_file=True)
    assert (found.shared, found.changed) == (0, 0)


def test_frozen_tensors_are_named():
    found = compare(weights(a=[1.0], b=[2.0, 3.0]), weights(a=[1.0], b=[2.0, 4.0]), one_file=False)
    assert found.frozen == ("a",)
    assert found.changed == 1 / 3


def test_names_and_shapes_that_do_not_match_are_told():
    found = compare(weights(a=[1.0], b=[2.0], c=[1.0]), weights(a=[1.0], b=[2.0, 4.0]), one_file=False)
    assert found.unmatched == ("b", "c")
    assert compare(weights(a=[1.0]), weights(b=[1.0]), one_file=False) is None


def test_a_change_of_type_compares_values():
    found = compare(weights(w=np.float32([1, 2])), weights(w=np.float64([1, 3])), one_file=False)
    assert (found.changed, found.delta) == (0.5, 1.0)


def test_a_change_from_zero_is_infinite_and_none_is_none():
    found = compare(weights(a=[0.0], b=[0.0]), weights(a=[1.0], b=[0.0]), one_file=False)
    assert [change.relative for change in found.changes] == [math.inf, 0.0]


def test_weights_leave_out_counters_and_optimizer_states():
    named = {
        "module.w": Tensor.of("w", np.ones(2)),
        "bn.num_batches_tracked": Tensor.of("n", np.array(3)),
        "optimizer.state.0.exp_avg": Tensor.of("m", np.ones(2)),
        "empty": Tensor.of("e", np.empty(0)),
    }
    assert list(weights_of(named)) == ["w"]


def test_what_is_not_finite_is_counted_by_tensor():
    found = nonfinite_of(weights(a=[1.0, math.nan, math.inf], b=np.float32([3e38, 3e38]), c=[1e308, 1e308]))
    assert found == {"a": 2}, "a sum that overflows is no fault of its terms"


def test_adapters_that_never_moved():
    held = weights(**{"q.lora_A.weight": [[1.0]], "q.lora_B.weight": [[0.0]], "v.lora_B.weight": [[0.1]]})
    assert zero_adapters(held) == (1, 2)


def test_the_optimizer_is_matched_by_shape():
    model = weights(w=np.ones((2, 3)), b=np.ones(3))
    listed = {"optimizer.param_groups.0.params": Tensor.of("p", np.arange(2))}
    rate = {"optimizer.param_groups.0.lr": 3e-4}
    fresh = optimizer_state(listed, rate, model)
    assert (fresh.listed, fresh.held, fresh.learning_rate) == (2, 0, 3e-4)
    moments = {f"optimizer.state.{i}.exp_avg": Tensor.of("m", np.ones(s)) for i, s in enumerate([(2, 3), (7,)])}
    stepped = optimizer_state(listed | moments, rate, model)
    assert (stepped.held, stepped.fitting, stepped.half, stepped.masters) == (2, 1, False, False)
    assert optimizer_state(model, {}, model) is None


def test_steps_below_half_a_unit_are_swallowed():
    # neighbours of 1 in bfloat16 are 2^-7 above, those of 0.01 (in [2^-7, 2^-6)) 2^-14
    held = {"w": bfloat16("w", [1.0, 0.01, 0.0, -1.0])}
    assert swallowed(held, 2.0**-8 * 0.99) == 2 / 3
    assert swallowed(held, 2.0**-8) == 0
    assert swallowed(held, 1e-6) == 1
    assert swallowed(weights(w=[1.0]), 1e-6) is None


@given(st.floats(2.0**-20, 2.0**13))
def test_half_a_unit_agrees_with_numpy_in_float16(value):
    held = np.float16(value)
    if not np.isfinite(held) or held == 0:
        return
    half = float(np.spacing(held)) / 2
    alone = {"w": Tensor.of("w", np.array([held]))}
    assert swallowed(alone, half * 0.999) == 1
    assert swallowed(alone, half) == 0


def test_what_was_proved_finite_is_not_read_again(monkeypatch):
    """NaN and infinity are counted all the same: in a pair, beside a pair, and where squares overflow."""

    def record(**named):
        held = {f"policy.{k}": v for k, v in named.items()} | {"old_policy.w": np.ones(3)}
        tensors = {name: Tensor.of(name, np.asarray(values)) for name, values in held.items()}
        file = Archive(path="policy.safetensors", container="safetensors", tensors=tensors, scalars={})
        return checkpoints.measure([file])[0].values["weights_nonfinite"]

    seen = []
    counted = checkpoints._nonfinite
    monkeypatch.setattr(checkpoints, "_nonfinite", lambda tensor: seen.append(tensor.name) or counted(tensor))
    assert record(w=[1.0, 2.0, 3.0]) == 0
    assert seen == []
    assert record(w=[1.0, math.nan, 3.0]) == 1
    assert record(w=[1e200, 2.0, -1e200]) == 0
    assert record(w=[1.0, 1.0, 1.0], alone=[math.inf, 0.0]) == 1
    assert record(w=[math.inf, 1.0, math.nan], alone=[math.inf, 0.0]) == 3
