"""A run folder is enough: its metrics and settings are found, whatever trainer or tracker laid it out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.analyze import read_runs, runs_of
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.runs import walking
from ppo_doctor.runs.discover import gather, sources_in
from tests.runs.folders import as_csv, as_events, as_jsonl, as_state, events_name, grpo_rows, sb3_rows, write

ML_AGENTS = """
behaviors:
  Big: {trainer_type: ppo, hyperparameters: {batch_size: 128, buffer_size: 2048, num_epoch: 3}}
  Small: {trainer_type: ppo, hyperparameters: {batch_size: 64, buffer_size: 1024, num_epoch: 5}}
"""


def ml_agents_rows(seed=0):
    names = {
        "train/policy_gradient_loss": "Losses/Policy Loss", "train/value_loss": "Losses/Value Loss",
        "train/entropy_loss": "Policy/Entropy", "rollout/ep_rew_mean": "Environment/Cumulative Reward",
    }  # fmt: skip
    return [(step, {names[k]: abs(v) for k, v in values.items() if k in names}) for step, values in sb3_rows(seed=seed)]


def rllib_rows(count=12):
    stats = {
        "kl": 0.01,
        "policy_loss": -0.02,
        "vf_loss": 1.0,
        "entropy": 1.0,
        "vf_explained_var": 0.5,
        "cur_kl_coeff": 0.2,
    }
    return [
        {
            "training_iteration": i,
            "timesteps_total": 4000 * i,
            "episode_reward_mean": 10.0 + i,
            "info": {"learner": {"default_policy": {"learner_stats": {k: v + i / 1000 for k, v in stats.items()}}}},
        }
        for i in range(1, count + 1)
    ]


def cleanrl_rows():
    names = {
        "rollout/ep_rew_mean": "charts/episodic_return", "train/approx_kl": "losses/approx_kl",
        "train/clip_fraction": "losses/clipfrac", "train/policy_gradient_loss": "losses/policy_loss",
        "train/value_loss": "losses/value_loss", "train/explained_variance": "losses/explained_variance",
    }  # fmt: skip
    rows = sb3_rows()
    return [
        (step, {names[k]: v for k, v in values.items() if k in names} | {"losses/old_approx_kl": 0.01})
        for step, values in rows
    ]


def flat(row, prefix=""):
    for key, value in row.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def under_train(rows):
    return [(step, {f"train/{key}": value for key, value in values.items()}) for step, values in rows]


SPINNING = ("Epoch", "AverageEpRet", "LossPi", "LossV", "KL", "ClipFrac", "Entropy", "StopIter", "TotalEnvInteracts")


def spinning_up():
    lines = ["\t".join(SPINNING)]
    lines += [
        f"{i}\t{i + 0.5}\t-0.0{i % 7}1\t1.{i}\t0.01{i}\t0.1{i}\t1.{90 - i}\t79\t{4000 * (i + 1)}" for i in range(15)
    ]
    return "\n".join(lines) + "\n"


def rllib_csv():
    rows = [dict(flat(row)) for row in rllib_rows()]
    head = list(rows[0])
    return "\n".join([",".join(head), *(",".join(str(row[k]) for k in head) for row in rows)]) + "\n"


#: Layout → its files, and what comes of it: for each run its framework, the files that it was read from (the main one
#: first) and a setting that its configuration holds.
LAYOUTS = {
    "stable-baselines3": (
        {
            "progress.csv": as_csv(sb3_rows()), "progress.json": as_jsonl(sb3_rows()),
            events_name(): as_events(sb3_rows()), "0.monitor.csv": '#{"t_start": 1}\nr,l,t\n1.0,2,3.0\n',
            "config.yml": "n_epochs: 4\nbatch_size: 64\nn_steps: 2048\n", "rl_model_2048_steps.pth": b"PK",
        },
        [("sb3", {"progress.csv", "progress.json", events_name()}, ("ppo_epochs", 4))],
    ),
    "cleanrl": (
        {f"runs/Hopper__ppo__1__17/{events_name()}": as_events(cleanrl_rows())},
        [("cleanrl", {events_name()}, None)],
    ),
    "rllib": (
        {
            "PPO_0/result.json": "".join(json.dumps(row) + "\n" for row in rllib_rows()),
            "PPO_0/progress.csv": rllib_csv(),
            "PPO_0/params.json": json.dumps({"num_sgd_iter": 7, "sgd_minibatch_size": 128, "train_batch_size": 4000}),
        },
        [("rllib-old", {"result.json", "progress.csv"}, ("ppo_epochs", 7))],
    ),
    "ml-agents": (
        {
            f"Big/{events_name()}": as_events(ml_agents_rows(1)),
            f"Small/{events_name()}": as_events(ml_agents_rows(2)),
            "configuration.yaml": ML_AGENTS, "run_logs/timers.json": "{}", "run_logs/training_status.json": "{}",
            "run_logs/Player-0.log": "Mono path[0] = '/home'\n", "run_logs/Player-1.log": "\n##utp:{\"version\":1}\n",
            f"Big/{events_name()}.meta": "guid: 1\n",
        },
        [
            ("ml-agents", {events_name()}, ("ppo_epochs", 3)),
            ("ml-agents", {events_name()}, ("ppo_epochs", 5)),
        ],
    ),
    "lightning": (
        {
            "lightning_logs/version_0/metrics.csv": as_csv(sb3_rows(seed=1), "step"),
            "lightning_logs/version_0/hparams.yaml": "n_epochs: 4\n",
            "lightning_logs/version_1/metrics.csv": as_csv(sb3_rows(seed=2), "step"),
            "lightning_logs/version_1/hparams.yaml": "n_epochs: 9\n",
        },
        [("sb3", {"metrics.csv"}, ("ppo_epochs", 4)), ("sb3", {"metrics.csv"}, ("ppo_epochs", 9))],
    ),
    "hugging face": (
        {
            "checkpoint-10/trainer_state.json": as_state(grpo_rows(10)),
            "checkpoint-20/trainer_state.json": as_state(grpo_rows(20)),
            "checkpoint-20/model.safetensors": b"\x08", "config.json": '{"model_type": "qwen2", "vocab_size": 9}',
            f"runs/Nov21_host/{events_name()}": as_events(under_train(grpo_rows(20))),
        },
        [("trl-grpo", {"trainer_state.json", events_name()}, None)],
    ),
    "spinning up": (
        {"progress.txt": spinning_up(), "config.json": '{"train_pi_iters": 80}', "vars.pkl": b"\x80"},
        [("spinningup", {"progress.txt"}, ("updates_per_batch", 80))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_runs_of_a_layout_are_found_with_their_files_and_settings(name, tmp_path):
    files, expected = LAYOUTS[name]
    runs = read_runs(str(write(tmp_path / "exp", files)), Request())
    assert len(runs) == len(expected)
    for run, (framework, logs, setting) in zip(runs, expected, strict=True):
        assert run.framework == framework
        assert {Path(source.path).name for source in run.sources} == logs
        if setting:
            assert run.config[setting[0]].value == setting[1]
            assert run.config[setting[0]].how == "configured"


def test_ray_s_result_counts_before_its_table(tmp_path):
    files, _ = LAYOUTS["rllib"]
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert run.sources[0].path.endswith("result.json")


def test_the_last_checkpoint_tells_the_whole_history(tmp_path):
    files, _ = LAYOUTS["hugging face"]
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert Path(run.sources[0].path).parent.name == "checkpoint-20"
    assert len(run.series["ref_kl"]) == 20


def test_dumps_and_checkpoints_beside_a_log_are_told_and_not_read(tmp_path):
    files, _ = LAYOUTS["stable-baselines3"]
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert any("read only when named" in note.text for note in run.notes)


def test_a_link_to_a_run_counts_once_and_a_link_in_a_circle_stops_nobody(tmp_path):
    files, _ = LAYOUTS["cleanrl"]
    write(tmp_path, files)
    (tmp_path / "latest").symlink_to(tmp_path / "runs" / "Hopper__ppo__1__17", target_is_directory=True)
    (tmp_path / "runs" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (run,) = read_runs(str(tmp_path), Request())
    assert "latest" not in run.id
    (run,) = read_runs(str(tmp_path / "latest"), Request())
    assert run.framework == "cleanrl"


def test_hidden_folders_and_caches_are_not_looked_into(tmp_path):
    kept = {"a/progress.csv": as_csv(sb3_rows()), f".summary/0/{events_name()}": as_events(sb3_rows(seed=3))}
    write(tmp_path, kept | {f"{name}/progress.csv": as_csv(sb3_rows()) for name in (".git", "__pycache__")})
    assert {Path(source.log).relative_to(tmp_path) for source in sources_in(tmp_path)} == set(map(Path, kept))


def test_depth_is_bounded_and_the_rest_is_told(tmp_path):
    deep = "/".join(f"d{i}" for i in range(walking.DEEPEST + 2))
    write(tmp_path, {"progress.csv": as_csv(sb3_rows()), f"{deep}/progress.csv": as_csv(sb3_rows())})
    (source,) = sources_in(tmp_path)
    assert any("too deep" in text for text in source.remarks)
    (run,) = runs_of(source, Request())
    assert any("too deep" in note.text for note in run.notes)


@pytest.mark.parametrize("bound", ["MOST_ENTRIES", "MOST_FOLDERS"])
def test_the_number_of_files_is_bounded_and_the_rest_is_told(bound, tmp_path, monkeypatch):
    monkeypatch.setattr(walking, bound, 4)
    write(tmp_path, {f"r{i}/progress.csv": as_csv(sb3_rows()) for i in range(9)})
    sources = sources_in(tmp_path)
    assert 0 < len(sources) < 9
    assert any("not looked" in text for source in sources for text in source.remarks)


def test_a_folder_without_a_log_says_what_was_looked_for(tmp_path):
    write(tmp_path, {"README.md": "hello", "requirements.txt": "torch\n"})
    with pytest.raises(DoctorError) as caught:
        read_runs(str(tmp_path), Request())
    assert caught.value.code == ExitCode.NOTHING_TO_JUDGE
    assert str(tmp_path) in caught.value.message


def test_a_folder_of_dumps_alone_is_a_run_of_them(tmp_path):
    write(tmp_path, {"dumps/policy.pt": b"PK", "dumps/old.pt": b"PK"})
    (source,), missing = gather([str(tmp_path)])
    assert not missing
    assert {path.name for path in source.tensors} == {"policy.pt", "old.pt"}
    assert not source.logs
    with pytest.raises(DoctorError, match="no tensors") as caught:
        runs_of(source, Request())
    assert caught.value.code == ExitCode.NOTHING_TO_JUDGE


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user who can be refused")
def test_a_folder_that_may_not_be_listed_is_told(tmp_path):
    write(tmp_path, {"progress.csv": as_csv(sb3_rows()), "closed/x.csv": "a"})
    (tmp_path / "closed").chmod(0)
    try:
        (source,) = sources_in(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert any("cannot be listed" in text for text in source.remarks)


def wandb_run(rows, **settings):
    from tests.readers.wandb_files import config, framed, history

    records = [config(**settings), *(history(i, **values, global_step=step) for i, (step, values) in enumerate(rows))]
    return framed(records)[0]


def test_a_wandb_folder_holds_runs_and_a_link_to_the_latest(tmp_path):
    first, second = "run-20250101_120000-abc123", "offline-run-20250102_120000-def456"
    files = {
        f"wandb/{first}/run-abc123.wandb": wandb_run(cleanrl_rows(), update_epochs=4),
        f"wandb/{first}/files/config.yaml": "wandb_version: 1\nupdate_epochs:\n  desc: null\n  value: 4\n",
        f"wandb/{first}/files/output.log": "SPS: 1\nSPS: 2\n",
        f"wandb/{first}/files/wandb-summary.json": '{"_step": 19}',
        f"wandb/{first}/files/runs/x/{events_name()}": as_events(cleanrl_rows()),
        f"wandb/{first}/logs/debug.log": "x\n",
        f"wandb/{second}/run-def456.wandb": wandb_run(cleanrl_rows()[:10], update_epochs=9),
        "wandb/debug.log": "x\n",
    }
    write(tmp_path, files)
    (tmp_path / "wandb" / "latest-run").symlink_to(second, target_is_directory=True)
    runs = read_runs(str(tmp_path), Request())
    assert {run.config["ppo_epochs"].value: len(run.series["approx_kl"]) for run in runs} == {4: 20, 9: 10}
    (latest,) = read_runs(str(tmp_path / "wandb" / "latest-run"), Request())
    assert latest.config["ppo_epochs"].value == 9
    merged = next(run for run in runs if run.config["ppo_epochs"].value == 4)
    assert {source.container for source in merged.sources} == {"wandb", "tfevents"}


def test_a_wandb_run_that_was_resumed_is_one_run(tmp_path):
    rows = cleanrl_rows()
    write(tmp_path, {"wandb/run-20250101_120000-abc/run-abc.wandb": wandb_run(rows[:12], update_epochs=4)})
    from tests.readers.wandb_files import framed, history

    later = framed([history(i, **values, global_step=step) for i, (step, values) in enumerate(rows)][10:])[0]
    write(tmp_path, {"wandb/run-20250105_120000-abc/run-abc.wandb": later})
    (run,) = read_runs(str(tmp_path), Request())
    assert run.series["approx_kl"].axis.steps.tolist() == [step for step, _ in rows]
    assert len(run.sources) == 2


def mlflow(run, rows, **params):
    meta = {f"mlruns/0/{run}/meta.yaml": f"run_id: {run}\nstatus: 3\n"}
    settings = {f"mlruns/0/{run}/params/{key}": str(value) for key, value in params.items()}
    keys = rows[0][1]
    metrics = {
        f"mlruns/0/{run}/metrics/{key}": "".join(f"{1000 + step} {values[key]} {step}\n" for step, values in rows)
        for key in keys
    }
    return meta | settings | metrics


def test_a_file_store_of_mlflow_holds_runs(tmp_path):
    files = mlflow("aaa", cleanrl_rows(), update_epochs=4) | mlflow("bbb", cleanrl_rows()[:9], update_epochs=8)
    write(tmp_path, files | {"mlruns/0/meta.yaml": "experiment_id: 0\n", "mlruns/models/meta.yaml": "x: 1\n"})
    first, second = read_runs(str(tmp_path), Request())
    assert (first.framework, first.config["ppo_epochs"].value, len(first.series["approx_kl"])) == ("cleanrl", 4, 20)
    assert (second.config["ppo_epochs"].value, len(second.series["approx_kl"])) == (8, 9)


def trackio(path, runs):
    import sqlite3

    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INT, metrics TEXT)"
        )
        database.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, created_at TEXT)")
        for name, (rows, config) in runs.items():
            if config:
                database.execute("INSERT INTO configs (run_name, config) VALUES (?, ?)", (name, json.dumps(config)))
            for step, values in rows:
                cells = ("t", name, step, json.dumps(values))
                database.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", cells)
    database.close()


def test_the_runs_of_a_database_are_judged_one_by_one_and_a_broken_one_is_told(tmp_path):
    from ppo_doctor.runs.merging import read_source

    other = [(i, {"gpu_temperature": 50.0 + i, "fan": 1.0}) for i in range(4)]
    held = {"a": (grpo_rows(20), {"num_iterations": 4}), "b": (other, {}), "c": (grpo_rows(2, seed=3), {})}
    trackio(tmp_path / "project.db", held)
    (source,) = sources_in(tmp_path)
    outcome = read_source(source, Request())
    first, third = outcome.runs
    assert [len(run.series["reward_mean"]) for run in (first, third)] == [20, 2]
    assert first.config["ppo_epochs"].value == 4
    assert third.config.get("ppo_epochs") is None or third.config["ppo_epochs"].how == "default"
    (error,) = outcome.broken
    assert "#2" in error.message


def saved_model(**settings):
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":type:": "x", ":serialized:": "gAWV"}, **settings}))
        archive.writestr("_stable_baselines3_version", "2.3.0")
    return out.getvalue()


def evaluations(steps):
    import io

    import numpy as np

    out = io.BytesIO()
    results = np.arange(2.0 * len(steps)).reshape(len(steps), 2)
    np.savez(out, timesteps=np.array(steps), results=results, ep_lengths=results)
    return out.getvalue()


def test_evaluations_and_a_saved_model_belong_to_the_run_beside_them(tmp_path):
    rows = sb3_rows()
    files = {
        "progress.csv": as_csv(rows),
        "evaluations.npz": evaluations([step for step, _ in rows[4::5]]),
        "model.zip": saved_model(n_epochs=6, batch_size=64, n_steps=2048, n_envs=1),
        "best_model.zip": saved_model(n_epochs=6, batch_size=64, n_steps=2048, n_envs=1),
    }
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert run.config["ppo_epochs"].value == 6
    assert run.series["eval_return"].values.tolist() == [0.5, 2.5, 4.5, 6.5]
    assert Path(run.series["eval_return"].source(0).path).name == "evaluations.npz"
    assert run.facts["updates_configured"].value == 6 * 32


def test_a_table_that_cannot_be_read_is_told(tmp_path):
    files = {"trainer_state.json": as_state(grpo_rows()), "completions/completions_00001.parquet": b"PAR1junkPAR1"}
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert any("completions_00001.parquet" in note.text for note in run.notes)


def hparams(**settings):
    from tests.readers.event_files import event, event_file, field

    table = "|param|value|\n|-|-|\n" + "\n".join(f"|{key}|{value}|" for key, value in settings.items())
    plugin = field(9, field(1, field(1, "text")))
    return event_file(
        event(0, field(1, "hyperparameters/text_summary") + plugin + field(8, field(1, 7) + field(8, table)))
    )


def test_hyperparameters_in_an_event_file_below_are_the_run_s(tmp_path):
    files = {events_name(): as_events(cleanrl_rows()), f"1700000000.5/{events_name()}": hparams(update_epochs=7)}
    (run,) = read_runs(str(write(tmp_path, files)), Request())
    assert run.config["ppo_epochs"].value == 7


def test_settings_without_a_run_are_nobody_s_among_several(tmp_path):
    files = {events_name(i): as_events(sb3_rows(seed=i)) for i in range(1, 4)}
    runs = read_runs(str(write(tmp_path, files | {events_name(9): hparams(n_epochs=7)})), Request())
    assert len(runs) == 3
    assert all(run.config["ppo_epochs"].how == "default" for run in runs)


def test_runs_below_a_run_are_runs_of_their_own(tmp_path):
    files = {events_name(): as_events(sb3_rows(seed=1)), f"PPO_2/{events_name()}": as_events(sb3_rows(seed=2))}
    assert len(read_runs(str(write(tmp_path, files)), Request())) == 2


def test_curves_that_tensorboardx_keeps_in_folders_of_their_own_are_one_run(tmp_path):
    files = {f"logs/{events_name()}": as_events([])}
    for tag, column in (("policy_loss", "train/policy_gradient_loss"), ("reward", "rollout/ep_rew_mean")):
        rows = [(step, {tag: values[column]}) for step, values in sb3_rows() if column in values]
        files[f"logs/{tag}/{tag}/{events_name()}"] = as_events(rows)
    write(tmp_path, files)
    (run,) = read_runs(str(tmp_path), Request())
    assert {"policy_loss", "reward_mean"} <= run.series.keys()


@pytest.mark.parametrize("name", ["train_config.json", "ppo-args.json", "hparams_v2.json", "run.settings.json"])
def test_what_is_called_a_configuration_holds_settings(name):
    from ppo_doctor.runs.layouts import role_of

    assert role_of(Path(name)) == "config"
    assert role_of(Path(name.replace(".json", ".csv"))) == "text"
    assert role_of(Path("reconfigured.json")) == "text"
