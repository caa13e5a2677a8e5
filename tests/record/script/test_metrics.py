"""Metrics of an update are computed from its observed steps."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.graph import RatioNodes  # noqa: E402
from ppo_doctor.record.script.metrics import Batch, UpdateSeen, numbers_of  # noqa: E402
from ppo_doctor.record.script.steps import Inputs, RatioSeen, Step  # noqa: E402
from tests.record.script.training import changed, observed  # noqa: E402

ENTRY = 1
ROLLOUT = range(100, 132)


def step(rows=(), rollout=(), **fields):
    """Return a step that trained on some samples after a rollout of others."""
    found = Step(0, **fields)
    sides = ((rollout, False), (rows, True))
    found.inputs = [
        Inputs(ENTRY, np.array(list(each), np.int64), graded, (), tokens=False, width=1, memory=(0, 0))
        for each, graded in sides
        if len(each)
    ]
    return found


def update(*steps, **known):
    """Return the metrics of an update with these steps."""
    unknown = {"moved": {}, "matched": None, "ungraded": None, "frozen": None, "alias": None}
    rest = {"number": 2, "policy": frozenset(), "entries": {ENTRY}, "before": Batch(), "rollouts": ()}
    return numbers_of(UpdateSeen(steps=steps, **{**unknown, **rest, **known}))


def minibatches(*ranges, **known):
    first, *others = ranges
    return update(step(first, ROLLOUT), *map(step, others), **known)


def test_passes_over_the_same_samples_are_counted():
    halves = [range(100, 116), range(116, 132)]
    assert minibatches(*halves)["passes"] == 1
    assert minibatches(*halves, *halves, *halves)["passes"] == 3
    assert "passes" not in minibatches(*halves, halves[0])  # ended early
    assert "passes" not in minibatches(*halves, whole=False)


def test_passes_over_inputs_that_are_normalised_anew_are_not_counted():
    steps = step(range(100, 116), ROLLOUT), step(range(216, 232), normalised_at=((step.__code__, 1),))
    assert "passes" not in update(*steps)


def test_samples_that_the_network_cannot_tell_apart_show_nothing():
    numbers = update(step([7] * 16, ROLLOUT), step([7] * 16))
    assert not numbers.keys() & {"passes", "rollouts_behind", "inputs_unseen", "minibatches_alike"}


def test_the_rollout_that_is_trained_on_is_known():
    assert minibatches(range(100, 116))["rollout_trained"] == 0.5
    assert minibatches(ROLLOUT)["rollouts_behind"] == 0
    older = {"rollouts": (frozenset(range(200, 232)), frozenset(range(300, 332)))}
    assert minibatches(range(300, 316), **older)["rollouts_behind"] == 1
    assert minibatches(range(200, 216), **older)["rollouts_behind"] == 2
    other = minibatches(range(400, 416), **older)
    assert "rollouts_behind" not in other
    assert other["inputs_unseen"] == 1


def test_batches_and_minibatches_that_repeat_are_known():
    before = frozenset(range(100, 108))
    assert minibatches(range(100, 116), before=Batch(dict.fromkeys(before, 1)))["samples_trained_before"] == 0.5
    assert minibatches(range(100, 116), range(116, 132))["minibatches_alike"] == 0
    assert minibatches(range(100, 116), range(100, 116), range(100, 116))["minibatches_alike"] == 1
    assert "minibatches_alike" not in minibatches(ROLLOUT, ROLLOUT)  # a minibatch is the whole batch


def test_samples_that_share_an_input_are_left_out_of_the_count():
    twice, batch = [*range(100, 124), *[200] * 8], [*range(100, 116)]
    assert update(step(twice, twice), step(twice), step(twice))["passes"] == 3
    assert update(step(twice, [*twice, *twice]), step(twice))["passes"] == 2  # old log-probs are computed again
    assert update(step(batch, twice), step([*range(116, 124), *[200] * 8]))["passes"] == 1


TARGETS = np.arange(16, dtype=np.int32)


@pytest.mark.parametrize(("made", "passes"), [(0, 1), (None, 1), (1, None)])
def test_samples_with_equal_inputs_are_told_by_targets_that_were_stored(made, passes):
    steps = [step([7] * 16, [7] * 32, targets=[TARGETS + 16 * n], targets_made=made if n else None) for n in (0, 1)]
    steps[1].inputs = steps[1].inputs[1:]
    assert update(*steps).get("passes") == passes


def test_clipping_counts_as_late_only_between_a_step_and_the_next_backward_pass():
    late = [("clip", ()), ("backward", ())]
    early = late[::-1]
    assert update(step(events=early), step(events=early))["clip_after_step"] == 0
    assert update(step(events=early[:1]), step(events=late), step(events=late))["clip_after_step"] == 1
    both = {"events": [*late, ("clip", ())], "clipped_before": True}
    assert update(step(**both), step(**both))["clip_after_step"] == 0


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [((), (2.0,), 2.0), ((2.0,), (2.0,), 1.0), ((2.0,), (), 1.0), ((), (), None)],
)
def test_a_temperature_is_a_divisor_of_logits_that_only_sampling_has(inside, outside, expected):
    text = step(ROLLOUT, logits=3)
    text.ratios = [RatioSeen(RatioNodes(None, None))]
    text.divisors = {True: {(3, each): () for each in inside}, False: {(3, each): () for each in outside}}
    assert update(text).get("sampling_temperature") == expected
    text.logits = 5  # a division of something else
    assert update(text).get("sampling_temperature") in (None, 1.0)


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [({3: ()}, {3: ("line",)}, 1), ({3: ("line",)}, {3: ("line",)}, 0), ({3: ()}, {}, None), ({3: ()}, {3: ()}, 0)],
)
def test_a_mask_is_looked_for_with_gradients_and_without(inside, outside, expected):
    text = step(ROLLOUT, logits=3, masked={True: inside, False: outside})
    text.ratios = [RatioSeen(RatioNodes(None, None))]
    assert update(text).get("logits_masked_apart") == expected


PROMPTS = np.repeat(np.arange(4), 4)
SEQUENCES = np.stack([PROMPTS, PROMPTS + 9, np.arange(16)], 1)
CENTRED = np.float32([-3, -1, 1, 3] * 4) * np.float32([1, 2, 3, 4]).repeat(4)


@pytest.mark.parametrize(
    ("order", "computed", "expected"),
    [
        (np.arange(16), CENTRED, 0.0),
        (np.random.default_rng(0).permutation(16), CENTRED, 1.0),
        (np.arange(16).reshape(4, 4).T.reshape(-1), CENTRED, 1.0),
        (np.arange(16), CENTRED + 1, None),  # a critic's
    ],
    ids=["the same order", "shuffled", "transposed", "not centred"],
)
def test_advantages_are_centred_over_the_sequences_of_a_prompt(order, computed, expected):
    steps = [step(range(8)), step(range(8, 16))]
    for n, each in enumerate(steps):
        half = slice(8 * n, 8 * n + 8)
        each.inputs[-1].sequences = SEQUENCES[half]
        each.ratios = [RatioSeen(RatioNodes(None, None), advantages=computed[order][half], computed=(computed, ()))]
    assert update(*steps).get("advantages_off_prompts") == expected


def test_modes_of_normalisation_and_dropout_are_compared():
    alike = step(batch_norm={True: {False}, False: {False}})
    differ = step(batch_norm={True: {True}, False: {False}})
    assert update(alike)["modes_differ"] == 0
    assert update(alike, differ)["modes_differ"] == 1
    assert "modes_differ" not in update(step(batch_norm={True: {True}, False: set()}))
    dropped = step()
    dropped.dropout[True] += 1
    assert update(dropped)["dropout_active"] == 1
    assert "dropout_active" not in update(step())


def test_shares_of_weights_are_written_where_they_are_known():
    numbers = update(step(), matched=0.75, frozen=0.5, moved={"update_norm": 2.0})
    assert (numbers["optimizer_params_matched"], numbers["weights_unheld"]) == (0.75, 0.25)
    assert (numbers["weights_frozen"], numbers["update_norm"]) == (0.5, 2.0)
    assert "weights_without_gradient" not in numbers


FEW = ("obs = torch.randn(32, 4)", "seen = torch.eye(4)[torch.randint(4, (32,))]")
ACT = ("actions = torch.multinomial(torch.softmax(obs @", "chosen = torch.multinomial(torch.softmax(seen @")
NEW = ("        old = log_prob", "        obs, actions = seen, chosen\n        old = log_prob")
FIRST = (
    "        old = log_prob",
    "        if not update:\n            obs, actions = seen, chosen\n        old = log_prob",
)
STORED = ("        returns = torch.randn(32)", "        if not update:\n            returns = torch.randn(32)")


@pytest.mark.parametrize(
    "changes, expected",
    [
        ([FEW, ACT, FIRST, STORED], [1]),
        ([FEW, ACT, NEW], []),
        ([FEW, ACT, NEW, STORED], []),  # other samples, though with the same value targets
        ([FEW, ACT, FIRST], []),  # the same inputs, though with new value targets
    ],
    ids=["first batch", "new batches", "same targets", "same inputs"],
)
def test_a_batch_is_known_again_though_its_inputs_are_few(tmp_path, changes, expected):
    assert observed(changed(*changes), tmp_path, 3).values("samples_trained_before") == expected


def test_the_same_batch_from_a_rollout_like_it_shows_nothing(tmp_path):
    same = (FEW[0], "seen = torch.eye(4)[torch.arange(32) % 4]")
    assert not observed(changed(same, ACT, FIRST, STORED), tmp_path, 3).values("samples_trained_before")


ENVS, TIMES = 8, 16
GAE = (
    ("32, 4)", f"{ENVS * TIMES}, 4)"),
    ("advantages = torch.randn(32)", f"rewards = torch.randn({TIMES}, {ENVS})"),
    ("returns = torch.randn(32)", "returns = rewards.flatten() + (obs @ critic)[:, 0]\n        ADVANTAGES"),
    ("torch.randperm(32)", f"torch.randperm({ENVS * TIMES})"),
)


@pytest.mark.parametrize(
    "advantages, expected",
    [
        ("rewards.flatten()", [0, 0]),
        ("rewards.t().flatten()", [1, 1]),
        ("torch.randn(rewards.numel())", [0, 0]),
    ],
    ids=["the same order", "environments first", "unrelated"],
)
def test_advantages_in_the_order_of_the_transposed_batch(tmp_path, advantages, expected):
    text = changed(*GAE).replace("ADVANTAGES", f"advantages = {advantages}")
    assert observed(text, tmp_path, 2).values("advantages_transposed") == expected
