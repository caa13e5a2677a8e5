"""`inspect` shows names, settings with their origin, K with its derivation, and what the log cannot decide."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.diagnosis.inspection import inspect
from ppo_doctor.model.request import Request


def inspected(path):
    return inspect(read_runs(str(path), Request())[0], load_pack())


@pytest.fixture
def grpo(samples):
    return inspected(samples / "healthy" / "healthy.trl-grpo")


def test_raw_names_are_shown_with_canonical_ones_and_semantics(grpo):
    entropy = {m.name: m for m in grpo.mapped}["clip_fraction"]
    assert entropy.raw == "clip_ratio/region_mean"
    assert "effective" in entropy.semantics


def test_k_is_shown_with_its_derivation(grpo):
    facts = {fact.name: fact for fact in grpo.updates}
    assert facts["updates_configured"].value == facts["updates_observed"].value == 4
    assert "reward" in facts["updates_observed"].says


def test_what_a_log_lacks_is_asked_for(tmp_path):
    path = tmp_path / "thin.jsonl"
    path.write_text("".join(json.dumps({"step": s, "episode_return": float(s)}) + "\n" for s in range(20)))
    seen = inspected(path)
    assert dict(seen.not_judged)["lr-zero"]
    assert 1 <= len(seen.wanted) <= 5
    assert "approx_kl" in {w.metric for w in seen.wanted} | {m for _, needs in seen.not_judged for m in needs}
    assert all(a.decibans >= b.decibans for a, b in zip(seen.wanted, seen.wanted[1:], strict=False))


def test_unknown_keys_come_with_near_misses(tmp_path):
    path = tmp_path / "odd.jsonl"
    rows = [
        {"step": s, "approx_kl": 0.1, "entropy": 1.0, "policy_loss": 0.1, "exlpained_variance": 0.5} for s in range(9)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "explained_variance" in dict(inspected(path).unknown).get("exlpained_variance", ("explained_variance",))


def test_holes_and_phases_are_found(tmp_path):
    path = tmp_path / "holes.jsonl"
    steps = [*range(20), *range(200, 220)]
    rates = np.concatenate([np.linspace(0, 1e-3, 10), np.full(20, 1e-3), np.linspace(1e-3, 0, 10)])
    rows = [{"step": s, "approx_kl": 0.1, "learning_rate": float(r)} for s, r in zip(steps, rates, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = inspected(path)
    assert seen.holes == ((19, 200),)
    assert [phase.name for phase in seen.phases] == ["warm-up", "constant", "decay"]


def test_the_command_prints_it_all(cli, samples):
    outcome = cli("inspect", samples / "healthy" / "healthy.sb3")
    assert outcome.code == 0
    for word in ("train/approx_kl", "approx_kl", "n_epochs", "config.json", "K ", "lr-zero"):
        assert word in outcome.out


def test_a_hostile_key_cannot_reach_the_terminal(cli, tmp_path):
    path = tmp_path / "evil.jsonl"
    path.write_text("".join(json.dumps({"step": s, "approx_kl": 0.1, "\x1b[31mred\x07": 1.0}) + "\n" for s in range(9)))
    assert "\x1b" not in cli("inspect", path, "--all").out
