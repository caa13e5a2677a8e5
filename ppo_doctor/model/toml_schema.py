"""Validate the TOML files of rules: fields, kinds of values and closed vocabularies, with the nearest name.

A spec is one of: a type (`str`, `int`, `bool`, `float`, `dict`, or `object` for anything); a tuple of allowed words;
a list of one spec, for a list whose entries match it; a mapping from field to spec, for a table. A field that may be
missing ends in `?`, and the field `*` stands for any name.
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
    """Refuse a value that does not match a spec; `name` is the field that holds it.

    Raises:
        DoctorError: a field is unknown or missing, or holds a value of another kind; the message names file and field.
    """
    if isinstance(spec, Mapping):
        if not isinstance(value, dict):
            raise _unexpected(path, name, dict)
        where = f"{path}: {name}" if name else path
        known = {field.removesuffix("?"): field for field in spec}
        if "*" not in known:
            _fields(where, value, known)
        for field, held in value.items():
            validate(where, held, spec[known.get(field, "*")], field)
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
    """Refuse an unknown field before a missing one: a misspelt field is both."""
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
    """Tell whether a value is of a kind: a bool is no number, and an int that fits may stand for a float."""
    if isinstance(value, bool):
        return kind in (bool, object)
    if kind is float and isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return isinstance(value, kind)


def one_of(path: str, what: str, value: object, known: Iterable[str]) -> None:
    """Refuse a word outside a vocabulary.

    Raises:
        DoctorError: the value is none of `known`.
    """
    allowed = tuple(known)
    if value in allowed:
        return
    few = f" is none of {', '.join(allowed)}" if len(allowed) <= 16 else " does not exist"
    raise fail(path, f"{what} '{value}'{few}", _near(str(value), allowed))


def unique(entries: Iterable[tuple[str, str]]) -> None:
    """Refuse a name that two files take; entries are (name, path).

    Raises:
        DoctorError: a name comes twice; the message names both files.
    """
    seen: dict[str, str] = {}
    for name, path in entries:
        if name in seen:
            raise fail(path, f"'{name}' is taken by {seen[name]}")
        seen[name] = path


def _near(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest name that exists, empty where none is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""
