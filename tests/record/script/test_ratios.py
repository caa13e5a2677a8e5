"""Ratios of a minibatch are measured when its backward pass has run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.ratios import sign_changes  # noqa: E402 - needs torch
from tests.record.script.training import observed  # noqa: E402

LENGTH = 4


@pytest.fixture
def batch():
    torch.manual_seed(0)
    mask = (torch.arange(LENGTH) < torch.tensor([4, 3, 2, 4])[:, None]).float()
    theta = torch.randn(4, LENGTH, requires_grad=True)
    old = (theta.detach() + 0.1 * torch.randn(4, LENGTH)) * mask - 9 * (1 - mask)
    return {"theta": theta, "old": old, "adv": torch.randn(4, LENGTH), "mask": mask}


def loss_of(theta, old, adv, mask, sign=1.0):
    ratio = (theta * 1.0 - old).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(0.5, 1.5) * adv)
    return -sign * (surrogate * mask).sum() / mask.sum()


def seen(session, loss):
    loss.backward()
    return session.step.ratios[-1]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_pull_is_the_sign_of_the_loss(session, batch, sign):
    assert seen(session, loss_of(**batch, sign=sign)).pull == pytest.approx(sign, abs=1e-5)


def test_negated_advantages_and_an_inverted_ratio_are_told_apart(session, batch):
    theta, old, adv = batch["theta"], batch["old"].clamp_min(-3), batch["adv"]
    negated = -adv
    turned = seen(session, ((theta * 1.0 - old).exp() * negated).mean())
    assert (turned.sign, turned.pull > 0.9) == (-1, True)
    doubled = seen(session, ((theta * 1.0 - old).exp() * (negated * 2.0)).mean())
    assert (doubled.sign, doubled.pull > 0.9) == (-1, True)
    inverted = seen(session, -((old - theta * 1.0).exp() * adv).mean())
    assert inverted.pull == pytest.approx(-1, abs=0.5)


def test_signs_are_counted_back_to_what_the_advantages_were_computed_from(session):
    returns, values = -torch.randn(8), torch.randn(8)
    advantages = -(returns - values)
    normalised = (advantages - advantages.mean()) / advantages.std()
    chain = session.operations.chain(normalised)
    assert sign_changes(chain) == 1


#: Surrogates of a ratio and advantages, with whether each takes the larger gain.
CHOICES = {
    "stack": (lambda r, c, a: torch.stack([r * a, c * a]).min(0)[0], False),
    "stack of the larger": (lambda r, c, a: torch.stack([r * a, c * a], -1).max(-1).values, True),
    "where": (lambda r, c, a: torch.where(r * a < c * a, r * a, c * a), False),
    "where of the larger": (lambda r, c, a: torch.where(r * a > c * a, r * a, c * a), True),
    "relu": (lambda r, _, a: r * a - a.relu() * (r - 1.2).relu() - (-a).relu() * (0.8 - r).relu(), False),
    "relu of the larger": (lambda r, _, a: r * a + (-a).relu() * (r - 1.2).relu() + a.relu() * (0.8 - r).relu(), True),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_gradient_shows_which_gain_the_surrogate_takes(session, name):
    choose, larger = CHOICES[name]
    torch.manual_seed(0)
    theta, old, adv = torch.randn(64, requires_grad=True), torch.randn(64), torch.randn(64)
    ratio = (theta * 1.0 - old).exp()
    clipped = torch.where(ratio > 1.2, torch.full_like(ratio, 1.2), torch.where(ratio < 0.8, 0.8, ratio))
    assert seen(session, -choose(ratio, clipped, adv).mean()).takes_larger is larger


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cost_with_the_same_ratio_does_not_hide_the_sign(session, sign):
    torch.manual_seed(0)
    theta, old = torch.randn(64, requires_grad=True), torch.randn(64)
    adv, cost = torch.randn(64), torch.randn(64)
    ratio = (theta * 1.0 - old).exp()
    gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
    assert seen(session, 5 * (ratio * cost).mean() - sign * gain.mean()).pull * sign > 0.9


def test_the_old_log_probs_of_a_ratio_with_a_stopped_gradient_are_not_the_new(session):
    theta, adv = torch.randn(8, 4, requires_grad=True), torch.randn(8, 1)
    new, old = theta * 1.0, theta.detach() + 0.1
    of_sequences = (new - old).mean(-1, keepdim=True).detach()
    ratio = (new - new.detach() + of_sequences).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    assert not seen(session, loss).same_memory


def test_a_clipped_weight_without_a_gradient_is_no_lost_ratio(session):
    theta, old, adv = torch.randn(8, requires_grad=True), torch.randn(8), torch.randn(8)
    new = theta * 1.0
    weight = (new.detach() - old).exp().clamp(0.8, 1.2)
    (-(adv * weight * new).mean()).backward()
    assert not session.step.dead_clamps
    clipped = (new.detach() - old).exp().clamp(0.8, 1.2)
    ((theta * 2).mean() - (clipped * adv).mean()).backward()
    assert session.step.dead_clamps


def test_padding_does_not_count(session, batch):
    found = seen(session, loss_of(**batch))
    ratio = (batch["theta"].detach() - batch["old"]).exp()
    live = ratio[batch["mask"] > 0]
    assert found.largest == pytest.approx(float((live - 1).abs().max()), rel=1e-5)
    assert float(ratio.max()) > 100  # of the padding


def test_the_product_shows_broadcasting(session):
    new, old, adv = torch.randn(8, requires_grad=True), torch.randn(8), torch.randn(8, 1)
    assert seen(session, ((new * 1.0 - old).exp() * adv).mean()).broadcast == 8
    tokens = torch.randn(8, 5, requires_grad=True)
    old = torch.randn(8, 5)
    assert seen(session, ((tokens * 1.0 - old).exp() * adv).mean()).broadcast == 1


def test_old_log_probs_are_traced_to_the_line_that_computed_them(session):
    theta = torch.randn(16, requires_grad=True)
    with torch.no_grad():
        old = torch.log_softmax(theta, 0)  # the first line
    stored = torch.from_numpy(old.numpy().copy())[:, None].flatten()
    with torch.no_grad():
        torch.log_softmax(theta + 1.0, 0)
        adv = torch.randn(16)
    found = seen(session, -((torch.log_softmax(theta, 0) - stored).exp() * adv).mean())
    assert "the first line" in session.places.resolve(found.origin.stack).text()
    assert (found.origin.first, found.origin.graded) == (0, False)
    assert not found.same_memory


def test_old_log_probs_in_the_memory_of_the_new_are_known(session):
    theta, adv = torch.randn(16, requires_grad=True), torch.randn(16)
    new = torch.log_softmax(theta, 0)
    found = seen(session, -((new - new.detach()).exp() * adv).mean())
    assert (found.same_memory, found.largest) == (True, 0)


def test_a_steep_operation_is_named_by_its_line(session):
    from ppo_doctor.record.script.graph import loss_graph
    from ppo_doctor.record.script.ratios import steep

    distance = torch.zeros(3, requires_grad=True)
    root = (distance * 1.0).sqrt().sum()  # an infinite derivative
    assert "infinite" in session.places.resolve(steep(loss_graph(root))).text()
    assert steep(loss_graph(((distance + 1.0) * 1.0).sqrt().sum())) == ()


SHARED = """
import torch

