"""What a console states in prose: its last exception, early stops, plans, and the method of its records."""

from __future__ import annotations

import pytest

from ppo_doctor import readers
from ppo_doctor.readers.console_messages import section_of

TRACE = """Traceback (most recent call last):
  File "/srv/lab/train.py", line 12, in main
    loss.backward()
  File "/srv/lab/torch/distribution.py", line 77, in __init__
    raise ValueError(
ValueError: Expected parameter logits to satisfy the constraint, but found invalid values:
tensor([[nan, nan],
        [nan, nan]])
"""
STEPS = "".join(f"step={i} policy_loss=0.0{i} value_loss=1.{i} entropy=0.6{i} approx_kl=0.00{i}\n" for i in range(1, 9))


def notes(tmp_path, text):
    (tmp_path / "stdout.log").write_text(text)
    _, items = readers.read(tmp_path / "stdout.log")
    return [str(item) for item in items if "died here" in str(getattr(item, "text", ""))]


def test_the_exception_at_the_end_is_told_with_its_last_frame(tmp_path):
    (note,) = notes(tmp_path, STEPS + TRACE)
    assert "stdout.log:14:" in note
    assert "ValueError: Expected parameter logits" in note
    assert "distribution.py:77, in __init__" in note
    assert "/srv" not in note


@pytest.mark.parametrize("text", [TRACE + STEPS, STEPS, STEPS + "Traceback (most recent call last):\n" + STEPS])
def test_what_a_run_survived_did_not_end_it(tmp_path, text):
    assert notes(tmp_path, text) == []


def test_a_run_that_never_began_says_why(cli, tmp_path):
    (tmp_path / "stdout.log").write_text(
        "Loading\n" + "".join(TRACE.splitlines(keepends=True)[:4]) + "RuntimeError: no such device\n"
    )
    asked = cli("analyze", tmp_path / "stdout.log")
    assert asked.code == 3
    assert "RuntimeError: no such device" in asked.err


def test_a_run_that_died_of_nan_before_its_first_record_is_judged_by_that(cli, tmp_path):
    (tmp_path / "stdout.log").write_text("Loading\n" + TRACE)
    (tmp_path / "config.json").write_text('{"ppo_epochs": 4}')
    report = cli("analyze", tmp_path, "--format", "json").json
    assert (report["verdict"], [cause["id"] for cause in report["causes"]]) == ("unhealthy", ["nan-inf"])


def test_a_run_that_died_of_nan_is_judged_by_that_where_nothing_else_is_a_metric(cli, tmp_path):
    (tmp_path / "stdout.log").write_text("Epoch: 0/4:\nEpoch: 1/4:\n" + TRACE)
    report = cli("analyze", tmp_path, "--format", "json").json
    assert (report["verdict"], [cause["id"] for cause in report["causes"]]) == ("unhealthy", ["nan-inf"])


def test_what_a_run_died_of_stands_at_the_top_of_its_report(cli, tmp_path):
    (tmp_path / "stdout.log").write_text(STEPS + TRACE)
    head = cli("analyze", tmp_path / "stdout.log").out.split("Signal chain")[0]
    assert "The run died: ValueError: Expected parameter logits" in " ".join(head.split())
    (tmp_path / "stdout.log").write_text(TRACE + STEPS)
    assert "The run died" not in cli("analyze", tmp_path / "stdout.log").out


def test_early_stops_are_counted(tmp_path):
    prose = "Early stopping at step 2 due to reaching max kl: 0.03\n"
    lines = STEPS.splitlines(keepends=True)
    (tmp_path / "stdout.log").write_text("".join([lines[0], prose, *lines[1:4], prose, *lines[4:]]))
    _, items = readers.read(tmp_path / "stdout.log")
    (note,) = [str(item) for item in items if "stopped early" in str(getattr(item, "text", ""))]
    assert "stdout.log:2:" in note
    assert "2 updates" in note


def test_a_pair_that_stands_alone_again_and_again_is_a_part_of_the_next_record(cli, tmp_path):
    lines = [f"{line}Mean Reward: {n}.5\n\n" for n, line in enumerate(STEPS.splitlines(keepends=True))]
    (tmp_path / "stdout.log").write_text("Seed: 7\n\n" + "".join(lines))
    shown = cli("inspect", tmp_path / "stdout.log").out
    assert "Mean Reward" in shown
    assert "reward_mean" in shown
    assert "Seed" not in shown


