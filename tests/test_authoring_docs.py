"""The cause that the authoring guide shows loads as it stands there, beside a rule from the template."""

from __future__ import annotations

import re
from pathlib import Path

from ppo_doctor.checks.rulepack import load_pack

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "authoring.md"


def test_the_cause_of_the_guide_loads(tmp_path, cli):
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    [cause] = [block for block in blocks if "[[weight]]" in block]
    assert cli("rules", "new", "entropy-collapses-late", "--dir", tmp_path).code == 0
    (tmp_path / "causes").mkdir()
    (tmp_path / "causes" / "mine.toml").write_text(cause, encoding="utf-8")
    [added] = load_pack([tmp_path]).further
    assert added.rules == ("entropy-collapses-late",)
    [name] = added.causes
    weights = load_pack([tmp_path]).cause(name).weights
    assert ("entropy-collapses-late", 12, -3) in {(weight.finding, weight.fired, weight.clear) for weight in weights}
