"""Event files and W&B files that grow: each byte is decoded once, and at any moment what is whole is known."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from ppo_doctor import readers
from ppo_doctor.readers.source import Source
from ppo_doctor.table import EmbeddedConfig, Table
from ppo_doctor.watch import growing
from ppo_doctor.watch.follower import Follower
from ppo_doctor.watch.growing import Growing
from tests.readers import event_files, wandb_files

KEYS = ("losses/approx_kl", "losses/clipfrac", "losses/entropy", "charts/episodic_return")


def rows(steps):
    numbers = random.Random(7)
    return [(step, {key: round(numbers.random(), 3) for key in KEYS}) for step in range(steps)]


def event_file(steps=400):
    return event_files.event_file(*event_files.scalars(rows(steps)))


def wandb_file(steps=400):
    history = [wandb_files.history(step, **values) for step, values in rows(steps)]
    return wandb_files.run_file(wandb_files.config(learning_rate=3e-4), *history)


FORMS = {"events.out.tfevents.1.host.1.0": event_file, "run-1.wandb": wandb_file}


@pytest.fixture(params=FORMS)
def log(request):
    return request.param, FORMS[request.param]()


def values(items):
    """Return metric → step → value, however items are cut into tables."""
    held = defaultdict(dict)
    for table in (item for item in items if isinstance(item, Table)):
        step = "step" if "step" in table.columns else "_step"
        at = (
            dict(zip(table.records.tolist(), table.columns[step].tolist(), strict=True))
            if step in table.columns
            else {}
        )
        for key in KEYS:
            if key in table.columns:
                held[key].update(
                    {at[r]: v for r, v in zip(table.records.tolist(), table.columns[key].tolist(), strict=True)}
                )
    return dict(held)


def whole(name, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    return tuple(readers.read_source(Source(path))[1])


def test_at_any_moment_every_whole_record_is_known(log, tmp_path):
    name, data = log
    numbers, log_now, fed, looked = random.Random(3), Growing(name), 0, 0
    seen = 0
    while fed < len(data):
        size = numbers.choice((1, 900, 7000))
        log_now.feed(data[fed : fed + size])
        fed = min(fed + size, len(data))
        if fed > 2000 and numbers.random() < 0.3:
            looked += 1
            now = values(log_now.snapshot().items)
            assert len(now.get(KEYS[0], {})) >= seen
            seen = len(now.get(KEYS[0], {}))
    assert looked > 5
    assert values(log_now.finish().items) == values(whole(name, data, tmp_path))
    assert seen > 300


def test_a_torn_record_is_no_loss_until_the_end(log):
    name, data = log
    log_now = Growing(name)
    log_now.feed(data[:-9])
    assert not [item for item in log_now.snapshot().items if not isinstance(item, Table | EmbeddedConfig)]
    log_now.feed(data[-9:])
    assert values(log_now.finish().items)[KEYS[0]][399.0] == rows(400)[-1][1][KEYS[0]]


def test_each_byte_is_decoded_once(log, tmp_path, monkeypatch):
    name, data = log
    fed = []
    real = growing._Decoded.feed

    def counted(self, block):
        fed.append(len(block))
        real(self, block)

    monkeypatch.setattr(growing._Decoded, "feed", counted)
    path = tmp_path / name
    path.write_bytes(b"")
    follower = Follower(path)
    for start in range(0, len(data), 5000):
        with path.open("ab") as file:
            file.write(data[start : start + 5000])
        follower.poll()
        follower.reading()
    follower.close()
    assert sum(fed) == len(data) == follower.read
