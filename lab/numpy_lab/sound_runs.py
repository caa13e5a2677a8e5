"""Sound runs of many kinds: a doctor that alarms on one of these is wrong, whatever it finds elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .presets import dialect_task
from .records import RunRecord
from .train import run


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRun:
    """One healthy or benign run: what is unusual about it, and how to make it."""

    name: str
    dialect: str
    fault: str = "healthy"
    seed: int = 0
    severity: int | None = 2
    updates: int = 70
    overrides: dict[str, Any] = field(default_factory=dict)

    def record(self) -> RunRecord:
        """Train it."""
        return run(
            self.fault,
            task=dialect_task(self.dialect),
            seed=self.seed,
            severity=self.severity,
            updates=self.updates,
            dialect=self.dialect,
            **self.overrides,
        )


_CONTROL: dict[str, dict[str, Any]] = {
    "annealed to zero": {"anneal_lr": True},
    "strict target_kl": {"target_kl": 0.02},
    "not whitened": {"normalize": "none"},
    "whitened per batch": {"normalize": "batch"},
    "small batches": {"num_envs": 4, "num_steps": 32},
    "large batches": {"num_envs": 16, "num_steps": 128},
    "one epoch, four minibatches": {"epochs": 1, "learning_rate": 2e-3},
    "ten epochs": {"epochs": 10, "learning_rate": 5e-4},
    "entropy bonus": {"ent_coef": 0.02},
    "tiny gradient norm": {"max_grad_norm": 0.05},
    "no gradient clipping": {"max_grad_norm": None},
    "wide clip": {"clip_range": 0.3},
    "narrow clip": {"clip_range": 0.1},
    "monte carlo": {"gae_lambda": 1.0},
    "wide net": {"hidden": (64, 64)},
    "one hidden layer": {"hidden": (32,)},
    "value clipping": {"clip_range_vf": 0.2},
}
#: Entropy is differential there: it starts at 1.4, and is negative where the policy starts narrow.
_GAUSSIAN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("plain", "sb3", {}),
    ("plain", "cleanrl", {}),
    ("plain", "canonical", {}),
    ("few columns", "canonical-lean", {}),
    ("narrow", "sb3", {"log_std_init": -1.2}),
    ("narrow", "cleanrl", {"log_std_init": -1.2}),
    ("very narrow", "canonical", {"log_std_init": -2.5, "learning_rate": 3e-4}),
    ("entropy bonus", "sb3", {"ent_coef": 0.02}),
    ("annealed to zero", "canonical", {"anneal_lr": True}),
    ("ten epochs", "cleanrl", {"epochs": 10, "learning_rate": 5e-4}),
    ("whitened per batch", "canonical", {"normalize": "batch"}),
)
_LANGUAGE: dict[str, dict[str, Any]] = {
    "KL to the reference": {"kl_coef": 0.02},
    "annealed to zero": {"anneal_lr": True},
    "small groups": {"num_generations": 4, "num_prompts": 24},
    "large groups": {"num_generations": 16},
    "two iterations": {"epochs": 2},
    "two minibatches": {"num_minibatches": 2},
    "slow": {"learning_rate": 2e-3, "updates": 80},
    "tiny gradient norm": {"max_grad_norm": 0.05},
    "long": {"updates": 150},
}


def sound_runs() -> list[SoundRun]:
    """Return the whole set, in a fixed order: seeds and paces, then every variation, then benign look-alikes."""
    dialects = ("canonical", "sb3", "cleanrl", "trl-grpo", "trl-ppo", "trl-ppo-legacy")
    plain = [SoundRun(name=f"pace {s}", dialect=d, seed=20 + s, severity=s) for d in dialects for s in (1, 2, 3)]
    lean = [SoundRun(name="few columns", dialect="canonical-lean", seed=s) for s in (31, 32)]
    control = [
        SoundRun(name=name, dialect=("sb3", "canonical", "cleanrl")[i % 3], seed=40 + i, overrides=overrides)
        for i, (name, overrides) in enumerate(_CONTROL.items())
    ]
    language = [_language(name, overrides, 60 + i) for i, (name, overrides) in enumerate(_LANGUAGE.items())]
    single = [
        SoundRun(name="one update", dialect=d, fault="benign-single-update", seed=80 + i, severity=None)
        for i, d in enumerate(("canonical", "sb3", "cleanrl", "trl-grpo", "trl-ppo"))
    ]
    gaussian = [
        SoundRun(name=f"real-valued: {name}", dialect=d, seed=100 + i, overrides={"continuous": True, **overrides})
        for i, (name, d, overrides) in enumerate(_GAUSSIAN)
    ]
    return plain + lean + control + language + single + gaussian


def _language(name: str, overrides: dict[str, Any], seed: int) -> SoundRun:
    rest = {key: value for key, value in overrides.items() if key != "updates"}
    return SoundRun(name=name, dialect="trl-grpo", seed=seed, updates=overrides.get("updates", 60), overrides=rest)
