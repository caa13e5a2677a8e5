"""Writers: raw records → the files that a framework really writes. One module per framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ..records import RunRecord
from . import canonical, cleanrl, recorder, sb3, trl_grpo, trl_grpo_027, trl_ppo, trl_ppo_legacy

_NUMBER = re.compile(r"(?<![\w.\"])-?(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e-\d+)")

Writer = Callable[[RunRecord, Path], Path]

WRITERS: Mapping[str, Writer] = {
    "canonical": canonical.write,
    "canonical-lean": canonical.write_lean,
    "canonical-full": canonical.write_full,
    "sb3": sb3.write,
    "cleanrl": cleanrl.write,
    "trl-grpo": trl_grpo.write,
    "trl-grpo-027": trl_grpo_027.write,
    "trl-ppo": trl_ppo.write,
    "trl-ppo-legacy": trl_ppo_legacy.write,
}

#: What our own recorder writes of the control task and of GRPO; apart, for nobody's trainer logs so much.
RECORDED: Mapping[str, Writer] = {"recorder": recorder.write, "recorder-grpo": recorder.write}

_LANGUAGE = {"recorder-grpo": "language", "trl-grpo": "language", "trl-grpo-027": "language", "trl-ppo": "language"}
_NEEDS = {"recorder": "control", "sb3": "control", "cleanrl": "control", **_LANGUAGE}
_PPO = ("recorder", "trl-ppo", "trl-ppo-legacy", "sb3", "cleanrl")
_NEEDS_ALGORITHM = dict.fromkeys(_PPO, "ppo") | dict.fromkeys(("recorder-grpo", "trl-grpo", "trl-grpo-027"), "grpo")


def write(record: RunRecord, dialect: str, directory: Path) -> Path:
    """Write the run's log (and its config.json) in a framework's form; return the log's path."""
    if record.task != _NEEDS.get(dialect, record.task):
        raise ValueError(f"{dialect} needs a run of the {_NEEDS[dialect]} task, not {record.task}")
    if record.config.algorithm != _NEEDS_ALGORITHM.get(dialect, record.config.algorithm):
        raise ValueError(f"{dialect} needs a {_NEEDS_ALGORITHM[dialect]} run, not {record.config.algorithm}")
    directory.mkdir(parents=True, exist_ok=True)
    path = {**WRITERS, **RECORDED}[dialect](record, directory)
    if record.config.log_decimals is not None:
        _round_off(path, record.config.log_decimals)
    return path


def _round_off(path: Path, decimals: int) -> None:
    """Print every number with a point to so many decimals, as a logger's format string does."""
    text = path.read_text(encoding="utf-8")
    text = _NUMBER.sub(lambda found: f"{float(found[0]):.{decimals}f}", text)
    path.write_text(text, encoding="utf-8")
