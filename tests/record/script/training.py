"""A small PPO script with own weights, forms of it with one fault each, and what the observer writes about one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from ppo_doctor.record.script.observer import Observer
from ppo_doctor.record.script.options import WatchOptions

#: The end of the line that a fault is on.
HERE = "  # here"
SOUND = """
import torch

torch.manual_seed(1)
weights = torch.nn.Parameter(0.5 * torch.randn(4, 3))
bias = torch.nn.Parameter(torch.zeros(3))
critic = torch.nn.Parameter(torch.zeros(4, 1))
optimizer = torch.optim.SGD([weights, bias, critic], lr=0.3)
n_epochs = 2


def log_prob(obs, actions):
    return torch.log_softmax(obs @ weights + bias, -1).gather(1, actions[:, None])[:, 0]


for update in range(UPDATES):
    with torch.no_grad():
        obs = torch.randn(32, 4)
        actions = torch.multinomial(torch.softmax(obs @ weights + bias, -1), 1)[:, 0]
        old = log_prob(obs, actions)
        advantages = torch.randn(32)
        returns = torch.randn(32)
    for epoch in range(n_epochs):
        for rows in torch.randperm(32).split(16):
            new = log_prob(obs[rows], actions[rows])
            ratio = (new - old[rows]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            surrogate = torch.min(ratio * advantages[rows], clipped * advantages[rows])
            values = (obs[rows] @ critic)[:, 0]
            value_loss = (values - returns[rows]).pow(2).mean()
            loss = -surrogate.mean() + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([weights, bias, critic], 1.0)
            optimizer.step()
"""


def changed(*changes: tuple[str, str]) -> str:
    """Return the script with each first text replaced by its second; each has to be there once."""
    text = SOUND
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@dataclass(frozen=True)
class Observation:
    """What the observer wrote about a script, and the script's variables at its end."""

    records: list[dict[str, Any]]
    config: dict[str, Any]
    places: dict[str, dict[str, Any]]
    unseen: dict[str, str]
    variables: dict[str, Any]

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric, one per record that has it."""
        return [record[metric] for record in self.records if metric in record]


def compiled(text: str, folder: Path, updates: int) -> tuple[Path, CodeType]:
    """Write a script with its number of updates, and return its path and code."""
    path = folder / "train.py"
    path.write_text(text.replace("UPDATES", str(updates)))
    return path, compile(path.read_text(), str(path), "exec")


def observed(text: str, folder: Path, length: int, **options: Any) -> Observation:
    """Run a script of so many updates in this process under observation, and return what was written."""
    path, code = compiled(text, folder, length)
    out = folder / "run.jsonl"
    observer = Observer(WatchOptions(str(out), str(path), str(folder), **options))
    variables: dict[str, Any] = {"__name__": "__main__"}
    observer.start()
    try:
        exec(code, variables)  # noqa: S102 - the text above
    finally:
        observer.finish()
    return read(out, variables)


def read(out: Path, variables: dict[str, Any]) -> Observation:
    """Return the content of a file of observations."""
    merged: dict[str, dict[str, Any]] = {"config": {}, "places": {}, "unseen": {}}
    records = []
    for line in map(json.loads, out.read_text().splitlines() if out.exists() else ()):
        kind = next((name for name in merged if name in line), None)
        if kind is None:
            records.append(line)
        else:
            merged[kind] |= line[kind]
    return Observation(records, merged["config"], merged["places"], merged["unseen"], variables)


def marked_lines(text: str) -> list[int]:
    """Return the numbers of the lines that end with the marker."""
    return [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(HERE)]
