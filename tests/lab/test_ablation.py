"""The ablation takes out what it names, and what is left are rules still."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.ablation import PARTS, RULES
from ppo_doctor.checks.rulepack import build
from ppo_doctor.model.toml_files import parse_folder


@pytest.mark.parametrize("part", [name for name in PARTS if name != "nothing"])
def test_a_part_is_gone_and_the_rest_still_builds(part, tmp_path):
    rules = Path(shutil.copytree(RULES, tmp_path / "rules"))
    PARTS[part](rules)
    assert parse_folder(rules, build) != parse_folder(RULES, build)
