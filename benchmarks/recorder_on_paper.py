"""What the recorder costs a policy of 7 billion weights, on paper: `python -m benchmarks.recorder_on_paper`.

Bytes and operations of the statistics are counted while the recorder's own functions run on a small minibatch, and
scaled by tokens; those of norms, snapshots and the update follow from the sizes. Nothing here is a measured time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ppo_doctor.record import measures
from ppo_doctor.record.weights import LEAST, ONE_IN

#: One update: sizes as of an 8-GPU node's share that works alone, bfloat16 weights and gradients.
WEIGHTS, TENSORS, TOKENS, STEPS = 7e9, 291, 5e5, 16
#: Bytes and floating-point operations per second of one accelerator (H100 SXM: 3.35 TB/s, 40 % of 989 TFLOP/s).
BANDWIDTH, SPEED = 3.35e12, 4e14
HALF, LONG = 2, 8
#: A memory access of a scattered read moves a sector, however little of it is wanted.
SECTOR = 32
#: Operations whose result is a view of what is there.
_VIEWS = ("view", "expand", "select", "unsqueeze", "detach", "_unsafe_view", "slice", "t", "alias")


class Count(TorchDispatchMode):
    """Adds up what passes through memory, and the elementwise operations."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = self.operations = self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in _VIEWS:
            read = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
            written = [each for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
            self.moved += sum(each.numel() * each.element_size() for each in (*read, *written))
            self.operations += max((each.numel() for each in (*read, *written)), default=0)
            self.launches += 1
        return made


@dataclass(frozen=True, slots=True)
class Bill:
    """What one update costs: bytes moved, operations, launches."""

    moved: float
    operations: float
    launches: float


def statistics_of(tokens: int = 1 << 16, length: int = 512) -> Bill:
    """Return what the statistics of one minibatch cost, per token, and its launches."""
    shape = (tokens // length, length)
    new, old, advantages, mask = torch.randn(shape), torch.randn(shape), torch.randn(shape), torch.ones(shape)
    with Count() as count:
        measures.row(new, old, advantages, mask, (-0.2, 0.2))
        measures.loss_ratio_row(new, advantages, mask)
    return Bill(count.moved / tokens, count.operations / tokens, count.launches)


def recorded() -> dict[str, Bill]:
    """Return what the recorder adds to an update, by part."""
    per_token = statistics_of()
    norms = STEPS.bit_length()
    watched = max(WEIGHTS / ONE_IN, TENSORS * LEAST)
    # Twice: indices, scattered reads, values kept; then both snapshots are compared in float32 and reduced.
    snapshots = 2 * watched * (LONG + SECTOR + HALF) + watched * (2 * HALF + 6 * 4)
    return {
        "statistics": Bill(per_token.moved * TOKENS, per_token.operations * TOKENS, per_token.launches * STEPS),
        "gradient norms": Bill(norms * WEIGHTS * HALF, norms * 2 * WEIGHTS, norms * TENSORS * 2),
        "weights": Bill(snapshots, 4 * watched, 2 * TENSORS + 8 * TENSORS),
    }


def main() -> None:
    """Print the bill and its share of the update."""
    parts = recorded()
    for name, bill in parts.items():
        size = f"{bill.moved / 1e9:8.2f} GB {bill.operations / 1e9:8.2f} GFLOP {bill.launches:6.0f} launches"
        print(f"{name:<15} {size} {1000 * bill.moved / BANDWIDTH:6.2f} ms")
    update = 6 * WEIGHTS * TOKENS
    seconds = sum(bill.moved for bill in parts.values()) / BANDWIDTH
    operations = sum(bill.operations for bill in parts.values())
    print(f"update          {update:.2g} FLOP, {update / SPEED:.1f} s at {SPEED:.0g} FLOP/s")
    share = 100 * seconds / (update / SPEED)
    print(f"recorder        {1000 * seconds:.1f} ms of memory traffic: {share:.3f} % of the time")
    print(f"                {operations:.2g} operations: {100 * operations / update:.5f} % of the arithmetic")
    print("device syncs    0 in the update, 1 transfer at its end (tests/record/test_torch_loop.py counts them)")


if __name__ == "__main__":
    main()
