"""Every metric of dumps and checkpoints agrees with a plain reference of extended precision, to 1e-9 relative."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ppo_doctor.model.metrics import METRICS, OBSERVED
from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps import checkpoints, dump_run
from ppo_doctor.runs.dumps.contents import with_roles
from ppo_doctor.runs.dumps.passes import MOVED
from tests.runs.dumps.dump_references import LOGGED, OF_CHECKPOINTS, OF_DUMPS, OF_LOGS, change_corr, dump
from tests.runs.dumps.references import CLIP, DUAL, agree


def test_every_metric_of_tensors_has_a_reference():
    of_tensors = {name for name, metric in METRICS.items() if not metric.logged and name not in OBSERVED}
    assert of_tensors == set(OF_DUMPS) | set(OF_CHECKPOINTS) | OF_LOGS


def archive(named, scalars=None, path="update_1.npz", container="npz"):
    held = {name: Tensor.of(name, np.asarray(values)) for name, values in named.items()}
    return with_roles([Archive(path=path, container=container, tensors=held, scalars=scalars or {})])[0]


@pytest.mark.parametrize(("scale", "extreme"), [(0.0, False), (1e-4, False), (0.3, False), (0.5, True)])
def test_metrics_of_dumps_agree(scale, extreme):
    references = {name: one for name, one in (OF_DUMPS | LOGGED).items() if name != "epoch_change_corr"}
    missing = set(references)
    for seed in range(4):
        held = dump(seed, scale, extreme)
        known = dump_run.Known(clip=CLIP, dual_clip=DUAL)
        (record,) = dump_run.with_update_metrics([dump_run.measure(archive(held), known)])
        for name, reference in references.items():
            plain, cancels = reference(held)
            if plain is None or math.isnan(plain):
                assert name not in record.values, name
                continue
            assert agree(record.values[name], plain, cancels), (name, record.values[name], float(plain))
            missing.discard(name)
    if scale:  # passes that are the same bits have no pattern
        assert missing <= ({"passes_one_sided"} if scale < MOVED else set()), missing


def test_changes_through_epochs_agree():
    held = dump(0, 0.0, False)
    held["old_log_probs"] = held["rollout_log_probs"]
    bits = [row.tobytes() for row in held["rollout_log_probs"]]
    held["sample"] = np.array([bits.index(row) for row in bits])
    sample = held.pop("sample")
    found = dump_run.measure(archive(held)).values["epoch_change_corr"]
    assert agree(found, *change_corr(held | {"sample": sample}))


def bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_metrics_of_checkpoints_agree():
    w = np.arange(1.0, 9.0, dtype=np.float32)
    old, later, reference = w.copy(), w.copy(), w + 1
    old[:3] += 1
    later[::2] *= 2

    def named(prefix, values):
        return {f"{prefix}.layer.weight": values}

    def measured(*archives, rate=None):
        found = {}
        for record in checkpoints.measure(list(archives), rate):
            found |= record.values
        return found

    safe = {"container": "safetensors"}
    found = measured(archive(named("policy", w) | named("old_policy", old) | named("ref", reference), **safe))
    found |= {
        "snapshot_changed": measured(
            archive({"w.weight": w}, path="step_1.safetensors", **safe),
            archive({"w.weight": later}, path="step_2.safetensors", **safe),
        )["snapshot_changed"]
    }
    broken = np.array([1, math.nan, math.inf, 2], np.float32)
    found["weights_nonfinite"] = measured(archive({"w.weight": broken}, **safe))["weights_nonfinite"]
    lora = {"q.lora_B.weight": np.zeros((2, 2)), "v.lora_B.weight": np.eye(2), "q.lora_A.weight": np.eye(2)}
    found["adapters_zero"] = measured(archive(lora, **safe))["adapters_zero"]
    state = {
        "policy.w": np.ones((2, 2), np.float32),
        "optimizer.state.0.exp_avg": np.ones((2, 2), np.float32),
        "optimizer.state.1.exp_avg": np.zeros((3, 3), np.float32),
        "optimizer.param_groups.0.params": np.arange(4),
    }
    of_state = measured(archive(state, container="pt", path="policy.pt"))
    found |= {name: value for name, value in of_state.items() if name.startswith("optimizer")}
    half = Tensor.of("w", bfloat16([1.0, 1.0, 1.0, 1e-6]), dtype="bfloat16")
    moment = Tensor.of("m", bfloat16([0.5] * 4), dtype="bfloat16")
    swallowed = Archive(
        path="policy.pt",
        container="pt",
        tensors={"policy.w": half, "optimizer.state.0.exp_avg": moment},
        scalars={"optimizer.param_groups.0.lr": 1e-5, "optimizer.param_groups.0.params.0": 0},
    )
    found["swallowed_fraction"] = measured(swallowed)["swallowed_fraction"]
    for name, plain in OF_CHECKPOINTS.items():
        assert agree(found[name], plain), (name, json.dumps(found))


@pytest.mark.parametrize("values", [[], [math.nan], [-1.0], [-math.inf, math.nan]])
def test_empty_and_broken_dumps_tell_no_numbers_that_are_not_there(values):
    values = np.array(values)
    found = dump_run.measure(archive({"log_probs": values, "old_log_probs": values, "advantages": values})).values
    alone = {"log_probs_nonfinite", "tokens_in_loss", "policy_loss"}
    if np.isfinite(values).any():
        assert (found["ratio_one_share"], found["approx_kl"], found["effective_sample_size"]) == (1, 0, 1)
    else:
        assert set(found) <= alone
        assert found["tokens_in_loss"] == len(values)
