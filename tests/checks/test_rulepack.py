"""The rule pack: every rule's own cases, files of rules and causes, and what does not load, with the file named."""

from __future__ import annotations

import csv
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.checks.cases import OPTIONS, parse_series, read_cases, run_case
from ppo_doctor.checks.rulepack import ANSWERS, load_pack
from ppo_doctor.checks.run_view import STATISTICS
from ppo_doctor.diagnosis.causes import cause_groups
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.words import LINKS, PRIORS, QUESTIONS
from ppo_doctor.trainers.detection import profiles
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

ROOT = Path(__file__).resolve().parent.parent.parent


RULE = (ROOT / "rules" / "advantages" / "advantages-all-zero.toml").read_text(encoding="utf-8")


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
    rule = RULE.replace('code = "ADV001"', 'code = "MINE001"\nlink = "advantages"')
    rule = rule.replace('name = "advantages-all-zero"', 'name = "my-rule"')
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
    ("mine/my-rule.toml", 'link = "advantages"', ""),
    ("mine/my-rule.toml", 'severity = "critical"', 'severity = "dreadful"'),
    ("mine/my-rule.toml", 'answers = "signal"', 'answers = "everything"'),
    ("mine/my-rule.toml", 'proof = "identity"', 'proof = "hunch"'),
    ("mine/my-rule.toml", "at_most = 0", "roughly = 0"),
    ("mine/my-rule.toml", 'window = "tail"', 'window = "tial"'),
    ("mine/my-rule.toml", 'least = "@least"', 'least = "@least", take = "medain"'),
    ("mine/my-rule.toml", "at_most = 0", 'at_most = "@nothing"'),
    ("mine/my-rule.toml", 'title = "All groups', 'titel = "All groups'),
    ("mine/my-rule.toml", "min_points = 5", "min_point = 5"),
    ("mine/my-rule.toml", "at_most = 0", "at_most = 0, below = 1"),
    ("mine/my-rule.toml", 'statistic = "advantage_spread"', 'statistic = "advantage_spraed"'),
    ("mine/my-rule.toml", 'statistic = "advantage_spread"', 'metric = "advantage_spread"'),
    ("mine/my-rule.toml", 'statistic = "advantage_spread"', 'statistic = "entropy"'),
    ("mine/my-rule.toml", 'statistic = "advantage_spread", ', ""),
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


RULES = ROOT / "rules"


NOT_RULES = {"chain.toml", "complaints.toml", "rates.toml", "unjudged.toml"}


RULE_FILES = sorted(p for p in RULES.glob("*/*.toml") if p.parent.name != "causes")


CAUSE_FILES = sorted(RULES.glob("causes/*.toml"))


PACK = load_pack()


RULE_NAMES = {rule.name for rule in PACK.rules}
CASES = [(rule, case) for rule in PACK.rules for case in read_cases(rule)]


HEADINGS = ("what", "why", "look_alikes", "blind_spots", "next_steps", "references")


@cache
def raw(path):
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule.name}/{case['name']}" for rule, case in CASES])
def test_a_case_is_judged_as_it_says(rule, case):
    assert run_case(rule, case).problems == ()


# Files


def test_the_pack_holds_every_file():
    assert {Path(rule.path) for rule in PACK.rules} == set(RULE_FILES)
    assert {Path(cause.path) for cause in PACK.causes} == set(CAUSE_FILES)


def test_rules_are_data():
    strangers = [path.name for path in RULES.rglob("*") if path.is_file() and path.suffix != ".toml"]
    assert strangers == []
    assert {path.name for path in RULES.glob("*.toml")} == NOT_RULES


def test_names_are_unique():
    names = [*(rule.name for rule in PACK.rules), *(cause.id for cause in PACK.causes), *METRICS]
    assert len(names) == len(set(names))
    codes = [rule.code for rule in PACK.rules]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[A-Z]{2,4}\d{3}", code) for code in codes)


# Rules


@pytest.mark.parametrize("rule", PACK.rules, ids=lambda rule: rule.name)
def test_a_rule_reads_what_exists_and_its_file_is_whole(rule):
    path = Path(rule.path)
    file = raw(path)
    assert file["name"] == path.stem
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)
    assert "link" not in file, "the folder says it"
    assert path.parent.name == rule.link
    assert rule.link in LINKS
    assert_cases_of_every_answer(file["cases"])
    assert_documented(file["doc"])
    assert_thresholds_are_used_and_have_sources(file)
    assert all(quantity in METRICS or quantity in STATISTICS for quantity in rule.needs)
    assert rule.answers in (None, *QUESTIONS)
    assert rule.title != rule.pass_title


