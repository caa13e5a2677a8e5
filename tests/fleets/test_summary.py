"""What a fleet is in total, against counting by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ppo_doctor.fleets import table
from ppo_doctor.fleets.summary import COLUMNS, MOST_VALUES, WORST, gravity, summarize
from tests.fleets.rows import DAY, NOON, SICK, WELL, a_failure, a_fleet, a_row, plain


def test_counts_are_those_of_the_rows():
    rows = [*a_fleet(300), a_failure("runs/x/log.jsonl"), a_failure("runs/y/log.jsonl")]
    found = summarize(plain(rows))
    verdicts = Counter(row.verdict for row in rows if row.verdict)
    assert (found.runs, found.judged, found.failed) == (302, 300, 2)
    assert found.verdicts == verdicts
    assert found.outcomes == Counter(row.outcome for row in rows if row.outcome)
    assert sum(sum(day.verdicts.values()) for day in found.days) == 302
    assert [day.day for day in found.days] == sorted({day.day for day in found.days})
    assert {(each.id, each.runs) for each in found.findings} == {
        ("reward-always-zero", verdicts["unhealthy"]),
        ("groups-mostly-flat", verdicts["unhealthy"]),
    }
    assert {(each.id, each.runs, each.benign) for each in found.causes} == {
        ("reward-too-sparse", verdicts["unhealthy"], False),
        ("benign-converged", verdicts["healthy"], True),
    }


def test_equal_reasons_of_failures_are_counted_together():
    found = summarize(plain([a_failure("a"), a_failure("b"), a_failure("c", "Permission denied")]))
    assert found.reasons == {"the file is empty": 2, "Permission denied": 1}
    assert (found.failures[0].run, found.failures[0].reason) == ("a", "the file is empty")


def test_reasons_are_equal_whatever_the_file_is():
    said = [f"runs/{n}/events.{n}: no record" for n in range(3)] + [f"runs/{n}/progress.csv is empty" for n in range(2)]
    rows = [replace(a_failure(f"/home/{text.rpartition('/')[0]}"), error=text) for text in said]
    rows += [replace(a_failure(text.rpartition("/")[0]), error=text) for text in said]
    found = summarize(plain(rows))
    assert found.reasons == {"no record": 6, "… is empty": 4}
    assert [each.reason for each in found.failures][:2] == ["…/events.0: no record", "…/events.1: no record"]


def test_a_day_begins_at_midnight_utc():
    rows = [a_row("a", modified=NOON + DAY / 2 - 1), a_row("b", modified=NOON + DAY / 2)]
    assert [day.day for day in summarize(plain(rows)).days] == ["2026-11-01", "2026-11-02"]


def test_findings_are_counted_by_trainer_model_and_setting():
    rows = a_fleet(200)
    found = {each.name: each for each in summarize(plain(rows)).tables}
    assert {"trainer", "model", "image", "gamma"} == set(found)
    by_image = found["image"]
    sick = Counter(row.settings["image"] for row in rows if row.verdict == "unhealthy")
    assert dict(by_image.findings)["reward-always-zero"] == tuple(sick[value] for value in by_image.values)
    assert sum(by_image.runs) == 200
    assert by_image.setting
    assert not found["model"].setting


def test_a_setting_with_many_values_has_no_table():
    rows = [a_row(f"{at}", **WELL, settings={"x": str(at % (MOST_VALUES + 1))}) for at in range(100)]
    assert "x" not in {each.name for each in summarize(plain(rows)).tables}


def test_the_worst_come_first_and_are_at_most_twenty():
    rows = [*a_fleet(200), a_row("worst", **{**SICK, "wasted": 5.0})]
    found = summarize(plain(rows)).worst
    assert len(found) == WORST
    assert found[0].run == "worst"
    ordered = sorted(plain(rows), key=gravity)
    assert [each.run for each in found] == [row["run"] for row in ordered[:WORST]]


def test_healthy_runs_are_not_among_the_worst():
    assert summarize(plain([a_row("a", **WELL)])).worst == ()


def test_a_planted_setting_separates_and_none_does_without():
    (first,) = summarize(plain(a_fleet(1000, planted=True))).separating.found
    assert (first.setting, first.value, first.difference > 0.5) == ("image", "old", True)
    assert summarize(plain(a_fleet(1000))).separating.found == ()


def test_nothing_is_summed_up():
    found = summarize([])
    assert (found.runs, found.days, found.worst, found.tables) == (0, (), (), ())


def test_a_table_gives_what_the_rows_hold(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [*a_fleet(50), a_failure("x")]
    written = table.Table(tmp_path / "runs.parquet")
    written.add(rows)
    written.finish()
    assert summarize(written.rows(COLUMNS)) == summarize(plain(rows))
