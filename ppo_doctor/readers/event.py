"""Read protocol buffers, and the events of TensorBoard in them, without copying."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
#: Bytes of a varint at most.
_LONGEST_VARINT = 10


class WireError(ValueError):
    """The bytes are no message."""


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends; raise WireError where it does not end before `end`."""
    if at < end and data[at] < 128:  # most are: keys of fields, lengths of names
        return data[at], at + 1
    value = shift = 0
    for place in range(at, min(end, at + _LONGEST_VARINT)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    raise WireError("a number without an end")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (field, kind, start, stop, number) of a message that lies in `data[at:end]`.

    `start` and `stop` enclose the value; `number` is that of a VARINT and 0 for other kinds.
    Raises WireError where the bytes are no message.
    """
    while at < end:
        key, start = varint(data, at, end)
        kind = key & 7
        number = 0
        if kind == VARINT:
            number, at = varint(data, start, end)
        elif kind == BYTES:
            size, start = varint(data, start, end)
            at = start + size
        elif kind in _FIXED:
            at = start + _FIXED[kind]
        else:
            raise WireError(f"no such kind of field: {kind}")
        if at > end:
            raise WireError("a field beyond the end of its message")
        yield key >> 3, kind, start, at, number


def signed(number: int) -> int:
    """Return a varint as the int64 that it stands for."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def text(data: bytes, start: int, stop: int) -> str:
    """Return a field as text; bytes that are no UTF-8 are replaced."""
    return data[start:stop].decode("utf-8", "replace")


#: The numbers of TensorFlow's DataType: what NumPy calls them. bfloat16 is the upper half of a float32.
BFLOAT16 = "bfloat16"
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "u1"}
_TYPES |= {14: BFLOAT16, 17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8"}
_STRING = 7
#: Field of a TensorProto → width of its values in bytes; 0 for varints.
_TYPED = {5: 4, 6: 8, 7: 0, 10: 0, 11: 0, 13: 0, 16: 0, 17: 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of a summary. A scalar has a number, and its offset `at` and type `kind` if its width is fixed."""

    tag: str = ""
    tag_at: tuple[int, int] = (0, 0)
    number: float | None = None
    kind: str = ""
    at: int = -1
    plugin: str = ""
    #: data of the plugin, as hparams have it
    content: bytes = b""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `step_at` is the range of its step in the message, and `wall_at` the offset of its time."""

    step: int = 0
    step_at: tuple[int, int] = (0, 0)
    wall_time: float = 0.0
    wall_at: int = -1
    values: tuple[Value, ...] = ()


def event(data: bytes) -> Event:
    """Take an Event message apart; raises WireError where it is none."""
    step, step_at, wall_time, wall_at = 0, (0, 0), 0.0, -1
    values: list[Value] = []
    for field, kind, start, stop, number in fields(data, 0, len(data)):
        if field == 2 and kind == VARINT:
            step, step_at = signed(number), (start, stop)
        elif field == 1 and kind == FIXED64:
            wall_time, wall_at = number_at(data, "<f8", start), start
        elif field == 5 and kind == BYTES:
            inner = fields(data, start, stop)
            values += [_value(data, a, b) for f, k, a, b, _ in inner if f == 1 and k == BYTES]
    return Event(step=step, step_at=step_at, wall_time=wall_time, wall_at=wall_at, values=tuple(values))


def number_at(data: bytes, kind: str, at: int) -> float:
    """Return the number of a type at an offset."""
    if kind == BFLOAT16:
        return float(np.frombuffer(b"\0\0" + data[at : at + 2], dtype="<f4")[0])
    return float(np.frombuffer(data, dtype=kind, count=1, offset=at)[0])


def _value(data: bytes, start: int, stop: int) -> Value:
    tag = plugin = ""
    tag_at = (0, 0)
    content = b""
    found: Value | None = None
    for field, kind, a, b, _ in fields(data, start, stop):
        if field == 1 and kind == BYTES:
            tag, tag_at = text(data, a, b), (a, b)
        elif field == 2 and kind == FIXED32:
            found = Value(number=number_at(data, "<f4", a), kind="<f4", at=a)
        elif field == 8 and kind == BYTES:
            found = _tensor(data, a, b)
        elif field == 9 and kind == BYTES:
            plugin, content = _metadata(data, a, b)
    found = found or Value()
    return replace(found, tag=tag, tag_at=tag_at, plugin=plugin, content=content)


def _metadata(data: bytes, start: int, stop: int) -> tuple[str, bytes]:
    """Return the plugin that a value belongs to, and the plugin's own data."""
    name, content = "", b""
    for field, kind, a, b, _ in fields(data, start, stop):
        if field == 1 and kind == BYTES:
            for inner, what, c, d, _ in fields(data, a, b):
                if inner == 1 and what == BYTES:
                    name = text(data, c, d)
                elif inner == 2 and what == BYTES:
                    content = data[c:d]
    return name, content


def _tensor(data: bytes, start: int, stop: int) -> Value:
    """Return the scalar or the texts that a TensorProto holds; nothing of anything larger."""
    dtype, size, packed = 0, 1, (0, 0)
    texts: list[str] = []
    typed: list[tuple[int, int, int, int, int]] = []
    for item in fields(data, start, stop):
        field, kind, a, b, number = item
        if field == 1 and kind == VARINT:
            dtype = number
        elif field == 2 and kind == BYTES:
            size = _elements(data, a, b)
        elif field == 4 and kind == BYTES:
            packed = a, b
        elif field == 8 and kind == BYTES:
            texts.append(text(data, a, b))
        elif field in _TYPED:
            typed.append(item)
    if dtype == _STRING or texts:
        return Value(texts=tuple(texts))
    name = _TYPES.get(dtype)
    if size != 1 or name is None:
        return Value()
    if packed[1] > packed[0]:
        return _content(data, name, *packed)
    return _typed(data, name, typed)


def _content(data: bytes, name: str, start: int, stop: int) -> Value:
    width = 2 if name == BFLOAT16 else np.dtype(name).itemsize
    if stop - start != width:
        raise WireError("a tensor whose content is not as long as it says")
    return Value(number=number_at(data, name, start), kind=name, at=start)


def _typed(data: bytes, name: str, items: list[tuple[int, int, int, int, int]]) -> Value:
    """Return a scalar from the field for its type; a missing field is 0."""
    if not items:
        return Value(number=0.0)
    field, kind, start, stop, number = items[-1]
    width = _TYPED[field]
    if width:
        if stop - start != width:
            raise WireError("a tensor of one value that holds several")
        fixed = "<f4" if width == 4 else "<f8"
        return Value(number=number_at(data, fixed, start), kind=fixed, at=start)
    if kind == BYTES:
        number, _ = varint(data, start, stop)
    return Value(number=_whole(name, number))


def _whole(name: str, number: int) -> float:
    """Return the number that a varint stands for; half-precision floats are stored as their 16 bits."""
    if name in (BFLOAT16, "<f2"):
        return number_at((number & 0xFFFF).to_bytes(2, "little"), name, 0)
    return float(number if name in ("<u8", "<u4") else signed(number))


def _elements(data: bytes, start: int, stop: int) -> int:
    """Return the number of values of a shape, 2 for any number above 1; no dimensions are one value."""
    size = 1
    for a, b in _messages(data, start, stop, 2):
        for field, kind, _, _, number in fields(data, a, b):
            if field == 1 and kind == VARINT:
                size = min(size * max(0, signed(number)), 2)
    return size


def _messages(data: bytes, start: int, stop: int, wanted: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for field, kind, a, b, _ in fields(data, start, stop) if field == wanted and kind == BYTES)


def hparams(content: bytes) -> dict[str, str | float | bool | None]:
    """Return the settings of a session that the data of the hparams plugin holds; empty for its other messages."""
    settings: dict[str, str | float | bool | None] = {}
    for a, b in _messages(content, 0, len(content), 3):
        for c, d in _messages(content, a, b, 1):
            key, value = "", None
            for field, kind, e, f, _ in fields(content, c, d):
                if field == 1 and kind == BYTES:
                    key = text(content, e, f)
                elif field == 2 and kind == BYTES:
                    value = _setting(content, e, f)
            settings[key] = value
    return settings


def _setting(data: bytes, start: int, stop: int) -> str | float | bool | None:
    """Return the value of a google.protobuf.Value; None for a list or an object."""
    for field, kind, a, b, number in fields(data, start, stop):
        if field == 2 and kind == FIXED64:
            value = number_at(data, "<f8", a)
            return int(value) if value.is_integer() and abs(value) < 1e15 else value
        if field == 3 and kind == BYTES:
            return text(data, a, b)
        if field == 4 and kind == VARINT:
            return bool(number)
    return None
