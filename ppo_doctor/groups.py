"""Seeds of one configuration, found by what their configurations agree in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import ConfigValue, Diagnosis, Run

#: Settings in which seeds of one configuration differ: the seed, and what names or dates a run.
_OWN = re.compile(
    r"(?:^|[._/-])(?:\w*seed\w*|(?:run|exp|experiment|job|log|output|save|wandb|tensorboard|logging|checkpoint)"
    r"[._-]?(?:name|id|dir|path|folder|group|root|log)|exp|name|timestamp|date|time|hostname|pid|start[._-]?time)$",
    re.IGNORECASE,
)


def is_own(key: str) -> bool:
    """Tell whether a setting belongs to one run rather than to its configuration."""
    return _OWN.search(key) is not None


def shared(config: dict[str, ConfigValue]) -> frozenset[tuple[str, str]]:
    """Return the settings that seeds of one configuration have in common."""
    return frozenset((key, repr(value)) for key, value in config.items() if not is_own(key))


def grouped(judged: Sequence[tuple[Run, Diagnosis]]) -> list[list[tuple[Run, Diagnosis]]]:
    """Return runs by configuration, in the order in which configurations first appear.

    Runs without any configuration are taken to belong together: whoever asks for groups says so.
    """
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[Run, Diagnosis]]] = {}
    for run, diagnosis in judged:
        groups.setdefault((run.framework, shared(dict(run.config_raw))), []).append((run, diagnosis))
    return list(groups.values())
