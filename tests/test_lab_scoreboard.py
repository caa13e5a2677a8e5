"""The scoreboard's machinery: rates and bounds, verdicts that are kept, what is identifiable, proposals, the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ppo_doctor.rulepack import load_pack
from tests.lab import verdicts
from tests.lab.calibrate import Proposal, _nearest, _range, _twins_alike, fit, measured, proposals
from tests.lab.corpus import Case, cases, make, possible, trainings
from tests.lab.expected import COLUMNS, EXPECTED, contradictions
from tests.lab.features import matrix, recognised_in
from tests.lab.figures import (
    Score,
    board,
    calibration_error,
    chance,
    confusions,
    delays,
    interval,
    reason,
    reliability,
    score,
    upper_bound,
)
from tests.lab.plots import confusion_plot, reliability_plot
from tests.lab.scoreboard import Scored, document, figures
from tests.lab.scoreboard_page import page
from tests.lab.verdicts import Judged, Named, Verdict, judged

PACK = load_pack(installed=False)


def said(*ids: str, verdict: str = "unhealthy", confidence: str = "likely", **more) -> Verdict:
    """A verdict under which the first id leads, and the rest are rivals."""
    named = tuple(
        Named(
            id=name,
            leader=index == 0,
            benign=False,
            confidence=confidence,
            severity="critical",
            level_with=more.get("level", ()) if index == 0 else (),
        )
        for index, name in enumerate(ids)
    )
    scores = {"healthy": 0, "unknown": -9} | {name: 20 - 10 * index for index, name in enumerate(ids)}
    lists = {"not_ruled_out": more.get("listed", ()), "fired": more.get("fired", ()), "clear": more.get("clear", ())}
    return Verdict(verdict=verdict, causes=named, scores=scores, **lists)


def case(fault: str, split: str = "held-out", **more) -> Case:
    told = {"dialect": "sb3", "variant": "plain", "severity": 3, "seed": 1} | more
    return Case(fault=fault, cause=fault, split=split, log=Path("x"), **told)


def scored(fault: str, verdict: Verdict, *, identifiable: bool = True, told: float | None = None, **more) -> Score:
    entry = Judged(case=case(fault, **more), whole=verdict, bare=None, told_after=told)
    return score(entry, entry.whole, identifiable=identifiable)


RIGHT = scored("lr-zero", said("lr-zero", "lr-too-small"))
LEVEL = scored("lr-zero", said("no-grad-path", "lr-zero", level=("lr-zero",)))
WRONG = scored("lr-zero", said("nan-inf"))
OPEN = scored("lr-zero", said(verdict="inconclusive"))
LISTED = scored("lr-zero", said(verdict="healthy", listed=("lr-zero",)))
SILENT = scored("lr-zero", said(verdict="healthy"))
CALM = scored("healthy", said(verdict="healthy"))
ALARM = scored("healthy", said("lr-zero"))


def test_rates_are_of_what_they_say():
    figures = board([RIGHT, LEVEL, WRONG, OPEN, LISTED, SILENT])
    assert figures.top_1 == (1, 6)
    assert figures.top_3 == (2, 6)
    assert figures.level_set == (2, 6)
    assert figures.abstained == (2, 6)
    assert figures.wrong == (1, 6)


def test_each_miss_has_its_reason():
    entries = (LEVEL, WRONG, OPEN, LISTED, SILENT)
    assert len({reason(entry) for entry in entries}) == 4
    assert reason(OPEN) == reason(LISTED) == "openly undecided"


def test_an_alarm_is_firm_and_grave():
    suspected = scored("healthy", said("lr-zero", confidence="suspected"))
    assert (ALARM.alarms, CALM.alarms, suspected.alarms) == (("lr-zero",), (), ())


@pytest.mark.parametrize(("hits", "of", "bound"), [(0, 150, 1 - 0.05 ** (1 / 150)), (0, 10, 0.2589), (1, 20, 0.2161)])
def test_the_upper_bound_is_clopper_and_pearsons(hits, of, bound):
    assert upper_bound(hits, of) == pytest.approx(bound, abs=2e-4)


def test_bounds_of_nothing_say_nothing():
    assert upper_bound(0, 0) == 1.0
    assert interval(0, 0) == (0.0, 1.0)


def test_the_interval_is_wilsons():
    assert interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert interval(0, 20)[0] == 0.0


def test_confusions_are_counted_without_what_is_right():
    assert confusions([RIGHT, WRONG, WRONG, SILENT]) == [("lr-zero", "nan-inf", 2), ("lr-zero", "nothing", 1)]


def test_delays_are_in_updates_since_the_fault_began():
    late = scored("nan-inf", said("nan-inf"), severity=2, told=0.6)
    early = scored("lr-zero", said("lr-zero"), told=0.1)
    assert (late.delay, early.delay) == (6.0, 6.0)
    assert delays([late, early, SILENT]) == {"runs": 3, "told": 2, "q25": 6.0, "q50": 6.0, "q75": 6.0}


# Calibration


def graded(score_db: int, right: bool) -> Score:
    found = said("lr-zero" if right else "nan-inf")
    return replace(RIGHT, ranked=(found.causes[0].id,), scores={"healthy": 0, found.causes[0].id: score_db})


def test_a_tenth_that_keeps_its_word_costs_nothing():
    sure = [graded(10, True)] * 10 + [graded(10, False)]  # 10 dB against health: ten to one
    rows = reliability(sure, 1.0)
    assert [size for size, _, _ in rows] == [11]
    assert calibration_error(rows) == pytest.approx(0, abs=1e-9)
    assert calibration_error(reliability([graded(10, False)] * 5, 1.0)) == pytest.approx(10 / 11)


def test_the_temperature_is_what_makes_the_word_true():
    half = [graded(20, True)] * 10 + [graded(20, False)]  # said 100 to 1, true 10 to 1
    assert fit(half) == 2.0
    assert chance(half[0], 2.0) == pytest.approx(10 / 11)


# What the lab says of weights


def test_a_weight_is_the_log_of_two_rates_with_what_chance_allows():
    low, high = _range((60, 100), (6, 100))
    assert low < 10 * math.log10(60 / 6) < high
    assert _nearest(10, (low, high)) == 10
    assert _nearest(-10, (low, high)) == round(low)


def test_what_never_fired_says_nothing_of_a_weight():
    assert _range((0, 40), (0, 400)) == (-math.inf, math.inf)


def seen(cause: str, rule: str, fired: bool) -> Judged:
    found = said(cause, **{"fired" if fired else "clear": (rule,)})
    return Judged(case=case(cause, split="training"), whole=found, bare=None, told_after=None)


def test_only_weights_that_many_logs_contradict_are_proposed():
    soft = {rule.name for rule in PACK.rules if not rule.proof}
    cause, weight = next(
        (c, w)
        for c in PACK.causes
        for w in c.weights
        if w.finding in soft and 8 <= w.fired <= 12 and w.clear < 0 and not c.twins and not c.benign
    )
    # It never fires where it should, and in half of the sound runs.
    silent = [seen(cause.id, weight.finding, False)] * 40
    silent += [seen("healthy", weight.finding, place % 2 == 0) for place in range(40)]
    (found,) = [p for p in proposals(measured(silent)) if p.status == "fired"]
    assert (found.cause, found.finding, found.now) == (cause.id, weight.finding, weight.fired)
    assert found.lab < weight.fired
    assert proposals(measured(silent[:10] + silent[40:])) == []


def test_a_twin_alone_is_left_as_it_is():
    twin = next(cause for cause in PACK.causes if cause.twins)
    one = Proposal(cause=twin.id, finding="f", status="fired", now=10, lab=0, fired=(0, 30), fired_healthy=(0, 30))
    assert _twins_alike([one]) == []
    both = [one, *(replace(one, cause=other) for other in twin.twins)]
    assert len(_twins_alike(both)) >= 1


def test_what_was_expected_is_held_against_what_was_measured():
    rules = {rule.name for rule in PACK.rules}
    assert set(COLUMNS) <= rules
    assert set(EXPECTED) - {"healthy"} <= {cause.id for cause in PACK.causes}
    measured = {("lr-zero", "learning-rate-below-usual"): (12, 12), ("no-grad-path", "gradient-exactly-zero"): (2, 12)}
    (found,) = contradictions(measured)
    assert (found.cause, found.finding, found.expected) == ("no-grad-path", "gradient-exactly-zero", 0.97)
    assert contradictions({("no-grad-path", "gradient-exactly-zero"): (0, 2)}) == []


# What can be told at all


def test_the_reference_tells_what_numbers_tell_and_no_more():
    pytest.importorskip("sklearn")
    draws = np.random.default_rng(0)
    rows, held = [], []
    for seed in range(12):
        for fault, height in (("lr-zero", 0.0), ("nan-inf", 9.0), ("healthy", 9.0)):
            rows.append({"approx_kl.last": height + float(draws.normal()) / 10})
            held.append(case(fault, split="training", seed=seed))
    shares = recognised_in(held, rows)
    assert shares["lr-zero", "sb3"] == 1.0
    assert shares["nan-inf", "sb3"] < 0.9


def test_a_missing_feature_is_no_number_of_its_own_column():
    table = matrix([{"a": 1.0, "b": np.nan}, {"a": 2.0}])
    assert table.shape == (2, 2)
    assert np.isfinite(table).all()
    assert table[0, 1] == table[1, 1] != 0


# Verdicts of real logs are kept


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    able = [t for t in trainings(("held-out",)) if "trl-grpo" in t.dialects and possible(t)]
    plan = [next(t for t in able if t.fault == fault) for fault in ("lr-zero", "healthy")]
    make(root, plan, jobs=1)
    return root, cases(root, plan)


def test_a_log_is_judged_once(corpus, monkeypatch):
    root, held = corpus
    first = judged(held, root, jobs=1)
    monkeypatch.setattr(verdicts, "_raw", lambda *_: pytest.fail("judged again"))
    assert judged(held, root, jobs=1) == first


def test_a_log_that_changed_is_judged_again(corpus, monkeypatch, tmp_path):
    root, held = corpus
    known = judged(held, root, jobs=1)
    log = tmp_path / held[0].log.parent.name / held[0].log.name
    log.parent.mkdir()
    log.write_bytes(held[0].log.read_bytes() + b"\n")
    asked = []
    monkeypatch.setattr(verdicts, "_raw", lambda _pack, of: asked.append(of) or {**_raw_of(known[0])})
    judged([replace(held[0], log=log)], root, jobs=1)
    assert [of.log for of in asked] == [log]


def _raw_of(entry: Judged) -> dict:
    from dataclasses import asdict

    whole = asdict(entry.whole)
    return {"whole": whole, "bare": None, "told_after": entry.told_after}


def test_a_verdict_holds_what_is_scored(corpus):
    root, held = corpus
    by_fault = {entry.case.fault: entry for entry in judged(held, root, jobs=1) if entry.case.dialect == "trl-grpo"}
    told = score(by_fault["lr-zero"], by_fault["lr-zero"].whole, identifiable=True)
    assert told.first
    assert told.delay is not None
    assert told.scores["lr-zero"] == max(told.scores.values())
    assert "learning-rate-zero" in by_fault["lr-zero"].whole.fired
    assert by_fault["lr-zero"].bare is not None
    calm = score(by_fault["healthy"], by_fault["healthy"].whole, identifiable=False)
    assert (calm.benign, calm.alarms, calm.delay) == (True, (), None)


# The page


def whole() -> Scored:
    return Scored(
        held_out=[RIGHT, LEVEL, WRONG, OPEN, LISTED, SILENT, CALM, ALARM],
        bare=[replace(CALM, configured=False)],
        training=[RIGHT, CALM],
        development=[RIGHT, SILENT],
        shares={("lr-zero", "sb3"): 1.0, ("nan-inf", "sb3"): 0.5, ("healthy", "sb3"): 1.0},
        wide_shares={("lr-zero", "sb3"): 1.0},
        temperature=1.5,
        planned=10,
    )


def test_the_page_and_the_document_are_the_same_each_time_and_say_what_was_found():
    found = whole()
    text, told = page(found, figures(found), None), document(found)
    assert (text, told) == (page(found, figures(found), None), document(found))
    assert "| identifiable | 6 | 0.167 | 0.333 | 0.333 | 0.333 | 0.167 |" in text
    held = json.loads(told)
    assert held["figures"]["false alarms"]["hits"] == [1, 2]
    assert held["figures"]["pairs identifiable"]["hits"] == [1, 1]
    assert len(held["logs"]) == 8
    assert all(len(row) == len(held["columns"]) for row in held["logs"])


def test_rivals_stand_on_the_page_where_they_were_run():
    rivals = {"about": "A sample.", "columns": ["tool", "hit"], "rows": [["other", 3]]}
    found = whole()
    assert "| other | 3 |" in page(found, figures(found), rivals)


@pytest.mark.parametrize(
    "plot",
    [
        reliability_plot([(10, 0.55, 0.5), (3, 0.95, 1.0)]),
        confusion_plot({("a<b", "a<b"): 3, ("a<b", "nothing"): 1}),
    ],
)
def test_pictures_are_svg_that_fetches_nothing(plot):
    root = ElementTree.fromstring(plot)  # noqa: S314 (our own)
    assert root.tag.endswith("svg")
    assert "href" not in plot
    assert len(root.findall(".//{http://www.w3.org/2000/svg}title")) >= 3
