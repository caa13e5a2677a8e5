"""Let a run of files that were fetched to this machine name the places that they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.errors import DoctorError

if TYPE_CHECKING:
    from ppo_doctor.model.run import Run


def from_afar(run: Run, named: Callable[[str], str]) -> Run:
    """Return a run in which every text is what `named` makes of it: the URL of a file instead of its path."""
    moved: Run = _moved(run, named, {})
    return moved


def error_from_afar(error: DoctorError, named: Callable[[str], str]) -> DoctorError:
    """Return an error that names the URL of a file instead of its path."""
    return DoctorError(named(error.message), hint=named(error.hint), code=error.code)


def _moved(value: Any, named: Callable[[str], str], done: dict[int, Any]) -> Any:  # noqa: ANN401 - parts of a run
    """Return a part of a run with other texts; what several parts share stays shared."""
    if type(value) is str:
        return named(value)
    if isinstance(value, tuple):
        return tuple(_moved(each, named, done) for each in value)
    if isinstance(value, Mapping):
        return {key: _moved(each, named, done) for key, each in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    if id(value) not in done:
        parts = {each.name: _moved(getattr(value, each.name), named, done) for each in fields(value)}
        done[id(value)] = replace(value, **parts)
    return done[id(value)]
