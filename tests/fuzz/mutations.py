"""What is done to a file: bytes, lines, numbers, tokens and members of archives, all drawn from one generator."""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

from tests.readers.event_files import record as event_record

#: A mutated file is cut to this many bytes: what matters about size has tests of its own.
LARGEST = 4 << 20
NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = (
    *(
        b"NaN",
        b"nan",
        b"Infinity",
        b"-Infinity",
        b"inf",
        b"1e308",
        b"-1e308",
        b"1e999",
        b"1e-320",
        b"-0",
        b"0",
        b"null",
    ),
    *(b'"x"', b'""', b"true", b"{}", b"[]", b'{"a":1}', b"[1,2]", b"9" * 400, b"9" * 6000, b"1" + b"0" * 30, b"0x1f"),
    *(b"1_000", b"12%", b"3/400", b"-1", b"1e-9", b"2.5", b"18446744073709551616", b"9223372036854775808", b"-"),
)
TOKENS = {
    "json": (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\u0000", b"\\ud800", b'"config":', b'"step":', b"\x00"),
    "csv": (b",", b";", b"\t", b'"', b"\r", b"\n", b"#", b"step,step\n", b'#{"a": 1}\n', b",,,,"),
    "console": (b"{'", b"'}", b"|", b"---", b"\x1b[31m", b"step:", b"=", b"(", b"np.float64(", b"tensor(", b"\r"),
    "yaml": (
        *(
            b": ",
            b"- ",
            b"<<: *a\n",
            b"&a ",
            b"*a ",
            b"!!bool ",
            b"!!timestamp ",
            b"!!python/object/apply:os.system ",
            b"? ",
        ),
        *(
            b"| \n",
            b"> \n",
            b"---\n",
            b"...\n",
            b"%YAML 9.9\n",
            b"{",
            b"[",
            b"\t",
            b"\x07",
            b"2001-99-99",
            b"1:1:1",
            b"!!binary ",
        ),
    ),
    "toml": (b"[", b"[[", b"]]", b'"""', b"= ", b".", b"'", b"1979-05-27T07:32:00", b"inf", b"nan", b"{", b"}"),
    "shell": (b"--", b"$", b"${X:-", b"}", b"\\\n", b"'", b'"', b"=", b"export ", b"#"),
    "pickle": (
        b"(",
        b".",
        b"]",
        b"}",
        b"h\x00",
        b"q\x00",
        b"\x94",
        b"2",
        b"t",
        b"u",
        b"e",
        b"R",
        b"b",
        b"c",
        b"Q",
        b"\x8b",
        b"\x81",
    ),
    "binary": (b"\x00" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80", b"\x01"),
}
Mutation = Callable[[random.Random, bytes, bytes, str], bytes]


def mutated(rng: random.Random, data: bytes, other: bytes, tokens: str) -> tuple[bytes, list[str]]:
    """Return a file after one to four mutations, and their names; `other` lends blocks."""
    names = []
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        name, mutation = rng.choice(MUTATIONS)
        data = mutation(rng, data, other, tokens)[:LARGEST]
        names.append(name)
    return data, names


def inside(rng: random.Random, data: bytes, other: bytes, tokens: str) -> tuple[bytes, list[str]]:
    """Mutate what a container protects by checksums, and write the checksums anew; else the file as it is."""
    if rng.random() < 0.3:
        return mutated(rng, data, other, tokens)
    for unpack in (_zip, _events):
        changed = unpack(rng, data, other, tokens)
        if changed is not None:
            return changed
    return mutated(rng, data, other, tokens)


def _zip(rng: random.Random, data: bytes, other: bytes, tokens: str) -> tuple[bytes, list[str]] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            held = {info.filename: archive.read(info) for info in archive.infolist() if not info.flag_bits & 1}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError, EOFError, struct.error):
        return None
    if not held:
        return None
    chosen = rng.choice(sorted(held))
    held[chosen], names = mutated(rng, held[chosen], other, "pickle" if chosen.endswith(".pkl") else tokens)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return out.getvalue(), [f"inside {chosen}", *names]


def _events(rng: random.Random, data: bytes, other: bytes, tokens: str) -> tuple[bytes, list[str]] | None:
    records, at = [], 0
    while at + 16 <= len(data) and len(records) < 5_000:
        size = int.from_bytes(data[at : at + 8], "little")
        if size > len(data) - at - 16:
            break
        records.append(data[at : at + 16 + size])
        at += 16 + size
    if not records or b"brain.Event" not in records[0]:
        return None
    chosen = rng.randrange(len(records))
    payload, names = mutated(rng, records[chosen][12:-4], other[:1000], tokens)
    records[chosen] = event_record(payload[:20_000])  # the bitwise checksum of the tests' writer is slow
    return b"".join(records) + data[at:], ["inside a record", *names]


def _flip(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 30, 300)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 4, 30)) if out else 0):
        out[rng.randrange(len(out))] = rng.choice((0, 9, 10, 13, 34, 44, 45, 46, 123, 125, 127, 128, 192, 255))
    return bytes(out)


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 3, 20, 200, 5_000, len(data))))


