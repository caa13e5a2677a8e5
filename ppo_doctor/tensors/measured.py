"""What was measured in files of tensors, before it becomes the series of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ppo_doctor.model import Note
from ppo_doctor.tensors.moments import Summary
from ppo_doctor.tensors.same_tokens import SamplerLogProbs
from ppo_doctor.tensors.statistics import Cell, Kl


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Canonical metrics of one record: a dump, or a pair of checkpoints; `step` is None where nothing tells it.

    `raw` says per metric of which tensors it was computed. Metrics that cannot be told are left out. `epoch` and
    `minibatch` are those of a dump that holds only one, `cells` counts those that it tells apart;
    `old` sums up the old log-probs of each epoch in it, `kls` the KL of each minibatch of an epoch; `sampler` holds the
    sampler's log-probs.
    """

    path: str
    container: str
    step: int | None
    values: Mapping[str, float]
    raw: Mapping[str, str]
    notes: tuple[Note, ...] = ()
    epoch: int | None = None
    minibatch: int | None = None
    cells: int | None = None
    old: Mapping[int, Summary] = field(default_factory=dict)
    kls: Mapping[Cell, Kl] = field(default_factory=dict)
    sampler: SamplerLogProbs | None = None


#: A number that stands alone, or behind a word that counts: dump_12, step12, but not bf16 or fp32.
_COUNTED = re.compile(
    r"(?:(?<![A-Za-z0-9.])|(?<=step)|(?<=update)|(?<=iter)|(?<=epoch)|(?<=dump)|(?<=ckpt))(\d+)", re.I
)


def number_in(path: str) -> int | None:
    """Return the last number in a file's name that counts something, or in that of its folder, if any."""
    file = Path(path)
    found = _COUNTED.findall(file.stem) or _COUNTED.findall(file.parent.name)
    return int(found[-1][:15]) if found else None
