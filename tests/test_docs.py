"""The hand-written docs: links lead somewhere, and the lines of code that they show fit the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli import explain
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.record import Recorder
from ppo_doctor.trainers.detection import profiles

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GUIDE = DOCS / "how-to-log.md"
PACK = load_pack()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
#: The five numbers, as failures.md ranks them by pairs of causes resolved per cost.
FIVE = ("optimizer_steps", "epoch_start_ratio_dev", "update_norm", "probe_kl", "logratio_advantage_corr")


WRITTEN = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_lead_to_files_that_git_holds(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    paths = [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert [str(path) for path in paths if not path.exists() or path.is_relative_to(ROOT / "build")] == []


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_to_a_section_lead_to_a_heading(page):
    targets = re.findall(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    assert [(file, name) for file, name in targets if name not in anchors(page.parent / file if file else page)] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_commands_name_modules_and_targets_that_exist(page):
    text, targets = page.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    ours = re.findall(r"python -m\s+((?:lab|tests|benchmarks)\b[\w.]*)", text)
    assert [name for name in ours if find_spec(name) is None] == []
    commands = re.findall(r"`make ([\w-]+)|^make ([\w-]+)", text, re.MULTILINE)
    assert [name for name in map("".join, commands) if f"\n{name}:" not in targets] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_commands_that_explain_name_something(page):
    for name in re.findall(r"ppo-doctor explain ([a-z][\w/-]+)", page.read_text(encoding="utf-8")):
        assert explain.page(name)


# How to log


def test_the_five_numbers_are_metrics_that_rules_read():
    text = GUIDE.read_text(encoding="utf-8")
    ranked = re.findall(r"^\| \d \| `(\w+)`", text, re.MULTILINE)
    assert tuple(ranked) == FIVE
    from ppo_doctor.checks.statistics import STATISTICS

    read = {need.partition(".")[2] for rule in PACK.rules for need in rule.needs}
    read |= {name for need in read if need in STATISTICS for group in STATISTICS[need].any_of for name in group}
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
