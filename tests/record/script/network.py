"""A small PPO script with a network of modules, whose parts tests replace."""

from __future__ import annotations

NETWORK = """
import torch
from torch import nn

torch.manual_seed(1)
EPOCHS = 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(4))

    def update(self, obs):
        self.mean += 0.5 * (obs.mean(0) - self.mean)

    def forward(self, obs):
        hidden = torch.tanh(self.body(obs - self.mean))
        return torch.log_softmax(self.head(hidden), -1)


def rollout(policy):
    with torch.no_grad():
        obs = torch.randn(32, 4) + 1
        log_probs = policy(obs)
        actions = torch.multinomial(log_probs.exp(), 1)
        return obs, actions, log_probs.gather(1, actions)[:, 0], torch.randn(32)


def train(policy, optimizer, batch):
    obs, actions, old, advantages = batch
    for epoch in range(EPOCHS):
        for rows in torch.randperm(32).split(16):
            new = policy(obs[rows]).gather(1, actions[rows])[:, 0]
            ratio = (new - old[rows]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = -torch.min(ratio * advantages[rows], clipped * advantages[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
for update in range(UPDATES):
    batch = rollout(policy)
    train(policy, optimizer, batch)
"""


def with_parts(*changes: tuple[str, str]) -> str:
    """Return the script with each first text replaced by its second; each has to be there once."""
    text = NETWORK
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text
