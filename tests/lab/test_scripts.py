"""Names of scripts are counted as they are read: right, vaguer, again, missed or wrong."""

from __future__ import annotations

import pytest

from lab.scripts import answers, is_table, names_in, table

ROWS = """script_id,name,canonical,unit_or_sign,context
a,policy_loss,policy_loss,,
a,value_loss,value_loss,,
a,cf%,clip_frac,percent,
a,kl,approx_kl,,
a,ent,entropy,,
a,zz,other,,
a,vloss,value_loss,,
b,loss,policy_loss,,
b,kl,ref_kl,,
b,approx_kl,approx_kl,,
b,mystery,entropy,,
"""


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


def test_each_name_is_answered(names):
    held = list(names_in(names))
    told = {(name.script, name.key): answer for name, answer in zip(held, answers(held), strict=True)}
    assert told["a", "policy_loss"] == ("right", "right")
    assert told["a", "cf%"] == ("missed", "right")
    assert told["a", "vloss"] == ("again", "again")
    assert told["a", "zz"] == ("", "")
    assert told["b", "loss"][1] == "vaguer"
    assert told["b", "kl"][1] in ("wrong", "missed")
    assert told["b", "mystery"] == ("missed", "missed")


def test_a_table_is_told_in_two_lines_and_its_errors(names):
    lines = list(table(names))
    assert lines[0] == "names.csv: 2 scripts, 11 names"
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["by name", "with company"]


def test_a_table_of_scripts_is_told_from_one_of_frameworks(names, tmp_path):
    other = tmp_path / "frameworks.csv"
    other.write_text("framework,native_key,canonical\n", encoding="utf-8")
    assert is_table(names)
    assert not is_table(other)
