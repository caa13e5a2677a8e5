"""A compiled pack in the cache is believed only where it is what was written, by this user or by root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppo_doctor import compiled

MADE = {"rules": [1, 2]}
STAMP: list[object] = ["a", 1]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PPO_DOCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ask() -> tuple[compiled.Compiled, int]:
    """Return what comes of asking for a pack, and how often it was made anew."""
    made = 0

    def make() -> compiled.Compiled:
        nonlocal made
        made += 1
        return MADE

    return compiled.cached("pack", STAMP, make), made


def test_a_pack_is_made_once(folder):
    assert ask() == (MADE, 1)
    assert ask() == (MADE, 0)
    assert [path.name for path in folder.iterdir()] == ["pack.json"]


@pytest.mark.parametrize(
    ("was", "becomes"), [(b"[1, 2]", b"[1, 3]"), (b'"rules"', b'"fails"'), (b"[1, 2]", b"7     "), (b"1, 2]}", b"")]
)
def test_other_contents_under_the_same_stamp_are_made_anew(folder, was, becomes):
    ask()
    cache = folder / "pack.json"
    assert was in cache.read_bytes()
    cache.write_bytes(cache.read_bytes().replace(was, becomes))
    assert ask() == (MADE, 1)
    assert ask() == (MADE, 0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_cache_that_others_may_write_is_made_anew(folder, mode):
    ask()
    (folder / "pack.json").chmod(mode)
    assert ask() == (MADE, 1)
    assert (folder / "pack.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners")
def test_a_cache_of_another_user_is_made_anew(folder, monkeypatch):
    ask()
    owner = (folder / "pack.json").stat().st_uid
    (folder / "pack.json").chmod(0o644)
    monkeypatch.setattr(compiled.os, "geteuid", lambda: owner + 1)
    assert ask()[1] == (0 if owner == 0 else 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_cache_that_is_no_file_is_passed_over(folder, kind):
    folder.mkdir()
    if kind == "pipe":
        os.mkfifo(folder / "pack.json")
    else:
        (folder / "pack.json").symlink_to("/dev/zero")
    assert ask() == (MADE, 1)
    assert (folder / "pack.json").is_file()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_a_link_laid_where_the_cache_is_written_is_not_followed(folder, tmp_path):
    folder.mkdir()
    other = tmp_path / "precious.txt"
    other.write_text("mine")
    (folder / f"pack.{os.getpid()}.part").symlink_to(other)
    assert ask() == (MADE, 1)
    assert other.read_text() == "mine"
