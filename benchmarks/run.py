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
from functools import partial
from pathlib import Path

from benchmarks.measuring import Cost, interleaved, process

#: name → (policy, shape of an observation, samples, updates, largest ratio of processor time, rollout calls)
CASES = {
    "mlp": ("S(L(4, 64), nn.Tanh(), L(64, 4))", (4,), 1024, 100, 1.25, 128),
    "conv": (
        "S(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), L(1152, 4))",
        (3, 32, 32),
        64,
        60,
        1.1,
        16,
    ),
    "transformer": (
        "S(nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), 7),"
        " nn.Flatten(), L(12288, 4))",
        (16, 768),
        8,
        4,
        1.1,
        2,
    ),
}
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


def _cases(folder: Path, name: str) -> dict[str, Callable[[], Cost]]:
    policy, shape, samples, updates, _, calls = CASES[name]
    script, least = folder / f"{name}.py", folder / "least.py"
    script.write_text(
        SCRIPT.format(policy=policy, shape=shape, samples=samples, updates=updates, calls=calls), encoding="utf-8"
    )
    least.write_text(SCRIPT.format(policy="L(4, 4)", shape=(4,), samples=16, updates=2, calls=1), encoding="utf-8")
    alone, observed = (sys.executable,), (sys.executable, "-m", "ppo_doctor", "run", "--quiet")
    return {
        "alone": partial(process, [*alone, str(script)]),
        "observed": partial(process, [*observed, str(script)]),
        "least": partial(process, [*alone, str(least)]),
        "least, observed": partial(process, [*observed, str(least)]),
    }


def main() -> None:
    """Print the ratios of each script; one of processor time above its bound is a miss."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=CASES)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in [given.only] if given.only else CASES:
            costs = interleaved(_cases(Path(folder), name), given.rounds, warm=False)
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
            met = "met" if ratios["cpu"] <= CASES[name][4] and more <= 256 else "MISSED"
            print(
                f"{name:<12} {CASES[name][3]} updates: wall {ratios['wall']:.2f}, processor {ratios['cpu']:.2f},"
                f" {middle['alone', 'wall']:.1f} s alone, {more:+.0f} MB  {met}",
                flush=True,
            )


if __name__ == "__main__":
    main()
