"""A log that grows: every byte goes through its reader or decoder once, and what was read may be judged at any time."""

from __future__ import annotations

import io
from collections import deque
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from threading import Condition, Thread
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from ppo_doctor import readers
from ppo_doctor.errors import DoctorError
from ppo_doctor.readers.source import HEAD, NULS, Leading, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Binary containers that grow at their end → their decoder, which takes bytes as they come.
DECODERS = {"tfevents": "ppo_doctor.readers.tfevents:Decoder", "wandb": "ppo_doctor.readers.wandb_log:Decoder"}
#: Containers that grow at their end; every other one is written anew by its trainer, and read anew.
STREAMED = ("jsonl", "csv", "console", *DECODERS)
#: As long as a log is this small its bytes are kept and read again, for its container may not be clear yet. In UTF-32
#: that many bytes are what a reader looks at to tell the container.
SMALL = 4 * HEAD
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a log held at one moment, in native names; `folders` are where else its configuration may lie."""

    path: str
    container: str
    items: Sequence[readers.Item]
    folders: tuple[Path, ...] = ()


class Decoder(Protocol):
    """Takes the bytes of a binary log as they come."""

    def feed(self, block: bytes) -> Iterator[readers.Item]:
        """Take the next bytes; yield tables whenever enough have come together."""

    def pause(self) -> Iterator[readers.Item]:
        """Yield all that is complete so far."""

    def finish(self) -> Iterator[readers.Item]:
        """Yield the rest, the settings and the notes."""


class Growing:
    """One log from its first byte on.

    A small log is kept in memory and read from there. A larger one goes through its reader in a thread that sleeps
    while there is nothing to read; at each `snapshot` it shows the records that it holds. A binary one goes through its
    decoder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._small: bytearray | None = bytearray()
        self._leading = Leading()
        self._stream: _Stream | _Decoded | None = None

    def feed(self, data: bytes) -> None:
        """Take the bytes that follow."""
        if self._stream is not None:
            self._stream.feed(data)
        elif self._small is not None:
            self._small += data
            self._leave_out_leading(self._small)
            container = self.container()
            if container in DECODERS:
                self._stream, self._small = _Decoded(self.path, container, bytes(self._small)), None
            elif len(self._small) > SMALL:
                self._stream, self._small = _Stream(self.path, bytes(self._small), self._leading), None

    def container(self) -> str | None:
        """Return the container as far as it is clear, None for bytes that are no log."""
        if self._stream is not None:
            return self._stream.container
        return readers.sniff(self._source(bytes(self._small or b"")).head(), self.path)

    def snapshot(self) -> Reading:
        """Return what the log holds in whole lines.

        Raises:
            DoctorError: nothing that we can read, or nothing yet.
        """
        if self._stream is not None:
            return self._stream.snapshot()
        return self._reread(_whole_lines(bytes(self._small or b"")))

    def finish(self) -> Reading:
        """Return what the log holds now that nothing follows, as `readers.read` would.

        Raises:
            DoctorError: nothing that we can read.
        """
        if self._stream is not None:
            return self._stream.finish()
        return self._reread(bytes(self._small or b""))

    def close(self) -> None:
        """Let the reader end; what was read is forgotten."""
        if self._stream is not None:
            self._stream.close()

    def _leave_out_leading(self, small: bytearray) -> None:
        """Keep no more of the NULs and blank lines at the beginning than place UTF-16 and UTF-32 right."""
        blank = len(small) - len(small.lstrip(b"\0\r\n"))
        if blank >= HEAD:
            whole = blank - blank % 4
            self._leading.without(bytes(small[:whole]))
            del small[:whole]

    def _source(self, data: bytes) -> Source:
        return Source(self.path, io.BytesIO(data), copy(self._leading))

    def _reread(self, data: bytes) -> Reading:
        container, items = readers.read_source(self._source(data))
        return Reading(path=self.path, container=container, items=tuple(items))


def _whole_lines(data: bytes) -> bytes:
    """Return text up to its last line end; compressed data and UTF-16 as they are, for a byte there is no character."""
    start = NULS.sub(b"", data.lstrip(b"\0\r\n")[:256]).rstrip(b"\0")
    if data.startswith(_PACKED) or b"\0" in start:
        return data
    return data[: data.rfind(b"\n") + 1]