torch.manual_seed(1)
trunk = torch.nn.Linear(4, 8)
actor, spread, critic = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
weights = [*trunk.parameters(), *actor.parameters(), *spread.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(weights, lr=0.01)


def forward(obs):
    features = trunk(obs).tanh()
    policy = torch.distributions.Normal(actor(FOR_ACTOR), spread(FOR_SPREAD).exp())
    return policy, critic(FOR_CRITIC)[:, 0]


for update in range(UPDATES):
    with torch.no_grad():
        obs = torch.randn(32, 4)
        actions = forward(obs)[0].sample()
        old = forward(obs)[0].log_prob(actions)[:, 0]
        advantages, returns = torch.randn(32), torch.randn(32)
    for rows in torch.randperm(32).split(8):
        policy, values = forward(obs[rows])
        ratio = (policy.log_prob(actions[rows])[:, 0] - old[rows]).exp()
        gains = advantages[rows]
        loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
        loss = loss + (values - returns[rows]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "actor, spread, critic, share",
    [
        ("features.detach()", "features.detach()", "features", 40 / 58),
        ("features[:].detach() * 1.0", "features.detach()", "features", 40 / 58),
        ("features", "features.detach()", "features", 0),
        ("features", "features", "features.detach()", 0),
        ("features.detach()", "features.detach()", "obs.repeat(1, 2)", 0),
        ("features", "features", "features", 0),
    ],
    ids=["cut", "cut on the way", "spread only", "critic on purpose", "critic apart", "nothing"],
)
def test_weights_of_the_policy_that_only_the_value_loss_trains(tmp_path, actor, spread, critic, share):
    text = SHARED.replace("FOR_ACTOR", actor).replace("FOR_SPREAD", spread).replace("FOR_CRITIC", critic)
    seen = observed(text, tmp_path, 2)
    assert seen.values("policy_gradient_cut") == pytest.approx([share] * 2)
    assert ("policy_gradient_cut" in seen.places) == (share > 0)
