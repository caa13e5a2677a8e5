"""Factors that a name tells of its numbers: "kl·1e3", "lr(µ)", "drift_mnat"; columns without them.

A column whose name tells one is read without it, under the name without it, so that nobody after has to know.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from math import log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from ppo_doctor.model import FloatArray
    from ppo_doctor.table import Table

#: "kl*1e3", "kl_x1000": the numbers are so many times the quantity.
_TIMES = re.compile(
    r"[ _]?[(\[]?(?:(?<![A-Za-z\d])x|[×*·⋅]) ?(?:(10{2,8}|1k)|1e\+?(\d)|10\^\+?(\d))[)\]]?\Z", re.IGNORECASE
)
#: "lr [1e-4]", "lr ×10^-4": the numbers are in a unit that small, for nobody multiplies to see less.
_SMALL = re.compile(r" ?(?:[(\[](?:[x×*·⋅] ?)?|[×*·⋅] ?)(?:1e|10\^)-(\d)[)\]]?\Z", re.IGNORECASE)
#: What is counted in thousands and millions: "ksteps", "M_frames".
_COUNTED = r"(?:env_?)?(?:time)?(?:steps?|fr(?:ames?)?|ticks?|samples?|interactions?)\Z"
#: Prefixes of units, in brackets behind a name or as words; a Greek mu may be the mean where other Greek letters stand.
_PREFIXES = (
    (re.compile(r"[ _]?[(\[]\u00b5[)\]]\Z|(?<=[A-Za-z])[ _]?[(\[]\u03bc[)\]]\Z"), -6),
    (re.compile(r"(?:(?<=\blr)|(?<=\beta)|(?<=rate)|(?<=alpha))_(?:u|mu|micro)\Z", re.IGNORECASE), -6),
    (re.compile(r"[ _]?[(\[]‰[)\]]\Z|[ _]?[(\[]?(?<![a-z])milli(?![a-z])[)\]]?"), -3),
    (re.compile(r"(?<![a-z])(?:m|milli_?)(?=(?:nat|bit)s?(?![a-z]))"), -3),
    (re.compile(r"(?<![a-z])(?:[\u00b5\u03bcu]|micro_?)(?=(?:nat|bit)s?(?![a-z]))"), -6),
    (re.compile(r"(?<=[a-z])(?:Milli|_milli)(?![a-z])|(?<=[A-Za-z])_(?:e3|pm|permille|promille)\Z"), -3),
    (re.compile(r"(?<=[A-Za-z])_(?:e6|ppm)\Z|(?<=[a-z])Ppm\Z"), -6),
    (re.compile(rf"[ _]?[(\[]k[)\]]\Z|(?<![A-Za-z])k_?(?={_COUNTED})"), 3),
    (re.compile(rf"[ _]?[(\[]M[)\]]\Z|(?<![A-Za-z])M_?(?={_COUNTED})"), 6),
)


@lru_cache(maxsize=1 << 12)
def told(key: str) -> tuple[str, int]:
    """Return a name without the factor that it tells, and the power of 10 that its numbers have to be multiplied by."""
    if found := _TIMES.search(key):
        power = -(round(log10(int(found[1].lower().replace("k", "000")))) if found[1] else int(found[2] or found[3]))
    elif found := _SMALL.search(key):
        power = -int(found[1])
    else:
        found, power = next(((m, power) for sign, power in _PREFIXES if (m := sign.search(key))), (None, 0))
    bare = key if found is None else (key[: found.start()] + key[found.end() :]).strip(" _")
    return (bare, power) if any(map(str.isalpha, bare)) else (key, 0)


def without_factors(table: Table, named: Collection[str]) -> tuple[Table, dict[str, str]]:
    """Return a table without the factors that its names tell, and a sentence on each.

    A column that somebody has `named` keeps its name; one of whose bare name there is another is left as it is.
    """
    keys = {key: told(key) for key in table.columns}
    bare = Counter(name for name, _ in keys.values())
    keys = {key: (key, 0) if bare[name] > 1 else (name, power) for key, (name, power) in keys.items()}
    if not any(power for _, power in keys.values()):
        return table, {}
    names = {key: key if key in named else name for key, (name, _) in keys.items()}
    columns = {names[key]: _shifted(values, keys[key][1]) for key, values in table.columns.items()}
    decimals = {names[key]: max(0, places - keys[key][1]) for key, places in table.decimals.items()}
    says = {
        key: f"'{key}' is read as '{name}': its name says that it is written times 1e{-power}"
        for key, (name, power) in keys.items()
        if power
    }
    return replace(table, columns=columns, decimals=decimals), says


def _shifted(values: FloatArray, power: int) -> FloatArray:
    # By division, for a thousandth is no float: 26.4 / 1000 is 0.0264, 26.4 * 0.001 is not.
    return values / 10.0**-power if power < 0 else values * 10.0**power
