"""The command `run`: its options, what it reports and where, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from ppo_doctor.cli.run import _start_of_command, why_nothing
from tests.record.script.stage import Stage

STEP = "import torch\ntorch.step()\nprint('trained')\n"
posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.fixture
def stage(tmp_path, samples):
    return Stage(tmp_path, samples / "sick" / "lr-zero.canonical" / "run.jsonl")


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("train.py --updates 3", "train.py"),
        ("--updates 3 train.py -m x", "train.py"),
        ("--updates=3 --live -m package.train --live", "-m"),
        ("--out run.jsonl -- torchrun --out x", "--"),
        ("--live", None),
    ],
)
def test_options_end_where_the_script_begins(line, script):
    arguments = line.split()
    start = _start_of_command(arguments, {"--updates", "--out"})
    assert start == (arguments.index(script) if script else len(arguments))


@posix
def test_reports_and_observations_go_where_they_are_wanted(stage, validate):
    stage.write("train.py", STEP)
    options = ("--out", "run.jsonl", "--format", "json=report.json", "--format", "text")
    code, out, err = stage.observed(*options, "train.py")
    assert (code, out) == (0, "trained\n")
    assert err.startswith("UNHEALTHY  train.py\n")
    report = json.loads((stage.work / "report.json").read_text())
    validate(report)
    assert (report["verdict"], report["run"]["id"]) == ("unhealthy", "train.py")
    assert (stage.work / "run.jsonl").read_bytes() == stage.records.read_bytes()
    row = {"ppo_doctor": 1, "policy_pull": 1.0, "approx_kl": 0.01, "update_norm": 0.1}
    stage.records.write_text("".join(json.dumps({**row, "step": 16 * n}) + "\n" for n in (1, 2, 8)))
    code, _, err = stage.observed("--out", "run.jsonl", "train.py")
    assert (code, "no reward is in the observation" in " ".join(err.split())) == (0, True)
    assert (stage.work / "run.jsonl").read_bytes() == stage.records.read_bytes(), "an earlier file is replaced"


@posix
@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [(STEP, "high", 1), (STEP + "raise SystemExit(6)", "high", 6), ("print('trained')", "high", 3)],
)
def test_the_exit_code_is_the_scripts_unless_it_is_0_and_a_severity_is_given(stage, text, fail_on, code):
    stage.write("train.py", text)
    assert stage.observed("--quiet", "--fail-on", fail_on, "train.py")[:2] == (code, "trained\n")


@posix
def test_a_log_is_judged_together_with_what_was_observed(stage, samples):
    log = samples / "sick" / "lr-zero.canonical" / "run.jsonl"
    stage.write("train.py", STEP + f"open('log.jsonl', 'w').write(open({str(log)!r}).read())")
    stage.records.write_text('{"ppo_doctor": 1, "config": {"n_epochs": 4}}\n{"step": 1, "grad_norm": 0.5}\n')
    code, _, err = stage.observed("--log", "log.jsonl", "--format", "json=report.json", "train.py")
    report = json.loads((stage.work / "report.json").read_text())
    assert (code, len(report["run"]["sources"])) == (0, 2), err


@posix
def test_the_reward_of_a_log_is_judged_beside_what_was_observed(stage):
    row = {"ppo_doctor": 1, "policy_pull": 1.0, "approx_kl": 0.01, "update_norm": 0.1}
    stage.records.write_text("".join(json.dumps({**row, "step": 16 * n}) + "\n" for n in (1, 2, 8)))
    rows = "\n".join(f"{n},{2048 * n},{n / 40}" for n in range(1, 41))
    text = f"iteration,timesteps,episode_return\n{rows}\n"
    stage.write("train.py", STEP + f"open('progress.csv', 'w').write({text!r})")
    for out in ((), ("--out", "run.jsonl")):
        code, _, err = stage.observed("--log", "progress.csv", *out, "train.py")
        words = " ".join(err.split())
        assert (code, "The reward (episode_return) rises" in words) == (0, True), err
        assert "progress.csv: is the log of the observed script" in words


@posix
def test_the_script_can_be_ended_by_the_observer(stage):
    stage.write("train.py", "import torch\nfor number in range(9):\n    torch.step()\n    print(number)")
    assert stage.observed("--updates", "3", "--stop", "train.py")[:2] == (0, "0\n1\n")
    assert stage.observed("--updates", "3", "train.py")[1].endswith("8\n")


def test_why_nothing_was_observed(tmp_path):
    file, script = tmp_path / "observed.jsonl", ["--", "python", "train.py"]

    def why(*notes):
        error = why_nothing(file, notes, script)
        return error and error.message

    assert "PYTHONPATH" in why()
    assert "never imported torch" in why("started")
    assert "rank 0" in why("started", "torch", "rank")
    assert "no ratio" in why("started", "torch")
    assert why("started", "torch", "no room for copies").endswith("no room for copies")
    assert why("started", "failed Python 3.9").endswith(": Python 3.9")
    file.write_text('{"ppo_doctor": 1, "unseen": {"ratio": "the loss is compiled"}}\n')
    assert why("started", "torch").endswith("the loss is compiled")
    file.write_text('{"ppo_doctor": 1, "step": 1}\n')
    assert why("started", "torch") is None


@posix
def test_an_environment_without_torch_is_told_which_python_to_use(stage, tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("")
    other.chmod(0o755)
    stage.write("train.py", "print('trained')")
    (stage.env / "torch" / "__init__.py").unlink()
    (stage.env / "torch").rmdir()
    if _has_torch():
        pytest.skip("torch is installed here")
    _, _, err = stage.observed("train.py", PATH=f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert f"ppo-doctor run -- {other} train.py" in err


RANKS = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    ranks = dist.is_torchelastic_launched()  # accelerate starts one process where there are no GPUs
    if ranks:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if ranks else 0
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 3)
    policy = DistributedDataParallel(policy) if ranks else policy
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.3)
    torch.manual_seed(rank)

    def log_prob(obs, actions):
        return torch.log_softmax(policy(obs), -1).gather(1, actions[:, None])[:, 0]

    for update in range(3):
        obs, advantages = torch.randn(32, 4), torch.randn(32)
        with torch.no_grad():
            actions = torch.multinomial(torch.softmax(policy(obs), -1), 1)[:, 0]
            old = log_prob(obs, actions)
        for rows in torch.arange(32).repeat(2).split(16):
            ratio = (log_prob(obs[rows], actions[rows]) - old[rows]).exp()
            surrogate = torch.min(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows])
            optimizer.zero_grad()
            (-surrogate.mean()).backward()
            optimizer.step()
    if rank == 0:
        print(sum(each.sum().item() for each in policy.parameters()))
    if ranks:
        dist.destroy_process_group()
    """


