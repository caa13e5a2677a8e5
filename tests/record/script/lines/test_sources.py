"""Where a setting gets its value is found in sources, which are not run."""

from __future__ import annotations

import re

import pytest

from ppo_doctor.record.script.lines.sources import (
    assigned_before,
    calls_of,
    come_from,
    functions_given,
    horizons,
    is_helper,
    mentions,
    named_again,
    names_at,
    passed_on,
    rates_assigned,
    set_to,
    used_as,
)
from ppo_doctor.record.script.places import Place

CLIP, RATE = re.compile("(?i)clip|eps"), re.compile("^lr|learning_rate")
SETTINGS = """
class Config:
    clip: float = 0.21
parser.add_argument("-c", "--clip-eps", type=float, default=0.22)
def build(width=64, *, clip_range=0.23): ...
OPTIONS = {"clip_coef": 0.24, "gamma": 0.9}
policy.eps = -0.25
EPS_LOW, EPS_HIGH = 0.26, 2.8e-6
train(clipping=1 - 0.73)
config["clip"] = 0.28
main(["--clip", "0.29", "--lr", "1"])
main(["--clip=0.30"])
fit(clip_range=float("0.31"), eps="0.32")
other = 0.8
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="settings.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def line_with(text, part):
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("value", "part"),
    [(0.21 + n / 100, text) for n, text in enumerate(("0.21", "0.22", "0.23", "0.24"))]
    + [(-0.25, "-0.25"), (0.26, "EPS_LOW"), (2.8e-6, "EPS_LOW"), (0.27, "clipping"), (0.28, "0.28")]
    + [(0.29, "0.29"), (0.3, "0.30"), (0.32, "0.32")],
)
def test_the_line_of_a_setting_is_found_by_value_and_name(write, value, part):
    found = set_to((write(SETTINGS),), value, (), CLIP)
    assert [each.place.line for each in found] == [line_with(SETTINGS, part)]


def test_a_value_under_another_name_is_found_only_if_the_name_is_used(write):
    files = (write(SETTINGS),)
    assert set_to(files, 0.8, (), CLIP) == []
    assert set_to(files, 0.8, {"other"}, CLIP)[0].place.line == line_with(SETTINGS, "other")


USED = """
tiny = 1e-5
clip_rest = 1e-5
def loss(ratio, bound):
    return clamp(ratio, 1 - bound, 1 + bound)
loss(r, cfg.width)
Args(width=tiny)
optimizer = Adam(weights, eps=tiny)
PPO(clip_range=tiny)
"""


def test_names_are_followed_through_calls_and_arguments(write):
    files = (write(USED),)
    used = names_at(Place(files[0], 5, ""))
    assert {"ratio", "bound"} <= used
    assert "tiny" in come_from(files, used)
    assert [each.name for each in set_to(files, 1e-5, come_from(files, used), CLIP)] == ["tiny", "clip_rest"]


def test_a_number_that_is_also_used_for_something_else_is_told(write):
    files = (write(USED),)
    assert [each.line for each in used_as(files, "tiny", re.compile("Adam"))] == [line_with(USED, "Adam")]
    assert line_with(USED, "PPO(") in [each.line for each in passed_on(files, "tiny", CLIP)]
    assert used_as(files, "clip_rest", re.compile("Adam")) == []


SHARED = """
old, policy = None, None
old_policy = policy
class Agent:
    def __init__(self, reference, lagging=None):
        self._reference = reference
        self.lagging = make(policy)
Agent(reference=policy)
"""


def test_where_a_network_gets_a_second_name_is_found(write):
    files = (write(SHARED),)
    named = {"old_policy": "old_policy = ", "_reference": "reference=policy", "lagging": "make(policy)"}
    for name, part in named.items():
        assert named_again(files, name, "policy").line == line_with(SHARED, part)
    assert named_again(files, "policy", "old_policy") is None


RATES = """
def schedule(progress):
    done = 1 - progress
    return 1e-3 * (1 - done)
PPO(learning_rate=schedule)
PPO(learning_rate=lambda progress: 1e-3)
def decay(self):
    left = 1 - self.count / 10
    for group in self.optimizer.param_groups:
        group["lr"] = left
for update in range(9):
    for minibatch in range(2):
        self.decay()
self.decay()
"""


def test_the_lines_of_a_rate_that_changes_are_found(write):
    files = (write(RATES),)
    functions = functions_given(files, RATE)
    assert [each.line for each in functions] == [line_with(RATES, "return"), line_with(RATES, "lambda")]
    ((place, names),) = rates_assigned(files)
    assert (place.line, place.function, names) == (line_with(RATES, '"lr"'), "decay", {"left"})
    assert [each.line for each in assigned_before(place, names)] == [line_with(RATES, "left = ")]
    calls = [each.line for each in calls_of(files, "decay")]
    assert calls == [line_with(RATES, "        self.decay"), len(RATES.splitlines())]


HORIZON = """
def make(optimizer, num_training_steps):
    def rate(step):
        return 1 - step / num_training_steps
    return LambdaLR(optimizer, rate)
make(optimizer, num_training_steps=updates // 2)
"""


def test_the_length_that_a_rate_is_computed_from_is_found(write):
    files = (write(HORIZON),)
    place = Place(files[0], line_with(HORIZON, "def rate"), "rate")
    assert [each.place.line for each in horizons(files, place)] == [line_with(HORIZON, "updates")]
    assert horizons(files, Place(files[0], 5, "")) == []


FROZEN = """
def set_grad(modules, flag):
    for module in modules:
        for p in module.parameters():
            p.requires_grad_(flag)
class Agent:
    def freeze(self):
        for p in self.parameters():
            p.requires_grad_(False)
"""


def test_helpers_are_told_from_methods_of_their_own_object(write):
    file = write(FROZEN)
    assert is_helper(Place(file, line_with(FROZEN, "(flag)"), ""))
    assert not is_helper(Place(file, line_with(FROZEN, "(False)"), ""))


def test_the_use_of_a_class_is_found_and_its_import_is_not(write):
    text = "from library import Scaler\nconfig.preprocessor = Scaler\n"
    assert [each.line for each in mentions((write(text),), "Scaler")] == [2]


def test_a_file_that_does_not_parse_has_no_lines(write, tmp_path):
    assert set_to((write("def f(:"), str(tmp_path / "none.py")), 1.0, (), re.compile("")) == []
