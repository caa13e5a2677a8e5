"""A comparison of two runs as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.evidence import number
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.json_report import SCHEMA_VERSION, Json, dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.compare import Comparison, Difference, Outcome, Side
    from ppo_doctor.divergence import Divergence

#: Rows of a table before "and N more".
MOST = 20


def text(comparison: Comparison, *, everything: bool = False) -> str:
    """Return a comparison for a terminal."""
    most = None if everything else MOST
    parts = [
        [f"A  {_head(comparison.a)}", f"B  {_head(comparison.b)}"],
        _part("Reward, first → last record, and the best", _paid(comparison), most, "unknown: no series of it"),
        _part("Settings that differ", map(_setting, comparison.differences), most, "none that either log shows"),
        _part("Metrics that part, with medians from there on", _parted(comparison), most, _nothing_parted(comparison)),
        _part("Causes that lead on one side only", _causes(comparison), most, "none"),
        _part("What may explain it", _explained(comparison), most, "no setting that we know to act on what parts"),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _head(side: Side) -> str:
    return f"{plain(side.name)}  {', '.join(dict.fromkeys(side.verdicts))}"


def _paid(comparison: Comparison) -> list[str]:
    sides = zip("AB", comparison.outcomes, strict=True)
    return [f"{side}  {_outcome(found)}" for side, found in sides] if any(comparison.outcomes) else []


def _outcome(found: Outcome | None) -> str:
    if found is None:
        return "unknown: no series of it"
    return f"{number(found.first)} → {number(found.last)}, best {number(found.best)}  ({found.metric})"


def _part(title: str, rows: Iterable[str], most: int | None, nothing: str) -> list[str]:
    every = list(rows) or [nothing]
    shown = every[:most]
    more = [f"… and {len(every) - len(shown)} more, --all"] if len(shown) < len(every) else []
    return [title, *(f"   {row}" for row in [*shown, *more])]


def _setting(difference: Difference) -> str:
    other = difference.canonical not in (None, difference.key.rpartition(".")[2])
    name = f" ({difference.canonical})" if other else ""
    return f"{plain(difference.key)}{name}: {_value(difference.a)} → {_value(difference.b)}"


def _value(value: object) -> str:
    if value is None:
        return "not set"
    return number(value) if isinstance(value, float) else plain(str(value), 80)


def _parted(comparison: Comparison) -> list[str]:
    found = comparison.divergences or ()
    return [f"{d.metric} from step {d.step}: {number(d.a)} → {number(d.b)}{_looked_for(d)}" for d in found]


def _looked_for(divergence: Divergence) -> str:
    """Tell where a lower bar was passed, that of a metric on which a setting acts that differs."""
    return "  (by its level; seeds may differ as much, several with --group tell)" if divergence.expected else ""


def _nothing_parted(comparison: Comparison) -> str:
    if comparison.divergences is None:
        return "unknown: a report holds no series; compare the logs"
    return "none, beyond what each wanders by itself, over the steps that both have"


def _causes(comparison: Comparison) -> list[str]:
    a, b = comparison.a.causes, comparison.b.causes
    only = [(name, "A") for name in a if name not in b] + [(name, "B") for name in b if name not in a]
    return [f"{side}: {plain(name)}" for name, side in only]


def _explained(comparison: Comparison) -> list[str]:
    return [f"{_setting(e.difference)}: {prose(e.says)}" for e in comparison.explanations]


def as_json(comparison: Comparison) -> str:
    """Return a comparison as a JSON object."""
    parted: Json = None
    if comparison.divergences is not None:
        parted = [
            {"metric": d.metric, "step": d.step, "a": d.a, "b": d.b, "expected": d.expected}
            for d in comparison.divergences
        ]
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "comparison": {
                "different": comparison.different,
                "a": _side(comparison.a),
                "b": _side(comparison.b),
                "reward": dict(zip("ab", map(_reward, comparison.outcomes), strict=True)),
                "differences": [_row(difference) for difference in comparison.differences],
                "divergences": parted,
                "explanations": [
                    {"key": e.difference.key, "metrics": _names(e.metrics), "says": e.says}
                    for e in comparison.explanations
                ],
            },
        }
    )


def _reward(found: Outcome | None) -> Json:
    if found is None:
        return None
    return {"metric": found.metric, "first": found.first, "last": found.last, "best": found.best}


def _row(difference: Difference) -> Json:
    return {"key": difference.key, "canonical": difference.canonical, "a": difference.a, "b": difference.b}


def _names(names: Sequence[str]) -> Json:
    return list(names)


def _side(side: Side) -> Json:
    causes: dict[str, Json] = dict(side.causes)
    return {"name": side.name, "runs": len(side.verdicts), "verdicts": _names(side.verdicts), "causes": causes}
