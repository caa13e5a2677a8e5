"""Folders of a user's own rules (`--rules DIR`), and the template to start one from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_doctor.checks.cases import read_cases
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.model.errors import DoctorError, ExitCode

ROOT = Path(__file__).resolve().parent.parent.parent
RULE = (ROOT / "rules" / "advantages" / "advantages-all-zero.toml").read_text(encoding="utf-8")
BUILT_IN = load_pack()
SICK = ROOT / "sample_logs" / "sick" / "lr-zero.canonical"


@pytest.fixture
def pack(tmp_path):
    """Return a function that writes a folder with the files given."""

    def write(name="mine", folder=None, **files):
        place = folder or tmp_path / name
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            path = place / f"{file.replace('__', '/').replace('_', '-')}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return place

    return write


def my_rule(name="my-rule", code="MINE001"):
    rule = RULE.replace('"ADV001"', f'"{code}"\nlink = "advantages"')
    return rule.replace('name = "advantages-all-zero"', f'name = "{name}"')


def refused(*folders):
    with pytest.raises(DoctorError) as caught:
        load_pack(folders)
    assert caught.value.code == ExitCode.USAGE
    return caught.value


# What a folder may no longer do


def test_built_in_causes_cannot_be_changed(pack, cli):
    folder = pack(overrides='[[cause]]\nid = "lr-zero"\nprior = "rare"\nsource = "expert: ours"\n')
    outcome = cli("analyze", SICK, "--rules", folder)
    assert outcome.code == 2
    assert str(folder / "overrides.toml") in outcome.err
    assert "[[weight]]" in outcome.err
    assert "[thresholds.RULE]" in outcome.err


def test_built_in_rules_cannot_be_retired(pack):
    error = refused(pack(pack='name = "mine"\nretire = ["learning-rate-zero"]\n', mine__my_rule=my_rule()))
    assert "pack.toml" in error.message
    assert "--ignore" in error.hint


def test_the_old_marker_of_a_pack_may_stay(pack):
    loaded = load_pack([pack(pack='name = "other"\ntitle = "Ours"\n', mine__my_rule=my_rule())])
    assert [folder.name for folder in loaded.further] == ["mine"]


def test_the_list_of_complaints_is_closed(pack):
    assert "complaints.toml" in refused(pack(complaints='[[complaint]]\nid = "x"\ntitle = "X"\n')).message


# Folders side by side


def test_two_folders_cannot_hold_one_rule(pack):
    one, two = pack("one", my_rule=my_rule()), pack("two", my_rule=my_rule(code="MINE002"))
    error = refused(one, two)
    assert str(one) in error.message
    assert str(two) in error.message


def test_a_folder_given_twice_counts_once(pack):
    folder = pack(my_rule=my_rule())
    assert len(load_pack([folder, folder]).further) == 1


def test_a_folder_speaks_of_the_chain_after_the_built_in_rules(pack):
    folder = pack(my_rule=my_rule(), chain='[advantages]\ndead = ["my-rule"]\n')
    before, after = BUILT_IN.chain["advantages"], load_pack([folder]).chain["advantages"]
    assert after.dead == (*before.dead, "my-rule")
    assert after.alive == before.alive


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("when = [{", "when = {"),
        ("at_most = 0", 'at_most = "one"'),
        ("value = 0.95", 'value = "two"'),
        ('unit = "fraction of records"', 'unit = "fraction of records", colour = "blue"'),
        ("[params]", "[params]\nx = 3"),
    ],
)
def test_a_rule_of_the_wrong_form_is_no_bug_of_ours(pack, old, new):
    assert old in RULE
    assert "my-rule.toml" in refused(pack(mine__my_rule=my_rule().replace(old, new, 1))).message


def test_reports_name_the_folders_of_rules(pack, cli, validate):
    folder = pack(my_rule=my_rule())
    assert "my-rule" in cli("analyze", SICK, "--rules", folder).out
    report = cli("analyze", SICK, "--rules", folder, "--format", "json").json
    validate(report)
    assert report["tool"]["packs"] == [{"name": "mine", "path": str(folder), "rules": ["my-rule"], "causes": []}]


def test_rules_list_tells_where_a_rule_comes_from(pack, cli):
    lines = cli("rules", "list", "--rules", pack("ours", mine__my_rule=my_rule())).out.splitlines()
    [mine] = [line for line in lines if line.startswith("MINE001")]
    [theirs] = [line for line in lines if line.startswith("ADV001")]
    assert "ours" in mine.split()
    assert "builtin" in theirs.split()


# The template


def test_a_new_rule_passes_its_cases_at_once(cli, tmp_path):
    folder = tmp_path / "my-rules"
    for name in ("entropy-collapses-late", "kl-creeps"):
        assert cli("rules", "new", name, "--dir", folder).code == 0
    assert cli("rules", "test", "--rules", folder).code == 0
    loaded = load_pack([folder])
    codes = {loaded.rule(name).code for name in ("entropy-collapses-late", "kl-creeps")}
    assert len(codes) == 2
    assert {case["status"] for case in read_cases(loaded.rule("kl-creeps"))} == {"fired", "clear", "skipped"}


def test_the_rules_of_a_named_pack_are_tested_and_no_others(cli, tmp_path):
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for name, folder in zip(("kl-creeps", "entropy-creeps"), folders, strict=True):
        cli("rules", "new", name, "--dir", folder)
    assert cli("rules", "test", "--rules", folders[0]).out.startswith("4 cases")
    both = [word for folder in folders for word in ("--rules", folder)]
    assert cli("rules", "test", *both).out.startswith("8 cases")
    assert cli("rules", "test", "metric-not-finite", "--rules", folders[0]).code == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("severity = ", "severty = "),
        ("pass_title = ", "pas_title = "),
        ("params", "parms"),
        ("unit = ", "unt = "),
        ("window = ", "windw = "),
        ("above = ", "abve = "),
        ("look_alikes = ", "lookalikes = "),
        ("cases.fires", "cases.firs"),
        ("clip_fraction = ", "clip_fracton = "),
        ("onset = ", "onst = "),
        ("metric = ", "metrc = "),
        ('"clip_fraction"', '"clip_fracton"'),
        ('metric = "clip_fraction"', 'statistic = "rate_zero_shre"'),
        ('metric = "clip_fraction"', 'setting = "clip_rnge"'),
    ],
)
def test_what_is_misspelt_in_a_rule_is_named_with_what_is_near(cli, tmp_path, right, wrong):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    path = tmp_path / "mine" / "kl-creeps.toml"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    outcome = cli("rules", "test", "--rules", tmp_path / "mine")
    assert outcome.code == 2
    assert str(path) in outcome.err
    near = {"setting": "clip_range", "statistic": "rate_zero_share"}.get(wrong.partition(" ")[0], right)
    assert f"did you mean {near.removeprefix('cases.').removesuffix(' = ').strip(chr(34))}" in outcome.err


def test_a_case_of_the_template_can_fail(cli, tmp_path):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    path = tmp_path / "mine" / "kl-creeps.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("value = 0.5", "value = 0.8"), encoding="utf-8")
    assert cli("rules", "test", "--rules", tmp_path / "mine").code == 1


@pytest.mark.parametrize("name", ["Bad Name", "../up", "", "learning-rate-zero", "lr-zero", "a--b"])
def test_what_cannot_name_a_new_rule(cli, tmp_path, name):
    assert cli("rules", "new", name, "--dir", tmp_path / "mine").code == 2
    assert not (tmp_path / "mine").exists()


def test_nothing_is_written_over(cli, tmp_path):
    assert cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine").code == 0
    path = tmp_path / "mine" / "kl-creeps.toml"
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine").code == 2
    assert path.read_text(encoding="utf-8").endswith("# mine\n")


@pytest.mark.parametrize(
    ("new", "old", "hint"),
    [
        ("[cases.fires]", "[[case]]\nname = 'x'\n[cases.fires]", "[cases.fires]"),
        ("metric = ", "quantity = ", "metric"),
    ],
)
def test_the_old_form_is_refused_with_the_new_one(cli, tmp_path, new, old, hint):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    path = tmp_path / "mine" / "kl-creeps.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(new, old), encoding="utf-8")
    outcome = cli("rules", "list", "--rules", tmp_path / "mine")
    assert outcome.code == 2
    assert "kl-creeps.toml" in outcome.err
    assert hint in outcome.err


def test_the_link_of_a_rule_is_its_folder_or_its_field(pack):
    bare = my_rule().replace('link = "advantages"\n', "")
    folder = pack(rewards__my_rule=bare, mine__other=my_rule("other", "MINE002"))
    loaded = load_pack([folder])
    assert (loaded.rule("my-rule").link, loaded.rule("other").link) == ("rewards", "advantages")


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ('setting = "learning_rate"\nto = "10"', "to = '10'"),
        ('to = "= 10"', "of a setting"),
        ('setting = "learning_rat"\nto = "/ 10"', "learning_rate"),
    ],
)
def test_a_remedy_whose_target_means_nothing_is_refused(pack, remedy: str, told: str) -> None:
    cause = (ROOT / "rules" / "causes" / "lr-too-high.toml").read_text(encoding="utf-8")
    cause = cause.replace('id = "lr-too-high"', 'id = "mine"') + f'\n[[remedy]]\ndo = "Set it."\n{remedy}\n'
    error = refused(pack(causes__mine=cause))
    assert told in f"{error} {error.hint}"
