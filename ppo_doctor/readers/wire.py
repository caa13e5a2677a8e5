"""The wire format of protocol buffers, as far as reading takes: fields with their places, nothing copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
#: Bytes of a varint at most.
_LONGEST_VARINT = 10


class WireError(ValueError):
    """These bytes are no message."""


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
