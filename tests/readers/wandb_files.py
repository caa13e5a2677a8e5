"""A small writer of W&B run files, independent of the reader."""

import json
import struct
import zlib

from tests.readers.event_files import field

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
BLOCK = 32768


def chunk(kind, data):
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def framed(records):
    """Return a file of these records and, for each, where its first and last chunk begin and end."""
    out, places = bytearray(HEADER), []
    for left_over in records:
        record, spans, first = left_over, [], True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += b"\0" * left
                left = BLOCK
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else 2 if first else 3
            start = len(out)
            out += chunk(kind, part)
            spans.append((start, len(out)))
            first = False
            if not record:
                break
        places.append((spans[0][0], spans[-1][1]))
    return bytes(out), places


def item(keys, value):
    """A history or configuration item; several keys are those of nested objects."""
    written = value if isinstance(value, bytes) else json.dumps(value).encode()
    named = field(1, keys) if isinstance(keys, str) else b"".join(field(2, key) for key in keys)
    return field(1, named + field(16, written))


def history(step, **values):
    items = {"_step": step, "_runtime": step / 2, **values}
    return field(2, b"".join(item(key, value) for key, value in items.items()) + field(2, field(1, step)))


def config(**values):
    return field(5, b"".join(item(key, value) for key, value in values.items()))


def run(**values):
    return field(17, field(1, "id") + field(4, b"".join(item([key], value) for key, value in values.items())))


def leave(code):
    return field(18, field(1, code))


def run_file(*records):
    return framed(records)[0]
