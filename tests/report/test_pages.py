"""Manual pages: fixed headings, Markdown that holds, and a terminal view of the same words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ppo_doctor.model import Cause, Clause, Complaint, Measurement, Param, Remedy, Rule, Severity, Weight
from ppo_doctor.report import RenderOptions
from ppo_doctor.report.layout import columns
from ppo_doctor.report.manpage import show
from ppo_doctor.report.pages import cause_page, metric_page, rule_page

from .golden import check_golden

RULE = Rule(
    code="KL001",
    name="kl-runaway",
    title="Policy KL grew past its bound and stayed there",
    pass_title="Policy KL stayed within its bound",  # noqa: S106 (no password)
    link="policy",
    severity=Severity.HIGH,
    when=(Clause(quantity="series.approx_kl", test="above", bound=0.1),),
    params=(Param(name="bound", value=0.1, unit="nats", source="expert: ten times an ordinary |KL|"),),
)
TOML: dict[str, Any] = {
    "doc": {
        "what": "Finds updates in which the sampled KL stays above the bound\nfor several updates in a row",
        "why": "The ratio has left the region where <the objective> means something.",
        "look_alikes": ["one isolated spike", "KL logged as a sum over tokens"],
        "blind_spots": ["a log that averages over epochs"],
        "next_steps": ["Lower the learning rate by 3×.", "Then fewer epochs."],
        "references": [],
    },
    "case": [
        {
            "name": "runaway",
            "kind": "positive",
            "series": {"approx_kl": "0.01x9 0.02+0.03x9", "clip_fraction": "0.1x3 _ nan"},
            "config": {"ppo_epochs": 4},
            "expect": {"status": "fired", "onset": 13},
        },
        {"name": "empty", "kind": "missing", "series": {}, "expect": {"status": "skipped"}},
    ],
}
CAUSE = Cause(
    id="lr-too-high",
    title="The learning rate is too high",
    family="update",
    severity=Severity.HIGH,
    prior=-10,
    benign=False,
    link="step",
    complaints=("steps-too-large",),
    weights=(Weight(finding="kl-runaway", fired=12, clear=-4, source="expert: it | must climb"),),
    twins=("too-many-epochs",),
    says="steps leave the trust region",
    remedies=(
        Remedy(do="Lower it by 3×."),
        Remedy(do="Lower it there", framework="verl", key="actor.optim.lr"),
    ),
    measure=(Measurement(log="grad_norm", because="it tells a spike from a slope"),),
)


@dataclass(frozen=True)
class Shelf:
    rules: tuple[Rule, ...]
    causes: tuple[Cause, ...]
    complaints: tuple[Complaint, ...]
    sound: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kl:
    name: str = "approx_kl"
    unit: str = "nats"
    meaning: str = "KL of the old policy to the new one"
    finite: bool = True


RIVALS = (
    CAUSE,
    replace(CAUSE, id="too-many-epochs", title="Too many epochs"),
    replace(CAUSE, id="clip-range-too-large", title="The clip range is too large"),
)
PACK = Shelf(rules=(RULE,), causes=RIVALS, complaints=(Complaint(id="steps-too-large", title="Steps are too large"),))
PAGES = {
    "rule": rule_page(RULE, TOML, PACK),
    "cause": cause_page(CAUSE, {"prior": "common"}, PACK),
    "metric": metric_page(Kl(), [("sb3", "train/approx_kl", "k3, last epoch"), ("verl", "actor/ppo_kl", "")]),
}
HEADINGS = {
    "rule": [
        "What it finds",
        "Why it matters",
        "Look-alikes",
        "Blind spots",
        "What to try",
        "Parameters",
        "Sound runs",
        "Examples",
        "References",
    ],
    "cause": [
        "What it means",
        "How common",
        "Evidence for and against",
        "Told apart from",
        "What to do",
        "What would settle it",
    ],
    "metric": ["How to read it", "What frameworks call it"],
}


@pytest.mark.parametrize("kind", PAGES)
def test_headings_are_fixed(kind: str) -> None:
    assert re.findall("^## (.*)$", PAGES[kind], re.MULTILINE) == HEADINGS[kind]


def test_golden() -> None:
    check_golden("page-cause.md", PAGES["cause"])
    check_golden("page-rule.txt", show(PAGES["rule"], RenderOptions(width=80, color=False, ascii=False)))


def test_a_page_of_a_metric_says_what_each_framework_calls_it() -> None:
    rows = [line for line in PAGES["metric"].splitlines() if line.startswith(("| sb3", "| verl"))]
    assert ["train/approx_kl" in row for row in rows] == [True, False]
    assert ["actor/ppo_kl" in row for row in rows] == [False, True]


@pytest.mark.parametrize("kind", PAGES)
def test_tables_have_as_many_cells_in_every_row(kind: str) -> None:
    for block in PAGES[kind].split("\n\n"):
        rows = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines() if line.startswith("|")]
        assert len(set(rows)) <= 1


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("kind", PAGES)
def test_a_terminal_shows_every_word_within_its_width(kind: str, width: int) -> None:
    shown = show(PAGES[kind], RenderOptions(width=width, color=False, ascii=False))
    assert all(columns(line) <= width for line in shown.splitlines())
    for heading in HEADINGS[kind]:
        assert f"\n{heading}\n" in shown


def test_empty_parts_say_so() -> None:
    assert "## References\n\nNothing noted." in PAGES["rule"]


def test_html_and_escapes_of_a_pack_do_no_harm() -> None:
    evil = "\x1b[2J<script>alert(1)</script>"
    page = rule_page(replace(RULE, title=evil), {"doc": {"what": evil}}, PACK)
    assert "<script" not in page
    assert "\x1b" not in page


def test_ascii_terminals_get_digits_for_blocks() -> None:
    shown = show(PAGES["rule"], RenderOptions(width=80, color=False, ascii=True))
    assert shown.isascii()
    assert "11111111111" in shown
