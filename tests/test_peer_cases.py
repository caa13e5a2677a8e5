"""The small cases that other tools were measured on: the cause by name, in TRL's keys and in Stable-Baselines3's."""

from __future__ import annotations

import pytest

from ppo_doctor.rulepack import load_pack
from tests.lab import run
from tests.lab.judge import judge
from tests.lab.presets import dialect_task

#: (what is wrong, injected fault, overrides, dialects, causes one of which must lead)
CASES = [
    (
        "ratio 1 over several epochs",
        "old-policy-aliased",
        {"severity": 1},
        ("trl-ppo", "trl-grpo", "sb3"),
        {"old-policy-aliased"},
    ),
    ("zero advantages", "adv-exactly-zero", {"severity": 3}, ("trl-grpo", "sb3"), {"adv-exactly-zero"}),
    ("clip range 0.005", "healthy", {"clip_range": 0.005}, ("trl-ppo", "trl-grpo", "sb3"), {"clip-range-too-small"}),
    ("target_kl stops at once", "target-kl-stops-early", {}, ("trl-ppo-legacy", "sb3"), {"target-kl-stops-early"}),
    (
        "policy shared with the reference",
        "ref-model-wrong",
        {"severity": 1},
        ("trl-ppo", "trl-grpo"),
        {"ref-model-wrong"},
    ),
    ("four epochs become one", "epochs-not-executed", {}, ("trl-ppo", "trl-grpo", "sb3"), {"epochs-not-executed"}),
    ("learning rate 1e-12", "healthy", {"learning_rate": 1e-12}, ("trl-ppo", "trl-grpo", "sb3"), {"lr-too-small"}),
    ("gradient norm 0", "no-grad-path", {"severity": 3}, ("trl-grpo",), {"no-grad-path"}),
    ("gradients NaN", "nan-inf", {}, ("trl-grpo", "sb3"), {"nan-inf"}),
]
EACH = [
    pytest.param(fault, more, dialect, causes, id=f"{name}-{dialect}")
    for name, fault, more, dialects, causes in CASES
    for dialect in dialects
]


def judged(fault, dialect, **overrides):
    record = run(fault, task=dialect_task(dialect), seed=3, updates=60, dialect=dialect, **overrides)
    return judge(record, dialect, load_pack())


@pytest.mark.parametrize(("fault", "more", "dialect", "causes"), EACH)
def test_the_cause_is_named(fault, more, dialect, causes):
    diagnosis = judged(fault, dialect, **({"severity": 2} | more))
    first = diagnosis.causes[0]
    assert causes & {first.id, *first.level_with}
    assert diagnosis.verdict in ("unhealthy", "warning")


@pytest.mark.parametrize("dialect", ["trl-ppo", "trl-grpo", "sb3"])
@pytest.mark.parametrize("fault", ["benign-single-update", "healthy"])
def test_what_is_sound_raises_no_alarm(fault, dialect):
    diagnosis = judged(fault, dialect, severity=None if fault.startswith("benign") else 2)
    assert diagnosis.verdict == "healthy"
    assert [cause.id for cause in diagnosis.causes if not cause.benign] == []
