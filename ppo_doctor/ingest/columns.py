"""Columns of one quantity by several workers, ranks or environments, and those that are a clock."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import count as count_from

from ppo_doctor.ingest.chinese import english
from ppo_doctor.ingest.naming import COUNTERS, LONGEST, metric_of, of_machine
from ppo_doctor.ingest.settings_words import CLOCKS

#: A number by which columns of one quantity are told apart: of a worker, a rank, an agent, an environment.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])((?:worker|rank|agent|env|actor|player|learner|device|gpu)?)(\d{1,4})(?![A-Za-z0-9])"
)
#: What is a bound of others is so over several columns too; of other metrics the mean counts.
_OVER = (("_min", "min"), ("_max", "max"), ("grad_norm", "max"), ("update_norm", "max"))


def siblings(key: str, keys: Container[str]) -> tuple[str, ...]:
    """Return the columns of one quantity, of which a key is the first: alike but for a number, from 0 or 1 on."""
    for found in _NUMBER.finditer(key):
        before, first, after = key[: found.start(2)], int(found[2]), key[found.end(2) :]
        count = next(n for n in count_from(first) if f"{before}{n}{after}" not in keys)
        if first in (0, 1) and count > first + 1:
            return tuple(f"{before}{n}{after}" for n in range(first, count))
    return ()


def over(metric: str) -> str:
    """Return how a metric of several columns is one: by "min" and "max" for bounds, "max" for norms, else by "mean"."""
    return next((rule for end, rule in _OVER if metric.endswith(end)), "mean")


def squashed(text: str) -> str:
    """Return letters and digits only, in lower case; what stands in brackets is a unit or a remark."""
    return "".join(c for c in re.sub(r"[(\[{].*?[)\]}]", "", text[:LONGEST]).lower() if c.isalnum())


def clocks(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that may count the steps of a log, most trusted first; what is a time of the machine does not."""
    held = []
    for key in keys:
        name = squashed(english(re.split(r"[/.]", key)[-1]))
        if metric_of(key) in COUNTERS or (name in CLOCKS and not of_machine(key)):
            held.append((CLOCKS.index(name) if name in CLOCKS else len(CLOCKS), key))
    return tuple(key for _, key in sorted(held))