class _Decoded:
    """A decoder of a binary container, fed by hand."""

    def __init__(self, path: str, container: str, data: bytes) -> None:
        self.container = container
        self._source = Source(path, io.BytesIO())
        module, _, name = DECODERS[container].partition(":")
        self._decoder: Decoder = getattr(import_module(module), name)(self._source)
        self._items: list[readers.Item] = []
        self.feed(data)

    def feed(self, data: bytes) -> None:
        self._items.extend(self._decoder.feed(data))

    def snapshot(self) -> Reading:
        """Return every record that is complete, and the notes so far."""
        self._items.extend(self._decoder.pause())
        return self._reading([*self._items, *self._source.notes.notes()])

    def finish(self) -> Reading:
        """Return all that the decoder makes of the bytes, a torn record at their end included in its notes."""
        return self._reading([*self._items, *self._decoder.finish()])

    def close(self) -> None:
        """Forget nothing: there is no thread to end."""

    def _reading(self, items: Sequence[readers.Item]) -> Reading:
        return Reading(path=self._source.path, container=self.container, items=tuple(items))


class _Stream:
    """A reader in a thread of its own, fed by hand."""

    def __init__(self, path: str, data: bytes, leading: Leading) -> None:
        self.container: str | None = None
        self._pipe = _Pipe()
        # A reader asks its stream for blocks and nothing else.
        self._source = Source(path, cast("BinaryIO", self._pipe), leading)
        self._items: list[readers.Item] = []
        self._error: Exception | None = None
        self._thread = Thread(target=self._work, name="ppo-doctor-reader", daemon=True)
        self._thread.start()
        self.feed(data)

    def feed(self, data: bytes) -> None:
        self._pipe.put(data)

    def snapshot(self) -> Reading:
        """Return what was read and what the reader still holds; it sleeps meanwhile, so nothing moves."""
        self._pipe.settle()
        held = [item for peek in self._source.notes.held for item in peek()]
        return self._reading([*self._items, *held, *self._source.notes.notes()])

    def finish(self) -> Reading:
        """Return all that the reader yields to the end of its source."""
        self.close()
        return self._reading(self._items)

    def close(self) -> None:
        self._pipe.end()
        self._thread.join()

    def _reading(self, items: Sequence[readers.Item]) -> Reading:
        if self._error is not None:
            raise self._error
        if self.container is None:
            raise DoctorError(f"{self._source.path}: nothing readable yet")
        return Reading(path=self._source.path, container=self.container, items=tuple(items))

    def _work(self) -> None:
        try:
            self.container, stream = readers.read_source(self._source)
            self._items.extend(stream)
        except Exception as error:  # noqa: BLE001 - raised again by whoever asks for what was read
            self._error = error
        finally:
            self._pipe.leave()


class _Pipe:
    """Bytes handed from one thread to another; the one who gives can wait until all is taken."""

    def __init__(self) -> None:
        self._turn = Condition()
        self._blocks: deque[bytes] = deque()
        self._ended = False
        #: whether the reader sleeps for want of bytes, or has left
        self._idle = False

    def read(self, size: int) -> bytes:
        """Return some bytes, waiting for them; none at the end. Blocks may be larger than asked for."""
        del size
        with self._turn:
            while not self._blocks and not self._ended:
                self._idle = True
                self._turn.notify_all()
                self._turn.wait()
            return self._blocks.popleft() if self._blocks else b""

    def put(self, data: bytes) -> None:
        """Hand on bytes in blocks that fit a processor's cache, and wait until they are read."""
        with self._turn:
            if self._ended:  # the reader gave up, and says why when it is asked
                return
            self._blocks.extend(data[i : i + HEAD] for i in range(0, len(data), HEAD))
            self._idle = self._idle and not self._blocks
            self._turn.notify_all()
        self.settle()

    def settle(self) -> None:
        """Wait until the reader sleeps."""
        with self._turn:
            self._turn.wait_for(lambda: self._idle)

    def end(self) -> None:
        """Let the reader find the end."""
        with self._turn:
            self._ended = True
            self._turn.notify_all()

    def leave(self) -> None:
        """Say that nobody reads any more."""
        with self._turn:
            self._idle = self._ended = True
            self._blocks.clear()
            self._turn.notify_all()
