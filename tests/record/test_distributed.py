"""Two processes of torch.distributed: rank 0 records what it sees itself, the other writes nothing, nobody waits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the group real-sb3 is not installed")

SCRIPT = """
import sys
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from ppo_doctor.record import Recorder

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(7)
policy = DistributedDataParallel(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
torch.manual_seed(rank)
recorder = Recorder(sys.argv[1], clip_range=0.2, model=policy, optimizer=optimizer) if sys.argv[2] == "yes" else None
size = 16 + 8 * rank
for update in range(3):
    obs, actions, advantages = torch.randn(size, 3), torch.arange(size) % 2, torch.randn(size)
    with torch.no_grad():
        stored = policy.module(obs).log_softmax(-1).gather(1, actions[:, None])[:, 0]
    if recorder:
        recorder.start_update(advantages=advantages)
    for epoch in range(2):
        new = policy(obs).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        if recorder:
            recorder.minibatch(new_log_prob=new, old_log_prob=stored, advantages=advantages, epoch=epoch)
        optimizer.zero_grad()
        (-(new - stored).exp() * advantages).mean().backward()
        optimizer.step()
    if recorder:
        recorder.end_update()
torch.save(policy.module.state_dict(), f"{sys.argv[1]}.{rank}.pt")
distributed.destroy_process_group()
"""


def launch(folder: Path, record: str) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", SCRIPT, str(folder / f"{record}.jsonl"), record]
    both = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    told = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    return told


def test_only_the_first_rank_writes_and_training_stays_the_same(tmp_path):
    import torch

    told = launch(tmp_path, "yes")
    assert not any("ppo-doctor" in each for each in told)
    records = [json.loads(line) for line in (tmp_path / "yes.jsonl").read_text().splitlines()[1:]]
    assert [(r["update"], r["tokens_in_loss"], r["optimizer_steps"]) for r in records] == [
        (1, 32, 2),
        (2, 32, 2),
        (3, 32, 2),
    ]
    assert all(r["optimizer_params_matched"] == 1 and r["batch_start_ratio_dev"] < 1e-5 for r in records)
    launch(tmp_path, "no")
    for rank in (0, 1):
        with_it, without = (torch.load(tmp_path / f"{name}.jsonl.{rank}.pt") for name in ("yes", "no"))
        assert all(torch.equal(with_it[name], without[name]) for name in without)
