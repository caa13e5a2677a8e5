"""The gate of a fleet's table: budgets of runs, what is new since a baseline, and that nothing unjudged passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.fleets.rows import SICK, WELL, a_failure, a_row

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work where no policy of this repository is near."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def rows_of(*, folder: str = "runs", well: int = 0, sick: int = 0, failed: int = 0, short: int = 0) -> list[Any]:
    """Return rows of runs whose names tell what they are."""
    rows = [a_row(f"{folder}/well{n}/log.jsonl", **WELL) for n in range(well)]
    rows += [a_row(f"{folder}/sick{n}/log.jsonl", **SICK) for n in range(sick)]
    rows += [a_row(f"{folder}/short{n}/log.jsonl", verdict="inconclusive") for n in range(short)]
    return rows + [a_failure(f"{folder}/lost{n}/log.jsonl") for n in range(failed)]


def table(name: str, rows: list[Any]) -> Path:
    """Write a table as `fleet` does."""
    from ppo_doctor.fleets.table import Table

    path = Path(name)
    written = Table(path)
    written.add(rows)
    written.finish()
    return path


def turned(verdict: str) -> Any:
    """Return a run that has the name of the first sick one and another verdict."""
    return a_row("runs/sick0/log.jsonl", verdict=verdict)


@pytest.mark.parametrize(
    ("counts", "budgets", "code"),
    [
        ({"well": 3}, [], 0),
        ({"well": 3, "sick": 1}, [], 1),
        ({"well": 19, "sick": 1}, ["unhealthy.share <= 0.05"], 0),
        ({"well": 18, "sick": 1}, ["unhealthy.share <= 0.05"], 1),
        ({"well": 19, "sick": 1}, ["unhealthy.share < 0.05"], 1),
        ({"well": 1, "sick": 2}, ["unhealthy.runs <= 2"], 0),
        ({"well": 1, "failed": 1}, [], 3),
        ({"well": 1, "failed": 1}, ["failed.runs <= 1"], 0),
        ({"well": 1, "failed": 1}, ["failed.share <= 0.4"], 3),
        ({"well": 1, "failed": 1, "sick": 1}, [], 1),
        ({"well": 1, "short": 1}, [], 4),
        ({"well": 1, "short": 1}, ["inconclusive.share <= 0.5"], 0),
        ({"well": 1, "short": 1, "failed": 1}, [], 3),
        ({"failed": 2}, ["failed.share <= 1"], 3),
        ({}, [], 3),
    ],
)
def test_budgets_of_runs(cli, counts, budgets, code):
    rows = rows_of(**counts)
    if rows:
        path = table("runs.parquet", rows)
    else:
        from pyarrow import parquet

        from ppo_doctor.fleets.table import table_of

        path = Path("runs.parquet")
        parquet.write_table(table_of([]), path)
    found = cli("gate", path, *(text for budget in budgets for text in ("--budget", budget)))
    assert found.code == code, found.out + found.err


def test_a_budget_of_the_policy(cli):
    path = table("runs.parquet", rows_of(well=9, sick=1))
    Path("ppo-doctor.toml").write_text('budgets = ["unhealthy.share <= 0.1", "approx_kl.p95 < 1"]\n')
    found = cli("gate", path)
    assert found.code == 0
    assert "budgets of the policy" in found.out  # the one on a metric is about logs
    assert cli("gate", path, "--budget", "unhealthy.runs <= 0").code == 1
    Path("ppo-doctor.toml").write_text('fail-on = "never"\n')
    assert cli("gate", path).code == 0
    assert cli("gate", table("lost.parquet", rows_of(well=1, failed=1))).code == 3


def test_a_budget_that_is_not_about_what_is_gated_is_refused(cli):
    path = table("runs.parquet", rows_of(well=20))
    assert cli("gate", path, "--budget", "approx_kl.p95 < 0.05").code == 2
    log = Path("run.jsonl")
    log.write_text("".join(json.dumps({"step": n, "approx_kl": 0.01, "entropy": 1.0}) + "\n" for n in range(20)))
    assert cli("gate", log, "--fail-on", "never").code == 0
    found = cli("gate", log, "--fail-on", "never", "--budget", "unhealthy.share <= 0.05")
    assert found.code == 2
    assert "unhealthy.share" in found.err


@pytest.mark.parametrize("budget", ["unhealthy.runs >= 1", "unhealthy.p95 < 1", "broken.runs < 1", "unhealthy < 1"])
def test_a_budget_that_means_nothing(cli, budget):
    assert cli("gate", table("runs.parquet", rows_of(well=1)), "--budget", budget).code == 2


def test_what_is_new_since_a_baseline(cli):
    before = table("old.parquet", [*rows_of(well=2, sick=3)[:-3], turned("warning"), *rows_of(sick=2)[1:]])
    same = cli(
        "gate", table("same.parquet", [*rows_of(well=2), turned("warning"), *rows_of(sick=2)[1:]]), "--baseline", before
    )
    assert same.code == 0
    now = table("now.parquet", [*rows_of(well=1, sick=2), a_row("runs/fresh/log.jsonl", **SICK)])
    found = cli("gate", now, "--baseline", before, "--format", "json")
    assert found.code == 1
    gate = found.json["gate"]
    assert sorted(gate["baseline"]["new"]) == ["runs/fresh/log.jsonl", "runs/sick0/log.jsonl"]
    assert gate["baseline"]["known"] == ["runs/sick1/log.jsonl"]
    assert found.json["counts"] == {
        "listed": 4,
        "judged": 4,
        "unhealthy": 3,
        "inconclusive": 0,
        "failed": 0,
        "new": 2,
        "recovered": 0,
        "former": 4,
        "gone": 1,
    }
    assert any("runs/well1/log.jsonl" in note for note in gate["notes"])  # which is gone
    assert cli("gate", now, "--baseline", before, "--budget", "new.runs <= 2").code == 0
    assert cli("gate", now, "--baseline", before, "--budget", "new.runs <= 2", "--budget", "gone.runs <= 0").code == 1
    assert (
        cli("gate", now, "--baseline", before, "--budget", "new.runs <= 2", "--budget", "unhealthy.runs <= 2").code == 1
    )


def test_a_run_that_could_not_be_judged_before_or_now(cli):
    before = table("old.parquet", [a_failure("runs/sick0/log.jsonl"), *rows_of(well=2)])
    assert cli("gate", table("a.parquet", rows_of(well=2, sick=1)), "--baseline", before).code == 1
    lost = table("b.parquet", [a_failure("runs/well0/log.jsonl"), *rows_of(well=2)[1:]])
    assert cli("gate", lost, "--baseline", before).code == 3


def test_a_baseline_of_another_machine(cli):
    before = table("old.parquet", rows_of(folder="/srv/ci/runs", well=2, sick=2))
    assert cli("gate", table("a.parquet", rows_of(folder="/data/runs", well=2, sick=2)), "--baseline", before).code == 0
    assert cli("gate", table("b.parquet", rows_of(folder="/data/runs", well=2, sick=3)), "--baseline", before).code == 1


def test_every_format_tells_what_fails_and_escapes_it(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))
    path = table("runs.parquet", [*rows_of(well=1, sick=1), a_failure("runs/<b>&\x1b[31m", "torn\n::error::x")])
    files = ("junit=a.xml", "json=a.json", "sarif=a.sarif", "markdown=a.md", "github", "text")
    found = cli("gate", path, *(text for name in files for text in ("--format", name)))
    assert found.code == 1
    assert "\x1b[31m" not in found.out
    assert [line for line in found.out.splitlines() if line.startswith("::error::")] == []
    suite = ET.fromstring(Path("a.xml").read_text())[0]  # noqa: S314 - we wrote it
    assert sum(case.find("failure") is not None for case in suite) == 5  # the gate, two budgets, two runs
    assert json.loads(Path("a.json").read_text())["gate"]["result"] == "failed"
    assert len(json.loads(Path("a.sarif").read_text())["runs"][0]["results"]) == 4
    for name in ("a.md", "page.md"):
        assert "&lt;b&gt;" in Path(name).read_text()
    assert cli("gate", path, "--format", "html").code == 2


def test_a_text_is_short_however_many_runs_fail(cli):
    found = cli(
        "gate", table("runs.parquet", rows_of(well=1, sick=1200)), "--format", "text", "--format", "json=a.json"
    )
    assert len(found.out.splitlines()) < 30
    listed = [each for each in json.loads(Path("a.json").read_text())["gate"]["held"] if each["kind"] == "run"]
    assert len(listed) == 1000


def changed(path: Path, name: str, values: list[Any]) -> Path:
    """Write a table with other values in a column."""
    import pyarrow as pa
    from pyarrow import parquet

    whole = parquet.read_table(path)
    parquet.write_table(whole.set_column(whole.schema.get_field_index(name), name, pa.array(values)), "changed.parquet")
    return Path("changed.parquet")


def test_a_verdict_that_is_none_never_passes(cli):
    path = table("runs.parquet", rows_of(well=3))
    assert cli("gate", changed(path, "verdict", ["fine", "healthy", "healthy"])).code == 3
    assert cli("gate", changed(path, "verdict", [None, "healthy", "healthy"])).code == 3
    assert cli("gate", changed(path, "status", ["failed", "judged", "judged"])).code == 3


def test_a_table_with_other_types_is_refused_in_words(cli):
    found = cli("gate", changed(table("runs.parquet", rows_of(well=2)), "findings", [1, 2]))
    assert (found.code, "Traceback" in found.err) == (2, False)


def test_a_table_whose_call_has_not_ended_is_refused(cli):
    path = table("runs.parquet", rows_of(well=2))
    parts = Path("runs.parquet.parts")
    parts.mkdir()
    (parts / "part-00000001.parquet").write_bytes(table("b.parquet", rows_of(sick=1)).read_bytes())
    assert cli("gate", path).code == 2


def test_options_about_logs_and_other_sources_are_refused(cli):
    path = table("runs.parquet", rows_of(well=2))
    for options in (["--select", "nan-inf"], ["--group"], ["--set", "a=1"], [path], ["--baseline", "no.parquet"]):
        assert cli("gate", path, *options).code == 2, options


def test_another_parquet_file_is_a_log(cli):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"step": range(40), "approx_kl": [0.01] * 40, "clip_fraction": [0.1] * 40, "verdict": ["healthy"] * 40}
    parquet.write_table(pa.table({name: list(values) for name, values in columns.items()}), "log.parquet")
    assert "Gate inconclusive" in cli("gate", "log.parquet").out
    assert cli("gate", "log.parquet", "--format", "json").json["run"]["sources"][0]["container"] == "parquet"
