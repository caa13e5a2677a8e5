"""Every cause file: headings, names that exist, a place at the top that can be reached, and cases of every kind.

What holds a rule's own file is in `test_rules`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.problems import problems
from ppo_doctor.trainers.detection import profiles
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

PACK = load_pack()
RULES = {rule.name: rule for rule in PACK.rules}

HEADINGS = (
    *("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says"),
    *("remedy", "measure"),
)
WORDS = ("proof", "requires", "excludes", "needs", "usual", "sometimes")

#: Causes that never lead, whatever is found, and why that is known and left so.
NEVER_LEADS: dict[str, str] = {
    "engine-drift-with-uptime": "weights that are not synced make the same gap, and more often",
    "shared-trunk-interference": "one sound run in sixteen has as large a value loss",
}


def raw(cause):
    return tomllib.loads(Path(cause.path).read_text(encoding="utf-8"))


# Headings and names


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
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


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
def test_every_name_in_it_exists(cause):
    file = raw(cause)
    told = {word: file.get(word, []) for word in WORDS}
    assert [name for names in told.values() for name in names if name not in RULES] == []
    assert [word for word, names in told.items() if len(set(names)) < len(names)] == []
    assert set(told["usual"]) & set(told["sometimes"]) == set(), "a check is usual, or it is not"
    assert set(told["proof"]) & set(told["excludes"]) == set()
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
        entry.id == cause.id and entry.leader for found in problems(pack.causes, findings) for entry in found.causes
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
