"""Small trainings by policy gradient, run as a script: each prints a hash of its weights and the next random number."""

from __future__ import annotations

import hashlib
import resource
import sys
import threading
import weakref

import torch
from torch import nn

torch.set_num_threads(1)


def digest(*modules):
    found = hashlib.sha256()
    for module in modules:
        for name, value in module.state_dict().items():
            found.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def update(policy, optimizer, old_in_eval=True, data=None):
    """One update of a policy gradient with a clipped ratio."""
    obs = torch.randn(48, 12) if data is None else data
    if old_in_eval:
        policy.eval()
    with torch.no_grad():
        dist = torch.distributions.Categorical(logits=policy(obs))
        action = dist.sample()
        old = dist.log_prob(action)
    policy.train()
    advantages = torch.randn(len(obs)) + (action == 1).float()
    for _ in range(2):
        for index in torch.randperm(len(obs)).split(len(obs) // 3):
            dist = torch.distributions.Categorical(logits=policy(obs[index]))
            ratio = (dist.log_prob(action[index]) - old[index]).exp()
            adv = advantages[index]
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


class Attention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.enter = nn.Linear(12, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=dropout, batch_first=True)
        self.stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, dropout=dropout, batch_first=True), 2)
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.enter(x).reshape(-1, 4, 32)
        x = self.stack(self.layer(x))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return self.head(x).reshape(-1, 5)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(12, 24, batch_first=True)
        self.cell = nn.LSTMCell(24, 24)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = self.gru(x.reshape(-1, 1, 12))[0][:, 0]
        return self.head(self.cell(x)[0])


def trained(policy, updates=3, **more):
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for _ in range(updates):
        update(policy, optimizer, **more)
    return digest(policy)


def attention():
    return trained(Attention())


def mlp(dropout=0.0, norm=False):
    layers = [nn.Linear(12, 32), nn.Tanh(), nn.Dropout(dropout)]
    if norm:
        layers.append(nn.BatchNorm1d(32))
    return nn.Sequential(*layers, nn.Linear(32, 5))


def dropout():
    trained(Attention(0.1))
    return trained(mlp(0.2, norm=True), old_in_eval=False)


def recurrent():
    return trained(Recurrent())


def devices():
    with torch.device("cpu"):
        policy = mlp()
        optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
        update(policy, optimizer)
    for n in range(5):
        if n % 2:
            with torch.device("cpu"):
                update(policy, optimizer)
        else:
            with torch.device("cpu"):
                obs = torch.randn(48, 12)
            update(policy, optimizer, data=obs)
    before = torch.get_default_device()
    torch.set_default_device("cpu")
    update(policy, optimizer)
    torch.set_default_device(None)
    assert torch.get_default_device() == before
    update(policy, optimizer)
    return digest(policy)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, n):
        return torch.sin(torch.arange(12.0) * (n + 1)) + torch.rand(12)


def loader():
    policy = mlp()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for obs in torch.utils.data.DataLoader(Rows(), 48, drop_last=True, shuffle=True, num_workers=1):
        update(policy, optimizer, data=obs)
    return digest(policy)


def thread():
    policy, found = mlp(), []
    worker = threading.Thread(target=lambda: found.append(trained(policy)))
    worker.start()
    worker.join()
    return found[0]


class Foreign(torch.overrides.TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Foreign.calls += 1
        return func(*args, **(kwargs or {}))


def foreign():
    policy = mlp()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    with Foreign():
        update(policy, optimizer)
        update(policy, optimizer)
    update(policy, optimizer)
    return digest(policy) + f" {Foreign.calls}"


def compiled_part(backend="aot_eager"):
    policy = mlp()
    policy[0].compile(backend=backend)
    return trained(policy)


def compiled_attention():
    policy = Attention()
    policy.compile(backend="aot_eager")
    return trained(policy) + f" {torch._dynamo.utils.counters['graph_break'].total()} breaks"


def scripted():
    policy = torch.jit.script(Attention())
    return trained(policy)


def padded():
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 4, 48, batch_first=True), 2).eval()
    mask = torch.zeros(6, 4, dtype=torch.bool)
    mask[:3, 2:] = True
    with torch.no_grad():
        data = layer(torch.randn(6, 4, 12), src_key_padding_mask=mask).reshape(-1, 12)
    return trained(mlp(), data=torch.cat([data, data]))


def functional():
    policy = mlp()
    with torch.no_grad():
        data = torch.func.vmap(lambda row: policy(row) * 2 - 1)(torch.randn(48, 12))
        torch.func.vmap(torch.func.grad(lambda row: policy(row).sum().tanh()))(torch.randn(48, 12))
    with torch.device("meta"):
        mlp()(torch.randn(3, 12))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.randn(3, 4) @ torch.randn(4, 4) / 3
    sparse = torch.eye(12).to_sparse() * 2
    data = torch.sparse.mm(sparse, data.repeat(1, 3)[:, :12].T).T
    return trained(policy, data=data)


def kept():
    """Return how many losses' graphs are alive after their steps, and the largest memory, after large values."""
    policy = mlp()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    alive = []
    for _ in range(4):
        obs = torch.randn(48, 12)
        with torch.no_grad():
            old = policy(obs).log_softmax(-1)[:, 0]
        for _ in range(3):
            shifted = [torch.randn(1000, 100).div(n + 1.0).sum() * 0 for n in range(100)]
            large = policy(obs.repeat(200, 1))
            large = sum((large - n).mean() - (large - large.mean()).mean() for n in range(60))
            node = Seen.apply(policy(obs).log_softmax(-1)[:, 0])
            alive.append(weakref.ref(node.grad_fn))
            ratio = (node - old).exp()
            adv = obs[:, 0].detach() + sum(shifted)
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0 * large
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del node, ratio, loss, large
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{sum(each() is not None for each in alive)} graphs, {peak} MB"


class Seen(torch.autograd.Function):
    """Passes values on, by a node that can be referred to weakly."""

    @staticmethod
    def forward(_, values):
        return values.clone()

    @staticmethod
    def backward(_, gradient):
        return gradient


if __name__ == "__main__":
    for name in sys.argv[1:]:
        torch.manual_seed(7)
        result = globals()[name]()
        print(name, result, float(torch.rand(1)), flush=True)
