"""A session measures a PPO loop and names the line of its fault, and changes nothing about the training."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script import updates as division  # noqa: E402

from .training import SOUND, changed, compiled, marked_lines, observed, read  # noqa: E402


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
    "old log-probs out of the same pass": Fault(
        ((OLD, "before = new.detach()  # here\n            ratio = (new - before).exp()"),),
        "repeated_ratio_dev",
        0,
        1e-6,
    ),
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
        ((OLD, "ratio = (new.detach() - old[rows]).exp()  # here"),),
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
        (("            optimizer.step()", "            optimizer.step()\n        break  # here"),), "passes", 1, 1
    ),
    "a break in any case": Fault(
        (("            optimizer.step()", "            optimizer.step()\n        break  # here"),),
        "loop_left_early",
        1,
        1,
    ),
    "one iterator for all epochs": Fault(
        (
            ("    for epoch in", "    minibatches = iter(torch.randperm(32).split(16))  # here\n    for epoch in"),
            ("torch.randperm(32).split(16):", "minibatches:"),
        ),
        "passes",
        1,
        1,
    ),
    "the same minibatch each time": Fault(
        (("new = log_prob(obs[rows], actions[rows])", f"rows = torch.arange(16)  # here\n            {NEW}"),),
        "minibatches_alike",
        1,
        1,
    ),
    "sampling temperature": Fault(
        (
            ("torch.softmax(obs @ weights + bias, -1)", "torch.softmax((obs @ weights + bias) / 2.0, -1)"),
            ("gather(1, actions[:, None])[:, 0]", "gather(1, actions[:, None])[:, 0]  # here"),
        ),
        "sampling_temperature",
        2,
        2,
    ),
    "advantages of other samples": Fault(
        (
            ("advantages[rows], clipped", "chosen, clipped"),
            ("clipped * advantages[rows]", "clipped * chosen"),
            ("surrogate = ", "chosen = advantages[torch.randperm(32)[:16]]  # here\n            surrogate = "),
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
    "value target by a function": Fault(
        (
            (
                "n_epochs = 2\n",
                "n_epochs = 2\n\n\ndef led(obs, returns):\n    return returns + 0.9 * (obs @ critic)[:, 0]\n",
            ),
            ("values - returns[rows]", "values - target"),
            ("value_loss = ", "target = led(obs[rows], returns[rows])  # here\n            value_loss = "),
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
    seen = observed(text, tmp_path, 2)
    values = seen.values(fault.metric)
    assert values
    assert all(fault.low <= value <= fault.high for value in values), values
    assert [seen.places[fault.metric]["line"]] == marked_lines(text)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return observed(SOUND, tmp_path_factory.mktemp("sound"), 5)


@pytest.mark.parametrize("name", FAULTS)
def test_a_sound_loop_shows_no_fault(sound, name):
    fault = FAULTS[name]
    values = sound.values(fault.metric)
    assert values or fault.metric == "sampling_temperature"
    assert not any(fault.low <= value <= fault.high for value in values), values


def ended(text, folder, updates):
    """Run a script without observation and return its variables."""
    variables = {"__name__": "__main__"}
    exec(compiled(text, folder, updates)[1], variables)  # noqa: S102 - the text of the tests
    return variables


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_weights_gradients_and_random_numbers_are_those_without(tmp_path, optimizer):
    text = changed(("SGD", optimizer), ("lr=0.3", "lr=0.01"))
    without = ended(text, tmp_path, 4)
    random = torch.get_rng_state()
    seen = observed(text, tmp_path, 4).variables
    assert torch.equal(torch.get_rng_state(), random)
    for name in ("weights", "bias", "critic"):
        assert torch.equal(seen[name], without[name])
        assert torch.equal(seen[name].grad, without[name].grad)
    assert torch.equal(seen["loss"], without["loss"])
    assert seen["optimizer"].state_dict()["state"].keys() == without["optimizer"].state_dict()["state"].keys()


def test_settings_and_sizes_are_found(sound):
    assert sound.config == {
        "n_epochs": 2,
        "max_grad_norm": 1.0,
        "clip_range": pytest.approx(0.2),
        "learning_rate": 0.3,
    }
    first = sound.records[0]
    assert (first["step"], first["update"], first["optimizer_steps"], first["passes"]) == (4, 1, 4, 2)
    assert first["batch_start_ratio_dev"] == pytest.approx(0, abs=1e-6)
    assert 0.05 < first["epoch_start_ratio_dev"] <= first["repeated_ratio_dev"]
    assert 0 <= first["clip_fraction"] < 1
    assert first["policy_pull"] == pytest.approx(1)
    assert (first["rollout_trained"], first["optimizer_params_matched"]) == (1, 1)
    assert sound.unseen == {}


NAN = (
    (
        "clipped = ratio.clamp",
        "ratio = ratio * (advantages[rows] - 9).log()  # here\n            clipped = ratio.clamp",
    ),
)
DROPOUT = (
    (
        "    return torch",
        "    obs = torch.nn.functional.dropout(obs, 0.5, torch.is_grad_enabled())  # here\n    return torch",
    ),
)
OLDER = (
    ("range(UPDATES):", "range(UPDATES):\n    batches = batches[-1:] if update else []"),
    (
        "    for epoch in",
        "    batches.append((obs, actions, old, advantages, returns))\n"
        "    obs, actions, old, advantages, returns = batches[0]  # here\n    for epoch in",
    ),
)
SAME = (("obs = torch.randn(32, 4)", "obs = obs if update else torch.randn(32, 4)  # here"),)
APART = (
    ("loss.backward()", "loss.backward()  # here"),
    (
        "SGD([weights, bias, critic], lr=0.3)",
        "SGD([weights, bias], lr=0.3)\nof_critic = torch.optim.SGD([critic], lr=0.3)",
    ),
    (" + 0.5 * value_loss", ""),
    ("            loss = ", "            value_loss.backward()\n            of_critic.step()\n            loss = "),
)
LEFT = (*APART, ("            optimizer.zero_grad()\n", ""))
SQUARE = (
    ("clipped * advantages[rows])", "clipped * advantages[rows])  # here"),
    ("(new - old[rows]).exp()", "(new - old[rows])[:, None].expand(16, 16).exp()"),
)
HALF = (
    ("(0.5 * torch.randn(4, 3))", "((0.5 * torch.randn(4, 3)).bfloat16())"),
    ("obs @ weights + bias, -1).gather", "obs @ weights.float() + bias, -1).gather"),
    ("obs @ weights + bias, -1), 1)", "obs @ weights.float() + bias, -1), 1)"),
    ("lr=0.3)", "lr=1e-5)  # here"),
)


@pytest.mark.parametrize(
    ("changes", "metric", "updates", "values"),
    [
        (NAN, "loss", 1, ["NaN"]),
        (DROPOUT, "dropout_active", 2, [1, 1]),
        (OLDER, "rollouts_behind", 2, [0, 1]),
        (SAME, "samples_trained_before", 2, [0, 1]),
        (HALF, "weights_rounded_away", 2, [1, 1]),
        (APART, "gradients_left_over", 2, [0, 0]),
        (LEFT, "gradients_left_over", 2, [0.75, 1]),
        (SQUARE, "surrogate_broadcast", 2, [16, 16]),
    ],
)
def test_faults_of_numbers_and_samples_are_measured(tmp_path, changes, metric, updates, values):
    text = changed(*changes)
    seen = observed(text, tmp_path, updates)
    assert seen.values(metric) == values
    assert [seen.places[metric]["line"]] == marked_lines(text)


SHARED = (
    ("    return torch.log_softmax(obs @ weights + bias, -1)", "    return torch.log_softmax(net(obs), -1)"),
    ("n_epochs = 2\n", "n_epochs = 2\nref = net  # here\n"),
    ("critic = ", "net = torch.nn.Linear(4, 3)\nweights, bias = net.weight, net.bias\ncritic = "),
    ("torch.softmax(obs @ weights + bias, -1)", "torch.softmax(net(obs), -1)"),
    (
        "        advantages = torch.randn(32)",
        "        scored = torch.log_softmax(ref(obs), -1).gather(1, actions[:, None])[:, 0]\n"
        "        advantages = torch.randn(32)",
    ),
    ("    for epoch in", "    advantages = advantages - (old - scored)\n    for epoch in"),
)


@pytest.mark.parametrize(("copied", "values"), [(False, [1]), (True, [])])
def test_a_reference_in_the_rollout_that_is_the_policy_is_seen(tmp_path, copied, values):
    text = changed(*SHARED).replace("ref = net ", "import copy; ref = copy.deepcopy(net) " if copied else "ref = net ")
    seen = observed(text, tmp_path, 2)
    assert seen.values("reference_shared") == values
    assert copied or [seen.places["reference_shared"]["line"]] == marked_lines(text)


def test_the_name_of_a_reference_with_the_weights_of_the_policy_is_seen(tmp_path):
    text = changed(
        *SHARED[:-1],
        ("        returns = ", "        logs = net(obs).softmax(-1).log()\n        returns = "),
        (
            "loss = -surrogate.mean()",
            "gap = logs[rows].gather(1, actions[rows, None])[:, 0] - new\n"
            "            loss = 0.1 * (gap.exp() - gap - 1).mean() - surrogate.mean()",
        ),
    )
    assert [observed(text, tmp_path, 3).places["reference_shared"]["line"]] == marked_lines(text)


def test_gradients_of_old_log_probs_are_why_there_are_none(tmp_path):
    text = changed(("ratio = (new - old[rows]).exp()", "ratio = (new - new).exp()  # here"))
    assert [observed(text, tmp_path, 2).places["grad_norm"]["line"]] == marked_lines(text)


def test_where_the_surrogate_joins_the_loss_is_named_too(tmp_path):
    seen = observed(changed(("loss = -surrogate.mean()", "loss = surrogate.mean()")), tmp_path, 2)
    assert "0.5 * value_loss" in seen.places["policy_pull"]["also"][0]["text"]


def test_where_advantages_became_0_is_named(tmp_path):
    zero = "        rewards = torch.ones(32)  # here\n        advantages = rewards - rewards.mean()"
    text = changed(("        advantages = torch.randn(32)", zero))
    assert [observed(text, tmp_path, 2).places["advantages_std"]["line"]] == marked_lines(text)


def test_a_loss_without_a_ratio_is_unseen(tmp_path):
    seen = observed(changed((OLD, "ratio = new"), (".clamp(0.8, 1.2)", "")), tmp_path, 2)
    assert "no loss of 8 steps" in seen.unseen["ratio"]
    assert seen.records == []


def test_code_compiled_beside_the_loss_leaves_lines_to_be_traced(tmp_path):
    compiles = ("n_epochs = 2", 'n_epochs = 2\ntorch.compile(torch.exp, backend="eager")')
    seen = observed(changed(compiles), tmp_path, 2)
    assert "lines" not in seen.unseen
    assert "repeated_ratio_dev" in seen.places


def test_what_was_observed_before_an_exception_is_written(tmp_path):
    text = changed(
        ("            optimizer.step()", "            optimizer.step()\n        assert update < 1, 'out of money'")
    )
    with pytest.raises(AssertionError, match="out of money"):
        observed(text, tmp_path, 3)
    seen = read(tmp_path / "run.jsonl", {})
    assert [record["optimizer_steps"] for record in seen.records] == [4, 2]


def test_weights_that_break_in_an_update_that_is_not_observed_are_told_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(division, "SHARE", 0)
    breaks = (
        "            optimizer.step()",
        "            optimizer.step()\n    if update == 3:\n        bias.data[0] = torch.nan",
    )
    assert observed(changed(breaks), tmp_path, 4).values("weights_nonfinite") == [1]


def test_no_later_update_is_observed_while_the_first_have_cost_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(division, "SHARE", 0)
    assert [record["step"] for record in observed(SOUND, tmp_path, 10).records] == [4, 8]


@pytest.mark.parametrize("every", [0, 1])
def test_the_first_updates_and_some_later_ones_are_observed(tmp_path, every, monkeypatch):
    monkeypatch.setattr(division, "SHARE", 100)
    seen = observed(SOUND, tmp_path, 10, every=every)
    assert [record["step"] for record in seen.records[:2]] == [4, 8]
    assert len(seen.records) >= 3
    assert {record["step"] % 4 for record in seen.records} == {0}
    assert set(seen.values("passes")) == {2}


@pytest.mark.parametrize("bound", [{"updates": 1}, {"seconds": 0.0}])
def test_the_script_runs_on_or_is_ended_when_enough_was_observed(tmp_path, bound, capsys):
    before = torch.autograd.backward
    text = changed(("loss.backward()", "loss.backward(); hooked = torch.autograd.backward"))
    variables = observed(text, tmp_path, 3, live=True, **bound).variables
    assert (variables["update"], variables["hooked"]) == (2, before)
    shown = capsys.readouterr().err
    assert shown.count("update 1, step 4, ratio") == ("updates" in bound)
    with pytest.raises(SystemExit) as end:
        observed(text, tmp_path, 3, stop=True, **bound)
    assert end.value.code == 0


def test_little_memory_still_gives_everything_but_the_origin(tmp_path):
    seen = observed(SOUND, tmp_path, 2, memory=4096)
    assert seen.values("policy_pull")


def test_a_fault_of_ours_ends_the_observation_and_not_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PPO_DOCTOR_DEBUG", raising=False)
    before = torch.autograd.backward
    without = ended(SOUND, tmp_path, 2)

    def fail(*_):
        raise ValueError("cannot see")

    monkeypatch.setattr("ppo_doctor.record.script.session.loss_graph", fail)
    seen = observed(SOUND, tmp_path, 2)
    assert torch.equal(seen.variables["weights"], without["weights"])
    assert capsys.readouterr().err.count("cannot see") == 1
    assert torch.autograd.backward is before
    assert not torch.overrides._get_current_function_mode_stack()


RESUMED = """
import pickle
import torch

