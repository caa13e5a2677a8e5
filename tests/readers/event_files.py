"""A small writer of event files, independent of the reader: what tests of damage need is every byte's place."""

import struct
from functools import reduce


def crc32c(data):
    """Bit by bit, as the definition has it."""
    word = 0xFFFFFFFF
    for byte in data:
        word ^= byte
        for _ in range(8):
            word = (word >> 1) ^ (0x82F63B78 if word & 1 else 0)
    return word ^ 0xFFFFFFFF


def masked(data):
    word = crc32c(data)
    return struct.pack("<I", (((word >> 15) | (word << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(payload):
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field of a message: bytes, text, int (as varint) or float (as double)."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def scalar(tag, value):
    return field(1, tag) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag, dtype, body, plugin="scalars", content=b""):
    data = field(1, plugin) + (field(2, content) if content else b"")
    return field(1, tag) + field(9, field(1, data)) + field(8, field(1, dtype) + body)


def event(step, *values, wall=1.5):
    body = field(1, wall) + (field(2, step) if step else b"")
    return body + (field(5, reduce(bytes.__add__, [field(1, value) for value in values])) if values else b"")


def version():
    return field(1, 1.5) + field(3, "brain.Event:2")


def event_file(*events):
    return b"".join(map(record, [version(), *events]))


def scalars(rows):
    """Events as most writers write them: one tag each, the tags of a step together; rows are (step, {tag: value})."""
    return [event(step, scalar(tag, value)) for step, values in rows for tag, value in values.items()]
