"""How many arrays are read right under the names that other people give them.

`python -m tests.lab.dumps.schemes` renames every array of the lab's dumps by each scheme of `schemes.csv` and of
`later_schemes.csv`, written down before anybody looked at what is read, and tells what is missed and what is wrong.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.tensors.naming import role, roles_of

TABLE = Path(__file__).with_name("schemes.csv")
#: Forty more, each ten written down, and counted, after the words for those before; two are single letters.
LATER = Path(__file__).with_name("later_schemes.csv")
#: The lab's arrays that are one thing under two roles: values were computed when the policy acted, and a dump of an
#: update is told by its step or by its number.
SAME = ({"values", "old_values"}, {"step", "update"})


@dataclass(frozen=True, slots=True)
class Asked:
    """An array of the lab, the name that a scheme gives it, and what it was read as beside the others."""

    scheme: str
    array: str
    name: str
    found: str | None

    @property
    def answer(self) -> str:
        """Tell how it was read: right, missed or wrong."""
        if self.found is None:
            return "missed"
        means = role(self.array)
        return "right" if any({self.found, means} <= same for same in ({means}, *SAME)) else "wrong"


def schemes(table: Path = TABLE) -> Mapping[str, Mapping[str, str]]:
    """Return scheme → array of the lab → name."""
    found: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        found.setdefault(row["scheme"], {})[row["array"]] = row["name"]
    return found


def asked(table: Path = TABLE) -> Iterator[Asked]:
    """Yield every array under every scheme, read beside the others of its dump."""
    for scheme, names in schemes(table).items():
        read = roles_of(names.values())
        for array, name in names.items():
            yield Asked(scheme, array, name, read[name])


def main() -> None:
    """Print the figures, and each array that was missed or read wrong."""
    for table in (TABLE, LATER):
        answers = [(each, each.answer) for each in asked(table)]
        for each, answer in answers:
            if answer != "right":
                sys.stdout.write(f"  {each.scheme}: {each.name} is {role(each.array)}, read as {each.found}\n")
        count = {kind: sum(answer == kind for _, answer in answers) for kind in ("right", "missed", "wrong")}
        told = ", ".join(f"{kind} {number} ({number / len(answers):.3f})" for kind, number in count.items())
        sys.stdout.write(f"{len(schemes(table))} schemes, {len(answers)} names: {told}\n")


if __name__ == "__main__":
    main()
