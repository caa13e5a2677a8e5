"""What the package's TOML folders compile to is kept in a checkout, and made again when a file changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppo_doctor.model import toml_files


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return a folder of one TOML file; the cache is empty."""
    monkeypatch.setattr(toml_files, "CACHE", tmp_path / "cache")
    (tmp_path / "toml" / "below").mkdir(parents=True)
    (tmp_path / "toml" / "below" / "one.toml").write_text("a = 1\n", encoding="utf-8")
    return tmp_path / "toml"


def ask(folder: Path) -> tuple[toml_files.Compiled, int]:
    """Return the compiled folder, and how often it was built."""
    built = 0

    def build(parsed: toml_files.Parsed) -> toml_files.Compiled:
        nonlocal built
        built += 1
        return dict(parsed)

    return toml_files.load("kind", folder, build), built


def test_a_folder_is_built_once(folder):
    assert ask(folder) == ({"below/one.toml": {"a": 1}}, 1)
    assert ask(folder) == ({"below/one.toml": {"a": 1}}, 0)
    assert [path.name for path in toml_files.CACHE.iterdir()] == ["kind.json"]


def test_a_changed_file_is_read_again(folder):
    ask(folder)
    path = folder / "below" / "one.toml"
    path.write_text("a = 2\n", encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert ask(folder) == ({"below/one.toml": {"a": 2}}, 1)


def test_a_new_file_is_read(folder):
    ask(folder)
    (folder / "two.toml").write_text("b = 1\n", encoding="utf-8")
    assert ask(folder) == ({"below/one.toml": {"a": 1}, "two.toml": {"b": 1}}, 1)


@pytest.mark.parametrize("kept", [b"", b'{"stamp": [', b"\xff"])
def test_a_torn_cache_costs_only_its_parse(folder, kept):
    ask(folder)
    (toml_files.CACHE / "kind.json").write_bytes(kept)
    assert ask(folder)[1] == 1
    assert ask(folder)[1] == 0


def test_a_cache_that_cannot_be_written_is_no_obstacle(folder, monkeypatch):
    monkeypatch.setattr(toml_files, "CACHE", folder / "below" / "one.toml" / "below")
    assert ask(folder) == ({"below/one.toml": {"a": 1}}, 1)
