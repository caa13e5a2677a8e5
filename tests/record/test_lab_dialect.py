"""The lab's training goes through the real recorder: its numbers are the lab's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lab.numpy_lab.dialects import write
from lab.numpy_lab.train import run


def test_a_policy_synced_by_value_has_memory_of_its_own(tmp_path):
    lines = write(run("old-logp-resynced-per-minibatch", updates=3), "recorder", tmp_path).read_text().splitlines()
    assert [json.loads(line)["old_policy_shared"] for line in lines[1:]] == [0, 0, 0]


def test_the_recorders_numbers_are_those_of_the_lab(tmp_path):
    record = run("healthy", seed=12, updates=4, dialect="recorder")
    lines = write(record, "recorder", tmp_path).read_text().splitlines()[1:]
    for update, line in zip(record.updates, lines, strict=True):
        told = json.loads(line)
        cells = update.minibatches
        assert told["approx_kl"] == pytest.approx(np.mean([cell.k3 for cell in cells]), rel=1e-3, abs=1e-7)
        assert told["ratio_max"] == pytest.approx(max(cell.ratio_max for cell in cells), rel=1e-5)
        assert told["clip_fraction"] == pytest.approx(np.mean([cell.clip_fraction for cell in cells]), abs=1e-6)
        assert told["grad_norm"] == pytest.approx(np.mean([cell.grad_norm for cell in cells]), rel=1e-5)
        assert told["update_norm"] == pytest.approx(update.update_norm, rel=1e-4)
        assert told["changed_fraction"] == pytest.approx(update.changed_fraction)
        assert told["probe_kl"] == pytest.approx(update.probe_kl, rel=1e-3, abs=1e-7)
        assert (told["optimizer_steps"], told["skipped_steps"]) == (16, 0)
        assert told["optimizer_params_matched"] == 1
        assert told["loss_ratio_std"] == pytest.approx(told["ratio_std"], rel=0.2)
        # two float32 log-probs of about one nat differ by as much as 2**-20 where they should be the same
        assert told["batch_start_ratio_dev"] <= 2**-20 < told["epoch_start_ratio_dev"]
