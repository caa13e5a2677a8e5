"""What the TOML files of a pack may hold: fields, closed vocabularies, names that exist once; with near misses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ppo_doctor.errors import DoctorError, ExitCode


def fail(path: str, text: str, hint: str = "") -> DoctorError:
    """Return the error for one file of a pack."""
    return DoctorError(f"{path}: {text}", hint=hint, code=ExitCode.USAGE)


def fields(path: str, raw: Mapping[str, Any], needed: Iterable[str], further: Iterable[str] = ()) -> None:
    """Refuse a table with a field that nobody reads, or without one that is needed.

    What nobody reads is told first: a misspelt field is a missing one as well.

    Raises:
        DoctorError: a field is neither of `needed` nor of `further`, one of `needed` is missing, or `raw` is no table.
    """
    if not isinstance(raw, Mapping):
        raise fail(path, "a table is expected")
    needed = tuple(needed)
    known = (*needed, *further)
    unknown = sorted(set(raw) - set(known))
    if unknown:
        hints = (near(name, known) for name in unknown)
        raise fail(path, f"no such field: {', '.join(unknown)}", " ".join(filter(None, hints)))
    missing = [name for name in needed if name not in raw]
    if missing:
        raise fail(path, f"missing {', '.join(missing)}")


def one_of(path: str, what: str, value: object, known: Iterable[str]) -> None:
    """Refuse a word outside a vocabulary.

    Raises:
        DoctorError: the value is none of `known`.
    """
    allowed = tuple(known)
    if value in allowed:
        return
    few = f" is none of {', '.join(allowed)}" if len(allowed) <= 16 else " does not exist"
    raise fail(path, f"{what} '{value}'{few}", near(str(value), allowed))


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


def texts(path: str, raw: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that holds a list of words, empty where it is missing.

    Raises:
        DoctorError: the field is no list of words.
    """
    value = raw.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise fail(path, f'{name}: expected a list of names, such as ["…"]')
    return tuple(value)


def tables(path: str, raw: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return a field that holds tables, empty where it is missing.

    Raises:
        DoctorError: the field is no list of tables.
    """
    value = raw.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise fail(path, f"{name}: expected tables, such as [[{name}]]")
    return value


#: What a field that is there has to be → how that is said.
_KINDS: Mapping[type, str] = {str: "some text", bool: "true or false", int: "a whole number", list: "a list of names"}


def kinds(path: str, raw: Mapping[str, Any], expected: Mapping[str, type]) -> None:
    """Refuse a field that is there and holds something of another kind than its reader takes.

    A field of kind `list` holds texts.

    Raises:
        DoctorError: a field is of another kind.
    """
    for name, kind in expected.items():
        if name not in raw:
            continue
        value = raw[name]
        right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if not right or (kind is list and not all(isinstance(entry, str) for entry in value)):
            raise fail(path, f"{name}: expected {_KINDS[kind]}")


def whole(path: str, raw: Mapping[str, Any], name: str) -> int:
    """Return a field that holds a whole number, 0 where it is missing.

    Raises:
        DoctorError: the field is no whole number.
    """
    value = raw.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise fail(path, f"{name}: expected a whole number of decibans")
    return int(value)


def number(path: str, raw: Mapping[str, Any], name: str) -> float:
    """Return a field that holds a number.

    Raises:
        DoctorError: the field is no number.
    """
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fail(path, f"{name}: expected a number")
    try:
        return float(value)
    except OverflowError:
        raise fail(path, f"{name}: the number is too large") from None


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest name that exists, empty where none is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""
