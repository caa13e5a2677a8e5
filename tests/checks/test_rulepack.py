"""Packs of others: what does not load, and that the message names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.model.errors import DoctorError, ExitCode

ROOT = Path(__file__).resolve().parent.parent.parent
RULE = (ROOT / "rules" / "signal" / "advantages-all-zero.toml").read_text(encoding="utf-8")
CAUSE = (ROOT / "rules" / "causes" / "nan-inf.toml").read_text(encoding="utf-8")
#: Packs of others may weigh by numbers: what sound runs answer to their checks is not counted.
WEIGHT = """
[[weight]]
finding = "my-rule"
fired = 50
source = "definition of the cause"
"""


@pytest.fixture
def pack(tmp_path):
    """Return a small pack of one rule and one cause, under names of their own."""
    (tmp_path / "causes").mkdir()
    (tmp_path / "mine").mkdir()
    rule = RULE.replace("ADV001", "MINE001").replace('name = "advantages-all-zero"', 'name = "my-rule"')
    cause = CAUSE.replace('id = "nan-inf"', 'id = "my-cause"').replace('"metric-not-finite", ', "")
    (tmp_path / "mine" / "my-rule.toml").write_text(rule, encoding="utf-8")
    (tmp_path / "causes" / "my-cause.toml").write_text(cause + WEIGHT, encoding="utf-8")
    return tmp_path


def test_a_pack_adds_to_ours(pack):
    loaded = load_pack([pack])
    assert loaded.rule("my-rule").code == "MINE001"
    assert loaded.rule("metric-not-finite")
    assert loaded.cause("my-cause")


def test_a_pack_of_others_takes_part(pack, cli, samples):
    report = cli("analyze", samples / "sick" / "adv-exactly-zero.canonical", "--rules", pack, "--format", "json").json
    assert "my-rule" in {finding["name"] for finding in report["checks"] if finding["answer"] == "yes"}
    assert "my-cause" in {cause["id"] for cause in report["causes"]}


BROKEN = [
    ("mine/my-rule.toml", 'link = "advantages"', 'link = "nowhere"'),
    ("mine/my-rule.toml", 'severity = "critical"', 'severity = "dreadful"'),
    ("mine/my-rule.toml", 'answers = "signal"', 'answers = "everything"'),
    ("mine/my-rule.toml", 'proof = "identity"', 'proof = "hunch"'),
    ("mine/my-rule.toml", 'is = "at most"', 'is = "roughly"'),
    ("mine/my-rule.toml", 'window = "tail"', 'window = "tial"'),
    ("mine/my-rule.toml", 'least = "@least"', 'least = "@least"\nstatistic = "medain"'),
    ("mine/my-rule.toml", "bound = 0", 'bound = "@nothing"'),
    ("mine/my-rule.toml", 'title = "All groups', 'titel = "All groups'),
    ("mine/my-rule.toml", "min_points = 5", "min_point = 5"),
    ("mine/my-rule.toml", 'quantity = "series.advantage_spread"', 'quantity = "series.advantage_spraed"'),
    ("mine/my-rule.toml", 'quantity = "series.advantage_spread"', 'quantity = "advantage_spread"'),
    ("mine/my-rule.toml", 'code = "MINE001"', "code = "),
    ("mine/my-rule.toml", 'code = "MINE001"', 'code = "ADV001"'),
    ("causes/my-cause.toml", 'prior = "occasional"', 'prior = "always"'),
    ("causes/my-cause.toml", 'finding = "my-rule"', 'finding = "my-ruel"'),
    ("causes/my-cause.toml", "fired = 50", "fired = 90"),
    ("causes/my-cause.toml", '"tensors-not-finite"', '"tensors-not-finit"'),
    ("causes/my-cause.toml", 'complaints = ["numbers-break"]', 'complaints = ["numbers-brake"]'),
    ("causes/my-cause.toml", 'source = "definition of the cause"', 'sauce = "none"'),
    ("causes/my-cause.toml", 'id = "my-cause"', 'id = "nan-inf"'),
]


@pytest.mark.parametrize(("file", "old", "new"), BROKEN, ids=[new.partition("\n")[2] or new for _, _, new in BROKEN])
def test_a_mistake_in_a_pack_is_found_and_its_file_named(pack, file, old, new):
    text = (pack / file).read_text(encoding="utf-8")
    assert old in text
    (pack / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DoctorError) as caught:
        load_pack([pack])
    assert caught.value.code == ExitCode.USAGE
    assert Path(file).name in caught.value.message


def test_two_packs_cannot_hold_one_rule(pack):
    """Two rules of one name would both be counted, and only the second would weigh."""
    for file in (pack / "mine" / "my-rule.toml", pack / "causes" / "my-cause.toml"):
        file.write_text(file.read_text(encoding="utf-8").replace('"my-rule"', '"metric-not-finite"'), encoding="utf-8")
    with pytest.raises(DoctorError) as caught:
        load_pack([pack])
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("below", ["", "nowhere"])
def test_a_folder_without_rules_is_refused(tmp_path, below):
    with pytest.raises(DoctorError) as caught:
        load_pack([tmp_path / below])
    assert caught.value.code == ExitCode.USAGE


def test_a_case_that_fails_fails_the_command(pack, cli):
    assert cli("rules", "test", "--rules", pack).code == 0
    path = pack / "mine" / "my-rule.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("onset = 5", "onset = 6"), encoding="utf-8")
    outcome = cli("rules", "test", "--rules", pack)
    assert outcome.code == 1
    assert "my-rule" in outcome.out
