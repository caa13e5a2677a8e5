"""Measure how far the weights move in an update, and how many of their steps round away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ppo_doctor.record.measures import Array
from ppo_doctor.record.values import here
from ppo_doctor.record.weights import moved, of_weights, sample

Tensor = Any

#: Number formats in which small steps round away.
_SHORT = (torch.bfloat16, torch.float16)


class Movement:
    """Compares watched coordinates of the policy's weights before and after an update."""

    def __init__(self) -> None:
        self._parameters: list[Tensor] = []
        self._samples: list[Tensor] = []
        self._before: list[Tensor] = []
        self._latest: list[Tensor] = []
        self._short: list[tuple[Tensor, Tensor, Tensor]] = []

    def before_step(self, policy: Iterable[Tensor]) -> None:
        """Remember the watched coordinates before a step, and the weights in a short format whose gradient is not 0."""
        trained = [p for p in policy if p.requires_grad]
        if list(map(id, trained)) != list(map(id, self._parameters)):
            self._parameters = trained
            self._samples = [sample(p, n) for n, p in enumerate(trained)]
            self._before = []
        self._latest = self._now()
        self._before = self._before or self._latest
        self._short = [
            (p, chosen, torch.where(_flat(p.grad, chosen) != 0, before, torch.nan))
            for p, chosen, before in zip(self._parameters, self._samples, self._latest, strict=True)
            if p.dtype in _SHORT and p.grad is not None
        ]

    def after_step(self) -> float | None:
        """Return the share of the weights in a short format that the step left unchanged, None if there are none."""
        still = total = 0.0
        for p, chosen, before in self._short:
            alive = ~torch.isnan(before)
            total += float(alive.sum())
            still += float(((_flat(p.detach(), chosen) == before) & alive).sum())
        self._short = []
        return still / total if total else None

    def begin(self) -> None:
        """Begin an update at the latest step."""
        self._before = self._latest

    def end(self, *, at_latest_step: bool) -> dict[str, float]:
        """Return norm and share of the change since `begin`, up to before the latest step or up to now.

        Nothing is returned if other weights were watched before the latest step.
        """
        if not self._before or (at_latest_step and self._before is self._latest):
            return {}
        after = self._latest if at_latest_step else self._now()
        rows = [moved(b, a, p.numel()) for b, a, p in zip(self._before, after, self._parameters, strict=True)]
        table: Array = here(torch.stack([row.float().cpu() for row in rows]))
        return of_weights(table, range(len(rows)))

    def _now(self) -> list[Tensor]:
        return [_flat(p.detach(), chosen) for p, chosen in zip(self._parameters, self._samples, strict=True)]


def _flat(tensor: Tensor, chosen: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat.clone() if chosen is None else flat.index_select(0, chosen)
