"""Samples are known by their place in the batch, whatever indices and views a script takes them by."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.indices import Made, taken_from  # noqa: E402 - needs torch
from tests.record.script.training import observed  # noqa: E402

WHO = (("getitem", 1),)
#: Four environments of six steps with two features.
BATCH = torch.arange(48.0).reshape(6, 4, 2)
CHOSEN = torch.tensor([2, 0])
SEQUENCES = """
import torch

torch.manual_seed(2)
STEPS, ENVS, HIDDEN = 6, 16, 8
cell = torch.nn.GRUCell(3, HIDDEN)
actor, critic = torch.nn.Linear(HIDDEN, 3), torch.nn.Linear(HIDDEN, 1)
weights = [*cell.parameters(), *actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(weights, lr=0.02)


def unroll(obs, state):
    states = []
    for each in obs:
        state = cell(each, state)
        states.append(state)
    states = torch.stack(states)
    return torch.log_softmax(actor(states), -1), critic(states)[..., 0]


for update in range(UPDATES):
    with torch.no_grad():
        state, obs, actions = torch.zeros(ENVS, HIDDEN), [], []
        for t in range(STEPS):
            obs.append(torch.eye(3)[torch.full((ENVS,), t % 3)])
            state = cell(obs[-1], state)
            actions.append(torch.multinomial(torch.softmax(actor(state), -1), 1)[:, 0])
        obs, actions, start = torch.stack(obs), torch.stack(actions), torch.zeros(ENVS, HIDDEN)
        old = unroll(obs, start)[0].gather(-1, actions[..., None])[..., 0]
        advantages, returns = torch.randn(STEPS, ENVS), torch.randn(STEPS, ENVS)
    for epoch in range(3):
        order = torch.randperm(ENVS)
        for first in range(0, ENVS, 4):
            envs = order[first : first + 4]
            logits, values = unroll(obs[:, envs], start[envs])
            new = logits.gather(-1, actions[:, envs][..., None])[..., 0]
            ratio = (new - old[:, envs]).exp()
            gains = advantages[:, envs]
            loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
            loss = loss + (values - returns[:, envs]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def of(*operations):
    """Return the places of a tensor that operations make of the batch, where the last made it."""
    history, data = [], BATCH
    for name, *args in operations:
        given = data
        data = given[tuple(args)] if name == "__getitem__" else getattr(given, name)(*args)
        history.insert(0, Made(data, name, WHO, (given, *args), given))
    places, batch, _ = taken_from(history, data, data.numel() // 2)
    return data, None if places is None else places.tolist(), batch


@pytest.mark.parametrize(
    "operations",
    [
        [("__getitem__", slice(None), CHOSEN)],
        [("__getitem__", slice(None), CHOSEN), ("__getitem__", 3)],
        [("__getitem__", slice(None), CHOSEN), ("reshape", -1, 2)],
        [("__getitem__", slice(None), CHOSEN), ("transpose", 0, 1), ("contiguous",)],
        [("__getitem__", slice(None), CHOSEN), ("transpose", 0, 1), ("reshape", -1, 2), ("mul", 2.0), ("div", 2.0)],
        [("__getitem__", slice(2, 5)), ("__getitem__", slice(None), CHOSEN)],
        [("reshape", 24, 2), ("__getitem__", torch.tensor([5, 5, 1, 23]))],
    ],
)
def test_places_are_those_of_the_values(operations):
    data, places, batch = of(*operations)
    first = operations[0] if len(operations) > 1 and operations[1][-1] is CHOSEN else None
    base = BATCH[first[1]] if first else BATCH
    assert batch == base.numel() // 2
    assert base.reshape(-1, 2)[places].flatten().tolist() == data.flatten().tolist()


def test_arrays_are_indices_as_well():
    data = BATCH[:, np.array([3, 1])]
    places, batch, line = taken_from(
        [Made(data, "__getitem__", WHO, (BATCH, slice(None), np.array([3, 1])), BATCH)], data, 12
    )
    assert places.tolist() == [3, 1, 7, 5, 11, 9, 15, 13, 19, 17, 23, 21]
    assert (batch, line) == (24, WHO)


def test_another_order_or_no_index_is_unknown():
    assert of(("__getitem__", slice(None), CHOSEN), ("flip", 0))[1] is None
    assert of(("__getitem__", slice(0, 2)))[1:] == (None, 0)


OLD = "old = unroll(obs, start)[0].gather(-1, actions[..., None])[..., 0]\n"
AGAIN = f"    for epoch in range(3):\n        with torch.no_grad():\n            {OLD}"


@pytest.mark.parametrize(
    "change, metric, bound",
    [
        (("gains = advantages[:, envs]", "gains = advantages[:, first : first + 4]"), "advantage_repeat_corr", 0.5),
        (("envs = order[first : first + 4]", "envs = order[:4]"), "minibatches_alike", 0.7),
        (("    for epoch in range(3):\n", AGAIN), "epoch_start_ratio_dev", 1e-6),
    ],
    ids=["advantages of other samples", "the same environments", "old log-probs of each pass"],
)
def test_sequences_are_told_apart_by_their_environment(tmp_path, change, metric, bound):
    sound = observed(SEQUENCES, tmp_path, 2).values(metric)
    assert SEQUENCES.count(change[0]) == 1
    (tmp_path / "run.jsonl").unlink()
    faulty = observed(SEQUENCES.replace(*change), tmp_path, 2).values(metric)
    assert sound
    assert faulty
    if metric == "minibatches_alike":
        assert max(sound) == 0
        assert min(faulty) > bound
    else:
        assert min(sound) > bound
        assert max(faulty) < bound
