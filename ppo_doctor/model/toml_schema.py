"""Validate the TOML files of rules: fields, types of values and vocabularies; errors suggest the nearest name.

A spec is one of: a type (`str`, `int`, `bool`, `float`, `dict`, or `object` for anything); a tuple of allowed words;
a list with one spec, for a list whose entries match it; a mapping from field to spec, for a table. A field that may be
missing ends in `?`, and the field `*` matches any name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ppo_doctor.model.errors import DoctorError, ExitCode

Spec: TypeAlias = "type | tuple[str, ...] | list[Any] | Mapping[str, Any]"

_EXPECTED: Mapping[type, str] = {
    str: "some text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: 'a list, such as ["…"] or [[…]]',
    dict: "a table",
}


def fail(path: str, text: str, hint: str = "") -> DoctorError:
    """Return the error for one file of rules."""
    return DoctorError(f"{path}: {text}", hint=hint, code=ExitCode.USAGE)


def validate(path: str, value: object, spec: Spec, name: str = "") -> None:
    """Check that a value matches a spec; `name` is the field that has it.

    Raises:
        DoctorError: a field is unknown or missing, or its value does not match; the message names file and field.
    """
    if isinstance(spec, Mapping):
        if not isinstance(value, dict):
            raise _unexpected(path, name, dict)
        where = f"{path}: {name}" if name else path
        known = {field.removesuffix("?"): field for field in spec}
        if "*" not in known:
            _fields(where, value, known)
        for field, content in value.items():
            validate(where, content, spec[known.get(field, "*")], field)
    elif isinstance(spec, list):
        if not isinstance(value, list):
            raise _unexpected(path, name, list)
        for entry in value:
            validate(path, entry, spec[0], name)
    elif isinstance(spec, tuple):
        one_of(path, name, value, spec)
    elif not _is(value, spec):
        raise _unexpected(path, name, spec)


def _fields(path: str, table: Iterable[str], known: Mapping[str, str]) -> None:
    """Check the fields of a table, unknown ones before missing ones, because a misspelt field is both."""
    unknown = sorted(set(table) - set(known))
    if unknown:
        hints = (_near(name, known) for name in unknown)
        raise fail(path, f"no such field: {', '.join(unknown)}", " ".join(filter(None, hints)))
    missing = [name for name, field in known.items() if name == field and name not in table]
    if missing:
        raise fail(path, f"missing {', '.join(missing)}")


def _unexpected(path: str, name: str, kind: type) -> DoctorError:
    return fail(path, f"{name}: expected {_EXPECTED[kind]}" if name else f"expected {_EXPECTED[kind]}")


def _is(value: object, kind: type) -> bool:
    """Return whether a value is of a type; a bool is not a number, and an int may be used as a float if it fits."""
    if isinstance(value, bool):
        return kind in (bool, object)
    if kind is float and isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return isinstance(value, kind)


def one_of(path: str, what: str, value: object, known: Iterable[str]) -> None:
    """Check that a value is one of some words.

    Raises:
        DoctorError: the value is not in `known`.
    """
    allowed = tuple(known)
    if value in allowed:
        return
    few = f" is none of {', '.join(allowed)}" if len(allowed) <= 16 else " does not exist"
    raise fail(path, f"{what} '{value}'{few}", _near(str(value), allowed))


def unique(entries: Iterable[tuple[str, str]]) -> None:
    """Check that no two files have the same name; entries are (name, path).

    Raises:
        DoctorError: a name is used twice; the message names both files.
    """
    seen: dict[str, str] = {}
    for name, path in entries:
        if name in seen:
            raise fail(path, f"'{name}' is taken by {seen[name]}")
        seen[name] = path


def _near(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or "" if none is similar."""
    from difflib import get_close_matches

    matches = get_close_matches(name, list(known), n=1)
    return f"did you mean {matches[0]}?" if matches else ""
