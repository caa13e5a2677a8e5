"""How many arrays are read right under the names that other people give them.

`python -m lab.numpy_lab.dumps.schemes` renames every array of two of the lab's dumps, one with a critic and one of
groups, by each scheme of the tables here, written down before anybody looked at what is read, and counts what is missed
and what is wrong. An array that both dumps hold is right if both are.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.readers.tensors.naming import role
from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps.contents import roles_in

from .capture import Plan, train
from .files import GENERATIONS, tensors
from .mismatch_kinds import versioned

TABLE = Path(__file__).with_name("schemes.csv")
#: Eighty more, each ten written down, and counted, after the words for those before; two are single letters. The last
#: forty hold arrays as well that are none of the lab's, named "-" and what they hold.
LATER = Path(__file__).with_name("later_schemes.csv")
#: The lab's arrays that are one thing under two roles: values were computed when the policy acted, and a dump of an
#: update is told by its step or by its number.
SAME = ({"values", "old_values"}, {"step", "update"})
OTHER = "-"


@dataclass(frozen=True, slots=True)
class Asked:
    """An array of the lab, or another one, the name that a scheme gives it, and what it was read as in a dump."""

    scheme: str
    array: str
    name: str
    found: str | None

    @property
    def answer(self) -> str:
        """Tell how it was read: right, missed or wrong; what is none of the lab's arrays may be unknown."""
        if self.array.startswith(OTHER):
            return "right" if self.found in (None, means_of(self.array)) else "wrong"
        if self.found is None:
            return "missed"
        means = means_of(self.array)
        return "right" if any({self.found, means} <= same for same in ({means}, *SAME)) else "wrong"


def means_of(array: str) -> str | None:
    """Return the role of an array of the lab, or of another one, such as "-bool=dones:over"."""
    return array.split(":")[0].partition("=")[2] or None if array.startswith(OTHER) else role(array)


def schemes(table: Path = TABLE) -> Mapping[str, Mapping[str, str]]:
    """Return scheme → array of the lab, or "-" and what another one holds → name."""
    found: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        array = f"{row['array']}{row['name']}" if row["array"].startswith(OTHER) else row["array"]
        found.setdefault(row["scheme"], {})[array] = row["name"]
    return found


def asked(table: Path = TABLE) -> Iterator[Asked]:
    """Yield every array under every scheme, as the worse of two dumps reads it beside the others."""
    order = ("right", "missed", "wrong")
    for scheme, names in schemes(table).items():
        read = [_read(names, dump) for dump in dumps()]
        for array, name in names.items():
            held = [Asked(scheme, array, name, found[name]) for found in read if name in found]
            yield max(held, key=lambda each: order.index(each.answer))


def _read(names: Mapping[str, str], dump: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return name → what it is read as, of the arrays that a dump holds and of those that are none of the lab's."""
    held = {name: _other(array, dump) if array.startswith(OTHER) else dump.get(array) for array, name in names.items()}
    arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    return roles_in(
        Archive(
            path="dump.npz",
            container="npz",
            tensors={name: Tensor.of(name, array) for name, array in arrays.items()},
            scalars={name: value for name, value in held.items() if isinstance(value, int)},
        )
    )


@cache
def dumps() -> tuple[Mapping[str, Any], ...]:
    """Return the arrays of an update of a run with a critic, and of one that compares the answers to a prompt."""
    found = []
    for algorithm in ("ppo", "grpo"):
        plan = Plan(algorithm=algorithm, recomputed=True, updates=12, dumped=(11,))
        update = train(plan, 3)[0]
        held = tensors(plan, update)
        versioned(held, update, np.random.default_rng(0))
        found.append({**held, "update": update.number})
    return tuple(found)


def _other(array: str, dump: Mapping[str, Any]) -> Any:
    """Return an array that is none of the lab's: of the kind that stands between "-" and its name."""
    kind = array.split(":")[0].partition("=")[0].removeprefix(OTHER)
    new, old, mask = dump["log_probs"], dump["old_log_probs"], dump["response_mask"]
    rng = np.random.default_rng(5)
    rows = len(new)
    made: dict[str, Callable[[], Any]] = {
        "kl": lambda: 0.1 * (new - old) * mask,
        "positive": lambda: np.exp(new - old),
        "positive_row": lambda: np.full(rows, 0.7, np.float32),
        "floats": lambda: rng.normal(size=(rows, 4)).astype(np.float32),
        "row": lambda: rng.normal(size=rows).astype(np.float32),
        "floats_samples": lambda: rng.normal(size=new.shape).astype(np.float32),
        "row_counts": lambda: mask.sum(axis=1),
        "row_ids": lambda: rng.permutation(rows),
        "bool": lambda: np.diff(mask.astype(int), axis=1, append=0) < 0,
        "bool_row": lambda: rng.random(rows) < 0.2,
        "counter": lambda: 96 * int(dump["update"]),
        "run": lambda: np.arange(rows) % GENERATIONS,
        "positions": lambda: np.broadcast_to(np.arange(new.shape[1]), new.shape).copy(),
        "counts": lambda: np.broadcast_to(mask.sum(axis=1, keepdims=True), new.shape).astype(np.float32),
        "tokens": lambda: np.roll(dump["responses"], 1, axis=1),
        "small_ints": lambda: np.where(np.arange(new.shape[1]) == 0, 0, 1) + ~mask * 1,
    }
    return made[kind]()


def main() -> None:
    """Print the figures, and each array that was missed or read wrong."""
    for table in map(Path, sys.argv[1:]) if sys.argv[1:] else (TABLE, LATER):
        answers = [(each, each.answer) for each in asked(table)]
        for each, answer in answers:
            if answer != "right":
                sys.stdout.write(f"  {each.scheme}: {each.name} is {means_of(each.array)}, read as {each.found}\n")
        count = {kind: sum(answer == kind for _, answer in answers) for kind in ("right", "missed", "wrong")}
        told = ", ".join(f"{kind} {number} ({number / len(answers):.3f})" for kind, number in count.items())
        sys.stdout.write(f"{len(schemes(table))} schemes, {len(answers)} names: {told}\n")


if __name__ == "__main__":
    main()