def assert_cases_of_every_answer(cases):
    assert list(cases) == list(ANSWERS)
    assert all(cases.values())
    names = [name for group in cases.values() for name in group]
    assert len(set(names)) == len(names)


def assert_documented(doc):
    assert set(doc) == set(HEADINGS)
    for heading in HEADINGS:
        lines = [doc[heading]] if isinstance(doc[heading], str) else doc[heading]
        assert lines, heading
        assert all(line.strip() for line in lines), heading


def assert_thresholds_are_used_and_have_sources(file):
    params = file.get("params", {})
    values = [value for clause in file["when"] for value in clause.values()]
    assert {value.removeprefix("@") for value in values if str(value).startswith("@")} == set(params)
    for name, param in params.items():
        assert set(param) == {"value", "unit", "source"}, name
        assert param["unit"].strip(), name
        assert param["source"].strip(), name


def test_every_question_can_be_answered():
    assert {rule.answers for rule in PACK.rules} - {None} == set(QUESTIONS)


# Causes


@pytest.mark.parametrize("cause", [cause for cause in PACK.causes if cause.twins], ids=lambda cause: cause.id)
def test_twins_are_mutual_and_weigh_alike_in_logs(cause):
    """Only tensors may tell twins apart."""
    tensors = {rule.name for rule in PACK.rules if rule.proof == "tensor"}

    def weights(of):
        return {(w.finding, w.fired, w.clear) for w in of.weights if w.finding not in tensors}

    for name in cause.twins:
        twin = PACK.cause(name)
        assert cause.id in twin.twins
        assert weights(twin) == weights(cause)
        assert (twin.prior, twin.severity, twin.complaints) == (cause.prior, cause.severity, cause.complaints)


def test_links_and_complaints_are_the_closed_lists():
    complaints = {complaint.id for complaint in PACK.complaints}
    assert complaints == {
        *("policy-does-not-move", "no-signal", "steps-too-large", "ratio-wrong-at-start", "critic-fails"),
        *("policy-degenerates", "numbers-break", "proxy-diverges", "config-contradicts", "small-steps-are-right"),
    }
    assert (
        *("rollout", "rewards", "returns", "advantages", "loss", "gradient", "step", "weights", "policy", "ratio"),
        *("critic", "reference", "numerics", "configuration"),
    ) == LINKS


def test_causes_are_those_of_the_table():
    path = ROOT.parent / "shared" / "causes.csv"
    if not path.is_file():
        pytest.skip("the table of causes is not beside this checkout")
    with path.open(encoding="utf-8", newline="") as file:
        table = {row["id"]: row for row in csv.DictReader(file)}
    told = {c.id: (c.family, str(c.severity), c.prior, c.benign) for c in PACK.causes}
    rows = {name: table[name] for name in told}
    assert told == {
        name: (row["family"], row["severity"], PRIORS[row["prior"]], row["benign"] == "yes")
        for name, row in rows.items()
    }
    unjudged = {cause.id for cause in PACK.unjudged}
    assert unjudged <= table.keys()
    assert unjudged & {cause.id for cause in PACK.causes if not cause.never_proven} == set()


# Cases


def test_no_metric_is_called_like_a_field_of_a_case():
    assert METRICS.keys().isdisjoint(field.removesuffix("?") for field in OPTIONS)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("0.5", [0.5]),
        ("1x2", [1, 1, 1]),
        ("0.02+0.03x2", [0.02, 0.05, 0.08]),
        ("1-0.5x2", [1, 0.5, 0]),
        ("1 _ -2", [1, None, -2]),
        ("1e-5x1", [1e-5, 1e-5]),
        ("1e-3+1e-3x1", [0.001, 0.002]),
        ("inf -inf", [float("inf"), float("-inf")]),
        ("", []),
    ],
)
def test_notation(text, points):
    assert parse_series(text) == points


@pytest.mark.parametrize("text", ["x9", "1x", "1+", "one", "1,2", "1x-2", "1x2x3"])
def test_notation_refuses_the_rest(text):
    from ppo_doctor.model.errors import DoctorError

    with pytest.raises(DoctorError):
        parse_series(text)


