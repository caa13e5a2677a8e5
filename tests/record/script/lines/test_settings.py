"""The line that sets the clip range, the learning rate or a mode is named, not the library's or the one that acts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ..network import with_parts
from ..training import marked_lines, observed

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Case:
    """Changes of the script with the main line of a metric marked, and the text of another line that is named too."""

    changes: Changes
    metric: str
    also: str = ""


EPOCHS, MADE, CLAMP = "EPOCHS = 2", "policy = Policy()", "ratio.clamp(0.8, 1.2)"
OPTIMIZER = "optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)"
TRAIN = "    train(policy, optimizer, batch)"
STEP = "            optimizer.step()"
HIDDEN = "        hidden = torch.tanh(self.body(obs - self.mean))"
SCHEDULE = "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 2))"
DECAY = """

def decay(optimizer, count):
    left = max(0.1, 1 - count / 8)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * left


policy = Policy()"""
HELPER = """

def set_grad(parts, flag):
    for part in parts:
        for p in part.parameters():
            p.requires_grad_(flag)


policy = Policy()
"""
DENSITY = """
@torch.no_grad()  # here
def density(log_probs, actions):
    return log_probs.gather(1, actions)[:, 0] + 0


"""
COOLED = """
def cooled(logits, tau):
    return logits / tau