def _cut_end(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut_start(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def _delete(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def _double(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 1, 2, 50)) + data[stop:]


def _move(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    start, stop = _span(rng, data)
    rest = data[:start] + data[stop:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + data[start:stop] + rest[at:]


def _splice(rng: random.Random, data: bytes, other: bytes, _tokens: str) -> bytes:
    start, stop = _span(rng, other)
    at, upto = _span(rng, data)
    return data[:at] + other[start:stop] + data[rng.choice((at, upto)) :]


def _numbers(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    share = rng.choice((0.001, 0.01, 0.1, 0.6, 1.0))
    words = [rng.choice(NUMBERS) for _ in range(rng.choice((1, 1, 3)))]
    return NUMBER.sub(lambda found: rng.choice(words) if rng.random() < share else found[0], data)


def _nested(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    depth = rng.choice((3, 20, 200, 3_000, 50_000))
    opens, closes = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"{", b"}"), (b"- ", b"")))
    return _at_a_number(rng, data, opens * depth + b"1" + closes * depth)


def _digits(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    return _at_a_number(rng, data, rng.choice((b"", b"-", b"0.", b"1e")) + b"9" * rng.choice((20, 400, 5_000, 100_000)))


def _at_a_number(rng: random.Random, data: bytes, word: bytes) -> bytes:
    found = [match.span() for match in NUMBER.finditer(data[: 1 << 16])] or [(0, 0)]
    start, stop = rng.choice(found)
    return data[:start] + word + data[stop:]


def _token(rng: random.Random, data: bytes, _other: bytes, tokens: str) -> bytes:
    for _ in range(rng.choice((1, 2, 10))):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(TOKENS[tokens]) * rng.choice((1, 1, 3, 1_000)) + data[at:]
    return data


def _lines(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    lines = data.split(b"\n")
    match rng.randrange(6):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines = [line for line in lines if rng.random() < 0.5]
        case 2:
            lines = [line for line in lines for _ in range(rng.choice((1, 2)))]
        case 3:
            lines.reverse()
        case 4:
            lines = [line[: rng.randrange(len(line) + 1)] if rng.random() < 0.2 else line for line in lines]
        case _:
            lines = [line.replace(b" ", b"") for line in lines]
    return rng.choice((b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b" ")).join(lines)


def _padded(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    blank = rng.choice((b"\0", b"\n", b" ", b"\r\n")) * rng.choice((1, 4_097, 65_536, 200_000))
    at = rng.choice((0, 0, len(data), rng.randrange(len(data) + 1)))
    return data[:at] + blank + data[at:]


def _encoded(rng: random.Random, data: bytes, _other: bytes, _tokens: str) -> bytes:
    match rng.randrange(4):
        case 0:
            return gzip.compress(data, 1)
        case 1:
            return data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig")))
        case 2:
            return gzip.compress(data, 1)[: rng.randrange(20, 4_000)]
        case _:
            return data.decode("latin-1").encode("utf-8")


MUTATIONS: tuple[tuple[str, Mutation], ...] = (
    ("flip", _flip),
    ("set", _set),
    ("cut the end", _cut_end),
    ("cut the start", _cut_start),
    ("delete", _delete),
    ("double", _double),
    ("move", _move),
    ("splice", _splice),
    ("numbers", _numbers),
    ("numbers", _numbers),
    ("nested", _nested),
    ("digits", _digits),
    ("token", _token),
    ("lines", _lines),
    ("padded", _padded),
    ("encoded", _encoded),
)
