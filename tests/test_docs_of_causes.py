"""Pages of causes and of logging: examples are run, links lead somewhere, lines of code fit the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import pytest

import ppo_doctor.testing
from ppo_doctor import docs, examples
from ppo_doctor.frameworks import profiles
from ppo_doctor.metrics import METRICS
from ppo_doctor.record import Recorder
from ppo_doctor.rulepack import load_pack
from tests.each import for_each

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GUIDE = DOCS / "how-to-log.md"
PACK = load_pack()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
#: The five numbers, as failures.md ranks them by pairs of causes resolved per cost.
FIVE = ("optimizer_steps", "epoch_start_ratio_dev", "update_norm", "probe_kl", "logratio_advantage_corr")


def test_generated_pages_are_up_to_date(cli):
    outcome = cli("rules", "docs", "--check", "--out", DOCS)
    assert (outcome.out, outcome.code) == ("", 0), "run `ppo-doctor rules docs`"


@for_each(PACK.causes, lambda cause: cause.id)
def test_a_page_of_a_cause_has_its_headings_an_example_and_the_way_to_log(cause):
    page = docs.cause_page(cause, PACK)
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert headings == [
        *("What it means", "How common", "Evidence for and against", "What it looks like", "Told apart from"),
        *("What to do", "What would settle it"),
    ]
    assert "| fired: " in page or "**" in page.partition("## What it looks like")[2]
    assert page.rstrip().endswith(docs.HOW_TO_LOG)


def test_examples_are_run_and_not_written_down(monkeypatch):
    """A rule that says something else shows on the page."""
    cause = PACK.cause("lr-zero")
    before = examples.example(cause, PACK)
    real = ppo_doctor.testing.run_case
    monkeypatch.setattr(
        "ppo_doctor.testing.run_case", lambda rule, case: real(rule, {**case, "series": {}, "config": {}})
    )
    after = examples.example(cause, PACK)
    assert "| fired: " in before
    assert "| fired: " not in after


def test_a_sample_log_is_drawn_with_what_the_report_says():
    shown = examples.example(PACK.cause("lr-zero"), PACK)
    assert "ppo-doctor analyze sample_logs/sick/lr-zero" in shown
    assert "`learning_rate` | ▁▁▁▁" in shown
    assert "It says: **unhealthy**, `lr-zero` is established" in shown


def test_a_drawing_is_the_same_every_time():
    cause = PACK.cause("old-policy-aliased")
    assert examples.example(cause, PACK) == examples.example(cause, PACK)


PAGES = [DOCS / name for name in ("how-to-log.md", "config-alone.md")] + sorted((DOCS / "causes").glob("*.md"))


@for_each(PAGES, lambda page: page.stem)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).is_file()]
    assert missing == []


# How to log


def test_the_five_numbers_are_metrics_that_rules_read():
    text = GUIDE.read_text(encoding="utf-8")
    ranked = re.findall(r"^\| \d \| `(\w+)`", text, re.MULTILINE)
    assert tuple(ranked) == FIVE
    from ppo_doctor.derive.table import DERIVED

    read = {need.partition(".")[2] for rule in PACK.rules for need in rule.needs}
    read |= {name for need in read if need in DERIVED for group in DERIVED[need].any_of for name in group}
    assert set(FIVE) <= set(METRICS)
    assert set(FIVE) <= read


def test_there_are_lines_for_every_trainer_that_was_promised():
    titles = re.findall(r"^## (.+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    wanted = ["Stable-Baselines3", "CleanRL", "TRL GRPO", "TRL PPO", "verl", "OpenRLHF", "RLlib", "Plain PyTorch"]
    assert titles[: len(wanted)] == wanted
    known = {profile.title for profile in profiles().values()}
    assert all(any(title.split()[0] in name for name in known) for title in wanted[:-1])


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("\n")[0][:40] for block in BLOCKS])
def test_the_lines_fit_the_recorder(block):
    tree = ast.parse(block)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func)
        target = Recorder if name == "Recorder" else getattr(Recorder, name.rpartition(".")[2], None)
        if target is None or not (name == "Recorder" or "recorder." in name):
            continue
        accepted = inspect.signature(target).parameters
        assert {keyword.arg for keyword in call.keywords} <= set(accepted), name
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        module = ROOT / (str(node.module).replace(".", "/") + ".py")
        source = (module if module.is_file() else module.with_suffix("") / "__init__.py").read_text(encoding="utf-8")
        assert all(alias.name in source for alias in node.names)


def test_a_line_of_json_is_read(tmp_path, monkeypatch, cli):
    """The last block is run as it stands, for twenty steps, below the first line that the page shows."""
    monkeypatch.chdir(tmp_path)
    header = '{"ppo_doctor": 1, "config": {"ppo_epochs": 4, "num_minibatches": 8}}'
    assert header in GUIDE.read_text(encoding="utf-8")
    Path("run.jsonl").write_text(header + "\n", encoding="utf-8")
    code = BLOCKS[-1]
    for step in range(20):
        names = {"json": json, "kl": 0.01, "clipped": 0.1, "steps": 32, "deviation": 0.2, "step": step}
        exec(compile(code, "how-to-log.md", "exec"), names)  # noqa: S102 - our own page
    run = cli("analyze", "run.jsonl", "--format", "json").json["run"]
    updates = run["updates_per_batch"]
    assert (updates["configured"], updates["observed"]) == (32, 32)