WORKERS = """
    import hashlib
    import gymnasium, numpy as np, torch
    from torch.utils.data import DataLoader, Dataset

    class Prompts(Dataset):
        def __len__(self):
            return 32
        def __getitem__(self, index):
            return torch.randn(4)

    def update(obs):
        with torch.no_grad():
            actions = torch.multinomial(torch.softmax(policy(obs), -1), 1)[:, 0]
            old = torch.log_softmax(policy(obs), -1).gather(1, actions[:, None])[:, 0]
        advantages = torch.randn(len(obs))
        for rows in torch.randperm(len(obs)).split(16) + torch.randperm(len(obs)).split(16):
            new = torch.log_softmax(compiled(obs[rows]), -1).gather(1, actions[rows, None])[:, 0]
            ratio = (new - old[rows]).exp()
            surrogate = torch.min(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows])
            optimizer.zero_grad()
            (-surrogate.mean()).backward()
            optimizer.step()

    if __name__ == "__main__":
        torch.manual_seed(0)
        policy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        compiled = torch.compile(policy, backend="aot_eager")
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
        for context in ("fork", "spawn"):
            for obs in DataLoader(Prompts(), batch_size=32, num_workers=2, multiprocessing_context=context):
                update(obs)
            make = [lambda: gymnasium.make("CartPole-v1")] * 2
            envs = gymnasium.vector.AsyncVectorEnv(make, context=context)
            obs, _ = envs.reset(seed=1)
            rollout = [obs, *(envs.step(np.array([0, 1]))[0] for _ in range(15))]
            envs.close()
            update(torch.as_tensor(np.concatenate(rollout)))
        weights = b"".join(each.detach().numpy().tobytes() for each in policy.parameters())
        print(hashlib.sha256(weights + torch.get_rng_state().numpy().tobytes()).hexdigest())
    """


@pytest.fixture
def observed_command(tmp_path):
    """Run a command with a script alone and observed, and return its updates and the two streams of errors."""

    def run(text, *command):
        (tmp_path / "train.py").write_text(textwrap.dedent(text))
        observe = [sys.executable, "-m", "ppo_doctor", "run", "--out", "run.jsonl", "--updates", "2", "--"]
        launch = [sys.executable, *command, "train.py"]
        alone, seen = (
            subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
            for line in (launch, [*observe, *launch])
        )
        assert (seen.returncode, seen.stdout) == (alone.returncode, alone.stdout) == (0, alone.stdout), seen.stderr
        records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
        assert "Nothing wrong was found in what was observed of 2 updates" in " ".join(seen.stderr.split())
        return [record["update"] for record in records if "step" in record], alone.stderr, seen.stderr

    return run


@posix
@pytest.mark.parametrize("launcher", ["torch.distributed.run", "accelerate.commands.launch"])
def test_ranks_train_as_without_and_the_first_is_observed(observed_command, launcher):
    pytest.importorskip("torch", reason="the group real-sb3 is not installed")
    pytest.importorskip(launcher.partition(".")[0], reason="the group real-trl is not installed")
    options = ["--standalone", "--nproc-per-node"] if launcher.startswith("torch") else ["--cpu", "--num_processes"]
    updates, alone, seen = observed_command(RANKS, "-m", launcher, *options, "2")
    assert updates == [1, 2]
    assert "Warning" not in seen.replace(alone, "")


@posix
def test_data_loaders_vector_environments_and_compiled_parts_train_as_without(observed_command):
    pytest.importorskip("torch", reason="the group real-sb3 is not installed")
    pytest.importorskip("gymnasium", reason="the group real-sb3 is not installed")
    updates, _, _ = observed_command(WORKERS)
    assert updates == [1, 2]


def _has_torch():
    from importlib.util import find_spec

    return find_spec("torch") is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "missing.py: no such script"),
        (["sh"], "ppo-doctor run -- sh"),
        (["-m"], "no module"),
        (["--"], "no command"),
        (["--", "no-such-command"], "No such file"),
        (["--out", "train.py", "train.py"], "holds something else"),
        (["--out", "missing/run.jsonl", "train.py"], "no folder"),
        (["--memory", "3X", "train.py"], "no amount of memory"),
        (["--for", "3", "train.py"], "no duration"),
        (["--fail-on", "x", "train.py"], "no such severity"),
        (["--format", "x", "train.py"], "no format"),
        (["--every", "-1", "train.py"], "--every"),
    ],
)
def test_wrong_usage_starts_nothing(cli, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('started', 'w')")
    outcome = cli("run", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tmp_path / "started").exists()
