"""A whole fleet: judged as by analyze, every run once, again only where something changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.fleets.engines import LocalEngine
from ppo_doctor.fleets.table import Table
from ppo_doctor.fleets.work import Judge
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from tests.fleets.fleets import Here, analyzed, judged, many, told
from tests.runs.folders import as_csv, sb3_rows, write

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parent.parent.parent


RULE = (ROOT / "rules" / "advantages" / "advantages-all-zero.toml").read_text(encoding="utf-8")
RULE = RULE.replace('code = "ADV001"', 'code = "MINE001"\nlink = "advantages"')
RULE = RULE.replace('name = "advantages-all-zero"', 'name = "my-rule"')


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.parquet"


@pytest.fixture
def runs(tmp_path):
    return many(tmp_path / "runs", 12)


def test_processes_judge_as_analyze_does(runs, path):
    done, rows = judged([runs], path, engine=LocalEngine(2))
    assert told(rows) == analyzed(runs)
    assert (done.rows, done.empty, done.errors) == ({"judged": 12}, 0, [])
    assert len({row["verdict"] for row in rows}) > 1


def test_a_second_call_judges_what_is_new_or_changed(runs, path):
    judged([runs], path)
    done, _ = judged([runs], path)
    assert (done.rows, done.unchanged) == ({}, 12)
    many(runs, 3, first=12)
    write(runs, {"sb3/000001/progress.csv": as_csv(sb3_rows(30))})
    done, rows = judged([runs], path)
    assert (done.rows["judged"], done.unchanged, len(rows)) == (4, 11, 15)
    assert told(rows) == analyzed(runs)


class Noting(Here):
    def __init__(self):
        self.keys = []

    def map(self, units, judge):
        for unit, rows in super().map(units, judge):
            self.keys.append(unit.key)
            yield unit, rows


def test_what_holds_no_run_is_not_opened_again_until_it_changes(runs, path):
    write(runs, {"notes/table.csv": "name,colour\na,red\n"})
    engine = Noting()
    done, _ = judged([runs], path, engine=engine)
    assert (done.rows, done.empty, len(engine.keys)) == ({"judged": 12}, 1, 13)
    done, rows = judged([runs], path, engine=engine)
    assert (done.rows, done.unchanged, done.empty, len(rows), len(engine.keys)) == ({}, 12, 1, 12, 13)
    write(runs, {"notes/table.csv": as_csv(sb3_rows())})
    done, rows = judged([runs], path, engine=engine)
    assert (done.rows, done.empty, len(rows)) == ({"judged": 1}, 0, 13)
    with pytest.raises(DoctorError):
        write(runs, {"other/table.csv": "name,colour\na,red\n"})
        judged([runs / "other"], path, engine=engine)


def test_a_source_that_is_named_twice_is_judged_once(runs, path, monkeypatch):
    monkeypatch.chdir(runs.parent)
    done, rows = judged([runs, "runs", "./runs/sb3", "runs/sb3/*"], path)
    assert (done.rows["judged"], len(rows)) == (12, 12)


def test_files_and_patterns(runs, path):
    done, _ = judged([runs / "sb3/*/progress.csv", runs / "jsonl/000000/run.jsonl"], path)
    assert done.rows == {"judged": 3}


def test_a_file_that_is_named_beside_its_folder_is_judged_once(runs, path):
    done, rows = judged([runs / "sb3/*/progress.csv", runs], path)
    assert (done.rows["judged"], len(rows)) == (12, 12)


def test_a_fleet_is_not_read_from_stdin(runs, path):
    done, rows = judged(["-", runs / "sb3"], path)
    assert len(rows) == 2
    assert [error.code for error in done.errors] == [2]


def test_what_is_missing_is_told_and_the_rest_judged(runs, path):
    done, rows = judged([runs / "nowhere", runs / "sb3", runs / "*.none"], path)
    assert len(rows) == 2
    assert [error.code for error in done.errors] == [3, 3]


@pytest.mark.parametrize("name", ["nowhere", "empty", "*.none"])
def test_no_run_at_all_is_an_error(tmp_path, path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DoctorError) as error:
        judged([tmp_path / name], path)
    assert error.value.code == 3
    assert not path.exists()


def test_other_settings_or_rules_judge_anew(runs, path, tmp_path):
    judged([runs / "sb3"], path)
    done, _ = judged([runs / "sb3"], path, request=Request(settings={"clip_range": 0.3}))
    assert (done.rows["judged"], done.unchanged) == (2, 0)
    done, _ = judged([runs / "sb3"], path, request=Request(settings={"clip_range": 0.3}, debug=True))
    assert done.unchanged == 2
    rules = write(tmp_path / "rules", {"mine/kl-measured.toml": RULE})
    done, _ = judged([runs / "sb3"], path, pack=load_pack([rules]))
    assert (done.rows["judged"], done.unchanged) == (2, 0)
    done, _ = judged([runs / "sb3"], path, pack=load_pack([rules]))
    assert done.unchanged == 2
    write(rules, {"mine/kl-measured.toml": RULE.replace("value = 0.95", "value = 0.9")})
    done, _ = judged([runs / "sb3"], path, pack=load_pack([rules]))
    assert done.rows["judged"] == 2


def test_selected_rules_are_those_of_the_rows(runs, path):
    _, rows = judged([runs / "sb3"], path, request=Request(select=("entropy-gone",)))
    assert all(row["checks_yes"] + row["checks_no"] + row["checks_unknown"] <= 1 for row in rows)


def test_a_second_call_for_the_same_table_is_an_error_and_harms_nothing(runs, path):
    with Table(path).written(), pytest.raises(DoctorError, match="another call") as error:
        judged([runs], path)
    assert error.value.code == 2
    done, _ = judged([runs], path)
    assert done.rows == {"judged": 12}
    assert [file.name for file in path.parent.glob("runs.parquet*")] == ["runs.parquet"]


class Interrupted(Here):
    def map(self, units, judge):
        for number, found in enumerate(super().map(units, judge)):
            if number == 5:
                raise KeyboardInterrupt
            yield found


def test_what_was_judged_before_an_interruption_is_kept(runs, path):
    with pytest.raises(KeyboardInterrupt):
        judged([runs], path, engine=Interrupted())
    done, rows = judged([runs], path)
    assert (done.rows["judged"], done.unchanged, len(rows)) == (7, 5, 12)


def test_a_run_that_takes_too_long_is_a_failed_row(runs, path, monkeypatch):
    monkeypatch.setattr("ppo_doctor.fleets.work.judge_unit", lambda *_: time.sleep(60))
    done, rows = judged([runs / "sb3"], path, seconds=0.1)
    assert done.rows == {"failed": 2}
    assert all(row["again"] for row in rows)


KILLED = """
import sys
from pathlib import Path
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.fleets import table
from ppo_doctor.fleets.engines import LocalEngine
from ppo_doctor.fleets.run import judge_fleet
from ppo_doctor.model.request import Request

if __name__ == "__main__":
    table.ROWS = 4
    judge_fleet([sys.argv[1]], Request(), load_pack(), LocalEngine(1), table.Table(Path(sys.argv[2])))
"""


def test_a_call_that_was_killed_goes_on_where_it_stopped(tmp_path, path):
    runs = many(tmp_path / "runs", 60)
    write(tmp_path, {"killed.py": KILLED})
    command = [sys.executable, str(tmp_path / "killed.py"), str(runs), str(path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as running:
        while running.poll() is None and len(list(tmp_path.glob("runs.parquet.parts/part-*"))) < 2:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
    before = len(Table(path).known())
    assert 8 <= before < 60
    done, rows = judged([runs], path)
    assert (done.unchanged, done.rows["judged"], len(rows)) == (before, 60 - before, 60)
    assert told(rows) == analyzed(runs)


def test_what_judges_is_small_and_travels(runs):
    import pickle

    assert len(pickle.dumps(Judge(Request(), load_pack()))) < 2_000_000
    assert runs.exists()