RICH = """╭─────────────── Traceback (most recent call last) ───────────────╮
│ /srv/lab/train.py:12 in main                                    │
│                                                                 │
│   12     fit()                                                  │
│ /srv/lab/rewards.py:41 in score                                 │
╰─────────────────────────────────────────────────────────────────╯
KeyError: 'answer'
"""


def test_a_traceback_between_bars(tmp_path):
    (note,) = notes(tmp_path, STEPS + RICH)
    assert "KeyError: 'answer' (rewards.py:41, in score)" in note


def test_a_traceback_whose_lines_name_a_rank(tmp_path):
    ranked = "".join(f"[rank1]: {line}\n" for line in TRACE.splitlines()[:6])
    (note,) = notes(tmp_path, STEPS + ranked)
    assert "ValueError: Expected parameter logits" in note
    assert "distribution.py:77, in __init__" in note


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Killed",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2024-01-01T10:00:00 DUE TO TIME LIMIT ***",
        "[E] NCCL watchdog thread terminated with exception: timeout",
        "A worker died or was killed while executing a task",
        "[1234.5] Out of memory: Killed process 77 (python)",
        "slurmstepd: error: Detected 1 oom-kill event in step 7.batch",
        "Fatal: got SIGKILL",
        "Segmentation fault (core dumped)",
        "ncclSystemError: System call failed",
        "Watchdog caught collective operation timeout on rank 3",
        "ray.exceptions.ActorDiedError: see above",
        "The actor is dead because its node has died",
        "JOB 12 CANCELLED DUE TO PREEMPTION",
        "srun: task 0 ended, exit code: -9",
        "KeyboardInterrupt: by hand",
        "trainer.EarlyStop: no progress",
    ],
)
def test_what_ended_the_process_without_a_traceback(tmp_path, line):
    (note,) = notes(tmp_path, STEPS + line + "\n")
    assert line[:40] in note
    assert notes(tmp_path, line + "\n" + STEPS) == []


def test_the_traceback_says_more_than_the_lines_behind_it(tmp_path):
    (note,) = notes(tmp_path, STEPS + RICH + "srun: error: task 0: exit code -9\n")
    assert "KeyError" in note


def test_a_run_that_died_before_its_first_update(cli, tmp_path):
    crash = 'Traceback (most recent call last):\n  File "main.py", line 9, in run\n    fit()\nTypeError: no reward\n'
    settings = "{'rollout': {'n': 8, 'temperature': 1.0, 'top_p': 1.0}, 'learning_rate': 1e-06, 'clip_ratio': 0.2}\n"
    (tmp_path / "train.log").write_text(settings + crash)
    asked = cli("analyze", tmp_path / "train.log")
    assert asked.code == 3
    assert "died before its first update: TypeError: no reward (main.py:9, in run)" in asked.err


def test_the_exception_in_a_console_beside_the_log(cli, tmp_path):
    rows = "".join(f"{i * 2048},{i},0.0{i}\n" for i in range(1, 10))
    (tmp_path / "progress.csv").write_text("time/total_timesteps,rollout/ep_rew_mean,train/approx_kl\n" + rows)
    (tmp_path / "stdout.log").write_text("Loading\n" + RICH)
    told = cli("analyze", tmp_path).out
    assert "died before its first update: KeyError: 'answer' (rewards.py:41" in " ".join(told.split())


def test_ml_agents_says_that_it_does_not_train(cli, tmp_path):
    line = "INFO:mlagents.trainers: run: Brain: Step: {}. Time Elapsed: 9.1 s Mean Reward: {}. Std of Reward: 0.5. {}\n"
    idle = "".join(line.format(i * 500, i / 10, "Not Training.") for i in range(1, 9))
    (tmp_path / "out.txt").write_text(idle)
    assert "Not Training" in cli("analyze", tmp_path / "out.txt").out
    (tmp_path / "out.txt").write_text(idle.replace("Not Training", "Training"))
    assert "Not Training" not in cli("analyze", tmp_path / "out.txt").out


SKIPPED = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32\n"


