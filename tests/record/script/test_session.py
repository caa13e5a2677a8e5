"""A session measures a PPO loop and names the line of its fault, and changes nothing about the training."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")


from .training import SOUND, changed, marked_lines, observe  # noqa: E402


@dataclass(frozen=True)
class Fault:
    """Changes of the sound script, a metric that shows them with the values it has then."""

    changes: tuple[tuple[str, str], ...]
    metric: str
    low: float
    high: float


NEW = "new = log_prob(obs[rows], actions[rows])"
OLD = "ratio = (new - old[rows]).exp()"
SURROGATE = "torch.min(ratio * advantages[rows], clipped * advantages[rows])"
RECOMPUTED = """with torch.no_grad():
                before = log_prob(obs[rows], actions[rows])  # here
            ratio = (new - before).exp()"""
PER_EPOCH = """n_epochs):
        with torch.no_grad():
            old = log_prob(obs, actions)  # here
"""
CLIPPING = "            torch.nn.utils.clip_grad_norm_([weights, bias, critic], 1.0)\n            optimizer.step()"
CLIPPED_LATE = """            optimizer.step()
            torch.nn.utils.clip_grad_norm_([weights, bias, critic], 1.0)  # here"""
FAULTS = {
    "old log-probs per minibatch": Fault(((OLD, RECOMPUTED),), "repeated_ratio_dev", 0, 1e-6),
    "old log-probs per epoch": Fault((("n_epochs):\n", PER_EPOCH),), "epoch_start_ratio_dev", 0, 1e-6),
    "old log-probs with gradient": Fault(
        ((OLD, "before = log_prob(obs[rows], actions[rows])  # here\n            ratio = (new - before).exp()"),),
        "old_log_prob_with_gradient",
        1,
        1,
    ),
    "loss of the wrong sign": Fault(
        (("loss = -surrogate.mean()", "loss = surrogate.mean()"), (SURROGATE, f"{SURROGATE}  # here")),
        "policy_pull",
        -1.001,
        -0.9,
    ),
    "old over new": Fault(((OLD, "ratio = (old[rows] - new).exp()  # here"),), "policy_pull", -1.001, -0.9),
    "max for min": Fault(((SURROGATE, f"{SURROGATE.replace('min', 'max')}  # here"),), "surrogate_takes_larger", 1, 1),
    "advantages as a column": Fault(
        (
            ("surrogate = ", "column = advantages[rows].unsqueeze(-1)  # here\n            surrogate = "),
            (SURROGATE, "torch.min(ratio * column, clipped * column)"),
        ),
        "surrogate_broadcast",
        16,
        16,
    ),
    "clip bounds swapped": Fault((("clamp(0.8, 1.2)", "clamp(1.2, 0.8)  # here"),), "clip_bounds_swapped", 1, 1),
    "clip computed and unused": Fault(
        ((SURROGATE, "ratio * advantages[rows]"), ("clamp(0.8, 1.2)", "clamp(0.8, 1.2)  # here")), "clip_unused", 1, 1
    ),
    "new log-probs detached": Fault(
        (
            (OLD, "ratio = (new.detach() - old[rows]).exp()"),
            ("clamp(0.8, 1.2)", "clamp(0.8, 1.2)  # here"),
        ),
        "ratio_without_gradient",
        1,
        1,
    ),
    "gradients clipped after the step": Fault(((CLIPPING, CLIPPED_LATE),), "clip_after_step", 1, 1),
    "gradients left over": Fault(
        (("            optimizer.zero_grad()\n", ""), ("loss.backward()", "loss.backward()  # here")),
        "gradients_left_over",
        1,
        1,
    ),
    "a part in no optimizer": Fault(
        (("SGD([weights, bias, critic], lr=0.3)", "SGD([bias, critic], lr=0.3)  # here"),), "weights_unheld", 0.5, 0.9
    ),
    "learning rate 0": Fault((("lr=0.3)", "lr=0.0)  # here"),), "learning_rate", 0, 0),
    "one epoch of two": Fault(
        (
            ("n_epochs):", "n_epochs):  # here"),
            ("            optimizer.step()", "            optimizer.step()\n        break"),
        ),
        "passes",
        1,
        1,
    ),
    "the same minibatch each time": Fault(
        (("new = log_prob(obs[rows], actions[rows])", f"rows = torch.arange(16)\n            {NEW}  # here"),),
        "minibatches_alike",
        1,
        1,
    ),
    "sampling temperature": Fault(
        (
            ("torch.softmax(obs @ weights + bias, -1)", "torch.softmax((obs @ weights + bias) / 2.0, -1)"),
            (", 1)[:, 0]\n", ", 1)[:, 0]  # here\n"),
        ),
        "sampling_temperature",
        2,
        2,
    ),
    "advantages of other samples": Fault(
        (
            ("advantages[rows], clipped", "chosen, clipped"),
            ("clipped * advantages[rows]", "clipped * chosen"),
            ("surrogate = ", "chosen = advantages[torch.randperm(64)[:16]]  # here\n            surrogate = "),
        ),
        "advantage_repeat_corr",
        -0.6,
        0.6,
    ),
    "value target with gradient": Fault(
        (
            ("(values - returns[rows])", "(values - target)"),
            (
                "value_loss = ",
                "target = returns[rows] + 0.9 * (obs[rows] @ critic)[:, 0]  # here\n            value_loss = ",
            ),
        ),
        "value_target_with_gradient",
        1,
        1,
    ),
    "values as a column": Fault(
        (("(obs[rows] @ critic)[:, 0]", "obs[rows] @ critic"), (".pow(2).mean()", ".pow(2).mean()  # here")),
        "value_broadcast",
        16,
        16,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_measured_and_its_line_named(tmp_path, name):
    fault = FAULTS[name]
    text = changed(*fault.changes)
    seen = observe(text, tmp_path, updates=2)
    values = seen.values(fault.metric)
    assert values
    assert all(fault.low <= value <= fault.high for value in values), values
    assert [seen.places[fault.metric]["line"]] == marked_lines(text)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return observe(SOUND, tmp_path_factory.mktemp("sound"), updates=5)


@pytest.mark.parametrize("name", FAULTS)
def test_a_sound_loop_shows_no_fault(sound, name):
    fault = FAULTS[name]
    values = sound.values(fault.metric)
    assert values or fault.metric == "sampling_temperature"
    assert not any(fault.low <= value <= fault.high for value in values), values