@pytest.mark.parametrize(("metric", "wants_steps"), [("approx_kl", True), ("response_length", False)])
def test_a_language_run_is_not_asked_for_steps_of_an_environment(metric, wants_steps):
    case = {"name": "x", "status": "skipped", "series": {metric: "100x19"}}
    asked = {name for rule in PACK.rules for name in run_case(rule, case).finding.missing}
    assert ("env_steps" in asked) == wants_steps
    assert "entropy" in asked


CAUSE_HEADINGS = (
    *("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says"),
    *("remedy", "measure"),
)


WORDS = ("proof", "requires", "excludes", "needs", "usual", "sometimes")


#: Causes that never lead, whatever is found, and why that is known and left so.
NEVER_LEADS: dict[str, str] = {
    "engine-drift-with-uptime": "weights that are not synced make the same gap, and more often",
    "shared-trunk-interference": "one sound run in sixteen has as large a value loss",
}


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
def test_a_cause_weighs_rules_says_what_to_do_and_names_what_exists(cause):
    file = raw(Path(cause.path))
    assert file["id"] == Path(cause.path).stem == cause.id
    findings = [weight.finding for weight in cause.weights]
    assert set(findings) <= RULE_NAMES
    assert len(findings) == len(set(findings)), "a rule weighs twice"
    assert all(weight.source.strip() for weight in cause.weights)
    assert all(weight.fired or weight.clear for weight in cause.weights), "a weight of nothing"
    assert any(remedy.framework is None for remedy in cause.remedies), "nothing to do for an unknown framework"
    assert cause.link in LINKS
    assert set(CAUSE_HEADINGS) <= file.keys()
    assert [name for name in CAUSE_HEADINGS if file[name] in ("", [])] == []
    prose_of = [file["title"], file["says"]]
    prose_of += [remedy["do"] for remedy in file["remedy"]]
    prose_of += [line for measure in file["measure"] for line in (measure["log"], measure["because"])]
    assert all(len(text.split()) > 1 or text.isidentifier() for text in prose_of), "a word is no advice"
    told = [tuple(sorted(remedy.items())) for remedy in file["remedy"]]
    assert len(set(told)) == len(told), "a remedy comes twice"
    named = {word: file.get(word, []) for word in WORDS}
    assert [name for names in named.values() for name in names if name not in RULE_NAMES] == []
    assert [word for word, names in named.items() if len(set(names)) < len(names)] == []
    assert set(named["usual"]) & set(named["sometimes"]) == set(), "a check is usual, or it is not"
    assert set(named["proof"]) & set(named["excludes"]) == set()
    assert "weight" not in file, "words, not numbers"
    assert set(file["complaints"]) <= {complaint.id for complaint in PACK.complaints}
    assert set(file.get("twins", [])) <= {other.id for other in PACK.causes} - {cause.id}
    assert {remedy["framework"] for remedy in file["remedy"] if "framework" in remedy} <= profiles().keys()
    assert [remedy for remedy in file["remedy"] if "key" in remedy and "framework" not in remedy] == []


# A place at the top


def ways(cause):
    """Return what checks could say in favour of a cause, as (fired, clear): all that speaks for it, or a part."""
    weights = {weight.finding: weight for weight in cause.weights}
    speaking = sorted((name for name, w in weights.items() if w.fired > 0), key=lambda name: -weights[name].fired)
    silent = {name for name, w in weights.items() if w.clear > 0}
    for fired in [set(speaking[:n]) for n in range(len(speaking), 0, -1)] + [{name} for name in speaking]:
        yield fired, silent - fired


def leads(pack, cause, fired, clear):
    def status(name):
        return "fired" if name in fired else "clear" if name in clear else "skipped"

    findings = [a_finding(rule, status(rule.name)) for rule in pack.rules]
    return any(
        entry.id == cause.id and entry.leader for found in cause_groups(pack.causes, findings) for entry in found.causes
    )


def can_lead(pack, cause):
    return any(leads(pack, cause, fired, clear) for fired, clear in ways(cause))


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
def test_there_are_findings_that_put_it_first(cause):
    assert can_lead(PACK, cause) is (cause.id not in NEVER_LEADS), "or it is in NEVER_LEADS, and leads by now"


def test_a_cause_that_a_rival_always_beats_cannot_lead():
    loser, winner = a_cause("loser", {"proof": 20}), a_cause("winner", {"proof": 30})
    pack = a_pack([a_rule("proof")], [loser, winner])
    assert not can_lead(pack, loser)
    assert can_lead(pack, winner)
