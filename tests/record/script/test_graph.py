"""The ratio, its clip and its advantages are found in the autograd graph, however the loss is written."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.graph import leaves, loss_graph  # noqa: E402

N, LENGTH = 6, 5


@pytest.fixture
def batch():
    torch.manual_seed(0)
    theta = torch.randn(N, LENGTH, requires_grad=True)
    old = (theta + 0.3 * torch.randn(N, LENGTH)).detach()
    mask = (torch.arange(LENGTH) < torch.tensor([5, 4, 3, 5, 2, 5])[:, None]).float()
    return {"new": theta * 1.5, "old": old, "adv": torch.randn(N, LENGTH), "mask": mask, "row": torch.randn(N, 1)}


def clipped(ratio, adv):
    return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)


def masked(loss, mask):
    return (loss * mask).sum() / mask.sum()


def with_k3(new, old, adv, mask, **_):
    k3 = (old - 0.1 - new).exp() - (old - 0.1 - new) - 1
    return masked(clipped((new - old).exp(), adv) + 0.04 * k3, mask)


def of_sequences(new, old, row, mask, **_):
    mean = ((new - old) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return clipped(mean.exp(), row).mean()


def of_sequences_per_token(new, old, row, mask, **_):
    mean = ((new - old) * mask).sum(-1) / mask.sum(-1)
    ratio = (new - new.detach() + mean.detach().unsqueeze(-1)).exp()
    return masked(clipped(ratio, row), mask)


#: How a loss is written → its text.
LOSSES = {
    "exp of a difference": lambda new, old, adv, **_: clipped((new - old).exp(), adv).mean(),
    "torch.exp, in two lines": lambda new, old, adv, **_: clipped(torch.exp(torch.sub(new, old)), adv).mean(),
    "tensors as bounds": lambda new, old, adv, **_: (
        -torch.stack([(r := (new - old).exp()) * adv, r.clamp(torch.tensor(0.8), torch.tensor(1.2)) * adv]).amin(0)
    ).mean(),
    "negative difference": lambda new, old, adv, **_: clipped((-(old - new)).exp(), adv).mean(),
    "product of ratios": lambda new, old, row, **_: clipped((new - old).exp().prod(-1), row[:, 0]).mean(),
    "quotient": lambda new, old, adv, **_: clipped(new.exp() / old.exp(), adv).mean(),
    "bounded difference": lambda new, old, adv, **_: clipped((new - old).clamp(-20, 20).exp(), adv).mean(),
    "negative advantages, max": lambda new, old, adv, **_: torch.max(
        -adv * (r := (new - old).exp()), -adv * r.clamp(0.8, 1.2)
    ).mean(),
    "tokens, mask and mean": lambda new, old, adv, mask, **_: masked(clipped((new - old).exp(), adv), mask),
    "one advantage per answer": lambda new, old, row, mask, **_: masked(clipped((new - old).exp(), row), mask),
    "with a k3 penalty": with_k3,
    "sequences": of_sequences,
    "sequences per token": of_sequences_per_token,
    "summed log-probs": lambda new, old, row, **_: clipped((new.sum(-1) - old.sum(-1)).exp(), row[:, 0]).mean(),
    "torch.where for min": lambda new, old, adv, **_: -torch.where(
        (a := (r := (new - old).exp()) * adv) < (b := r.clamp(0.8, 1.2) * adv), a, b
    ).mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_one_ratio_is_found_with_its_clip_and_advantages(batch, name):
    ratios = loss_graph(LOSSES[name](**batch)).ratios()
    assert len(ratios) == 1
    found = ratios[0]
    assert found.bounds == pytest.approx((0.8, 1.2))
    assert not found.both_graded
    assert found.sense == 1
    assert sorted(found.factor.abs().reshape(-1).tolist()) in [
        pytest.approx(sorted(batch[each].abs().reshape(-1).tolist())) for each in ("adv", "row")
    ]


def test_values_are_those_of_the_script(batch):
    ratio = (batch["new"] - batch["old"]).exp()
    found = loss_graph(clipped(ratio, batch["adv"]).mean()).ratios()[0]
    assert torch.equal(found.values, ratio)


def test_an_unclipped_ratio_is_found_and_a_penalty_is_not_taken_for_one(batch):
    new, old, mask = batch["new"], batch["old"], batch["mask"]
    found = loss_graph(((new - old).exp() * batch["adv"]).mean()).ratios()
    assert [each.bounds for each in found] == [None]
    k3 = (old - new).exp() - (old - new) - 1
    assert loss_graph(masked(k3, mask)).ratios() == []
    assert loss_graph(-(new * batch["adv"]).mean()).ratios() == []
    assert loss_graph(torch.zeros(())) is None


def test_old_over_new_and_two_graded_sides_are_told(batch):
    inverted = loss_graph(clipped((batch["old"] - batch["new"]).exp(), batch["adv"]).mean()).ratios()[0]
    assert inverted.sense == -1
    both = loss_graph(clipped((batch["new"] - 0.5 * batch["new"]).exp(), batch["adv"]).mean()).ratios()[0]
    assert both.both_graded


@pytest.mark.parametrize(
    ("choose", "operation", "flips"),
    [
        (lambda a, b: -torch.min(a, b), "Minimum", 0),
        (lambda a, b: -torch.max(a, b), "Maximum", 0),
        (lambda a, b: torch.max(-a, -b), "Maximum", 1),
        (lambda a, b: torch.max(a * -1.0, b * -1.0), "Maximum", 1),
    ],
)
def test_what_is_taken_of_the_two_products_is_told(batch, choose, operation, flips):
    ratio = (batch["new"] - batch["old"]).exp()
    loss = choose(ratio * batch["adv"], ratio.clamp(0.8, 1.2) * batch["adv"])
    found = loss_graph(loss.mean()).ratios()[0]
    assert found.selection.name().startswith(operation)
    assert found.flips % 2 == flips


def test_squared_errors_whose_target_has_a_gradient_are_found(batch):
    values, target = batch["new"].sum(-1), batch["row"][:, 0]
    for loss in (lambda a, b: (a - b).pow(2).mean(), torch.nn.functional.mse_loss, torch.nn.functional.smooth_l1_loss):
        assert loss_graph(loss(values, target)).squared_differences() == []
        assert len(loss_graph(loss(values, target + 0.9 * values)).squared_differences()) == 1


def test_the_parameters_that_a_ratio_depends_on_are_found():
    one, two, other = (torch.nn.Parameter(torch.randn(3)) for _ in range(3))
    loss = (one.tanh() * two).sum() + other.sum()
    assert leaves((one.tanh() * two).sum().grad_fn) == {id(one), id(two)}
    assert leaves(loss.grad_fn) == {id(one), id(two), id(other)}
