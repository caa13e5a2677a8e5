"""What is a unit of a fleet, and when it counts as changed."""

from __future__ import annotations

import os

import pytest

from ppo_doctor.fleets import unit as units
from ppo_doctor.fleets.unit import unit_of
from ppo_doctor.runs.discover import sources_below, sources_in
from ppo_doctor.runs.walking import Walker
from tests.fleets.fleets import FLEETS
from tests.runs.folders import as_csv, as_state, grpo_rows, sb3_rows, write


def found(folder):
    return {unit.key: unit for unit in map(unit_of, sources_below(folder, Walker()))}


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_has_the_sources_that_analyze_finds(name, tmp_path):
    write(tmp_path, FLEETS[name])
    assert list(sources_below(tmp_path, Walker())) and _held(sources_below(tmp_path, Walker())) == _held(
        sources_in(tmp_path)
    )


def _held(sources):
    return sorted((s.logs, s.perhaps, s.config, s.folders, s.dumps, s.together) for s in sources)


@pytest.mark.parametrize("name", FLEETS)
def test_every_unit_has_a_key_of_its_own(name, tmp_path):
    write(tmp_path, FLEETS[name])
    assert len(found(tmp_path)) == len(list(sources_below(tmp_path, Walker())))


def test_a_unit_changes_with_its_files_and_no_other_does(tmp_path):
    files = {f"{name}/progress.csv": as_csv(sb3_rows()) for name in "ab"}
    write(tmp_path, {**files, "a/config.yml": "n_epochs: 4\n"})
    (a, first), (b, other) = found(tmp_path).items()
    assert found(tmp_path)[a].fingerprint == first.fingerprint
    for change in (
        {"a/progress.csv": as_csv(sb3_rows(30))},
        {"a/more.jsonl": "{}\n"},
        {"a/config.yml": "n_epochs: 10\n"},
    ):
        write(tmp_path, change)
        now = found(tmp_path)
        assert now[a].fingerprint != first.fingerprint
        assert now[b].fingerprint == other.fingerprint
        first = now[a]


def test_settings_above_belong_to_what_is_compared(tmp_path):
    write(tmp_path, FLEETS["nested, settings above"])
    before = found(tmp_path)
    write(tmp_path, {"exp1/config.yaml": "n_steps: 4096\n"})
    assert {key for key, unit in found(tmp_path).items() if unit.fingerprint != before[key].fingerprint} == {
        str(tmp_path / f"exp1/seed{i}") for i in range(3)
    }


def test_another_version_judges_everything_anew(tmp_path, monkeypatch):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    before = found(tmp_path)
    monkeypatch.setattr(units, "__version__", "99.0")
    assert found(tmp_path).keys() == before.keys()
    assert {u.fingerprint for u in found(tmp_path).values()}.isdisjoint(u.fingerprint for u in before.values())


def test_a_run_keeps_its_key_while_it_writes_checkpoints(tmp_path):
    write(tmp_path, {"r/checkpoint-500/trainer_state.json": as_state(grpo_rows(10))})
    before = found(tmp_path)
    write(tmp_path, {"r/checkpoint-1000/trainer_state.json": as_state(grpo_rows(20))})
    write(tmp_path, {"r/trainer_state.json": as_state(grpo_rows(20))})
    assert found(tmp_path).keys() == before.keys() == {str(tmp_path / "r")}


def test_the_way_in_which_a_folder_is_named_does_not_matter(tmp_path, monkeypatch):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    assert {u.fingerprint for u in found(Path("a")).values()} == {u.fingerprint for u in found(tmp_path).values()}


def test_folders_are_read_one_after_the_other(tmp_path, monkeypatch):
    write(tmp_path, {f"{i:03}/progress.csv": as_csv(sb3_rows(2)) for i in range(50)})
    write(tmp_path, {"sweep.log": "a line\n", "config.yaml": "a: 1\n"})
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    sources = sources_below(tmp_path, Walker())
    next(sources)
    assert len(listed) < 12
    assert len(list(sources)) == 50
