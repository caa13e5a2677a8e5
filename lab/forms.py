"""What columns of each metric are like, counted: `python -m lab.forms` writes ppo_doctor/trainers/guessing/forms.json.

Columns whose metric a framework's profile or a plain name tells are taken from the lab's runs, from published runs
where they lie beside the project, and from our samples. A source (a trainer, a repository) counts by the root of its
columns: runs of one trainer are alike.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.request import Request
from ppo_doctor.runs import columns
from ppo_doctor.trainers.guessing.value_forms import OTHER, Counts, form, numbers
from ppo_doctor.trainers.names import clocks

from .corpus import unpacked
from .field import FIELD, field_runs
from .labels import labelled, labels

if TYPE_CHECKING:
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.profiles import Profile

TABLE = Path(__file__).parent.parent / "ppo_doctor" / "trainers" / "guessing" / "forms.json"
SAMPLES = Path(__file__).parent.parent / "sample_logs"
#: Runs of one source that are read, and columns of each; metrics with fewer weighted columns are left out.
MOST_RUNS, MOST_COLUMNS, FEWEST = 14, 80, 3.0


def _sources() -> Iterator[tuple[str, Path]]:
    for name in labelled():
        yield from ((f"lab/{name}", unpacked(name) / case) for case in sorted({each.case for each in labels(name)}))
    yield from ((run.repository, FIELD / run.part / run.name) for run in field_runs() if run.ppo)
    yield from (("samples", path.parent) for path in sorted(SAMPLES.glob("*/*/*.jsonl")))


def _forms(path: Path) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield metric and form of the columns of a run."""
    read: list[tuple[Profile, Log]] = []
    whole = columns.profile_of

    def seen(log: Log, *args: Any, **more: Any) -> Profile:
        profile = whole(log, *args, **more)
        read.append((profile, log))
        return profile

    def unchanged(profile: Profile, _: Log) -> Profile:
        return profile

    with (
        mock.patch.multiple(columns, profile_of=seen, _by_company=unchanged),
        contextlib.suppress(DoctorError),
    ):
        read_runs(str(path), Request())
    for profile, log in read[:2]:
        meant = {key: metric for metric in profile.metrics.values() for key in metric.keys}
        outside = set(clocks(log.keys))
        for key in [key for key in sorted(log.keys) if key not in outside][:MOST_COLUMNS]:
            metric = meant.get(key)
            scale, offset = (metric.scale, metric.offset) if metric else (1.0, 0.0)
            found = numbers(log.by_record(key) * scale + offset)
            if found is not None:
                yield metric.name if metric and metric.name in METRICS else OTHER, form(found)


def counted() -> Counts:
    """Return metric → property → class → weighted number of columns."""
    runs = Counter[str]()
    held: dict[tuple[str, str], list[Mapping[str, int]]] = defaultdict(list)
    for source, path in _sources():
        runs[source] += 1
        if runs[source] <= MOST_RUNS:
            for metric, found in _forms(path):
                held[source, metric].append(found)
    table: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    weight: dict[str, float] = defaultdict(float)
    for (_, metric), forms in held.items():
        weight[metric] += math.sqrt(len(forms))
        for each in forms:
            for name, k in each.items():
                table[metric][name][str(k)] += 1.0 / math.sqrt(len(forms))
    return {
        metric: {
            name: {k: round(n, 1) for k, n in sorted(classes.items(), key=lambda each: int(each[0]))}
            for name, classes in sorted(of_metric.items())
        }
        for metric, of_metric in sorted(table.items())
        if weight[metric] >= FEWEST
    }


if __name__ == "__main__":
    counts = counted()
    lines = (f"{json.dumps(metric)}: {json.dumps(of_metric)}" for metric, of_metric in counts.items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stdout.write(f"{len(counts)} metrics\n")