"""
DRAWN = "actions = torch.multinomial(log_probs.exp(), 1)"
SCORES = (
    "        return torch.log_softmax(self.head(hidden), -1)\n",
    "        return self.head(hidden).log_softmax(-1)\n\n    def scores(self, obs):\n"
    "        return self.head(torch.tanh(self.body(obs - self.mean)))\n",
)
CASES = {
    "a clip range of two names": Case(
        ((EPOCHS, "EPOCHS = 2\nLOW, HIGH = 2e-6, 2.8e-6  # here"), (CLAMP, "ratio.clamp(1 - LOW, 1 + HIGH)")),
        "clip_range",
        "clipped = ratio.clamp",
    ),
    "the epsilon of the optimizer as clip range": Case(
        (
            (EPOCHS, "EPOCHS = 2\nADAM_EPS = 1e-5"),
            ("clipped = " + CLAMP, "clipped = ratio.clamp(1 - ADAM_EPS, 1 + ADAM_EPS)  # here"),
            ("lr=0.1)", "lr=0.1, eps=ADAM_EPS)"),
        ),
        "clip_range",
        "ADAM_EPS = 1e-5",
    ),
    "a bound of gradients": Case(
        (
            (EPOCHS, 'EPOCHS = 2\nOPTIONS = {"largest": 1e-6}  # here'),
            (STEP, '            nn.utils.clip_grad_norm_(policy.parameters(), OPTIONS["largest"])\n' + STEP),
        ),
        "gradient_kept",
        "clip_grad_norm_",
    ),
    "a rate of 0": Case(
        ((OPTIMIZER, "rate = 0.1 * (4 // 8)  # here\n" + OPTIMIZER.replace("0.1", "rate")),),
        "learning_rate",
        "lr=rate",
    ),
    "a rate that is rounded to 0, and a schedule": Case(
        (
            (EPOCHS, 'EPOCHS = 2\nOPTIONS = {"lr": round(0.1 / 64, 2)}  # here'),
            (OPTIMIZER, f"{OPTIMIZER.replace('0.1', 'OPTIONS[chr(108) + chr(114)]')}\n{SCHEDULE}"),
        ),
        "learning_rate",
        "schedule = ",
    ),
    "a schedule at each step": Case(
        ((OPTIMIZER, f"{OPTIMIZER}\n{SCHEDULE}"), (STEP, f"{STEP}\n            schedule.step()  # here")),
        "learning_rate",
        "schedule = ",
    ),
    "a schedule at each update": Case(
        ((OPTIMIZER, f"{OPTIMIZER}\n{SCHEDULE}  # here"), (TRAIN, f"{TRAIN}\n    schedule.step()")),
        "learning_rate",
        "schedule.step()",
    ),
    "a rate that is assigned at each step": Case(
        ((MADE, DECAY), (STEP, f"{STEP}\n            decay(optimizer, epoch + len(rows) * loss.item() % 1)  # here")),
        "learning_rate",
        "left = ",
    ),
    "a part that is made after the optimizer": Case(
        ((OPTIMIZER, f"{OPTIMIZER}\npolicy.head = nn.Linear(8, 3)  # here"),), "weights_unheld", "optimizer = "
    ),
    "a part that is frozen by a helper": Case(
        ((MADE, f"{HELPER}set_grad([policy.body], False)  # here"),), "weights_without_gradient", "requires_grad_(flag)"
    ),
    "a part that is not unfrozen by a helper": Case(
        ((MADE, f"{HELPER}set_grad([policy], False)\nset_grad([policy.head], True)  # here"),),
        "weights_without_gradient",
        "set_grad([policy], False)",
    ),
    "a part that runs without gradients": Case(
        ((HIDDEN, "        with torch.no_grad():  # here\n    " + HIDDEN),), "weights_without_gradient"
    ),
    "a part that a function detaches": Case(
        ((HIDDEN, HIDDEN.replace("obs - self.mean)", "obs - self.mean).detach()") + "  # here"),),
        "weights_without_gradient",
    ),
    "dropout in training only": Case(
        (
            ("self.head = nn.Linear(8, 3)", "self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3))"),
            (TRAIN, f"    policy.train()  # here\n{TRAIN}\n    policy.eval()"),
            (MADE, "policy = Policy().eval()"),
        ),
        "dropout_active",
        "nn.Dropout(0.3)",
    ),
    "dropout in all passes": Case(
        (
            ("def __init__(self):", "def __init__(self, dropout=0.3):  # here"),
            ("self.head = nn.Linear(8, 3)", "self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(8, 3))"),
        ),
        "dropout_active",
        "nn.Dropout(dropout)",
    ),
    "a rate of dropout of another name": Case(
        (
            (EPOCHS, "EPOCHS = 2\nZEROED = 0.3  # here"),
            ("self.head = nn.Linear(8, 3)", "self.head = nn.Sequential(nn.Dropout(ZEROED), nn.Linear(8, 3))"),
        ),
        "dropout_active",
        "nn.Dropout(ZEROED)",
    ),
    "batch normalisation": Case(
        (
            ("self.head = nn.Linear(8, 3)", "self.head = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3))"),
            (TRAIN, f"    policy.train()  # here\n{TRAIN}\n    policy.eval()"),
            (MADE, "policy = Policy().eval()"),
        ),
        "modes_differ",
        "nn.BatchNorm1d(8)",
    ),
    "a short format of weights": Case(
        (
            (EPOCHS, "EPOCHS = 2\nDTYPE = torch.bfloat16  # here"),
            (MADE, "policy = Policy().to(DTYPE)"),
            ("obs = torch.randn(32, 4) + 1", "obs = (torch.randn(32, 4) + 1).to(DTYPE)"),
            ("lr=0.1)", "lr=1e-7)"),
        ),
        "weights_rounded_away",
        "Policy().to(DTYPE)",
    ),
    "a short format by a method": Case(
        (
            (MADE, "policy = Policy().bfloat16()  # here"),
            ("obs = torch.randn(32, 4) + 1", "obs = (torch.randn(32, 4) + 1).bfloat16()"),
            ("lr=0.1)", "lr=1e-7)"),
        ),
        "weights_rounded_away",
        "optimizer = ",
    ),
    "a short format of the data of weights": Case(
        (
            (MADE, f"{MADE}\nfor p in policy.parameters():\n    p.data = p.data.bfloat16()  # here"),
            (HIDDEN, HIDDEN.replace("obs - self.mean", "(obs - self.mean).bfloat16()")),
            ("lr=0.1)", "lr=1e-7)"),
        ),
        "weights_rounded_away",
        "optimizer = ",
    ),
    "a copy that is made after the optimizer": Case(
        ((OPTIMIZER, f"{OPTIMIZER}\npolicy = __import__('copy').deepcopy(policy)  # here"),),
        "weights_unheld",
        "optimizer = ",
    ),
    "a part of which the values are read": Case(
        ((HIDDEN, HIDDEN.replace("obs - self.mean)", "obs - self.mean).data") + "  # here"),),
        "weights_without_gradient",
    ),
    "a method without gradients": Case(
        (
            ("    def forward(self, obs):", "    @torch.no_grad()  # here\n    def hidden(self, obs):"),
            (HIDDEN, f"{HIDDEN.replace('hidden =', 'return')}\n\n    def forward(self, obs):"),
            ("self.head(hidden)", "self.head(self.hidden(obs))"),
        ),
        "weights_without_gradient",
    ),
    "log-probs without gradients": Case(
        (
            ("def rollout(", f"{DENSITY}\ndef rollout("),
            ("policy(obs[rows]).gather(1, actions[rows])[:, 0]", "density(policy(obs[rows]), actions[rows])"),
            ("loss = -", "loss = 0.1 * policy(obs).square().mean() - "),
        ),
        "ratio_without_gradient",
        "clipped = ",
    ),
    "dropout that no mode turns off": Case(
        (
            ("self.head(hidden), -1)", "self.head(nn.functional.dropout(hidden, 0.3)), -1)  # here"),
            (MADE, "policy = Policy().eval()"),
        ),
        "dropout_active",
    ),
    "a temperature of the samples": Case(
        (
            ("def rollout(", f"{COOLED}\ndef rollout("),
            (DRAWN, "actions = torch.multinomial(cooled(policy.scores(obs), 1.5).softmax(-1), 1)  # here"),
            ("new = policy(obs[rows])", "new = cooled(policy.scores(obs[rows]), 1.2).log_softmax(-1)"),
            SCORES,
        ),
        "sampling_temperature",
        "logits / tau",
    ),
    "a temperature of the training only": Case(
        (
            ("def rollout(", f"{COOLED}\ndef rollout("),
            (DRAWN, "actions = torch.multinomial(policy.scores(obs).softmax(-1), 1)"),
            ("new = policy(obs[rows])", "new = cooled(policy.scores(obs[rows]), 0.5).log_softmax(-1)"),
            ("[:, 0]\n            ratio", "[:, 0]  # here\n            ratio"),
            SCORES,
        ),
        "sampling_temperature",
        "logits / tau",
    ),
    "statistics that are updated before the training": Case(
        ((TRAIN, f"    policy.update(batch[0])  # here\n{TRAIN}"),), "inputs_unseen", "self.mean +="
    ),
    "observations that are normalised again": Case(
        ((TRAIN, f"    batch = (batch[0] / 2, *batch[1:])  # here\n{TRAIN}"),), "inputs_unseen"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_line_that_sets_it_is_named_first(tmp_path, name):
    case = CASES[name]
    text = with_parts(*case.changes)
    main = observed(text, tmp_path, 3).places[case.metric]
    assert [main["line"]] == marked_lines(text)
    assert any(case.also in each["text"] for each in main.get("also", [])) or not case.also


def test_a_sound_script_has_no_gradients_left_and_all_its_weights_trained(tmp_path):
    (first, *_) = observed(with_parts(), tmp_path, 3).records
    names = ("gradients_left_over", "weights_unheld", "weights_without_gradient", "inputs_unseen")
    assert [first.get(name, 0) for name in names] == [0, 0, 0, 0]


def test_gradients_of_weights_in_no_optimizer_are_not_left_over(tmp_path):
    text = with_parts((OPTIMIZER, f"{OPTIMIZER}\npolicy.head = nn.Linear(8, 3)"))
    assert all(value == 0 for value in observed(text, tmp_path, 2).values("gradients_left_over"))


def test_a_policy_is_observed_after_many_steps_of_another_network(tmp_path):
    warm = """policy = Policy()
critic = nn.Linear(4, 1)
warm = torch.optim.Adam(critic.parameters())
for _ in range(60):
    warm.zero_grad()
    critic(torch.randn(8, 4)).pow(2).mean().backward()
    warm.step()"""
    assert observed(with_parts((MADE, warm)), tmp_path, 3).records
