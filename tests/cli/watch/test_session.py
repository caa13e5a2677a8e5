"""The loop: what is told and when, what ends it, and that its end is what `analyze` says."""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import ppo_doctor
from ppo_doctor.cli.watch.log import WatchedLog
from ppo_doctor.cli.watch.monitor import RECENT, as_it_was, updates
from ppo_doctor.cli.watch.session import Options, Pulse, Session
from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.diagnosis.gate_result import exit_code
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.report.json_report import payload
from tests.watch_replay import Recorder, SimulatedClock

from .conftest import SICK, SOUND, copied, judged

SAMPLES = Path(__file__).resolve().parents[3] / "sample_logs"
TITLE = "The learning rate is exactly 0"
JUDGED = [log for log in tomllib.loads((SAMPLES / "index.toml").read_text())["log"] if log["verdict"] != "error"]


def test_a_run_that_has_not_begun_is_waited_for(watching, tmp_path, lines, append):
    path = tmp_path / "runs" / "later.jsonl"
    watched = watching(path)
    watched.look(5)
    assert watched.told("file") == [f"{path}: does not exist yet; waiting"]
    assert watched.told("problem") == []
    append(path, lines(SICK)[:2])
    watched.look()
    assert watched.told("file")[1:] == [f"following {path}"]
    assert len(watched.told("run")) == 1


def test_a_folder_whose_log_appears_later(watching, tmp_path, append):
    watched = watching(tmp_path)
    watched.look(3)
    assert watched.told("file") == [f"{tmp_path}: no log in this folder yet; waiting"]
    append(tmp_path / "progress.csv", (SAMPLES / "sick/lr-zero.sb3/progress.csv").read_text())
    watched.look(2)
    assert watched.log.path == tmp_path / "progress.csv"
    assert watched.session.view.monitor.run.framework == "sb3"


@pytest.mark.parametrize("text", ["", "what we try next\n"])
def test_texts_beside_a_log_are_not_taken_for_it(watching, tmp_path, lines, append, text):
    append(tmp_path / "a.txt", text)
    append(tmp_path / "run.jsonl", lines(SICK))
    watched = watching(tmp_path)
    watched.look(2)
    assert watched.told("file") == [f"following {tmp_path / 'run.jsonl'}"]


def test_a_log_that_is_torn_at_first_is_no_problem(watching, tmp_path, append):
    watched = watching(tmp_path / "run.jsonl")
    append(tmp_path / "run.jsonl", '{"step": 1, "approx')
    watched.look()
    append(tmp_path / "run.jsonl", '_kl": 0.1, "clip_fraction": 0.1}\n')
    watched.look()
    assert watched.told("problem") == []
    assert watched.session.view.monitor.updates == 1


def test_why_nothing_can_be_judged_is_told_once(watching, tmp_path, append):
    path = tmp_path / "run.jsonl"
    watched = watching(path)
    for step in range(12):
        append(path, json.dumps({"tick": step, "foo_metric": 1.5}) + "\n")
        watched.look()
    assert len(watched.told("problem")) == 1
    assert "no metric" in watched.told("problem")[0]
    assert watched.session.finish() == ExitCode.NOTHING_TO_JUDGE


