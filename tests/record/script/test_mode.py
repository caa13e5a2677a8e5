"""Operations of a script are followed: what comes from a network, what enters one, what is new."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")
from torch.nn import functional as F  # noqa: E402, N812

from ppo_doctor.record.script.indices import COORDINATES  # noqa: E402
from ppo_doctor.record.script.mode import indexed, sign_changes  # noqa: E402


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.randn(3, 4))


def text_of(session, stack):
    return session.places.resolve(stack).text()


def test_what_comes_from_parameters_is_told_from_data(session, weight):
    data = torch.randn(2, 4)
    with torch.no_grad():
        logits = F.linear(data, weight)
        probs = torch.softmax(logits, -1) * 2.0
    assert session.operations.from_network(probs)
    assert not session.operations.from_network(data * 2.0)


def test_samples_drawn_from_a_network_are_a_rollout(session, weight):
    torch.multinomial(torch.ones(3), 1)
    torch.nn.functional.dropout(F.linear(torch.randn(2, 4), weight))
    assert not session.step.sampled
    with torch.no_grad():
        torch.multinomial(F.linear(torch.randn(2, 4), weight).softmax(-1), 1)  # the draw
    assert session.step.sampled
    assert "the draw" in text_of(session, session.step.sampled_at)


def test_data_that_enter_a_network_are_one_number_per_sample(session, weight):
    data = torch.randn(5, 4)
    F.linear(data, weight)
    with torch.no_grad():
        F.linear(data[[3, 1]], weight)
        data @ weight.T
    first, second = session.step.inputs[:2]
    assert (first.graded, second.graded) == (True, False)
    assert len(set(first.rows.tolist())) == 5
    assert second.rows.tolist() == first.rows[[3, 1]].tolist()
    assert session.operations.entries == {id(weight)}


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (torch.arange(12).reshape(3, 4), 3),
        (torch.randn(3, 2, 8, 8), 3),
        (torch.randn(3, 7 * COORDINATES), 3),
        (torch.randn(6), 1),
    ],
)
def test_tokens_images_and_long_vectors_have_a_number_per_sample(session, data, samples):
    if not data.is_floating_point():
        F.embedding(data, torch.nn.Parameter(torch.randn(20, 2)))
    elif data.dim() == 4:
        F.conv2d(data, torch.nn.Parameter(torch.randn(1, 2, 3, 3)))
    else:
        F.linear(data, torch.nn.Parameter(torch.randn(1, data.shape[-1])))
    assert len(set(session.step.inputs[0].rows.tolist())) == samples


def test_inner_layers_are_no_entry(session, weight):
    head = torch.nn.Parameter(torch.randn(2, 3))
    F.linear(F.linear(torch.randn(5, 4), weight).tanh(), head)
    assert [each.weight for each in session.step.inputs] == [id(weight)]


def test_layers_behind_frozen_ones_are_known(session):
    body, head = torch.nn.Parameter(torch.randn(3, 4), requires_grad=False), torch.nn.Parameter(torch.randn(1, 3))
    F.linear(F.linear(torch.randn(5, 4), body).relu(), head)
    assert session.operations.frozen_share() == pytest.approx(12 / 15)
    assert session.operations.entries == set()


def test_a_trunk_that_is_detached_is_named_by_its_line(session, weight):
    head = torch.nn.Parameter(torch.randn(1, 3))
    features = F.linear(torch.randn(5, 4), weight).detach()  # cut off
    F.linear(features, head)
    assert "cut off" in text_of(session, session.operations.cut_off({id(weight)}))


def test_dropout_normalisation_and_temperature_are_noted(session, weight):
    logits = F.linear(torch.randn(5, 4), weight)
    F.dropout(logits, 0.5, training=True)
    F.dropout(logits, 0.5, training=False)
    F.dropout(logits, 0.0, training=True)
    F.batch_norm(torch.randn(4, 2), None, None, training=True)
    with torch.no_grad():
        F.batch_norm(torch.randn(4, 2), torch.zeros(2), torch.ones(2))
        F.linear(torch.randn(5, 4), weight) / 0.7
        torch.randn(5, 3) / 3.0
    step = session.step
    assert (step.dropout[True], step.dropout[False]) == (1, 0)
    assert step.batch_norm == {True: {True}, False: {False}}
    assert list(step.divisors[False]) == [(3, 0.7)]


def test_the_first_operation_that_makes_a_number_not_one_is_named(session):
    values = torch.tensor([1.0, -1.0])
    values.log()  # the first
    (values.log() + 1).exp()  # a later one
    torch.tensor([float("nan")]) * 2
    assert "the first" in text_of(session, session.operations.odd.not_finite)


def test_nan_from_outside_is_named_where_it_enters(session):
    rewards = torch.as_tensor(np.array([1.0, np.nan]))  # outside
    (rewards * 2).exp()
    assert "outside" in text_of(session, session.operations.odd.not_finite)


def test_clamps_with_and_without_gradient_are_told_apart(session):
    ratio = torch.ones(3)
    ratio.clamp(0.8, 1.2)  # dead
    (ratio.requires_grad_() * 1.0).clamp(0.8, 1.2)
    torch.clamp(ratio * 2.0, min=0.8, max=1.2)
    (ratio * 2.0).clamp(-10, 10)
    assert [text_of(session, stack)[-4:] for stack in session.step.dead_clamps] == ["dead"]
    assert len(session.step.clamps) == 2


def test_what_made_a_tensor_is_known_back_to_stored_data(session):
    with torch.no_grad():
        stored = torch.randn(8)
    advantages = -(stored[torch.tensor([2, 0, 1])] * 2.0)
    chain = session.operations.chain(advantages)
    assert [name for name, _, _ in chain] == ["neg", "mul", "__getitem__"]
    assert sign_changes(chain) == 1
    assert "stored[" in text_of(session, indexed([(name, stack) for name, stack, _ in chain]))
    assert indexed([]) == ()


def test_a_frozen_and_a_cast_parameter_are_named_by_their_lines(session, weight):
    weight.requires_grad_(False)  # frozen
    weight.to(torch.bfloat16)  # cast
    operations = session.operations
    assert "frozen" in text_of(session, operations.cut_off({id(weight)}))
    assert "cast" in text_of(session, operations.cast_at)


def test_operations_return_what_they_return_without(session, weight):
    session._rest()
    assert not session.observing
    torch.manual_seed(0)
    plain = F.dropout(F.linear(torch.randn(3, 4), weight)).exp().split(1)
    session._observe()
    torch.manual_seed(0)
    seen = F.dropout(F.linear(torch.randn(3, 4), weight)).exp().split(1)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))


def test_the_line_that_made_a_column_is_known_though_memory_is_used_again(session):
    for _ in range(20):
        torch.arange(8)[:, None].clone()  # another column, whose memory is free again
        with torch.no_grad():
            stored = torch.randn(8)
        column = (stored * 1.0).unsqueeze(-1)  # the column
        chosen = column[torch.arange(4)]
        chain = session.operations.chain(chosen)
        assert text_of(session, session.operations.column(chain, chosen)).endswith("# the column")
