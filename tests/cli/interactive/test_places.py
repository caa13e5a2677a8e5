"""Lines of a log around a number: unpacked and decoded as its reader does, secrets hidden, nothing dangerous shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppo_doctor.cli.interactive.findings import Findings, Story
from ppo_doctor.cli.interactive.metrics import Metrics
from ppo_doctor.cli.interactive.places import marked
from ppo_doctor.cli.interactive.subjects import Copy, Frame, Session
from ppo_doctor.model.run import SourceRef, SourceSummary
from tests.cli.interactive.stage import Screen, a_case, a_run, drive, series
from tests.report.cases import ATTACK, CODE, ZERO, observed


def words(line):
    return [part.text for part in line if part.style]


def test_the_key_and_its_value_are_marked():
    assert words(marked('{"step": 3, "loss": 0.5, "kl": 1}', ["loss"], ())) == ['loss": 0.5']
    assert words(marked("step=3 loss=0.5, kl=1", ["kl", "loss"], ())) == ["loss=0.5", "kl=1"]
    assert words(marked('{"policy_loss": 1}', ["loss"], ())) == []


def test_a_cell_of_a_table_is_marked_by_its_column():
    assert words(marked("3,0.5,1", ["loss"], ("step", "loss", "kl"))) == ["0.5"]
    assert words(marked('3,"a,b",1', ["kl"], ("step", "loss", "kl"))) == []
    assert words(marked("3,0.5", ["kl"], ("step", "loss", "kl"))) == []


def test_hostile_lines_are_shown_escaped_and_never_obeyed(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(f'{{"step": {n}, "loss": 0.0}} {ATTACK[:-4]}' for n in range(20)), encoding="utf-8")
    run = a_run(
        sources=(SourceSummary(path=str(path), container="jsonl", records=20),),
        series={"loss": series("loss", "loss", [0.0] * 20, path=str(path))},
    )
    case = a_case(run)
    findings = tuple(
        replace(
            f, evidence=tuple(replace(e, source=SourceRef(path=str(path), line=12, key="loss")) for e in f.evidence)
        )
        for f in case.diagnosis.findings
    )
    case = replace(case, diagnosis=replace(case.diagnosis, findings=findings))

    async def script(screen: Screen) -> None:
        await screen.press("5")
        await screen.wait_for(lambda: "▶" in screen.page)
        assert "\\x1b[31mred" in screen.page
        assert "[bold red]x[/]" in screen.page
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(screen.page)

    drive(script, [case], size=(240, 50))


def test_hostile_names_are_inert_in_every_view():
    hostile = f"[red]{ATTACK}[/red][@click=app.leave]x[/]"
    run = a_run(
        id=hostile,
        series={hostile: series(hostile, hostile, [1.0, 2.0, 3.0], unit=hostile, path=hostile)},
        config_raw={hostile: hostile},
    )
    diagnosis = a_case().diagnosis
    causes = tuple(replace(cause, title=hostile, says=hostile, id=hostile) for cause in diagnosis.causes[:1])
    findings = tuple(replace(f, title=hostile, reason=hostile) for f in diagnosis.findings)
    summary = replace(diagnosis.run, id=hostile, notes=(hostile,))
    case = a_case(run, replace(diagnosis, run=summary, causes=causes, findings=findings))

    async def script(screen: Screen) -> None:
        for key in ("1", "2", "3", "4", "5", "c"):
            await screen.press(key)
            text = screen.text()
            assert not {"\x1b", "\x07", "\u202e", "\x9b", "\u200b"} & set(text)
        await screen.press("escape", "r")

    app = drive(script, [case, case], size=(160, 50))
    assert app.crash is None


@pytest.mark.parametrize("width", [30, 36, 60])
def test_a_long_value_stays_on_the_row_of_its_metric(width):
    held = series("explained_variance", "ev", [-5.609e-05, -1.073e-06])
    case = a_case(a_run(series={"explained_variance": held}))
    (row,) = Metrics(Session(cases=(case,))).rows("", width)
    assert sum(len(span.text) for span in row.lines[0]) <= width


def test_a_finding_shows_and_copies_the_line_of_an_observed_script():
    case = a_case(a_run(), observed())
    findings = Findings(Session(cases=(case,)))
    frame = Frame(width=100, height=40)
    page = ["".join(span.text for span in line).strip() for line in findings.page(ZERO.rule, frame)]
    assert f"train.py:205 in update: {CODE.text}" in page
    assert Copy(what="place", text="train.py:205") in findings.copies(ZERO.rule)
    assert Copy(what="place", text="train.py:205") in Story(Session(cases=(case,))).copies("")
