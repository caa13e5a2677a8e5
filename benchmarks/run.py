"""Run with `python -m benchmarks.run [--rounds 3] [--only mlp]`: what `ppo-doctor run` costs, with torch installed.

Each script trains alone and observed in turn, as processes with one thread; the ratios are observed by alone, of the
median wall time, processor time and peak memory. The time of a script that trains next to nothing is taken off, and so
are imports and report.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measuring import Cost, interleaved, process

ROOT = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True, slots=True)
class Case:
    """A script, the same script that trains next to nothing, and the largest ratio of processor time."""

    script: str
    least: str
    updates: int
    bound: float
    needs: str = "torch"


SCRIPT = """
import torch
from torch import nn
S, L = nn.Sequential, nn.Linear
torch.manual_seed(0)
policy = {policy}
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
for update in range({updates}):
    data, taken, before = [], [], []
    with torch.no_grad():
        for _ in range({calls}):
            data.append(torch.randn({samples} // {calls}, *{shape}))
            chosen = torch.distributions.Categorical(logits=policy(data[-1]))
            taken.append(chosen.sample())
            before.append(chosen.log_prob(taken[-1]))
    data, taken, before = torch.cat(data), torch.cat(taken), torch.cat(before)
    advantages = (taken == 0).float() - 0.25
    for _ in range(4):
        for rows in torch.randperm({samples}).split({samples} // 4):
            chosen = torch.distributions.Categorical(logits=policy(data[rows]))
            ratio = (chosen.log_prob(taken[rows]) - before[rows]).exp()
            parts = ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows]
            optimizer.zero_grad()
            (-torch.min(*parts).mean() - 0.01 * chosen.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
"""


GRPO = """
import tempfile
from trl import GRPOConfig, GRPOTrainer
from lab import language
quiet = dict(report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True, bf16=False)
trainer = GRPOTrainer(
    model=language.policy(0, "llama"),
    args=GRPOConfig(
        output_dir=tempfile.mkdtemp(), max_steps=4 * {updates}, num_iterations=4, num_generations=8, learning_rate=1e-3,
        per_device_train_batch_size=64, max_completion_length=language.LENGTH, **quiet,
    ),
    reward_funcs=lambda completion_ids, **_: [float(len(set(each))) for each in completion_ids],
    train_dataset=language.prompts(0),
    processing_class=language.tokenizer(),
)
trainer.train()
"""


def _own(policy: str, shape: tuple[int, ...], samples: int, updates: int, bound: float, calls: int) -> Case:
    """Return a case of a script with its own loop: `calls` of its policy draw the samples of each update."""
    script = SCRIPT.format(policy=policy, shape=shape, samples=samples, updates=updates, calls=calls)
    least = SCRIPT.format(policy="L(4, 4)", shape=(4,), samples=16, updates=2, calls=1)
    return Case(script, least, updates, bound)


CASES = {
    "mlp": _own("S(L(4, 64), nn.Tanh(), L(64, 4))", (4,), 1024, 100, 1.25, 128),
    "conv": _own(
        "S(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), L(1152, 4))",
        (3, 32, 32),
        64,
        60,
        1.1,
        16,
    ),
    "transformer": _own(
        "S(nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), 7),"
        " nn.Flatten(), L(12288, 4))",
        (16, 768),
        8,
        4,
        1.1,
        2,
    ),
    "grpo": Case(GRPO.format(updates=200), GRPO.format(updates=2), 200, 1.1, "trl"),
}


def _cases(folder: Path, name: str) -> dict[str, Callable[[], Cost]]:
    scripts = {"": CASES[name].script, "least": CASES[name].least}
    cases: dict[str, Callable[[], Cost]] = {}
    for kind, text in scripts.items():
        file = folder / f"{name}{kind}.py"
        file.write_text(text, encoding="utf-8")
        for observed in (False, True):
            command = [sys.executable, *(("-m", "ppo_doctor", "run", "--quiet") if observed else ()), str(file)]
            what = ", ".join(filter(None, (kind, "observed" if observed else "" if kind else "alone")))
            cases[what] = partial(process, command, {"PYTHONPATH": ROOT})  # a script has its own folder on sys.path
    return cases


def main() -> None:
    """Print the ratios of each script; one of processor time above its bound is a miss."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=CASES)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in [given.only] if given.only else CASES:
            if find_spec(CASES[name].needs) is None:
                print(f"{name:<12} skipped: {CASES[name].needs} is not installed", flush=True)
                continue
            print(_line(name, interleaved(_cases(Path(folder), name), given.rounds, warm=False)), flush=True)


def _line(name: str, costs: dict[str, list[Cost]]) -> str:
    middle = {
        (case, clock): statistics.median(getattr(cost, clock) for cost in each)
        for case, each in costs.items()
        for clock in ("wall", "cpu", "peak_mb")
    }
    ratios = {
        clock: (middle["observed", clock] - middle["least, observed", clock])
        / (middle["alone", clock] - middle["least", clock])
        for clock in ("wall", "cpu")
    }
    more = middle["observed", "peak_mb"] - middle["alone", "peak_mb"]
    met = "met" if ratios["cpu"] <= CASES[name].bound and more <= 256 else "MISSED"
    return (
        f"{name:<12} {CASES[name].updates} updates: wall {ratios['wall']:.2f}, processor {ratios['cpu']:.2f},"
        f" {middle['alone', 'wall']:.1f} s alone, {more:+.0f} MB  {met}"
    )


if __name__ == "__main__":
    main()
