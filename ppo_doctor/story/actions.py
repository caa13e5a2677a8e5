"""What to do about a cause: the remedies that fit the run's framework, with the user's own values."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ppo_doctor.story.model import Action
from ppo_doctor.story.numbers import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Remedy, Run, RunSummary

#: Remedies of a report that does not tell all of them.
MOST_REMEDIES = 3
#: Remedies of a story: the first, and the next resort.
MOST_ACTIONS = 2
#: Trainers whose settings are another's, every one of them (Unsloth patches TRL and keeps its GRPOConfig).
SAME_SETTINGS = {"unsloth": "trl-grpo"}
#: A word that can only be a setting's name.
_SETTING = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")


def remedies(ours: Sequence[Remedy], framework: str, *, everything: bool) -> list[Remedy]:
    """Return remedies with those for this framework first; those for others only when asked, or when all are."""
    own = (framework, SAME_SETTINGS.get(framework, framework))
    fitting = [r for name in dict.fromkeys((*own, None)) for r in ours if r.framework == name]
    others = [r for r in ours if r not in fitting]
    if everything:
        return fitting + others
    return (fitting or others)[:MOST_REMEDIES]


def foreign(remedy: Remedy, framework: str) -> str:
    """Return the framework of a remedy whose keys are not those of the run's."""
    return "" if remedy.framework in (None, framework, SAME_SETTINGS.get(framework)) else remedy.framework or ""


def actions(ours: Sequence[Remedy], summary: RunSummary, run: Run | None) -> tuple[Action, ...]:
    """Return the first remedy for a run and the next resort."""
    chosen = remedies(ours, summary.framework, everything=False)[:MOST_ACTIONS]
    return tuple(_action(remedy, summary, run) for remedy in chosen)


def _action(remedy: Remedy, summary: RunSummary, run: Run | None) -> Action:
    key = remedy.key or next((word for word in _SETTING.findall(remedy.do) if word in summary.config), "")
    other = foreign(remedy, summary.framework)
    return Action(say=remedy.do, key=key, now="" if other else _now(key, summary, run), framework=other)


def _now(key: str, summary: RunSummary, run: Run | None) -> str:
    """Return the value that a setting has: as configured, else as first logged under its name."""
    if key in summary.config:
        return str(summary.config[key])
    logged = run.series.values() if run is not None and key else ()
    series = next((s for s in logged if key in (s.raw, s.raw.rpartition("/")[2])), None)
    finite = (v for v in series.values.tolist() if math.isfinite(v)) if series is not None else iter(())
    first = next(finite, None)
    return "" if first is None else short(first)
