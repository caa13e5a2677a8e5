"""Packs that change others, packs that are installed, and the skeleton to start one from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.installed import installed_packs
from ppo_doctor.rulepack import PRIORS, builtin_rules, load_pack
from ppo_doctor.testing import KINDS

ROOT = Path(__file__).resolve().parent.parent
RULE = (ROOT / "rules" / "signal" / "advantages-all-zero.toml").read_text(encoding="utf-8")
BUILT_IN = load_pack(installed=False)
SICK = ROOT / "sample_logs" / "sick" / "lr-zero.canonical"


@pytest.fixture
def pack(tmp_path):
    """Return a function that writes a pack of the files given."""

    def write(name="mine", folder=None, **files):
        place = folder or tmp_path / name
        place.mkdir(parents=True, exist_ok=True)
        files = {"pack": f'name = "{name}"\n'} | files
        for file, text in files.items():
            path = place / f"{file.replace('__', '/').replace('_', '-')}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return place

    return write


def weight(cause="lr-zero", finding="learning-rate-zero", numbers="fired = 7"):
    return f'[[weight]]\ncause = "{cause}"\nfinding = "{finding}"\n{numbers}\nsource = "expert: ours"\n'


def prior(cause="lr-zero", value="rare"):
    return f'[[cause]]\nid = "{cause}"\nprior = "{value}"\nsource = "expert: ours"\n'


def weights(pack, cause):
    return {weight.finding: (weight.fired, weight.clear) for weight in pack.cause(cause).weights}


def refused(*folders):
    with pytest.raises(DoctorError) as caught:
        load_pack(folders, installed=False)
    assert caught.value.code == ExitCode.USAGE
    return caught.value


# Overrides


def test_a_weight_is_replaced_and_no_other(pack):
    loaded = load_pack([pack(overrides=weight(numbers="fired = 7\nclear = -3"))], installed=False)
    assert weights(loaded, "lr-zero") == weights(BUILT_IN, "lr-zero") | {"learning-rate-zero": (7, -3)}
    others = [cause for cause in loaded.causes if cause.id != "lr-zero"]
    assert others == [cause for cause in BUILT_IN.causes if cause.id != "lr-zero"]


def test_a_weight_is_added(pack):
    assert "groups-mostly-flat" not in weights(BUILT_IN, "lr-zero")
    loaded = load_pack([pack(overrides=weight(finding="groups-mostly-flat", numbers="clear = 4"))], installed=False)
    assert weights(loaded, "lr-zero")["groups-mostly-flat"] == (0, 4)


def test_a_prior_is_replaced(pack):
    other = {"rare": "common", "common": "rare", "occasional": "rare"}
    before = BUILT_IN.cause("lr-zero").prior
    word = {score: name for name, score in PRIORS.items()}[before]
    loaded = load_pack([pack(overrides=prior(value=other[word]))], installed=False)
    assert loaded.cause("lr-zero").prior != before


def test_an_override_changes_the_account(pack, cli):
    changed = pack(overrides=weight(numbers="fired = 7"))

    def account(*more):
        report = cli("analyze", SICK, "--format", "json", *more).json
        [cause] = [cause for cause in report["causes"] if cause["id"] == "lr-zero"]
        [entry] = [entry for entry in cause["for"] if entry["check"] == "learning-rate-zero"]
        return entry["db"]

    assert account("--rules", changed) == 7
    assert account() != 7


WRONG = [
    (weight(cause="lr-zreo"), "lr-zero"),
    (weight(finding="learning-rate-zreo"), "learning-rate-zero"),
    (prior(cause="lr-zreo"), "lr-zero"),
    (prior(value="comon"), "common"),
    (weight(numbers="fierd = 3"), ""),
    (weight(numbers='fired = "3"'), ""),
    (weight(numbers="fired = 2.5"), ""),
    (weight(numbers="fired = true"), ""),
    (weight(numbers=""), ""),
    (weight(numbers="fired = 61"), ""),
    (weight(finding="policy-stands", numbers="fired = 21"), ""),
    (weight().replace("source", "sauce"), ""),
    (weight().replace("[[weight]]", "[[wieght]]"), "weight"),
    (weight().replace("[[weight]]", "[weight]"), ""),
    ("weight = 3\n", ""),
]


@pytest.mark.parametrize(("text", "near"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_wrong_override_is_refused_with_its_file_and_a_near_miss(pack, text, near):
    error = refused(pack(overrides=text))
    assert "overrides.toml" in error.message
    assert near in error.hint


def test_two_packs_that_contradict_each_other_are_refused(pack):
    one, two = pack("one", overrides=weight()), pack("two", overrides=weight(numbers="fired = 8"))
    message = refused(one, two).message
    assert str(one) in message
    assert str(two) in message
    assert load_pack([one, pack("three", overrides=weight())], installed=False).cause("lr-zero")


# Retired rules


def test_a_retired_rule_is_gone_and_so_are_its_weights(pack):
    retired = pack(pack='name = "mine"\nretire = ["learning-rate-zero"]\n')
    loaded = load_pack([retired], installed=False)
    assert loaded.rule("learning-rate-zero") is None
    assert len(loaded.rules) == len(BUILT_IN.rules) - 1
    assert not any(weight.finding == "learning-rate-zero" for cause in loaded.causes for weight in cause.weights)


def test_a_retired_rule_does_not_run(pack, cli, validate):
    retired = pack(pack='name = "mine"\nretire = ["learning-rate-zero"]\n')
    report = cli("analyze", SICK, "--rules", retired, "--format", "json").json
    validate(report)
    assert "learning-rate-zero" not in {finding["name"] for finding in report["checks"]}
    [told] = report["tool"]["packs"]
    assert (told["name"], told["retired"], told["path"]) == ("mine", ["learning-rate-zero"], str(retired))


@pytest.mark.parametrize("retire", ['["learning-rate-zreo"]', '"learning-rate-zero"', "[1]"])
def test_what_cannot_be_retired(pack, retire):
    assert "pack.toml" in refused(pack(pack=f'name = "mine"\nretire = {retire}\n')).message


def test_a_pack_cannot_weigh_what_it_retires(pack):
    error = refused(pack(pack='name = "mine"\nretire = ["learning-rate-zero"]\n', overrides=weight()))
    assert "learning-rate-zero" in error.message


def test_a_cause_cannot_weigh_what_its_own_pack_retires(pack):
    cause = (ROOT / "rules" / "causes" / "nan-inf.toml").read_text(encoding="utf-8").replace('"nan-inf"', '"my-cause"')
    error = refused(pack(pack='name = "mine"\nretire = ["metric-not-finite"]\n', causes__my_cause=cause))
    assert "my-cause.toml" in error.message


def test_a_rule_may_replace_the_one_that_is_retired(pack):
    mine = RULE.replace('"ADV001"', '"MINE001"').replace('name = "advantages-all-zero"', 'name = "my-all-zero"')
    folder = pack(
        pack='name = "mine"\nretire = ["metric-not-finite"]\n',
        mine__my_all_zero=mine,
        overrides=weight(cause="nan-inf", finding="my-all-zero", numbers="fired = 50"),
    )
    loaded = load_pack([folder], installed=False)
    assert weights(loaded, "nan-inf")["my-all-zero"] == (50, 0)


# Packs side by side


def test_two_packs_of_one_name_are_refused(pack, tmp_path):
    one, two = pack(folder=tmp_path / "a"), pack(folder=tmp_path / "b")
    assert "mine" in refused(one, two).message


def test_a_pack_given_twice_counts_once(pack):
    folder = pack(overrides=weight())
    assert len(load_pack([folder, folder], installed=False).further) == 1


def test_the_list_of_complaints_is_closed(pack):
    assert "complaints.toml" in refused(pack(complaints='[[complaint]]\nid = "x"\ntitle = "X"\n')).message


@pytest.mark.parametrize("text", ["name = 3\n", "title = 'x'\n", 'name = "mine"\nretier = []\n', 'name = ""\n', "["])
def test_a_marker_that_says_nothing_is_refused(pack, text):
    assert "pack.toml" in refused(pack(pack=text)).message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[when]]", "[when]"),
        ("bound = 0", 'bound = "one"'),
        ("value = 0.95\n", 'value = "two"\n'),
        ('unit = "fraction of records"', 'unit = "fraction of records"\ncolour = "blue"'),
        ("[params.share]", "[params]\nx = 3\n[params.share]"),
    ],
)
def test_a_rule_of_the_wrong_form_is_no_bug_of_ours(pack, old, new):
    assert old in RULE
    rule = RULE.replace('"ADV001"', '"MINE001"').replace('name = "advantages-all-zero"', 'name = "my-rule"')
    assert "my-rule.toml" in refused(pack(mine__my_rule=rule.replace(old, new, 1))).message


def test_text_reports_tell_which_packs_are_in_force(pack, cli):
    assert "rule pack mine" in cli("analyze", SICK, "--rules", pack(overrides=weight())).out


def test_rules_list_tells_where_a_rule_comes_from(pack, cli):
    rule = RULE.replace('"ADV001"', '"MINE001"').replace('name = "advantages-all-zero"', 'name = "my-rule"')
    lines = cli("rules", "list", "--rules", pack("ours", mine__my_rule=rule)).out.splitlines()
    [mine] = [line for line in lines if line.startswith("MINE001")]
    [theirs] = [line for line in lines if line.startswith("ADV001")]
    assert "ours" in mine.split()
    assert "builtin" in theirs.split()


# The skeleton


def test_a_new_rule_passes_its_cases_at_once(cli, tmp_path):
    folder = tmp_path / "my-rules"
    for name in ("entropy-collapses-late", "kl-creeps"):
        assert cli("rules", "new", name, "--dir", folder).code == 0
    assert cli("rules", "test", "--rules", folder).code == 0
    loaded = load_pack([folder], installed=False)
    codes = {loaded.rule(name).code for name in ("entropy-collapses-late", "kl-creeps")}
    assert len(codes) == 2
    from ppo_doctor.rulepack import prose

    kinds = [case["kind"] for case in prose(loaded.rule("kl-creeps").path)["case"]]
    assert set(kinds) == set(KINDS)


def test_the_rules_of_a_named_pack_are_tested_and_no_others(cli, tmp_path):
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for name, folder in zip(("kl-creeps", "entropy-creeps"), folders, strict=True):
        cli("rules", "new", name, "--dir", folder)
    cases = len(KINDS)
    assert cli("rules", "test", "--rules", folders[0]).out.startswith(f"{cases} cases")
    both = [word for folder in folders for word in ("--rules", folder)]
    assert cli("rules", "test", *both).out.startswith(f"{2 * cases} cases")
    assert cli("rules", "test", "metric-not-finite", "--rules", folders[0]).code == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("severity = ", "severty = "),
        ("pass_title = ", "pas_title = "),
        ("[params.clipped]", "[parms.clipped]"),
        ("unit = ", "unt = "),
        ("window = ", "windw = "),
        ("bound = ", "bund = "),
        ("look_alikes = ", "lookalikes = "),
        ("expect = ", "expct = "),
        ('status = "fired"', 'statu = "fired"'),
        ('kind = "positive"\nseries = ', 'kind = "positive"\nserie = '),
        ("series.clip_fraction", "series.clip_fracton"),
        ("series.clip_fraction", "fact.clip_fracton"),
        ("series.clip_fraction", "config.clip_rnge"),
    ],
)
def test_what_is_misspelt_in_a_rule_is_named_with_what_is_near(cli, tmp_path, right, wrong):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    (path,) = (tmp_path / "mine").glob("*/kl-creeps.toml")
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    outcome = cli("rules", "test", "--rules", tmp_path / "mine")
    assert outcome.code == 2
    assert str(path) in outcome.err
    near = {"config.clip_rnge": "config.clip_range", "fact.clip_fracton": "fact.clip_fraction"}.get(wrong, right)
    named = [word for word in near.replace('"', " ").replace("[params.clipped]", "params").split() if word != "="]
    assert any(f"did you mean {word}" in outcome.err for word in named)


def test_a_case_of_the_skeleton_can_fail(cli, tmp_path):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    path = tmp_path / "mine" / "mine" / "kl-creeps.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("value = 0.5", "value = 0.8"), encoding="utf-8")
    assert cli("rules", "test", "--rules", tmp_path / "mine").code == 1


@pytest.mark.parametrize("name", ["Bad Name", "../up", "", "learning-rate-zero", "lr-zero", "a--b"])
def test_what_cannot_name_a_new_rule(cli, tmp_path, name):
    assert cli("rules", "new", name, "--dir", tmp_path / "mine").code == 2
    assert not (tmp_path / "mine").exists()


def test_nothing_is_written_over(cli, tmp_path):
    assert cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine").code == 0
    path = tmp_path / "mine" / "mine" / "kl-creeps.toml"
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine").code == 2
    assert path.read_text(encoding="utf-8").endswith("# mine\n")


@pytest.mark.parametrize("break_it", ["expect", "kind", "name"])
def test_a_case_that_is_none_is_told(cli, tmp_path, break_it):
    cli("rules", "new", "kl-creeps", "--dir", tmp_path / "mine")
    path = tmp_path / "mine" / "mine" / "kl-creeps.toml"
    head, mark, tail = path.read_text(encoding="utf-8").partition("[[case]]")
    path.write_text(head + mark + tail.replace(f"\n{break_it} = ", f"\nx{break_it} = "), encoding="utf-8")
    outcome = cli("rules", "test", "--rules", tmp_path / "mine")
    assert outcome.code == 2
    assert "kl-creeps" in outcome.err


# Installed packs


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a function that puts a package with a pack on the import path, as an installer leaves it."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))

    def install(module="strict_rules.pack", name="strict", package="strict-rules", version="1.2"):
        info = place / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        info.joinpath("entry_points.txt").write_text(f"[ppo_doctor.rules]\n{name} = {module}\n")
        return place

    return install


BOMB = "raise SystemExit('imported')\n"


@pytest.mark.parametrize(
    ("module", "folder"),
    [("strict_rules", ""), ("strict_rules.pack", "pack"), ("strict_rules.entry", ""), ("strict_rules:thing", "")],
)
def test_an_installed_pack_is_found_without_importing_it(pack, site, module, folder):
    place = site(module)
    (place / "strict_rules").mkdir()
    (place / "strict_rules" / "__init__.py").write_text(BOMB, encoding="utf-8")
    (place / "strict_rules" / "entry.py").write_text(BOMB, encoding="utf-8")
    pack("strict", folder=place / "strict_rules" / folder, overrides=weight())
    [found] = installed_packs()
    assert (found.name, found.package, found.folder) == ("strict", "strict-rules 1.2", place / "strict_rules" / folder)
    assert weights(load_pack(), "lr-zero")["learning-rate-zero"] == (7, 0)
    assert load_pack(installed=False) == BUILT_IN
    assert "strict_rules" not in sys.modules


def test_an_installed_pack_is_told(pack, site, cli, validate):
    pack("strict", folder=site("strict_rules") / "strict_rules", overrides=weight())
    report = cli("analyze", SICK, "--format", "json").json
    validate(report)
    [told] = report["tool"]["packs"]
    assert told["origin"] == "installed with strict-rules 1.2"


def test_an_installed_pack_that_is_removed_is_gone(pack, site):
    place = site("strict_rules")
    pack("strict", folder=place / "strict_rules", overrides=weight())
    assert len(installed_packs()) == 1
    (place / "strict_rules-1.2.dist-info" / "entry_points.txt").unlink()
    assert installed_packs() == ()


@pytest.mark.parametrize("module", ["strict_rules.nothing.here", "no_such_package", "json"])
def test_an_entry_point_that_leads_nowhere_is_told(site, module):
    site(module)
    with pytest.raises(DoctorError) as caught:
        load_pack()
    assert caught.value.code == ExitCode.USAGE
    assert "strict-rules 1.2" in caught.value.message


def test_a_broken_installed_pack_names_its_package(pack, site):
    pack("strict", folder=site("strict_rules") / "strict_rules", overrides=weight(cause="nobody"))
    with pytest.raises(DoctorError) as caught:
        load_pack()
    assert "strict_rules" in caught.value.message


def test_an_installed_pack_that_is_also_named_counts_once(pack, site):
    folder = pack("strict", folder=site("strict_rules") / "strict_rules", overrides=weight())
    assert [told.origin for told in load_pack([folder]).further] == ["installed with strict-rules 1.2"]


def test_the_second_look_reads_no_metadata(pack, site):
    """importlib.metadata and what it pulls cost more than the rest of a start."""
    place = site("strict_rules")
    pack("strict", folder=place / "strict_rules", overrides=weight())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ppo_doctor.installed import installed_packs;"
        "print(len(installed_packs()), 'importlib.metadata' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=True, cwd=ROOT)
        for _ in range(2)
    ]
    assert [run.stdout.split() for run in runs] == [["1", "True"], ["1", "False"]]


def test_the_built_in_pack_is_none_of_the_further_ones():
    assert BUILT_IN.further == ()
    assert builtin_rules().joinpath("pack.toml").is_file()


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