def test_a_cause_is_told_once_and_ends_the_watching_when_asked_to(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    sick = lines(SICK)
    watched = watching(path, fail_on="high")
    append(path, sick[:3])
    seen = 0
    for line in sick[3:30]:
        append(path, line)
        watched.look()
        seen = len(watched.told("cause"))
    assert seen == 1
    assert TITLE in watched.told("cause")[0]
    watched.clock.sleep = None  # it must end without waiting
    assert watched.session.watch() == ExitCode.SICK
    assert any("--fail-on high" in text for text in watched.told("end"))


def test_a_cause_below_the_severity_does_not_end_it(watching, tmp_path, lines, append):
    append(tmp_path / "run.jsonl", lines(SOUND))
    watched = watching(tmp_path / "run.jsonl", fail_on="low", until_idle=300.0)
    assert watched.session.watch() == ExitCode.OK
    assert watched.clock.time >= 300
    assert "nothing new for 5 min" in watched.told("end")


def test_a_run_that_never_begins_ends_with_nothing_to_judge(watching, tmp_path):
    watched = watching(tmp_path / "run.jsonl", until_idle=60.0)
    assert watched.session.watch() == ExitCode.NOTHING_TO_JUDGE


def test_ctrl_c_ends_with_the_latest_verdict(watching, tmp_path, lines, append):
    append(tmp_path / "run.jsonl", lines(SICK)[:40])
    watched = watching(tmp_path / "run.jsonl")

    def interrupted(_seconds):
        append(tmp_path / "run.jsonl", lines(SICK)[40])
        raise KeyboardInterrupt

    watched.clock.sleep = interrupted
    assert watched.session.watch() == ExitCode.OK
    assert watched.told("end")[0] == "stopped by hand"
    assert watched.told("end")[-1].startswith("unhealthy")


def only_lately(run):
    """Find the whole of a long run healthy, and judge its last updates as they are."""
    if updates(run) == RECENT:
        return judged(run)
    return replace(judged(run), causes=(), problems=(), verdict="healthy", verdict_because="nothing fired")


def grown(sick, count):
    """Return the lines of a log of so many updates, made by repeating its last one."""
    last = json.loads(sick[-1])
    more = [json.dumps(last | {"step": last["step"] + ahead}) + "\n" for ahead in range(1, count - len(sick) + 2)]
    return [*sick, *more]


@pytest.mark.parametrize(("fail_on", "code"), [("high", ExitCode.SICK), ("never", ExitCode.OK)])
def test_what_only_the_last_updates_prove_is_among_the_last_words(watching, tmp_path, lines, append, fail_on, code):
    path = tmp_path / "run.jsonl"
    append(path, grown(lines(SICK), 100))
    watched = watching(path, judge=only_lately, fail_on=fail_on, until_idle=60.0)
    assert watched.session.watch() == code
    assert f"in the last {RECENT} updates" in watched.told("cause")[0]
    last = watched.told("end")[-1]
    assert last.startswith("healthy")
    assert TITLE in last
    assert watched.session.view.monitor.late[0].id == "lr-zero"


def test_what_the_last_updates_prove_no_more_is_not_among_the_last_words(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, grown(lines(SICK), 100))
    ended = []
    watched = watching(path, judge=lambda run: only_lately(cut_off(run) if ended else run))
    watched.look()
    assert watched.told("cause")
    ended.append(True)
    assert watched.session.finish() == ExitCode.OK
    assert TITLE not in watched.told("end")[-1]


def cut_off(run):
    """Return a run that is too short for its last updates to be judged by themselves."""
    return as_it_was(run, 1) if updates(run) == RECENT else run


def test_the_last_line_counts_at_the_end_though_it_has_no_end(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, "".join(lines(SOUND)).rstrip("\n"))
    watched = watching(path)
    watched.look()
    before = watched.session.view.monitor.updates
    watched.session.finish()
    assert len(watched.session.view.monitor.run.series["approx_kl"]) == before + 1


@pytest.mark.parametrize("log", JUDGED[::3], ids=lambda log: log["path"])
def test_the_end_is_what_analyze_says(log, watching, samples):
    path = samples / log["path"]
    watched = watching(path, fail_on="high")
    watched.look()
    code = watched.session.finish()
    assert payload(watched.session.view.monitor.diagnosis) == payload(ppo_doctor.analyze(path))
    told = watched.session.view.monitor.diagnosis
    assert code == exit_code(told, "high")


@pytest.mark.parametrize(
    "name", ["sick/lr-zero.sb3", "healthy/healthy.cleanrl", "benign/benign-single-update.canonical"]
)
def test_the_end_is_what_analyze_says_of_a_log_that_grew(name, watching, samples, tmp_path):
    log = copied(samples, name, tmp_path / "run")
    data = log.read_bytes()
    log.write_bytes(b"")
    watched = watching(log)
    for start in range(0, len(data), 4001):
        with log.open("ab") as file:
            file.write(data[start : start + 4001])
        watched.look()
    watched.session.finish()
    assert payload(watched.session.view.monitor.diagnosis) == payload(ppo_doctor.analyze(log))


def test_the_log_of_a_trainer_that_rewrites_it(watching, samples, tmp_path):
    log = copied(samples, "sick/lr-zero.trl-grpo", tmp_path / "run")
    state = json.loads(log.read_text())
    history = state["log_history"]
    watched = watching(log)
    for size in range(20, len(history) + 1, 20):
        log.write_text(json.dumps(state | {"log_history": history[:size]}, indent=2))
        watched.look(2)
    assert len(watched.told("file")) == 1
    assert any(TITLE in text for text in watched.told("cause"))
    assert len(watched.told("cause")) == 1


def test_checkpoints_are_one_run(watching, samples, tmp_path):
    state = json.loads((samples / "sick/lr-zero.trl-grpo/trainer_state.json").read_text())
    watched = watching(tmp_path / "out")
    for number in (100, 200):
        folder = tmp_path / "out" / f"checkpoint-{number}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps(state | {"log_history": state["log_history"][:number]}))
        watched.look(4)
    assert watched.session.view.monitor.run.sources[0].records == 200
    assert len(watched.told("run")) == 1


def test_a_run_that_starts_over_in_the_same_log_is_judged_anew(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, lines(SICK)[:40])
    watched = watching(path)
    watched.look()
    assert any(TITLE in text for text in watched.told("cause"))
    sound = lines(SOUND)
    for at in range(0, len(sound), 4):
        append(path, sound[at : at + 4])
        watched.look()
    assert [text.partition(":")[0] for text in watched.told("run")] == ["a run", "run #2 in this log"]
    assert len(watched.told("cause")) == 1
    last = watched.session.view.monitor
    assert last.diagnosis.verdict == "healthy"
    assert [cause for cause in payload(last.diagnosis)["causes"] if not cause["benign"]] == []
    runs = read_runs(str(path), Request())
    assert last.run.id == runs[1].id


def test_earlier_runs_of_a_log_are_none_of_our_business(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, [*lines(SICK), *lines(SOUND)])
    watched = watching(path, fail_on="high", until_idle=60.0)
    assert watched.session.watch() == ExitCode.OK
    assert watched.told("cause") == []


def test_a_restart_that_truncates_the_log(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, lines(SICK)[:40])
    watched = watching(path)
    watched.look()
    path.write_text("".join(lines(SOUND)[:10]))
    watched.look()
    append(path, lines(SOUND)[10:])
    watched.look()
    assert any("shorter" in text for text in watched.told("file"))
    assert watched.told("run")[1:2] == ["the run before ended: unhealthy"]
    assert len(watched.told("run")) == 3
    assert payload(watched.session.view.monitor.diagnosis) == payload(ppo_doctor.analyze(path))


def test_a_rotated_log_goes_on_with_the_run(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    sound = lines(SOUND)
    append(path, sound[:40])
    watched = watching(path)
    watched.look()
    append(path, sound[40:45])
    path.rename(tmp_path / "run.jsonl.1")
    append(path, sound[45:])
    watched.look()
    watched.session.finish()
    assert "the run goes on in the new file" in watched.told("run")
    assert len(watched.told("run")) == 2
    run, whole = watched.session.view.monitor.run, ppo_doctor.load_run(SAMPLES.joinpath(*SOUND))
    assert run.series["approx_kl"].values.tolist() == whole.series["approx_kl"].values.tolist()
    assert run.config.keys() == whole.config.keys()
    kl = run.series["approx_kl"]
    assert str(kl.source(0)) == f"{tmp_path / 'run.jsonl.1'}:2"
    assert str(kl.source(len(kl) - 1)) == f"{path}:{len(sound) - 45}"


def test_a_rotated_log_of_another_run_is_judged_anew(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, lines(SICK)[:40])
    watched = watching(path)
    watched.look()
    path.rename(tmp_path / "run.jsonl.1")
    append(path, lines(SOUND))
    watched.look(2)
    assert watched.session.view.monitor.diagnosis.verdict == "healthy"


def test_three_rotations_of_one_run(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    sound = lines(SOUND)
    watched = watching(path)
    for number in range(4):
        append(path, sound[number * 20 : number * 20 + 20])
        watched.look()
        path.rename(tmp_path / f"run.jsonl.{number}")
    assert watched.session.view.monitor.updates == 79
    watched.look()
    assert any("is gone" in text for text in watched.told("problem"))


def test_files_that_come_and_go_before_anybody_judges(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    sound = lines(SOUND)
    watched = watching(path, interval=100.0)
    append(path, sound[:20])
    watched.look()
    path.rename(tmp_path / "1")
    append(path, sound[20:40])
    watched.look(pause=1.0)
    path.rename(tmp_path / "2")
    path.touch()
    watched.look(pause=1.0)
    path.rename(tmp_path / "3")
    append(path, sound[40:])
    watched.look(pause=200.0)
    assert watched.session.view.monitor.updates == len(sound) - 1


def test_a_log_that_is_gone_for_a_while_is_told_once(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    append(path, lines(SOUND)[:30])
    watched = watching(path)
    watched.look()
    path.rename(tmp_path / "away")
    watched.look(5)
    assert len(watched.told("problem")) == 1
    (tmp_path / "away").rename(path)
    append(path, lines(SOUND)[30:])
    watched.look()
    assert watched.session.view.monitor.updates == len(lines(SOUND)) - 1
    assert len(watched.told("run")) == 1


@pytest.mark.parametrize("aside", ["old", "a.old"])
@pytest.mark.parametrize("name", ["run.jsonl", "other.jsonl"])
def test_a_folder_that_is_replaced_by_another(watching, tmp_path, lines, append, name, aside):
    """In a folder of runs the one that was moved away is not taken for the next."""
    folder = tmp_path / "run"
    append(folder / "run.jsonl", lines(SOUND)[:30])
    watched = watching(tmp_path)
    watched.look(2)
    folder.rename(tmp_path / aside)
    watched.look(3)
    assert watched.told("problem") == [f"{folder / 'run.jsonl'} is gone; waiting for it to come back"]
    append(folder / name, lines(SICK))
    watched.look(3)
    assert str(folder / name) in watched.told("file")[-1]
    watched.session.finish()
    assert watched.told("end")[-1].startswith("unhealthy")


@pytest.mark.parametrize("target", ["run.jsonl", "."])
def test_the_working_directory_may_be_replaced_too(watching, tmp_path, lines, append, monkeypatch, target):
    folder = tmp_path / "run"
    append(folder / "run.jsonl", lines(SOUND)[:30])
    monkeypatch.chdir(folder)
    watched = watching(target)
    watched.look(2)
    folder.rename(tmp_path / "old")
    append(tmp_path / "old" / "run.jsonl", lines(SOUND)[30:40])
    watched.look(2)
    append(folder / "run.jsonl", lines(SICK))
    watched.look(2)
    assert watched.told("file")[-1] == "run.jsonl: another file took its place"
    assert watched.told("run")[1].startswith("the run before ended: healthy")
    watched.session.finish()
    assert watched.told("end")[-1].startswith("unhealthy")


def test_silence_is_told_and_so_is_its_end(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    watched = watching(path)
    for line in lines(SOUND)[:10]:
        append(path, line)
        watched.look(pause=30.0)
    watched.look(12, pause=60.0)
    assert watched.told("silence") == ["nothing new for 3 min", "nothing new for 6 min", "nothing new for 12 min"]
    append(path, lines(SOUND)[10])
    watched.look()
    assert watched.told("silence")[-1].startswith("something new again, after 12 min")


def test_slow_runs_are_given_their_time():
    pulse = Pulse(0.0)
    for hour in range(10):
        assert pulse.beat(hour * 3600.0) == []
        assert not hour or pulse.missed(hour * 3600.0 + 3000) == []
    assert pulse.missed(9 * 3600.0 + 7 * 3600.0) != []


def test_a_wall_clock_that_is_set_changes_nothing(watching, tmp_path, lines, append, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: -1e9)
    path = tmp_path / "run.jsonl"
    append(path, lines(SOUND))
    watched = watching(path, until_idle=100.0)
    watched.look()
    assert watched.told("silence") == []
    assert watched.session.view.silent == 0


def test_reading_and_judging_take_a_tenth_of_the_time(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    watched = watching(path, interval=5.0, judge=lambda run: judged(run) if watched.clock.sleep(4.0) is None else None)
    for line in lines(SOUND)[:60]:
        append(path, line)
        watched.look(pause=5.0)
    slept = 60 * 5.0
    spent = watched.clock.time - slept
    assert 0.05 < spent / watched.clock.time <= 0.12


def test_without_new_data_nothing_is_read(watching, tmp_path, lines, append, monkeypatch):
    path = tmp_path / "run.jsonl"
    watched = watching(path)
    append(path, lines(SOUND))
    watched.look()
    assert watched.session.view.monitor.diagnosis is not None
    monkeypatch.setattr(watched.log, "runs", None)  # it would fail
    watched.look(10)


def test_a_setting_that_does_not_exist_is_wrong_usage(tmp_path, lines, append):
    append(tmp_path / "run.jsonl", lines(SOUND))
    log = WatchedLog(tmp_path / "run.jsonl", Request(settings={"no_such": 1}))
    session = Session(log, judged, Recorder(), Options(), clock=SimulatedClock())
    with pytest.raises(DoctorError) as caught:
        session.watch()
    assert caught.value.code == ExitCode.USAGE