torch.manual_seed(1)


class Agent:
    def __init__(self):
        self.policy = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.05)

    def update(self):
        with torch.no_grad():
            obs = torch.randn(32, 4)
            actions = torch.multinomial(torch.softmax(self.policy(obs), -1), 1)
            old = torch.log_softmax(self.policy(obs), -1).gather(1, actions)[:, 0]
            advantages = torch.randn(32)
        for rows in torch.arange(32).split(8):
            new = torch.log_softmax(self.policy(obs[rows]), -1).gather(1, actions[rows])[:, 0]
            ratio, gains = (new - old[rows]).exp(), advantages[rows]
            loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def train(weights, updates):
    agent = Agent()
    if weights:
        LOAD
    for _ in range(updates):
        agent.update()
    return SAVE


train(train(None, 1), UPDATES)
"""
KEPT = ("agent.policy.load_state_dict(pickle.loads(weights))", "pickle.dumps(agent.policy.state_dict())")
COPIED = ("agent.policy = pickle.loads(weights)", "pickle.dumps(agent.policy)")


@pytest.mark.parametrize("load, save, unheld", [(*KEPT, 0), (*COPIED, 1)], ids=["weights", "the policy"])
def test_a_policy_that_is_replaced_is_followed(tmp_path, load, save, unheld):
    seen = observed(RESUMED.replace("LOAD", load).replace("SAVE", save), tmp_path, 3)
    assert seen.values("optimizer_steps") == [4, 4]
    assert seen.values("weights_unheld")[-1] == unheld
    assert (seen.values("update_norm")[-1] > 0) == (unheld == 0)


BREAKS = """
import torch

