"""Every cause file: headings, names that exist, a place at the top that can be reached, and cases of every kind.

What holds a rule's own file is in `test_rules`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from ppo_doctor.accounts import account
from ppo_doctor.ranking import explain

from ppo_doctor.derive import Observations
from ppo_doctor.engine import run_rules
from ppo_doctor.frameworks import profiles
from ppo_doctor.rulepack import load_pack, prose
from ppo_doctor.testing import KINDS, case_run
from tests.each import for_each
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

PACK = load_pack(installed=False)
RULES = {rule.name: rule for rule in PACK.rules}

HEADINGS = (
    *("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says"),
    *("weight", "remedy", "measure"),
)

#: Causes that never lead, whatever is found, and why that is known and left so.
NEVER_LEADS: dict[str, str] = {}


def raw(cause):
    return tomllib.loads(Path(cause.path).read_text(encoding="utf-8"))


# Headings and names


@for_each(PACK.causes, lambda cause: cause.id)
def test_every_heading_is_there_and_says_something(cause):
    file = raw(cause)
    assert set(HEADINGS) <= file.keys()
    assert [name for name in HEADINGS if file[name] in ("", [])] == []
    prose_of = [file["title"], file["says"]]
    prose_of += [remedy["do"] for remedy in file["remedy"]]
    prose_of += [line for measure in file["measure"] for line in (measure["log"], measure["because"])]
    assert all(len(text.split()) > 1 or text.isidentifier() for text in prose_of), "a word is no advice"
    told = [tuple(sorted(remedy.items())) for remedy in file["remedy"]]
    assert len(set(told)) == len(told), "a remedy comes twice"


@for_each(PACK.causes, lambda cause: cause.id)
def test_every_name_in_it_exists(cause):
    file = raw(cause)
    findings = [weight["finding"] for weight in file["weight"]]
    findings += [*file.get("leads_to", []), *file.get("begins_with", [])]
    assert [name for name in findings if name not in RULES] == []
    assert set(file["complaints"]) <= {complaint.id for complaint in PACK.complaints}
    assert set(file.get("twins", [])) <= {other.id for other in PACK.causes} - {cause.id}
    assert {remedy["framework"] for remedy in file["remedy"] if "framework" in remedy} <= profiles().keys()
    assert [remedy for remedy in file["remedy"] if "key" in remedy and "framework" not in remedy] == []


# A place at the top


def ways(pack, cause):
    """Return what rules could say, as (fired, clear), in favour of a cause: all that speaks for it, less, and else."""
    weights = {weight.finding: weight for weight in cause.weights}
    speaking = sorted((name for name, w in weights.items() if w.fired > 0), key=lambda name: -weights[name].fired)
    openers = [rule.name for rule in pack.rules if rule.opens in cause.complaints]
    neutral = [name for name in openers if name not in weights or weights[name].fired == 0]
    some = [set(speaking[:n]) for n in range(len(speaking), 0, -1)] + [{name} for name in speaking]
    silent = {name for name, w in weights.items() if w.clear > 0}
    against = {name for name, w in weights.items() if w.clear < 0}
    for fired in [*some, *(part | {opener} for opener in neutral for part in some)]:
        yield fired, silent - fired
        yield fired, {rule.name for rule in pack.rules} - against - fired


def leads(pack, cause, fired, clear):
    def status(name):
        return "fired" if name in fired else "clear" if name in clear else "skipped"

    findings = [a_finding(rule, status(rule.name)) for rule in pack.rules]
    return any(entry.id == cause.id and entry.leader for found in explain(pack, findings) for entry in found.causes)


def can_lead(pack, cause):
    return any(leads(pack, cause, fired, clear) for fired, clear in ways(pack, cause))


@for_each(PACK.causes, lambda cause: cause.id)
def test_there_are_findings_that_put_it_first(cause):
    assert can_lead(PACK, cause) is (cause.id not in NEVER_LEADS), "or it is in NEVER_LEADS, and leads by now"


def opener(name, **fields):
    return a_rule(name, opens="policy-does-not-move", **fields)


def test_a_cause_that_a_rival_always_beats_cannot_lead():
    rules = [opener("proof", opens_alone=True, proof="identity")]
    loser, winner = a_cause("loser", {"proof": 20}), a_cause("winner", {"proof": 30})
    pack = a_pack(rules, [loser, winner])
    assert not can_lead(pack, loser)
    assert can_lead(pack, winner)


def test_a_cause_of_a_symptom_that_opens_nothing_alone_cannot_lead():
    cause = a_cause("c", {"soft": 20})
    assert not can_lead(a_pack([opener("soft")], [cause]), cause)
    assert can_lead(a_pack([opener("soft"), opener("other", link="weights")], [cause]), cause)


# Cases of every kind, in the rule that speaks most for it


@cache
def judged(name, index):
    """Return all findings and explanations of one case of a rule."""
    observations = Observations(case_run(prose(RULES[name].path)["case"][index]))
    findings = run_rules(observations, PACK.rules)
    return {finding.rule: finding for finding in findings}, explain(PACK, findings)


def strongest(cause):
    return max(cause.weights, key=lambda weight: weight.fired).finding


def outcomes(cause):
    """Return per kind of case what it makes of a cause: decibans above its prior, and how surely it leads."""
    found = {kind: [] for kind in KINDS}
    for index, case in enumerate(prose(RULES[strongest(cause)].path)["case"]):
        findings, explained = judged(strongest(cause), index)
        leading = [entry for e in explained for entry in e.causes if entry.id == cause.id and entry.leader]
        surely = [str(entry.confidence) for entry in leading]
        found[case["kind"]].append((account(cause, findings).score - cause.prior, surely))
    return found


@for_each(PACK.causes, lambda cause: cause.id)
def test_cases_speak_for_it_and_near_ones_do_not_establish_it(cause):
    """A whole diagnosis of each case: near misses, benign look-alikes and logs without the metric are no diagnosis."""
    found = outcomes(cause)
    assert set(found) == set(KINDS)
    assert all(found.values()), "a kind of case is missing"
    assert any(gain > 0 for gain, _ in found["positive"]), "no positive case speaks for it"
    others = [surely for kind in KINDS[1:] for _, led in found[kind] for surely in led]
    assert [surely for surely in others if surely != "suspected"] == []
