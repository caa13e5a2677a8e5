"""The pack that the authoring guide shows loads as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from ppo_doctor.rulepack import load_pack

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "authoring.md"


def test_the_pack_of_the_guide_loads(tmp_path):
    [block] = [
        b for b in re.findall(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL) if "# overrides.toml" in b
    ]
    marker, _, overrides = block.partition("# overrides.toml")
    (tmp_path / "pack.toml").write_text(marker, encoding="utf-8")
    (tmp_path / "overrides.toml").write_text(overrides, encoding="utf-8")
    loaded = load_pack([tmp_path], installed=False)
    [pack] = loaded.further
    assert (pack.overrides, len(pack.retired)) == (2, 1)
    assert loaded.rule(pack.retired[0]) is None
    [weight] = [weight for weight in loaded.cause("lr-zero").weights if weight.finding == "learning-rate-zero"]
    assert (weight.fired, weight.clear) == (20, -10)
