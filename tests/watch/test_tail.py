"""The end of a file: every byte once, whatever happens to the file."""

from __future__ import annotations

import os
import random

import pytest

from ppo_doctor.watch.tail import MARK, Cut, Tail


@pytest.fixture
def follow():
    """Return a function that follows a path, and let go of every file at the end."""
    tails = []

    def one(path):
        tails.append(Tail(path))
        return tails[-1]

    yield one
    for tail in tails:
        tail.close()


def parts(tail):
    """Return what a look finds: bytes joined, cuts as they are."""
    found = []
    for part in tail.poll():
        if found and isinstance(part, bytes) and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_every_byte_is_read_once(tmp_path, follow):
    path, numbers = tmp_path / "log", random.Random(0)
    tail, seen, looks = follow(path), b"", 0
    written = b""
    for _ in range(200):
        if numbers.random() < 0.5:
            data = numbers.randbytes(numbers.randrange(3000))
            append(path, data)
            written += data
        seen += b"".join(tail.poll())
        looks += 1
    assert seen == written
    assert tail.read == len(written) > 100_000
    assert tail.checked <= MARK * looks


def test_a_large_file_is_read_once_in_blocks(tmp_path, follow):
    path = tmp_path / "log"
    path.write_bytes(os.urandom(5 << 20))
    tail = follow(path)
    blocks = list(tail.poll())
    assert b"".join(blocks) == path.read_bytes()
    assert len(blocks) == 5
    assert list(tail.poll()) == []
    assert tail.read == 5 << 20


def test_a_file_may_appear_later_and_its_folder_too(tmp_path, follow):
    tail = follow(tmp_path / "runs" / "log")
    assert parts(tail) == []
    assert not tail.present
    tail.path.parent.mkdir()
    assert parts(tail) == []
    append(tail.path, b"one")
    assert parts(tail) == [b"one"]
    assert tail.present


def test_what_was_written_just_before_a_rotation_is_not_lost(tmp_path, follow):
    path = tmp_path / "log"
    append(path, b"one\n")
    tail = follow(path)
    assert parts(tail) == [b"one\n"]
    append(path, b"two\n")
    path.rename(tmp_path / "log.1")
    append(path, b"three\n")
    assert parts(tail) == [b"two\n", Cut.ROTATED, b"three\n"]
    assert tail.moved_to == tmp_path / "log.1"


def test_a_moved_file_is_read_on_until_another_takes_its_place(tmp_path, follow):
    path, old = tmp_path / "log", tmp_path / "log.1"
    append(path, b"one\n")
    tail = follow(path)
    parts(tail)
    path.rename(old)
    assert parts(tail) == []
    assert not tail.present
    append(old, b"two\n")
    assert parts(tail) == [b"two\n"]
    append(path, b"three\n")
    assert parts(tail) == [Cut.ROTATED, b"three\n"]


def test_a_file_that_was_deleted_and_made_again(tmp_path, follow):
    path = tmp_path / "log"
    append(path, b"one\n")
    tail = follow(path)
    parts(tail)
    path.unlink()
    append(path, b"one\ntwo\n")
    assert parts(tail) == [Cut.ROTATED, b"one\ntwo\n"]
    assert tail.moved_to is None


def test_truncation(tmp_path, follow):
    path = tmp_path / "log"
    append(path, b"one\ntwo\n")
    tail = follow(path)
    parts(tail)
    path.write_bytes(b"new\n")
    assert parts(tail) == [Cut.TRUNCATED, b"new\n"]


def test_truncation_that_grew_beyond_our_place(tmp_path, follow):
    path = tmp_path / "log"
    append(path, b"one\ntwo\n")
    tail = follow(path)
    parts(tail)
    path.write_bytes(b"something else, and longer\n")
    assert parts(tail) == [Cut.REWRITTEN, b"something else, and longer\n"]


def test_the_clock_of_the_file_system_may_run_backwards(tmp_path, follow):
    path = tmp_path / "log"
    append(path, b"one\n")
    tail = follow(path)
    parts(tail)
    append(path, b"two\n")
    os.utime(path, (0, 0))
    assert parts(tail) == [b"two\n"]
    os.utime(path, (1 << 33, 1 << 33))
    assert parts(tail) == []


def test_a_folder_in_place_of_the_file_is_an_error_to_tell(tmp_path, follow):
    (tmp_path / "log").mkdir()
    with pytest.raises(OSError):
        parts(follow(tmp_path / "log"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_a_pipe_cannot_be_followed_and_is_not_waited_for(tmp_path, follow):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular file"):
        parts(follow(tmp_path / "pipe"))
