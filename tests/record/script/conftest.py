from __future__ import annotations

from pathlib import Path

import pytest

from ppo_doctor.record.script.log import RunLog
from ppo_doctor.record.script.options import WatchOptions

from .stage import Stage


@pytest.fixture
def stage(tmp_path, samples):
    return Stage(tmp_path, samples / "sick" / "lr-zero.canonical" / "run.jsonl")


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Return a session that observes what the test does; its faults are raised."""
    pytest.importorskip("torch", reason="the group real-sb3 is not installed")
    from ppo_doctor.record.script.session import Session

    monkeypatch.setenv("PPO_DOCTOR_DEBUG", "1")
    out = str(tmp_path / "run.jsonl")
    session = Session(WatchOptions(out, __file__, str(Path(__file__).parent)), RunLog(out))
    session.start()
    yield session
    session.finish()
