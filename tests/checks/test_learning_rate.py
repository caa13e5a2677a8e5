"""A learning rate is high or low against what its trainer and task use."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import load_run

GRPO = '{{"step": {n}, "reward": 0.{n}, "reward_std": 0.3, "loss": 0.01, "kl": 0.{n}, "learning_rate": {rate}}}'
SB3 = "time/total_timesteps,train/approx_kl,train/learning_rate,train/n_updates,rollout/ep_rew_mean"


def observed(folder, framework, rate, *, kl=0.05, **settings):
    if framework == "sb3":
        rows = [SB3, *(f"{2048 * n},{kl / n:.5f},{rate},{10 * n},{n}.5" for n in range(1, 10))]
    else:
        rows = [GRPO.format(n=n, rate=rate) for n in range(1, 10)]
    path = folder / ("progress.csv" if framework == "sb3" else "log.jsonl")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return RunView(load_run(path, settings=settings, framework=framework))


@pytest.mark.parametrize(
    ("framework", "rate", "settings", "least", "most"),
    [
        ("sb3", 0.005, {}, 5e-3 / 3e-4, 5.0),
        ("trl-grpo", 1e-3, {}, 1000.0, 1.0),
        ("trl-grpo", 1e-3, {"model_name_or_path": "a/b-7B"}, 1000.0, 100.0),
        ("trl-grpo", 1e-3, {"model_name_or_path": "a/b-7B", "lora_r": 16}, 200.0, 20.0),
        ("trl-grpo", 1e-3, {"model_name_or_path": "a/b-7B", "use_peft": False}, 1000.0, 100.0),
        ("trl-grpo", 1e-3, {"train_type": "lora"}, 200.0, 1.0),
        ("trl-grpo", 1e-3, {"lora_rank": 0, "lora_alpha": 16}, 1000.0, 1.0),
        ("trl-grpo", 1e-3, {"model": "a/b-7B", "lora.rank": 8}, 200.0, 20.0),
        ("trl-grpo", 1e-3, {"model_name_or_path": "tiny-1M"}, 1000.0, 1.0),
    ],
)
def test_what_a_rate_is_held_against(tmp_path, framework, rate, settings, least, most):
    seen = observed(tmp_path, framework, rate)
    seen = RunView(replace(seen.run, config_raw=settings))
    assert seen.fact("rate_over_least").value == pytest.approx(least, rel=1e-3)
    assert seen.fact("rate_over_most").value == pytest.approx(most, rel=1e-3)
    assert "usual for" in seen.fact("rate_over_least").says


def test_no_rate_is_held_against_nothing(tmp_path):
    run = observed(tmp_path, "sb3", 0.0003).run
    bare = replace(run, series={name: series for name, series in run.series.items() if name != "learning_rate"})
    assert RunView(bare).fact("rate_over_most") is None


@pytest.mark.parametrize(("kl", "most"), [(0.031, 100.0), (0.029, 1.0), (0.0, 100.0)])
def test_a_rate_whose_updates_are_known_to_stay_near_is_usual(tmp_path, kl, most):
    seen = observed(tmp_path, "sb3", 0.1, kl=kl, updates_per_batch=320)
    assert seen.fact("rate_over_most").value == pytest.approx(most)


SLOW = [{"kl": 0.0, "clip_ratio": 0.0}, *({"kl": 0.001 * n, "clip_ratio": 0.01} for n in range(1, 12))]
FAST = [{"kl": 0.0, "clip_ratio": 0.3}, *({"kl": 0.2 * n, "clip_ratio": 0.4} for n in range(1, 12))]


@pytest.mark.parametrize(
    ("records", "keys", "usual"),
    [(SLOW, ("kl",), True), (FAST, ("kl",), False), (SLOW, ("clip_ratio",), True), (FAST, ("clip_ratio",), False)],
)
def test_a_rate_at_which_no_update_goes_far_is_usual(tmp_path, records, keys, usual):
    path = tmp_path / "log.jsonl"
    rows = [
        {
            "step": n,
            "reward": 0.1 * n,
            "reward_std": 0.3,
            "loss": 0.01,
            "learning_rate": 2e-2,
            **{k: r[k] for k in keys},
        }
        for n, r in enumerate(records, start=1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    seen = RunView(load_run(path, framework="canonical", settings={}))
    assert (seen.fact("rate_over_most").value <= 1) is usual
