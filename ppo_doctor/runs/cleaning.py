"""Correct or drop metrics that are a multiple of the mean, report cells of text, and cut runs to steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import log10
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import beside
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import Fact, Note, Run, Series, SourceRef
from ppo_doctor.readers.table import RUN_KEYS
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.updates import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ppo_doctor.model.run import Axis, FloatArray, IntArray, Setting
    from ppo_doctor.model.words import KeyUse
    from ppo_doctor.readers.table import Table
    from ppo_doctor.trainers.profiles import PartialMean, Profile

#: The variance of cells that are 1 with a share f and 0 else is f(1 - f); this much of it no spread of ratios has.
MOSTLY_EMPTY = 0.9
#: Means of ratios below this, with such a variance, are means over empty cells.
FAR_BELOW_ONE = 0.75


def whole_means(
    profile: Profile, settings: Mapping[str, Setting], series: Mapping[str, Series], path: str
) -> tuple[dict[str, Series], list[Note]]:
    """Return the series as means, or without those whose share of filled cells is unknown.

    The factor follows from settings by the profile's function. Failing these, a mean ratio far below 1 that varies as
    cells of 0 and 1 do shows that it is a share below 1; else the framework's defaults tell it.
    """
    partial = profile.partial_mean
    held = [name for name in (*partial.metrics, *partial.dropped) if name in series] if partial else []
    if partial is None or not held:
        return dict(series), []
    share, usual = _share(partial, settings), _share(partial, settings, defaults=True)
    source = SourceRef(path=path)
    if share is None and _looks_partial(series):
        asked = ", ".join(f"--set {name}=…" for name in partial.arguments.values())
        text = f"{', '.join(held)}: means over cells of which many are empty, and are not used; {asked} would tell"
        return {name: s for name, s in series.items() if name not in held}, [Note(text=text, source=source)]
    factor, by_default = (usual or 1, " by default") if share is None else (share, "")
    if factor == 1:
        return dict(series), []
    restored = {
        name: _divided(s, factor) if name in partial.metrics else s
        for name, s in series.items()
        if name not in partial.dropped
    }
    text = f"{', '.join(n for n in held if n in restored)}: divided by {factor:g}, {partial.why}{by_default}"
    lost = [name for name in held if name in partial.dropped]
    unused = [Note(text=f"{', '.join(lost)}: counts empty cells, and is not used", source=source)] if lost else []
    return restored, [Note(text=text, source=source), *unused]


def _share(partial: PartialMean, settings: Mapping[str, Setting], *, defaults: bool = False) -> float | None:
    if any((setting := settings.get(name)) is not None and setting.value for name in partial.unless):
        return None
    found = {argument: settings.get(name) for argument, name in partial.arguments.items()}
    numbers = {
        argument: float(setting.value)
        for argument, setting in found.items()
        if setting is not None
        and (defaults or setting.how != "default")
        and isinstance(setting.value, int | float)
        and setting.value > 0
    }
    return FUNCTIONS[partial.function](**numbers) if len(numbers) == len(found) else None


def _looks_partial(series: Mapping[str, Series]) -> bool:
    ratio = series.get("ratio_mean")
    spread = beside(ratio, series.get("ratio_batch_var"))
    if ratio is None or spread is None:
        return False
    known = np.isfinite(ratio.values) & np.isfinite(spread.values)
    share, variance = ratio.values[known], spread.values[known]
    with np.errstate(over="ignore"):  # a number near the largest is no share, whatever its square would be
        empty = (share < FAR_BELOW_ONE) & (variance > MOSTLY_EMPTY * share * (1 - share))
    return bool(len(empty) and empty.mean() > 0.5)


def _divided(series: Series, share: float) -> Series:
    return replace(series, values=series.values / share, resolution=series.resolution.scaled(1 / share))


#: Characters of a cell that a note quotes.
QUOTED = 20


@frozen
class TextCells:
    """The text cells of one key: how many, and the first of them with its place."""

    count: int
    first: str
    source: SourceRef


def text_cells(tables: Iterable[Table]) -> dict[str, TextCells]:
    """Return the text cells of each key; a key that names runs holds text by right."""
    found: dict[str, TextCells] = {}
    for table in tables:
        for key, cells in table.texts.items():
            if not cells or key in RUN_KEYS:
                continue
            count = len(cells) + table.texts_left.get(key, 0)
            source = SourceRef(path=table.path, line=_line(table, cells[0][0]), key=key)
            held = found.get(key)
            earlier = held is not None and (held.source.line or 0) <= (source.line or 0)
            told = held if held is not None and earlier else TextCells(count=0, first=cells[0][1], source=source)
            total = count + (held.count if held is not None else 0)
            found[key] = TextCells(count=total, first=told.first, source=told.source)
    return found


def _line(table: Table, record: int) -> int | None:
    row = int(table.records.searchsorted(record))
    return int(table.lines[row]) or None if row < len(table.lines) else None


def notes_on(cells: dict[str, TextCells], keys: frozenset[str], profile: Profile) -> list[Note]:
    """Return a note on each column of numbers that holds text, and on each metric that holds nothing else.

    `keys` are those that hold numbers. What a metric lost is of kind "lost": it may be what tells that a run is sick.
    """
    if not cells:
        return []
    metrics = _metrics(detection.as_written(profile.name, keys.union(cells)))
    return [
        Note(
            text=f"{held.count} cells of {key} hold text, from “{_quoted(held.first)}” on, and no number; not read",
            source=held.source,
            count=held.count,
            kind="lost" if key in metrics else "dropped",
        )
        for key, held in sorted(cells.items())
        if key in keys or key in metrics
    ]


def _quoted(cell: str) -> str:
    return configuration.redact_text(cell)[:QUOTED]


def _metrics(profile: Profile) -> frozenset[str]:
    named = (key for metric in profile.metrics.values() for key in (*metric.keys, *metric.columns))
    return frozenset([*named, *profile.fuzzy])


def uses(profile: Profile, keys: frozenset[str], cells: Sequence[str]) -> dict[str, KeyUse]:
    """Return what is made of each key of a log, in alphabetical order; `cells` are those that hold text."""
    found: dict[str, KeyUse] = dict.fromkeys(cells, "text")
    return dict(sorted((found | profile.uses(keys)).items()))


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


#: The fact that a run is the later part of a longer one.
CONTINUES = "continues"
#: First and last step to keep; None is open.
Steps = tuple[int | None, int | None]


def cut(series: Mapping[str, Series], steps: Steps) -> dict[str, Series]:
    """Return the records of each series within some steps; a series without any is left out.

    Series of one axis have one axis afterwards: that is how quantities of the same records are known.
    """
    if steps == (None, None):
        return dict(series)
    axes = {id(s.axis): s.axis for s in series.values()}
    parts = {key: _part(axis, steps) for key, axis in axes.items()}
    cut_off = {name: _taken(s, *parts[id(s.axis)]) for name, s in series.items()}
    return {name: kept for name, kept in cut_off.items() if len(kept)}


def since(run: Run, step: int) -> Run:
    """Return the run from a step on; its facts and its configuration hold for each part of it.

    A fact of its own says that something came before, for what lags behind: returns, and their moving averages.
    """
    before = Fact(name=CONTINUES, value=True, how="computed", says=f"the part from step {step} on")
    return replace(run, series=cut(run.series, (step, None)), facts={**run.facts, CONTINUES: before})


def within(series: Series, steps: Steps) -> Series:
    """Return the records of one series within some steps."""
    return _taken(series, *_part(series.axis, steps))


def _part(axis: Axis, steps: Steps) -> tuple[Axis, IntArray]:
    """Return the part of an axis within some steps, and the places of its records."""
    low, high = steps
    held = axis.steps
    after = held >= (low if low is not None else held.min(initial=0))
    keep = np.flatnonzero(after & (held <= (high if high is not None else held.max(initial=0))))
    return axis.take(keep), keep


def _taken(series: Series, axis: Axis, keep: IntArray) -> Series:
    return replace(series, axis=axis, values=series.values[keep])
