"""What the recorder costs: `python -m benchmarks.recorder [UPDATES]`, for a policy of ten million weights on this CPU.

Updates with the probe off, with it, and of a twin that nobody records take turns on one thread, in processor time, to
which other work on the machine adds little. Two readings: the time inside of the recorder's calls and hooks against the
rest, which is exact; and each recorded update against the bare one beside it, which holds what it costs elsewhere as
well (caches, calls of hooks) and scatters by more than it tells.
`benchmarks.recorder_on_paper` counts what 7 billion weights would cost.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ppo_doctor.record import Recorder
from ppo_doctor.record.weights import Weights

WIDTH, FEATURES, ACTIONS = 2200, 64, 16
BATCH, MINIBATCHES, EPOCHS = 4096, 4, 2
#: Samples that the probe evaluates once more, and how rarely an update is recorded.
PROBED, EVERY = 256, (1, 5, 10, 50)


def policy() -> Any:
    """Return a policy of ten million weights."""
    layers = [torch.nn.Linear(FEATURES, WIDTH), torch.nn.Tanh()]
    for _ in range(2):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, ACTIONS))


def update(model: Any, optimizer: Any, recorder: Recorder | None, *, probing: bool = False) -> float:
    """Return the processor seconds of one update, which other work on the machine does not add to."""
    obs, actions = torch.randn(BATCH, FEATURES), torch.randint(ACTIONS, (BATCH,))
    advantages, stored = torch.randn(BATCH), torch.full((BATCH,), -2.77)
    begun = time.process_time()
    if recorder is not None:
        recorder.start_update(advantages=advantages)
    for epoch in range(EPOCHS):
        for index in torch.randperm(BATCH).split(BATCH // MINIBATCHES):
            new = model(obs[index]).log_softmax(-1).gather(1, actions[index, None])[:, 0]
            ratio = (new - stored[index]).exp()
            if recorder is not None:
                recorder.minibatch(
                    new_log_prob=new, old_log_prob=stored[index], advantages=advantages[index], epoch=epoch
                )
            loss = -torch.min(ratio * advantages[index], ratio.clamp(0.8, 1.2) * advantages[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    if recorder is not None:

        def probe() -> tuple[Any, Any]:
            return model(obs[:PROBED]).log_softmax(-1).gather(1, actions[:PROBED, None])[:, 0], stored[:PROBED]

        recorder.end_update(probe=probe if probing else None)
    return time.process_time() - begun


class Clock:
    """Adds up the processor time inside of the recorder's methods and hooks; nested calls count once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a clock around it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside, begun = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - begun
                self._inside = False

        return call

    def wind(self) -> None:
        """Put the clock around everything of the recorder that training calls."""
        for name in ("start_update", "minibatch", "note_gradient", "end_update"):
            setattr(Recorder, name, self.timed(getattr(Recorder, name)))
        for name in ("_before_step", "_after_step"):
            setattr(Weights, name, self.timed(getattr(Weights, name)))
        hook = Weights._on
        Weights._on = lambda weights, place: self.timed(hook(weights, place))  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Processor seconds of one turn: of the whole updates, and of the recorder within them."""

    bare: float
    off: float
    inside_off: float
    on: float
    inside_on: float


class Rivals:
    """Two policies alike, of which one is recorded."""

    def __init__(self, log: Path) -> None:
        self.clock = Clock()
        self.clock.wind()
        self.bare, self.recorded = policy(), policy()
        self.bare_steps, self.steps = (torch.optim.Adam(m.parameters(), lr=1e-5) for m in (self.bare, self.recorded))
        self.recorder = Recorder(log, clip_range=0.2, model=self.recorded, optimizer=self.steps)

    def turn(self) -> Turn:
        """Return what one update of each kind takes."""
        bare = update(self.bare, self.bare_steps, None)
        (off, inside_off), (on, inside_on) = (self._recorded(probing=probing) for probing in (False, True))
        return Turn(bare=bare, off=off, inside_off=inside_off, on=on, inside_on=inside_on)

    def _recorded(self, *, probing: bool) -> tuple[float, float]:
        self.clock.seconds = 0.0
        return update(self.recorded, self.steps, self.recorder, probing=probing), self.clock.seconds


def main() -> None:
    """Print the medians and the overhead."""
    torch.set_num_threads(1)
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    with tempfile.TemporaryDirectory() as folder:
        rivals = Rivals(Path(folder) / "run.jsonl")
        rivals.turn()
        weights = sum(p.numel() for p in rivals.bare.parameters())
        size = BATCH // MINIBATCHES
        print(f"{weights / 1e6:.1f} million weights, {EPOCHS * MINIBATCHES} optimizer steps of {size} samples")
        turns = [rivals.turn() for _ in range(number)]
    tell(turns)


def tell(turns: list[Turn]) -> None:
    """Print what the turns come to."""
    rest = statistics.median(t.off - t.inside_off for t in turns)
    without, probed = (
        statistics.median(each) for each in zip(*((t.inside_off, t.inside_on) for t in turns), strict=True)
    )
    shares = [100 * t.inside_off / (t.off - t.inside_off) for t in turns]
    beside = [100 * (t.off - t.bare) / t.bare for t in turns]
    print(f"update without it {rest:.2f} s; in the recorder {1000 * without:.0f} ms, probed {1000 * probed:.0f} ms")
    print(f"probe off: median {statistics.median(shares):.2f} %, from {min(shares):.2f} to {max(shares):.2f} %")
    print(
        f"against bare updates: median {statistics.median(beside):.1f} %, from {min(beside):.1f} to {max(beside):.1f} %"
    )
    for every in EVERY:
        off, on = (100 * spent / rest / every for spent in (without, probed))
        print(f"every={every:<3} probe off {off:.2f} %, with {PROBED} samples probed {on:.2f} %")


if __name__ == "__main__":
    main()
