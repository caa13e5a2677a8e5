"""Names are followed to the lines that chose samples and made data, and loops around a line are found."""

from __future__ import annotations

import ast
import re

import pytest

from ppo_doctor.record.script.lines import flow
from ppo_doctor.record.script.places import Stack

SCRIPT = """
def minibatches(size, order):
    for start in range(0, 8, size):
        rows = order[:size]  # yielded rows
        yield rows

def update(policy, data, epochs):
    for epoch in range(epochs):
        for rows in minibatches(4, list(range(8))):
            policy.log_prob(data.obs[rows])  # generated

def batches(store, size):
    for start in range(0, 8, size):
        yield store  # given

def replayed(policy, data):
    for epoch in range(2):
        for batch in batches(data, 4):
            policy.log_prob(batch)  # of a generator

def again(policy, memory):
    for round in range(3):
        memory.append(policy.play())  # played
        data = memory[0]  # first
        replayed(policy, data)  # replayed

class Kept(Memory):
    def add(self, *values):
        if self.full:  # skipped
            return
        super().add(*values)

def words(text):
    found = PATTERN.findall(text)  # pattern
    return found

def counted(texts):
    return [len(words(text)) for text in texts]  # counted

def collected(policy, buffer):
    policy.forward()
    first = buffer.tensors()  # made
    obs = first
    for pick in order.split(4):  # pick
        batch = {key: value[pick] for key, value in obs.items()}
        policy.log_prob(batch)  # followed

def main(policy, memory):
    for round in range(3):
        memory.append(policy.play())  # rollout
        update(policy, memory[0], 2)  # passed

def early(policy, loader):
    for epoch in range(3):
        for batch in loader:
            policy.step(batch)  # early
            return batch  # left

def once(policy, data):
    loader = data.loader(4)  # loader
    for epoch in range(3):
        for batch in loader:
            policy.step(batch)  # once
            break

def stopping(policy, loader, limit):
    for epoch in range(3):
        for batch in loader:
            kl = policy.step(batch)  # stepped
            if kl > limit:  # stopped
                return

def retried(policy, data):
    for attempt in range(3):
        if policy.step(data):  # retried
            continue
        break

def advantages(rewards):
    grouped = rewards.view(-1, 1)  # grouped
    return grouped - grouped.mean(1)  # centred

@torch.no_grad()  # decorator
def density(mean, action):
    return -(action - mean) ** 2

def ratio(policy, data):
    with torch.no_grad():
        hidden = policy.body(data.obs)  # hidden
    mean = policy.head(hidden)  # mean
    new = density(mean, data.action)
    return (new - data.old).exp()  # dead

def cooled(logits, tau):
    return logits / tau  # cooled

def sampled(policy, obs):
    return cooled(policy(obs), 1.5)  # warm

def scored(ids):
    found = ids.sum()
    return found  # reward

def play(ids):
    rewards = reward(ids)  # rewards
    return advantages(rewards)  # asked

Trainer(reward_funcs=[scored])
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def line_of(comment):
    return next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith(f"# {comment}"))


def spot_at(script, *comments) -> flow.Spot:
    """Return the statement of the first line, called from the others."""
    calls: Stack = tuple((compile("", script, "exec"), line_of(each)) for each in comments)
    found = flow.spot_of(calls)
    assert found is not None
    return found


@pytest.mark.parametrize(("at", "chosen"), [("generated", "yielded rows"), ("followed", "pick")])
def test_the_line_that_chose_an_index_is_found(script, at, chosen):
    assert flow.chosen_at(spot_at(script, at), [script]).statement.lineno == line_of(chosen)


def test_without_an_index_no_line_chose_it(script):
    assert flow.chosen_at(spot_at(script, "loader"), [script]) is None


@pytest.mark.parametrize(
    ("calls", "made"),
    [(("followed",), "made"), (("generated", "passed"), "passed"), (("of a generator", "replayed"), "first")],
)
def test_the_line_that_made_the_data_or_passed_them_is_found(script, calls, made):
    found = flow.data_at(spot_at(script, *calls), [script], [line_of("rollout"), line_of("played")])
    assert found.statement.lineno == line_of(made)


def test_loops_around_the_rollout_are_left_out(script):
    scope = spot_at(script, "passed").scope
    assert len(flow.loops_around(scope, line_of("passed"))) == 1
    assert flow.loops_around(scope, line_of("passed"), [line_of("rollout")]) == []


def test_a_return_in_any_case_leaves_a_loop_early(script):
    left = flow.left_early(spot_at(script, "early"), [])
    assert isinstance(left, ast.Return)
    assert left.lineno == line_of("left")


def test_the_condition_on_the_kl_that_ends_a_loop_is_found(script):
    assert flow.stopped_at(spot_at(script, "stepped"), re.compile("kl")).lineno == line_of("stopped")
    assert flow.stopped_at(spot_at(script, "stepped"), re.compile("loss")) is None
    assert flow.stopped_at(spot_at(script, "early"), re.compile("kl")) is None


@pytest.mark.parametrize("at", ["once", "retried", "generated"])
def test_a_break_of_an_inner_loop_or_after_a_continue_does_not(script, at):
    assert flow.left_early(spot_at(script, at), []) is None


def test_what_an_inner_loop_runs_over_is_made_once(script):
    assert flow.made_once(spot_at(script, "once"), []).statement.lineno == line_of("loader")
    assert flow.made_once(spot_at(script, "generated"), []) is None


def test_values_are_followed_through_shapes_and_calls(script):
    found = flow.shaped_at(spot_at(script, "centred", "asked"))
    assert [each.statement.lineno for each in found] == [line_of("grouped"), line_of("rewards")]


def test_the_function_of_the_reward_is_found(script):
    assert flow.reward_at([script]).statement.lineno == line_of("reward")
    assert flow.reward_at([]) is None


def test_a_pattern_is_found_in_what_a_function_calls(script):
    assert flow.matched_at(spot_at(script, "counted"), [script]).statement.lineno == line_of("pattern")
    assert flow.matched_at(spot_at(script, "reward"), [script]) is None


def test_a_condition_that_skips_an_inherited_method_is_found(script):
    assert flow.skipped_at([script]).line == line_of("skipped")
    assert flow.skipped_at([]) is None


def test_stacks_share_their_outer_frames():
    inner, outer, other = (compile(name, name, "exec") for name in "abc")
    assert flow.common(((inner, 1), (outer, 2)), ((other, 3), (outer, 4))) == ((outer, 2),)
    assert flow.common(((inner, 1),), ((other, 3),)) == ()


def test_blocks_and_decorators_without_gradients_are_found(script):
    hidden, mean, dead = (spot_at(script, comment) for comment in ("hidden", "mean", "dead"))
    block = flow.without_gradient_at(hidden.place())
    assert block.line == line_of("hidden") - 1
    assert flow.without_gradient_at(mean.place()) is None
    assert flow.made_without_gradient(mean, [script]) == [block]
    assert flow.made_without_gradient(dead, [script])[0].line == line_of("decorator")


def test_a_factor_is_found_where_it_is_passed(script):
    assert flow.factor_at(spot_at(script, "cooled", "warm")).statement.lineno == line_of("warm")