weight = torch.nn.Parameter(torch.eye(3))
optimizer = torch.optim.Adam([weight])
for update in range(UPDATES):
    with torch.no_grad():
        logits = torch.zeros(8, 3) @ weight
        logits = logits / logits.norm()  # here
        torch.multinomial(logits.softmax(-1), 1)
"""


def test_values_that_break_before_the_first_step_are_written(tmp_path):
    with pytest.raises(RuntimeError, match="nan"):
        observed(BREAKS, tmp_path, 1)
    out = tmp_path / "run.jsonl"
    seen = read(out, {})
    assert seen.values("log_probs_nonfinite") == [1.0]
    assert [seen.places["log_probs_nonfinite"]["line"]] == marked_lines(BREAKS)


def test_a_script_that_fails_for_another_reason_has_no_record(tmp_path):
    with pytest.raises(ValueError, match="other"):
        observed(BREAKS.replace("logits / logits.norm()", "logits + int('other')"), tmp_path, 1)
    assert read(tmp_path / "run.jsonl", {}).records == []


def test_a_reference_is_not_judged_while_no_weight_moves(tmp_path):
    text = changed(
        ("lr=0.3)", "lr=0.0)"),
        (
            "loss = -surrogate.mean()",
            "kl = (old[rows] - new).exp() - 1\n            loss = kl.mean() - surrogate.mean()",
        ),
    )
    assert observed(text, tmp_path, 2).values("reference_shared") == []


@pytest.mark.parametrize(("last", "values"), [(12, [0, 0]), (35, [0]), (39, [])])
def test_a_rate_that_stays_0_is_written_at_the_end(tmp_path, last, values):
    falls = f"optimizer.param_groups[0]['lr'] = 0.3 * max(0, 1 - update / {last})\n    for epoch in"
    rates = observed(changed(("for epoch in", falls)), tmp_path, 40).values("learning_rate")
    assert [rate for rate in rates if rate == 0][-2:] == values


@pytest.mark.parametrize(
    ("error", "graded"),
    [
        ("(values - 0.9 * (obs[rows] @ critic + bias[0])[:, 0]).square()", 1.0),
        ("((obs[rows] @ weights)[:, 0] - (obs @ weights)[rows, 1]).square()", 0.0),
    ],
)
def test_a_penalty_on_the_policy_is_no_value_target(tmp_path, error, graded):
    seen = observed(changed(("(values - returns[rows]).pow(2)", error)), tmp_path, 1)
    assert seen.values("value_target_with_gradient") == [graded]
