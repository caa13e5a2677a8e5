"""Several sources: which are one run, which are several, and how they are judged."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli import judge
from ppo_doctor.cli.judge import progress
from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.diagnosis.attempt import Attempt
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.layouts import RunSource
from tests.fleets.deadly import Unreadable
from tests.runs.folders import as_csv, as_events, as_jsonl, events_name, sb3_rows, write


@pytest.fixture
def exp(tmp_path):
    files = {
        "a.jsonl": as_jsonl(sb3_rows(seed=1)), "b.jsonl": as_jsonl(sb3_rows(seed=2)), "c.csv": as_csv(sb3_rows(seed=1)),
        "config.json": '{"n_epochs": 4, "batch_size": 64}', "dumps/policy.pt": b"PK", "dumps/old.pt": b"PK",
        "other/args.json": '{"n_epochs": 7}',
    }  # fmt: skip
    return write(tmp_path, files)


def found(exp, *names, **options):
    return gather([str(exp / name) for name in names], **options)


def test_a_log_with_a_configuration_and_dumps_is_one_run(exp, cli):
    (source,), missing = found(exp, "a.jsonl", "other/args.json", "dumps")
    assert not missing
    assert [path.name for path in source.config] == ["args.json"]
    assert sorted(path.name for path in source.tensors) == ["old.pt", "policy.pt"]
    outcome = cli("analyze", exp / "a.jsonl", exp / "other/args.json", exp / "dumps", "--format", "json")
    assert outcome.code == 0
    run = outcome.json["run"]
    assert run["config"]["n_epochs"] == 7
    assert any("left out" in note and ".pt" in note for note in run["notes"]), "they hold no tensor"


def test_logs_of_different_runs_are_several(exp, cli):
    outcome = cli("analyze", exp / "a.jsonl", exp / "b.jsonl", "--format", "json")
    assert [d["run"]["sources"][0]["path"] for d in outcome.json["diagnoses"]] == [
        str(exp / "a.jsonl"),
        str(exp / "b.jsonl"),
    ]


def test_together_makes_one_run_and_separate_one_of_each(exp, cli):
    outcome = cli("analyze", exp / "a.jsonl", exp / "c.csv", "--together", "--format", "json")
    assert {source["path"] for source in outcome.json["run"]["sources"]} == {str(exp / "a.jsonl"), str(exp / "c.csv")}
    both = write(exp / "run", {"progress.csv": as_csv(sb3_rows()), events_name(): as_events(sb3_rows())})
    assert "run" in cli("analyze", both, "--format", "json").json
    assert len(cli("analyze", both, "--separate", "--format", "json").json["diagnoses"]) == 2


def recorded(rows):
    """What a recorder writes at the end of each update, of which SB3's loggers tell one rollout later."""
    names = {"train/policy_gradient_loss": "policy_loss", "train/explained_variance": "explained_variance",
             "train/value_loss": "value_loss", "rollout/ep_rew_mean": "episode_return"}  # fmt: skip
    following = [values for _, values in rows[1:]]
    records = [
        {"step": step, "ratio_std": 0.01 * i, "grad_norm": 0.5}
        | {name: (values if key.startswith("rollout") else after)[key] for key, name in names.items()}
        for i, ((step, values), after) in enumerate(zip(rows, following, strict=False))
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def test_a_canonical_record_beside_sb3_s_csv_is_of_the_same_run(tmp_path, cli):
    files = {"progress.csv": as_csv(sb3_rows(30)), "run.jsonl": recorded(sb3_rows(30))}
    run = cli("analyze", write(tmp_path / "one", files), "--format", "json").json["run"]
    assert len(run["sources"]) == 2
    assert not any("values differ" in note for note in run["notes"])
    other = {"progress.csv": as_csv(sb3_rows(30)), "run.jsonl": recorded(sb3_rows(30, seed=1))}
    assert len(cli("analyze", write(tmp_path / "two", other), "--format", "json").json["diagnoses"]) == 2


def test_together_and_separate_contradict_each_other(exp, cli):
    assert cli("analyze", exp / "a.jsonl", "--together", "--separate").code == ExitCode.USAGE


def test_a_configuration_of_another_folder_among_several_logs_needs_a_word(exp):
    names = ("a.jsonl", "b.jsonl", "other/args.json")
    with pytest.raises(DoctorError) as caught:
        found(exp, *names)
    assert caught.value.code == ExitCode.USAGE
    sources, _ = found(exp, *names, separate=True)
    assert [[path.name for path in source.config] for source in sources] == [["args.json"]] * 2
    (source,), _ = found(exp, *names, together=True)
    assert [path.name for path in source.config] == ["args.json"]


def test_the_configuration_of_their_folder_is_that_of_every_run_in_several_logs(tmp_path, cli):
    write(tmp_path, {"a.csv": as_csv(sb3_rows()), "b.csv": as_csv(sb3_rows(seed=1)), "config.json": '{"n_epochs": 5}'})
    told = cli("analyze", tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "config.json", "--format", "json").json
    assert [one["run"]["config"]["n_epochs"] for one in told["diagnoses"]] == [5, 5]


def test_two_logs_of_one_run_with_the_configuration_of_their_folder_are_one_run(tmp_path, cli):
    rows = sb3_rows()
    parts = {name: [(step, {k: v for k, v in kept.items() if k.startswith(name)}) for step, kept in rows]
             for name in ("train", "rollout")}  # fmt: skip
    write(tmp_path, {f"{name}.csv": as_csv(part) for name, part in parts.items()} | {"config.json": '{"n_epochs": 5}'})
    run = cli("analyze", *sorted(tmp_path.iterdir()), "--format", "json").json["run"]
    assert len([one for one in run["sources"] if one["path"].endswith(".csv")]) == 2
    assert run["config"]["n_epochs"] == 5


def test_logs_of_other_kinds_with_the_configuration_of_their_folder_are_one_run(exp):
    (source,), _ = found(exp, "a.jsonl", "c.csv", "config.json")
    assert len(source.logs) == 2
    assert [path.name for path in source.config] == ["config.json"]


def test_dumps_alone_are_one_run_and_damaged_ones_are_refused(exp, cli):
    (source,), missing = found(exp, "dumps/policy.pt", "dumps/old.pt")
    assert not missing
    assert [path.name for path in source.tensors] == ["policy.pt", "old.pt"]
    outcome = cli("analyze", exp / "dumps/policy.pt", exp / "dumps/old.pt")
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE
    assert "policy.pt" in outcome.err


def test_event_files_named_one_by_one_are_one_run_s_if_it_was_resumed(tmp_path):
    files = {events_name(1): as_events(sb3_rows(10)), events_name(2): as_events(sb3_rows(10, start=11))}
    write(tmp_path, files)
    sources, _ = gather([str(tmp_path / name) for name in files])
    assert len(sources) == 1
    assert len(gather([str(tmp_path / name) for name in files], separate=True)[0]) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_come_in_order_and_a_broken_one_stops_no_other(jobs, tmp_path, cli):
    files = {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(4)}
    write(tmp_path, files | {"r1/progress.csv": b"", "r2/progress.csv": "obs,act\n1,2\n3,4\n5,6\n"})
    outcome = cli("analyze", tmp_path, "--jobs", jobs, "--format", "json")
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE  # the worst of several
    names = [d["run"]["sources"][0]["path"] for d in outcome.json["diagnoses"]]
    assert names == [str(tmp_path / f"r{i}/progress.csv") for i in (0, 3)]
    assert outcome.err.index("r1") < outcome.err.index("r2")


def test_several_processes_give_the_same_valid_report_as_one(tmp_path, cli, validate):
    write(tmp_path, {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(3)})
    one, two = (cli("analyze", tmp_path, "--jobs", n, "--format", "json").json for n in (1, 2))
    assert one == two
    validate(one)


def test_a_bug_in_one_run_stops_no_other(tmp_path, cli, monkeypatch):
    write(tmp_path, {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(3)})
    from ppo_doctor.diagnosis import attempt

    def failing(source, request, read):
        if "r1" in source.log:
            raise ZeroDivisionError("made to fail")
        return real(source, request, read)

    real = attempt.read_source
    monkeypatch.setattr(attempt, "read_source", failing)
    outcome = cli("analyze", tmp_path, "--format", "json", "--jobs", "1")
    assert outcome.code == ExitCode.BUG
    assert len(outcome.json["diagnoses"]) == 2
    assert "made to fail" in outcome.err


def test_a_run_that_ends_its_process_is_told_and_stops_no_other(tmp_path, capsys):
    write(tmp_path, {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(4)})
    sources, _ = gather([str(tmp_path)])
    sources[1] = replace(sources[1], tensors=(Unreadable(),))
    found = [run.id for run, _ in judge.judge_runs(sources, [], Request(), load_pack(), jobs=2)]
    assert found == [str(tmp_path / f"r{i}/progress.csv") for i in (0, 2, 3)]
    assert f"{tmp_path}/r1/progress.csv: the process that judged it ended" in capsys.readouterr().err


def test_processes_do_not_run_ahead_of_a_slow_run(monkeypatch):
    """What other processes have judged waits to be taken: a few runs for each of them, not all there are."""
    submitted = []

    def first_one_last(items, _act, _processes, *, has_room, **_):
        slow = next(items)
        for item in items:
            submitted.append(item)
            yield item, Attempt(judged=[(item[1].log, None)])
            if slow is not None and not has_room():
                yield slow, Attempt(judged=[(slow[1].log, None)])
                slow = None

    monkeypatch.setattr("ppo_doctor.diagnosis.processes.in_processes", first_one_last)
    logs, taken = [f"{number}.csv" for number in range(100)], []
    for log, _ in judge.judge_runs([RunSource(logs=(log,)) for log in logs], [], Request(), None, jobs=2):
        taken.append(log)
        assert len(submitted) <= len(taken) + 2 * judge.AHEAD
    assert taken == logs


def test_processes_are_used_where_they_pay(tmp_path):
    write(tmp_path, {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(3)})
    sources, _ = gather([str(tmp_path)])
    assert judge.process_count(sources, None) == 1
    assert judge.process_count(sources, 2) == 2
    assert judge.process_count(sources, 99) == 3
    assert judge.process_count(sources[:1], 8) == 1
    assert judge.process_count(gather(["-", *(source.log for source in sources)])[0], 4) == 1


class Terminal:
    """A stderr that says it is a terminal and keeps what it is told."""

    encoding = "utf-8"

    def __init__(self, tty):
        self.text = ""
        self._tty = tty

    def isatty(self):
        return self._tty

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


def shown(monkeypatch, *, tty, patience, names=("runs/a", "runs/b\x1b[31m")):
    terminal = Terminal(tty)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress(list(names), patience=patience) as advance:
        for _ in names:
            wait_until(lambda: patience > 1 or not tty or "runs" in terminal.text)
            advance()
    return terminal.text


def wait_until(condition):
    import time

    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)


