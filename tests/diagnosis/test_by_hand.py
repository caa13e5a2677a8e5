"""docs/diagnosis.md redone on five runs, with nothing but the answers of the JSON report and the words of the files."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RATES = tomllib.loads((ROOT / "rules" / "rates.toml").read_text(encoding="utf-8"))["rates"]
CAUSES = [
    tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "rules" / "causes").glob("*.toml"))
]
BENIGN = {cause["id"]: cause["benign"] for cause in CAUSES}
PRIOR = {"common": -10, "occasional": -12, "rare": -14}
RUNS = [
    *("sick/lr-zero.sb3", "sick/adv-exactly-zero.canonical", "sick/clip-range-too-small.trl-grpo"),
    *("sick/old-policy-aliased.cleanrl", "healthy/healthy.sb3"),
]


def rate(check):
    counts = RATES.get(check, (0, 0))  # those of the lab's runs, then those of published ones
    yes, of = sum(counts[::2]), sum(counts[1::2])
    return max(0.005, (yes + 0.2) / (of + 10))


def weight(cause, check, answer):
    """Return what an answer weighs, or None where it puts the cause out."""
    if (answer == "yes" and check in cause.get("excludes", [])) or (
        answer == "no" and check in cause.get("requires", [])
    ):
        return None
    if answer == "yes" and check in cause.get("proof", []):
        return 35
    usual = [*cause.get("usual", []), *cause.get("requires", [])]
    for word, often, checks in (("usual", 0.75, usual), ("sometimes", 0.3, cause.get("sometimes", []))):
        if check in checks:
            if answer == "yes":
                return round(10 * math.log10(often / rate(check)))
            if answer == "no" and word == "usual":
                return round(10 * math.log10((1 - often) / (1 - rate(check))))
    return 0


def account(cause, answers, no_proofs=frozenset()):
    """Return (proven, score), or None where the cause is not spoken of."""
    needs = cause.get("needs", [])
    if needs and not any(answers.get(name) == "yes" for name in (*needs, *cause.get("proof", []))):
        return None
    weights = [weight(cause, check, answer) for check, answer in answers.items()]
    if None in weights:
        return None
    shown = [name for name in cause.get("proof", []) if answers.get(name) == "yes" and name not in no_proofs]
    proven = bool(shown) and not cause.get("never_proven")
    score = PRIOR[cause["prior"]] + sum(weights)
    least = 2 if cause.get("never_proven") else -2
    speaks = any(w > 0 and answers[check] == "yes" for check, w in zip(answers, weights, strict=True))
    return (proven, score) if speaks and (proven or score >= least) else None


@pytest.mark.parametrize("name", RUNS)
def test_the_page_is_enough_to_redo_a_diagnosis(name, cli, samples):
    outcome = cli("analyze", samples / name, "--all", "--format", "json")
    report = json.loads(outcome.out)
    answers = {f["name"]: f["answer"] for f in report["checks"]}
    believed = report["run"]["updates_per_batch"]["how"] == "configured"
    rest = {f["name"] for f in report["checks"] for e in f["evidence"] if e["metric"] == "several_updates"}
    told = {cause["id"]: account(cause, answers, rest if believed else set()) for cause in CAUSES}
    spoken = {name: result for name, result in told.items() if result is not None}
    for cause in report["causes"]:
        assert spoken[cause["id"]][1] == cause["score_db"], cause["id"]
    if not spoken:
        assert report["causes"] == []
        return
    harmful = {name: spoken[name] for name in spoken if not BENIGN[name]} or spoken  # what is harmless comes last
    proven = [name for name, (proof, _) in harmful.items() if proof]
    confident = proven or [name for name, (_, score) in harmful.items() if score >= 9]
    if confident:
        assert report["causes"][0]["id"] in confident
        assert (report["causes"][0]["confidence"] == "established") is bool(proven)
