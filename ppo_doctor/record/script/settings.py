"""Find the settings of a script: those that its steps show, and the number of epochs in its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

from ppo_doctor.record.script.places import has_variables, variables
from ppo_doctor.record.script.steps import Step

#: Difference of two distances that are the same up to rounding.
ROUNDING = 1e-9

#: Names of the number of passes over a batch in public trainers and scripts.
_EPOCHS = re.compile(
    r"(?i)^(n_epochs?|num_epochs?|update_epochs|ppo_epochs?|k_epochs?|noptepochs|num_sgd_iter|num_learning_epochs|learning_epochs"
    r"|mini_epochs|num_ppo_epochs|optim_epochs|train_epochs|epochs|n_updates_per_iteration|opt_epochs"
    r"|n_optim_epochs|epochs_per_update|update_iteration|inner_epochs|passes|n_passes|num_passes|reuse|sgd_epochs|repeat|repeat_per_collect)$"
)
#: Names of a bound on the KL, at which the epochs of an update end early.
_EARLY = re.compile(r"(?i)^(target_kl|kl_target|max_kl|kl_stop|kl_limit|early_stop.*|stop_kl|kl_threshold)$")
#: Parts of the names of classes that hold options.
_OPTIONS = ("config", "args", "namespace", "hparam", "cfg", "settings", "param")
#: Most epochs that a setting of such a name may mean.
MOST = 1000


def settings_seen(steps: Iterable[Step]) -> dict[str, float | int]:
    """Return the clip range and the learning rate of the first steps that show them."""
    found: dict[str, float | int] = {}
    for step in steps:
        for low, high in (each.nodes.bounds for each in step.ratios if each.nodes.bounds is not None):
            found.setdefault("clip_range", round(high - 1, 9))
            if abs((high - 1) - (1 - low)) > ROUNDING:
                found.setdefault("clip_range_low", round(1 - low, 9))
        if step.learning_rate is not None:
            found.setdefault("learning_rate", step.learning_rate)
    return found


def passes_configured(frames: Iterable[FrameType]) -> dict[str, float]:
    """Return `n_epochs` if the variables of the frames name one number, and the first `target_kl` that they name.

    Looked at are local variables, attributes of objects in them, and options (argparse, dataclasses, dicts).
    """
    found: set[int] = set()
    bounds: dict[str, float] = {}
    for frame in frames:
        for space in _spaces(frame):
            for name, value in space.items():
                if not isinstance(name, str) or value is None or isinstance(value, bool):
                    continue
                if _EARLY.match(name) and isinstance(value, int | float) and value > 0:
                    bounds.setdefault("target_kl", float(value))
                if _EPOCHS.match(name) and isinstance(value, int) and 0 < value <= MOST:
                    found.add(value)
    return {**bounds, "n_epochs": found.pop()} if len(found) == 1 else bounds


def _spaces(frame: FrameType) -> list[Mapping[str, Any]]:
    spaces: list[Mapping[str, Any]] = [variables(frame)]
    if frame.f_code.co_name == "<module>" or frame.f_globals.get("__name__") == "__main__":
        spaces.append({k: v for k, v in frame.f_globals.items() if not k.startswith("_")})
    for space in list(spaces):
        for each in list(space.values())[:200]:
            spaces.extend(_options(each))
            if has_variables(each) and not callable(each):
                for inner in list(vars(each).values())[:200]:
                    spaces.extend(_options(inner, nested=False))
    return spaces


def _options(value: object, *, nested: bool = True) -> list[Mapping[str, Any]]:
    if isinstance(value, dict) and len(value) < 500:
        return [value]
    wanted = nested or any(word in type(value).__name__.lower() for word in _OPTIONS)
    if has_variables(value):
        return [vars(value)] if wanted else []
    slots = getattr(type(value), "_fields" if isinstance(value, tuple) else "__dataclass_fields__", ())
    return [{name: getattr(value, name, None) for name in slots}] if wanted and not isinstance(value, type) else []
