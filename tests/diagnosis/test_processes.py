"""Work in processes: what each item gives, whatever becomes of the process that has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.processes import in_processes, processors


def doubled(item):
    """Return twice a number; "kills" ends the process each time, "once:FILE" the first time."""
    word, _, file = str(item).partition(":")
    if word == "kills" or (word == "once" and not Path(file).exists()):
        if file:
            Path(file).touch()
        os._exit(1)
    return item * 2


@pytest.mark.parametrize("shard", [1, 3])
def test_every_item_comes_once_and_what_ends_its_process_gives_none(tmp_path, shard):
    once = f"once:{tmp_path / 'x'}"
    items = [1, "kills", 2, once, 3, 4, 5]
    found = dict(in_processes(items, doubled, 2, shard=shard))
    assert found == {"kills": None, once: once * 2} | {n: 2 * n for n in range(1, 6)}


def test_no_more_is_taken_than_there_is_room_for():
    taken, done = [], []
    items = (taken.append(n) or n for n in range(20))
    for item, result in in_processes(items, doubled, 2, shard=1, has_room=lambda: len(taken) < len(done) + 3):
        done.append((item, result))
        assert len(taken) <= len(done) + 3
    assert sorted(done) == [(n, 2 * n) for n in range(20)]


def test_there_is_at_least_one_processor():
    assert 1 <= processors() <= (os.cpu_count() or 1)
