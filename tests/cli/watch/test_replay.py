"""Lab runs under the eyes of a watcher; `python -m tests.watch_replay` has all of them."""

from __future__ import annotations

from lab.numpy_lab import run, write
from lab.numpy_lab.sound_runs import sound_runs
from ppo_doctor import analyze
from ppo_doctor.checks.rulepack import load_pack
from tests.watch_replay import measure, replay


def test_a_fault_is_confirmed_within_20_updates_of_its_onset():
    lag = measure("clip-range-too-small", "trl-grpo", load_pack(), severity=2, seed=3, updates=16)
    assert lag.right
    assert 0 <= lag.updates <= 20


def test_a_sound_run_raises_no_alarm_at_any_moment(tmp_path):
    """This one passes through what would be a critic that does not learn, for 10 updates."""
    sound = next(sound for sound in sound_runs() if (sound.name, sound.dialect) == ("one update", "cleanrl"))
    record = sound.record()
    seen = replay(record, sound.dialect, load_pack(), fail_on="low")
    assert [event.text for _, event in seen.told if event.kind == "cause"] == []
    assert [event.text for _, event in seen.told if event.kind == "verdict" and "unhealthy" in event.text] == []
    assert seen.verdict == analyze(write(record, sound.dialect, tmp_path)).verdict == "healthy"


def test_a_fault_that_begins_late_in_a_long_run(watching, tmp_path, append):
    """It is told long before it has lasted as long as what was before it."""
    record = run("adv-exactly-zero", task="control", seed=0, severity=2, updates=100, dialect="canonical")
    lines = write(record, "canonical", tmp_path).read_text().splitlines(keepends=True)
    begins, confirmed = round(0.3 * 100) + 1, None
    path = tmp_path / "grows.jsonl"
    append(path, lines[:40])
    watched = watching(path)
    for update in range(40, 2 * begins, 4):
        append(path, lines[update : update + 4])
        watched.look()
        if watched.told("cause"):
            confirmed = update + 3
            break
    assert confirmed is not None
    assert "Every advantage is exactly 0" in "".join(watched.told("cause"))
    assert confirmed - begins <= 40
