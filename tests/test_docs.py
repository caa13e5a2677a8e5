"""The hand-written docs: links lead somewhere, and the lines of code that they show fit the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli import pages
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
        assert pages.page(name)


# How to log


def test_the_five_numbers_are_metrics_that_rules_read():
    text = GUIDE.read_text(encoding="utf-8")
    ranked = re.findall(r"^\| \d \| `(\w+)`", text, re.MULTILINE)
    assert tuple(ranked) == FIVE
    from ppo_doctor.checks.run_view import STATISTICS

    read = {need for rule in PACK.rules for need in rule.needs}
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


def test_the_cause_of_the_guide_loads(tmp_path, cli):
    blocks = re.findall(r"```toml\n(.*?)```", (DOCS / "authoring.md").read_text("utf-8"), re.DOTALL)
    [cause] = [block for block in blocks if "[[weight]]" in block]
    assert cli("rules", "new", "entropy-collapses-late", "--dir", tmp_path).code == 0
    (tmp_path / "causes").mkdir()
    (tmp_path / "causes" / "mine.toml").write_text(cause, encoding="utf-8")
    [added] = load_pack([tmp_path]).further
    assert added.rules == ("entropy-collapses-late",)
    [name] = added.causes
    weights = load_pack([tmp_path]).cause(name).weights
    assert ("entropy-collapses-late", 12, -3) in {(weight.finding, weight.fired, weight.clear) for weight in weights}


MIB = 1 << 20


#: module, constant → how the page spells it
LIMITS = {
    ("model.opening", "PATIENCE"): (10.0, "10 s"),
    ("readers.source", "ENDLESS"): (1024 * MIB, "1 GiB"),
    ("readers.source", "LONGEST_LINE"): (16 * MIB, "one line | 16 MiB"),
    ("readers.values", "DEEPEST"): (16, "16 deep"),
    ("readers.json_log", "LARGEST"): (1024 * MIB, "one JSON document | 1 GiB"),
    ("readers.sb3_files", "LARGEST_MEMBER"): (256 * MIB, "a member of an archive | 256 MiB"),
    ("readers.parquet_log", "LARGEST"): (512 * MIB, "512 MiB"),
    ("readers.sb3_files", "LARGEST"): (512 * MIB, "512 MiB"),
    ("runs.walking", "DEEPEST"): (12, "12 deep"),
    ("runs.walking", "MOST_FOLDERS"): (5_000, "5,000 folders"),
    ("runs.walking", "MOST_ENTRIES"): (20_000, "20,000 entries"),
    ("readers.sqlite_log", "LARGEST"): (256 * MIB, "compressed | 256 MiB"),
    ("readers.sqlite_log", "LARGEST_CELL"): (16 * MIB, "one cell | 16 MiB"),
    ("readers.sqlite_log", "MOST_JUMPS"): (1_000, "jumped over | 1,000"),
    ("trainers.config_files", "LARGEST"): (4 * MIB, "a configuration | 4 MiB"),
    ("trainers.config_files", "LARGEST_YAML"): (MIB // 2, "YAML 512 KiB"),
    ("trainers.config_formats", "MOST_NODES"): (20_000, "20,000 |"),
    ("trainers.config_formats", "MOST_UNFOLDED"): (100_000, "100,000"),
    ("trainers.configuration", "MOST_SETTINGS"): (50_000, "50,000"),
    ("readers.tensors.torch_files", "LARGEST_PICKLE"): (64 * MIB, "a pickle | 64 MiB"),
    ("readers.tensors.pickle_opcodes", "MOST_OPCODES"): (3_000_000, "3,000,000 steps"),
    ("readers.tensors.pickle_opcodes", "MOST_CONTAINERS"): (500_000, "500,000 containers"),
    ("readers.tensors.torch_files", "MOST_VISITS"): (500_000, "each occurrence counted | 500,000"),
    ("readers.tensors.torch_files", "LONGEST_NAME"): (4_096, "4,096 letters"),
    ("readers.tensors.torch_files", "DEEPEST"): (64, "64 deep"),
    ("readers.tensors.storages", "UNPACKED"): (1024 * MIB, "unpacks to | 1 GiB"),
    ("readers.tensors.storages", "RATIO"): (200, "200 times"),
    ("readers.tensors.rows", "LONGEST_LINE"): (32 * MIB, "32 MiB"),
    ("readers.samples", "MOST_TABLES"): (64, "the last 64"),
    ("readers.samples", "MOST_ROWS"): (20_000, "20,000 rows"),
    ("readers.samples", "LARGEST_JSON"): (64 * MIB, "a table of W&B | 64 MiB"),
    ("readers.samples", "LONGEST_LINE"): (4 * MIB, "a rollout dump | 4 MiB"),
    ("readers.samples", "LARGEST_COLUMNS"): (1024 * MIB, "1 GiB unpacked"),
    ("readers.samples", "LONGEST_TEXT"): (2_000, "2,000 characters"),
}


def test_the_page_says_what_the_code_holds_to(root):
    page = (root / "docs" / "limits.md").read_text(encoding="utf-8")
    held = {key: getattr(import_module(f"ppo_doctor.{key[0]}"), key[1]) for key in LIMITS}
    assert held == {key: value for key, (value, _) in LIMITS.items()}
    assert not [words for _, words in LIMITS.values() if words not in page]
