"""Monitor files, one per environment, are the episodes of one run in the order in which they ended."""

from __future__ import annotations

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.reading import Request

HEAD = '#{"t_start": %s, "env_id": "CartPole-v1"}\nr,l,t\n'


def write(path, rows, start=1000.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD % start + "".join(f"{r},{length},{t}\n" for r, length, t in rows), encoding="utf-8")


def test_a_monitor_file_is_episodes_with_steps_added_up(tmp_path):
    write(tmp_path / "monitor.csv", [(1.5, 10, 0.5), (2.5, 20, 1.0), (3.0, 5, 1.5)])
    (run,) = read_runs(str(tmp_path / "monitor.csv"), Request())
    assert run.framework == "gym-monitor"
    assert run.series["episode_return"].values.tolist() == [1.5, 2.5, 3.0]
    assert run.series["episode_return"].axis.steps.tolist() == [10, 30, 35]
    assert run.series["episode_return"].axis.lines.tolist() == [3, 4, 5]
    assert run.series["episode_length"].values.tolist() == [10, 20, 5]


def test_the_monitors_of_a_folder_are_one_run_by_time(tmp_path):
    write(tmp_path / "0.monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    write(tmp_path / "1.monitor.csv", [(2.0, 20, 1.0), (4.0, 20, 3.0)], start=1001.0)
    (run,) = read_runs(str(tmp_path), Request())
    returns = run.series["episode_return"]
    assert returns.values.tolist() == [1, 2, 3, 4]
    assert returns.axis.steps.tolist() == [10, 30, 40, 60]
    where = [(returns.axis.path_of(i).rpartition("/")[2], int(returns.axis.lines[i])) for i in range(4)]
    assert where == [("0.monitor.csv", 3), ("1.monitor.csv", 3), ("0.monitor.csv", 4), ("1.monitor.csv", 4)]


def test_monitors_of_two_folders_are_two_runs(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name / "monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    assert len(read_runs(str(tmp_path), Request())) == 2


def test_a_log_of_the_trainer_counts_more_than_monitors(tmp_path):
    write(tmp_path / "monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    (tmp_path / "progress.csv").write_text("time/total_timesteps,train/approx_kl\n10,0.1\n20,0.2\n", encoding="utf-8")
    sources, _ = gather([str(tmp_path)])
    assert [source.log for source in sources] == [str(tmp_path / "progress.csv")]
