"""The rivals that install from the package index: how to run each, and which of its findings name which cause."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DRIVERS = Path(__file__).parent / "drivers"
BROKEN_REWARD = frozenset({"adv-exactly-zero", "reward-too-sparse", "reward-pipeline-broken", "group-std-zero-partial"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One tool. `names`: finding → causes that it names, or whose mechanism it states; the rest are symptoms."""

    name: str
    requirement: str
    driver: str
    reads: frozenset[str]
    names: Mapping[str, frozenset[str]]
    without_dependencies: tuple[str, ...] = field(default=())
    """What to install beside it where its own list of dependencies is far larger than what reading a log needs."""

    def install(self, folder: Path) -> str | None:
        """Make its environment unless it is there; return why that failed, or None."""
        python = folder / self.name / "bin" / "python"
        if python.is_file():
            return None
        subprocess.run([sys.executable, "-m", "venv", str(folder / self.name)], check=True)
        bare = ["--no-deps"] if self.without_dependencies else []
        for wanted in ([*bare, self.requirement], list(self.without_dependencies)):
            if wanted:
                command = [str(python), "-m", "pip", "install", "--quiet", *wanted]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    return done.stderr.strip().splitlines()[-1]
        return None

    def findings(self, folder: Path, log: Path) -> list[str] | None:
        """Return what it says of a log at warning or above; None where it fails."""
        command = [str(folder / self.name / "bin" / "python"), str(DRIVERS / self.driver), str(log)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return list(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


RIVALS = (
    Rival(
        name="rldoctor",
        requirement="rldoctor==0.2.0",
        driver="run_rldoctor.py",
        reads=frozenset({"sb3", "trl-grpo", "trl-ppo"}),
        names={
            "advantage_collapse": BROKEN_REWARD,
            "gradient_pathology": frozenset({"no-grad-path", "loss-mask-empty", "grad-norm-spike"}),
            "gradient_pathology:non-finite": frozenset({"nan-inf"}),
            "entropy_collapse": frozenset({"entropy-collapse", "lr-too-high"}),
            "clip_saturation": frozenset({"lr-too-high", "over-reuse"}),
            "kl_drift": frozenset({"lr-too-high", "kl-coef-runaway"}),
            "length_pathology": frozenset({"truncation-dominates", "length-collapse", "loss-mask-empty"}),
        },
    ),
    Rival(
        name="rlwatch",
        requirement="rlwatch==0.5.1",
        driver="run_rlwatch.py",
        reads=frozenset({"sb3", "trl-grpo", "trl-ppo"}),
        names={
            "loss_nan": frozenset({"nan-inf"}),
            "entropy_collapse": frozenset({"entropy-collapse", "lr-too-high"}),
            "kl_explosion": frozenset({"lr-too-high", "kl-coef-runaway"}),
            "gradient_norm_spike": frozenset({"grad-norm-spike", "lr-too-high"}),
        },
    ),
    Rival(
        name="zen-rl",
        requirement="zen-rl==0.1.0",
        driver="run_zen.py",
        reads=frozenset({"sb3"}),
        names={
            "LR_TOO_HIGH": frozenset({"lr-too-high"}),
            "POLICY_COLLAPSE": frozenset({"entropy-collapse", "lr-too-high"}),
        },
    ),
    Rival(
        name="rlx-workbench",
        requirement="rlx-workbench==0.3.0",
        driver="run_rlx.py",
        reads=frozenset({"sb3"}),
        names={
            "PPO metric: train/approx_kl": frozenset({"lr-too-high", "over-reuse"}),
            "PPO metric: train/clip_fraction": frozenset({"lr-too-high", "over-reuse"}),
            "PPO metric: train/explained_variance": frozenset({"critic-not-learning", "critic-worse-than-mean"}),
            "PPO metric: train/value_loss": frozenset({"value-loss-explosion"}),
        },
        without_dependencies=("pyyaml", "pydantic>=2.11", "rich<14", "typer"),
    ),
)