def test_a_bar_is_shown_on_a_terminal_once_work_takes_long(monkeypatch):
    text = shown(monkeypatch, tty=True, patience=0)
    assert "runs/a" in text
    assert "runs/b\x1b" not in text


def test_no_bar_for_short_work_or_without_a_terminal(monkeypatch):
    assert shown(monkeypatch, tty=True, patience=60) == ""
    assert shown(monkeypatch, tty=False, patience=0) == ""


def test_what_only_may_be_a_log_is_passed_over_and_named(tmp_path, cli):
    files = {f"r{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(2)}
    write(tmp_path, files | {"manifest.csv": "name,size\na,1\nb,2\nc,3\n"})
    outcome = cli("analyze", tmp_path, "--format", "json")
    assert outcome.code == ExitCode.OK
    assert len(outcome.json["diagnoses"]) == 2
    assert "manifest.csv" in outcome.err
    assert cli("analyze", tmp_path / "manifest.csv").code == ExitCode.NOTHING_TO_JUDGE


def test_what_may_be_a_log_counts_where_nothing_better_is(tmp_path, cli):
    write(tmp_path, {"a/train.jsonl": as_jsonl(sb3_rows()), "b/train.log": "Traceback (most recent call last):\n"})
    assert cli("analyze", tmp_path).code == ExitCode.NOTHING_TO_JUDGE


def test_event_files_of_one_name_in_folders_of_their_own_may_be_one_run_s(tmp_path):
    """tensorboardX writes the curves of a chart so, all in one second."""
    name, rows = events_name(), sb3_rows()
    keys = {key for _, row in rows for key in row}
    for key in sorted(keys):
        part = [(step, {key: row[key]}) for step, row in rows if key in row]
        (tmp_path / key.replace("/", "-")).mkdir()
        (tmp_path / key.replace("/", "-") / name).write_bytes(as_events(part))
    sources, _ = gather([str(path) for path in sorted(tmp_path.glob("*/*"))])
    (source,) = sources
    (run,) = runs_of(source, Request())
    assert len(run.series) > 3
