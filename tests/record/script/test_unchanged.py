"""Training with the observation ends with the very weights that it ends with alone, and with little more memory."""

from __future__ import annotations

import contextlib
import hashlib
import json

import pytest

from ppo_doctor.record.script.log import RunLog
from ppo_doctor.record.script.options import WatchOptions

torch = pytest.importorskip("torch")
overrides = pytest.importorskip("torch.overrides")

UPDATES, SAMPLES, MINIBATCH = 9, 16, 8


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(8, 3))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True)
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, observations):
        hidden = self.layer(observations.unsqueeze(1).expand(-1, 5, -1).cumsum(1))
        return self.head(self.attention(hidden, hidden, hidden, need_weights=False)[0].mean(1))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = torch.nn.GRU(6, 8, batch_first=True), torch.nn.Linear(8, 3)

    def forward(self, observations):
        return self.head(self.gru(observations.unsqueeze(1).expand(-1, 4, -1))[0][:, -1])


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.compile(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh()), backend="eager")
        self.head = torch.nn.Linear(8, 3)

    def forward(self, observations):
        return self.head(self.body(observations))


def trained(make, around=contextlib.nullcontext):
    """Train a policy from the same seed, and return a digest of its weights and of the random stream."""
    torch.manual_seed(0)
    policy = make()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(UPDATES):
        policy.eval()
        with torch.no_grad():
            observations = torch.randn(SAMPLES, 6)
            chosen = torch.distributions.Categorical(logits=policy(observations))
            actions = chosen.sample()
            old = chosen.log_prob(actions)
        advantages = (actions == 0).float() - 0.5 + torch.randn(SAMPLES)
        policy.train()
        for rows in torch.randperm(SAMPLES).split(MINIBATCH) + torch.randperm(SAMPLES).split(MINIBATCH):
            with around():
                new = torch.distributions.Categorical(logits=policy(observations[rows])).log_prob(actions[rows])
                ratio = torch.exp(new - old[rows])
                loss = -torch.min(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
    weights = [value.numpy().tobytes() for value in policy.state_dict().values()]
    return hashlib.sha256(b"".join([*weights, torch.get_rng_state().numpy().tobytes()])).hexdigest()


@contextlib.contextmanager
def observed(folder, **options):
    from ppo_doctor.record.script.session import Session

    out = folder / "run.jsonl"
    log = RunLog(str(out))
    session = Session(WatchOptions(out=str(out), script=__file__, folder=str(folder), **options), log)
    session.call(session.start)
    yield session
    session.call(session.finish)
    log.close()


def updates_of(folder):
    records = map(json.loads, (folder / "run.jsonl").read_text().splitlines())
    return [record["update"] for record in records if "update" in record]


@pytest.mark.parametrize("make", [mlp, Attention, Recurrent, Compiled])
def test_weights_and_random_stream_stay_the_same(make, tmp_path):
    alone = trained(make)
    with observed(tmp_path):
        together = trained(make)
    assert together == alone
    assert updates_of(tmp_path)


def test_other_function_modes_stay_in_place(tmp_path):
    def on_cpu():
        return torch.device("cpu")

    alone = trained(mlp, on_cpu)
    with observed(tmp_path):
        assert trained(mlp, on_cpu) == alone
        assert torch.get_default_device() == torch.device("cpu")
    with torch.device("meta"):
        assert torch.empty(1).device.type == "meta"
    assert not overrides._get_current_function_mode_stack()
    assert len(updates_of(tmp_path)) < UPDATES


def test_a_pause_within_another_mode_sees_nothing_more(tmp_path):
    with observed(tmp_path) as session, torch.device("cpu"):
        session._pause()
        assert not session.mode.observing
        before = session.step
        torch.nn.functional.linear(torch.ones(2, 3), torch.nn.Parameter(torch.ones(4, 3)))
        assert not before.inputs


def test_copies_of_a_training_pass_stay_within_the_budget(tmp_path):
    with observed(tmp_path, memory=1 << 20) as session:
        weight = torch.nn.Parameter(torch.ones(1 << 14))
        data = [weight * n - torch.full((1 << 14,), float(n)) for n in range(100)]
        kept = [each.grad_fn.metadata for each in data if "operands" in each.grad_fn.metadata]
        made = [torch.ones(1 << 14) + n for n in range(100)]
        assert 0 < len(kept) <= (1 << 18) // (2 << 16)
        assert session.operations.chain(made[-1])
        assert len(session.operations._made) <= (1 << 18) // (1 << 16)
        session.operations.new_step()
        assert not any("operands" in metadata for metadata in kept)
