"""Read a file or stdin, compressed or not, in any Unicode encoding, as lines of UTF-8."""

from __future__ import annotations

import codecs
import io
import sys
import zlib
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import opened, plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.sniffing import sniff_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Bytes from which the container is recognised.
HEAD = 1 << 16
#: Small enough to stay in the processor's cache on its way to the parser; 1 MiB is slower.
BLOCK = 1 << 16
#: A longer line is damage, and would need memory without bound.
LONGEST_LINE = 16 << 20
#: A stream is endless after this many bytes without a newline, or of nothing but blank lines and NULs.
ENDLESS = 1 << 30
#: Bytes before a log that was truncated while it was written: the writer goes on where it was, after a gap of NULs.
_BLANK = b"\0\r\n"
#: Fewer NULs or blank bytes than this are not worth a note.
_LEAST_NULS = 16
#: A crash of the machine leaves NULs where the end of a file had not reached the disk.
NULS = lazy_pattern(rb"\0{%d,}" % _LEAST_NULS)
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16 LE, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Source:
    """One input, read once from start to end in blocks of 64 kB.

    `path` is the name in notes, and `notes` collects what could not be read. The lines of a text that is `growing` do
    not include a last one without a newline.
    """

    def __init__(self, path: str | Path, stream: BinaryIO | None = None, *, growing: bool = False) -> None:
        self._stream = sys.stdin.buffer if stream is None and str(path) == "-" else stream
        self.path = "<stdin>" if str(path) == "-" else str(path)
        self.notes = Ledger(self.path)
        #: whether the last line of `chunks()` ended with a newline; a record without it may be incomplete
        self.ended = True
        #: number of the next line; the caller of `chunks()` adds the lines of a chunk, which it splits anyway
        self.line = 1
        #: bytes of NULs and blank lines before the text
        self._leading = 0
        self._growing = growing
        self._file = Path(path)
        #: blocks that `head()` has read and `blocks()` has not yielded yet
        self._held: list[bytes] = []
        #: whether the file is not compressed
        self._plain = True
        #: whether its bytes are a binary container
        self._binary = False
        #: whether it is a file on disk, and no pipe
        self._seekable = True
        self._rest: Iterator[bytes] | None = None

    @property
    def blank(self) -> int:
        """Return the number of bytes of NULs and blank lines before a text, as far as it was read; 0 for a few."""
        return self._leading if self._leading >= _LEAST_NULS else 0

    def head(self) -> bytes:
        """Return the first 64 kB as UTF-8 without consuming them."""
        blocks = self._open()
        size = sum(map(len, self._held))
        while size < HEAD and (block := next(blocks, b"")):
            self._held.append(block)
            size += len(block)
        start = b"".join(self._held)[:HEAD]
        return start if self._binary or b"\0" not in start else NULS.sub(b"\n", start)

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes as UTF-8 (invalid UTF-8 is not changed), in blocks of about 64 kB."""
        blocks = self._open()
        held, self._held = self._held, []
        return chain(held, blocks)

    def chunks(self) -> Iterator[bytes]:
        """Yield whole lines, about 64 kB at a time, without the newline of the last one.

        A line longer than 16 MiB is skipped with a note and yielded as an empty line, so that line numbers stay right.
        So is a line that NULs overwrote.
        """
        tail: list[bytes] = []
        size, dropping = 0, False
        for block in self.blocks():
            end = block.rfind(b"\n")
            if end >= 0:
                start = block.index(b"\n") if dropping else 0
                chunk = b"".join((*tail, memoryview(block)[start:end]))
                yield self._without_nuls(chunk) if b"\0" in chunk else chunk
                tail, size, dropping = [], 0, False
            tail.append(block[end + 1 :])
            size += len(tail[-1])
            if size > LONGEST_LINE and not dropping:
                self.notes.skip(f"a line longer than {LONGEST_LINE >> 20} MiB", self.line)
                dropping = True
            if dropping:
                tail = []
            if size > ENDLESS:
                self.notes.tell("endless", "a line that does not end; what follows is not read", self.line, kind="lost")
                break
        self.ended = not size or self._growing
        last = b"".join(tail)
        if last and not self._growing:
            yield self._without_nuls(last)

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line without its newline) of the lines that `chunks` yields."""
        for chunk in self.chunks():
            lines = chunk.split(b"\n")
            yield from enumerate(lines, self.line)
            self.line += len(lines)

    def _without_nuls(self, chunk: bytes) -> bytes:
        """Return lines without those that hold NULs, with a note on each; a JSON object after the NULs is kept.

        Anything else may be incomplete, and half a number is a wrong number.
        """
        lines = chunk.split(b"\n")
        for number, line in enumerate(lines, self.line):
            alone = b"\0" in line and not line.strip(_BLANK)
            if alone or NULS.search(line):
                after = NULS.split(line)[-1]
                lines[number - self.line] = after if after.startswith(b"{") else b""
                size = line.count(b"\0") if alone else sum(map(len, NULS.findall(line)))
                some = f"{size:,} NULs" if size > 1 else "a NUL"
                text = f"{some}, as a crash of the machine leaves; what was written there is lost"
                self.notes.tell("NULs", text, number, kind="lost")
        return b"\n".join(lines)

    def read_bytes(self, limit: int) -> bytes:
        """Return everything; raise DoctorError when it is more than `limit` bytes."""
        parts, size = [], 0
        for block in self.blocks():
            parts.append(block)
            size += len(block)
            if size > limit:
                raise DoctorError(
                    f"{self.path} is one JSON document larger than {limit >> 20} MiB",
                    hint="write one JSON object per line instead; such a file is read as a stream",
                )
        return b"".join(parts)

    def file(self, limit: int) -> tuple[BinaryIO, Path | None]:
        """Return the whole input as a seekable file, and its path if it is an uncompressed file on disk.

        Raises DoctorError if it has to be read into memory (stdin, compressed) and is larger than `limit` bytes.
        """
        self.head()
        if self._stream is None and self._plain and self._seekable:
            return plain_file(self._file), self._file
        held = io.BytesIO()
        for block in self.blocks():
            if held.tell() + len(block) > limit:
                raise DoctorError(
                    f"{self.path} is larger than {limit >> 20} MiB", hint="unpack it, and give the file by its path"
                )
            held.write(block)
        held.seek(0)
        return held, None

    def _open(self) -> Iterator[bytes]:
        if self._rest is None:
            blocks = self._unpacked(self._raw())
            first = _at_least(blocks, 256)
            everything = chain([first], blocks)
            # The bytes of a binary container must not change, and may look like UTF-16.
            self._binary = sniff_binary(first, self.path) is not None
            self._rest = filter(None, everything) if self._binary else self._begun(_as_utf8(everything))
        return self._rest

    def _begun(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield a text without the NULs and blank lines at its beginning, whose lines are counted."""
        for block in blocks:
            # translate() takes a tenth of the time of lstrip().
            rest = block.lstrip(_BLANK) if block.translate(None, _BLANK) else b""
            skipped = len(block) - len(rest)
            self._leading += skipped
            self.line += block.count(b"\n", 0, skipped)
            if self._leading > ENDLESS:
                raise DoctorError(f"{self.path} holds nothing in its first {ENDLESS >> 20:,} MiB")
            if rest:
                if self.blank:
                    text = f"begins with {self.blank:,} bytes of NULs or blank lines, as after copytruncate"
                    self.notes.tell("leading", f"{text}; skipped", self.line)
                yield rest
                yield from blocks
                return

    def _raw(self) -> Iterator[bytes]:
        try:
            if self._stream is not None:
                yield from iter(lambda: self._stream.read(BLOCK), b"")  # type: ignore[union-attr]
                return
            stream, self._seekable = opened(self._file)
            with stream:
                yield from iter(lambda: stream.read(BLOCK), b"")
        except FileNotFoundError as error:
            raise DoctorError(f"{self.path} does not exist") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = getattr(error, "strerror", None) or error
            raise DoctorError(f"{self.path} cannot be read: {reason}") from error

    def _unpacked(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        first = _at_least(raw, 4)
        blocks = chain([first], raw)
        self._plain = not first.startswith((_GZIP, _ZSTD))
        if self._plain:
            return blocks
        feed = io.BufferedReader(_Feed(blocks))
        if first.startswith(_GZIP):
            import gzip  # not at the top: few logs are compressed

            return self._decompressed(gzip.GzipFile(fileobj=feed).read1, (OSError, zlib.error))
        return self._decompressed(*_zstd(feed, self.path))

    def _decompressed(self, read: Callable[[int], bytes], damage: tuple[type[Exception], ...]) -> Iterator[bytes]:
        """Yield decompressed blocks of bounded size: a few bytes may stand for gigabytes."""
        try:
            yield from iter(lambda: read(BLOCK), b"")
        except EOFError:
            self._lost("cut off", "no end of stream")
        except damage as error:
            self._lost("damaged", error)

    def _lost(self, how: str, why: object) -> None:
        self.notes.tell("compression", f"the compressed data is {how}, and the rest of it lost: {why}", kind="lost")


class _Feed(io.RawIOBase):
    """Blocks as a file, which decompressors need."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typeshed has no better name for a writable buffer
        self._left = self._left or next(self._blocks, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _zstd(feed: BinaryIO, path: str) -> tuple[Callable[[int], bytes], tuple[type[Exception], ...]]:
    """Return a function that reads decompressed bytes, and the errors it raises, from whichever module is installed."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            zstd = import_module(name)
        except ImportError:
            continue
        if hasattr(zstd, "ZstdFile"):
            return zstd.ZstdFile(feed).read, (zstd.ZstdError,)
        return zstd.ZstdDecompressor().stream_reader(feed, read_across_frames=True).read, (zstd.ZstdError,)
    raise DoctorError(
        f"{path} is compressed with zstd, which this Python cannot read by itself",
        hint="pip install zstandard, or unpack the file first: zstd -d FILE",
    )


def _at_least(blocks: Iterator[bytes], size: int) -> bytes:
    start = b""
    while len(start) < size and (block := next(blocks, b"")):
        start += block
    return start


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield UTF-16 and UTF-32 as UTF-8, and any other text unchanged, without its byte order mark."""
    first = _at_least(blocks, 256)
    mark, encoding = next(((mark, name) for mark, name in _BOMS if first.startswith(mark)), (b"", _unmarked(first)))
    everything = chain([first[len(mark) :]], blocks)
    if encoding == "utf-8":
        yield from filter(None, everything)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in everything:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _unmarked(first: bytes) -> str:
    """Return the encoding of text without a mark: every other byte of ASCII text in UTF-16 is NUL."""
    even, odd = first[0:256:2], first[1:256:2]
    if len(odd) < 2:
        return "utf-8"
    zeros_even, zeros_odd = even.count(0) / len(even), odd.count(0) / len(odd)
    if zeros_odd > 0.7 and zeros_even < 0.1:
        return "utf-16-le"
    if zeros_even > 0.7 and zeros_odd < 0.1:
        return "utf-16-be"
    return "utf-8"