def test_steps_that_the_console_says_were_skipped_are_counted_and_no_metrics(tmp_path):
    (tmp_path / "stdout.log").write_text("".join(line + "\n" + SKIPPED for line in STEPS.splitlines()))
    items = list(readers.read(tmp_path / "stdout.log")[1])
    assert [item.numbers for item in items if getattr(item, "event", None) == "steps_skipped"] == [(8,)]
    assert all("Rank" not in getattr(item, "columns", {}) for item in items)


def test_a_plain_exception_ends_a_run_as_one_with_a_name_does(tmp_path):
    trace = [*TRACE.splitlines()[:2], "    raise Exception(", "Exception: Current loss scale already at minimum"]
    (note,) = notes(tmp_path, STEPS + "\n".join(trace) + "\n")
    assert "Exception: Current loss scale already at minimum (train.py:12, in main)" in note


@pytest.mark.parametrize(
    ("line", "resumed"),
    [
        ("Continuing training from checkpoint, will skip to saved global_step\n", True),
        ("  Continuing training from global_step 400\n", True),
        ("Resuming from outputs/checkpoint-400\n", True),
        ("Saving a checkpoint every 400 steps\n", False),
    ],
)
def test_a_run_that_goes_on_from_a_checkpoint_says_so_before_its_first_record(tmp_path, line, resumed):
    for text, expected in ((line + STEPS, resumed), (STEPS + line, False)):
        (tmp_path / "stdout.log").write_text(text)
        items = list(readers.read(tmp_path / "stdout.log")[1])
        assert any(getattr(item, "event", None) == "resumed" for item in items) is expected


RECORDS = "".join(f"round {i} score {i / 8} kl {i / 100} steps 6\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("banner", "planned"),
    [
        ("skiff ppo   64 boats x 48 steps, 5 passes x 6 minibatches, 48 iterations", (5, 6)),
        ("mailroom | 64 envs x 32 steps | 4 epochs x 2 chunks | gru 48", (4, 2)),
        ("2 epoch(s) of everything", None),
        ("saved 100 epochs", None),
        ("0 epochs x 4 minibatches", None),
    ],
)
def test_a_banner_tells_passes_and_minibatches_together(reading, banner, planned):
    got = reading(f"{banner}\n{RECORDS}")
    found = [config.values for config in got.configs]
    expected = [] if planned is None else [{"ppo_epochs": planned[0], "num_minibatches": planned[1]}]
    assert found == expected


def test_a_banner_tells_the_answers_to_a_prompt(reading):
    got = reading(f"# count-up GRPO: 32 prompts x 8 samples, 60 steps\n{RECORDS}")
    assert [config.values for config in got.configs] == [{"num_generations": 8}]


def test_a_line_below_the_first_record_plans_nothing(reading):
    assert not reading(f"{RECORDS}did 5 passes x 6 minibatches\n{RECORDS}").configs


def test_settings_above_certain_records_are_read(reading):
    head = (
        "Namespace(actor_learning_rate=5e-07, eps_clip=0.2, init_kl_coef=0.0, max_epochs=1, n_samples_per_prompt=8,"
        " rollout_batch_size=128, train_batch_size=1024)\n"
    )
    body = "".join(f"step {i}: {{'policy_loss': 0.{i}, 'reward': 0.5, 'kl': 0.01}}\n" for i in range(1, 9))
    got = reading(head + body)
    assert len(got.records) == 8
    assert got.configs[0].values["max_epochs"] == 1


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("======== DQN ========", "DQN"),
        ("--- Training SAC, seed 3 ---", "SAC"),
        ("## PPO", "PPO"),
        ("Training TD3 ...", "TD3"),
        ("[A2C]", "A2C"),
        ("[DQN] step 100 return 3.5", "DQN"),
        ("step   100 | algo DDPG | ep_ret  -3.00", "DDPG"),
        ("step=100 algo=PPO return=3.5", "PPO"),
        ('{"algo": "SAC", "return": 3.5}', "SAC"),
    ],
)
def test_a_line_names_its_method(line, method):
    assert section_of(line) == method


@pytest.mark.parametrize(
    "line",
    [
        "step=100 return=3.5 dqn_loss=0.2",
        "| actor/ppo_kl | 0.01 |",
        "loading the replay buffer of the DQN expert from disk",
        "step 100 | return 3.5 | better than SAC",
        "======== results ========",
    ],
)
def test_a_line_that_only_speaks_of_a_method_begins_nothing(line):
    assert section_of(line) is None
