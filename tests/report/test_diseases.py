"""Reports of every disease for people: each within its screen and naming its cause; a few of them letter by letter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.rules import Cause
from ppo_doctor.model.run import Run
from ppo_doctor.report import RenderOptions, render
from ppo_doctor.report.layout import columns

from .cases import CASES
from .diseases import disease, ids, pack
from .golden import check_golden
from .outline import outline
from .test_html import a_run

OPTIONS = RenderOptions(width=100, color=False, ascii=False)
FOLDER = "diseases"
#: Two faults, one that is seen late, and one that is none.
GOLDEN = ("benign-single-update", "entropy-collapse", "lr-zero", "old-policy-aliased")
#: Lines of a screen, by its width.
LINES = {60: 32, 100: 24}


def cause_of(name: str) -> Cause:
    cause = pack().cause(name)
    assert cause is not None
    return cause


def texts(found: Diagnosis, run: Run) -> str:
    """Return the three reports for people as one text."""
    parts = {
        "terminal": render(found, run, OPTIONS, "text"),
        "markdown": render(found, run, OPTIONS, "markdown"),
        "html": outline(render(found, run, OPTIONS, "html")),
    }
    return "".join(f"{'=' * 20} {name}\n{text}\n" for name, text in parts.items())


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_of_a_disease(name: str) -> None:
    check_golden(f"{FOLDER}/{name}.txt", texts(*disease(cause_of(name))))


def test_golden_of_health() -> None:
    signs = {name: np.linspace(0.0, 1.0, 412) for name in ("reward_mean", "entropy")}
    check_golden(f"{FOLDER}/healthy.txt", texts(CASES["healthy"], a_run(**signs)))


@pytest.mark.parametrize("name", ids())
def test_reports_of_a_disease_keep_to_their_size_and_name_its_meaning_and_remedy(name: str) -> None:
    cause = cause_of(name)
    found, run = disease(cause)
    for width, most in LINES.items():
        lines = render(found, run, replace(OPTIONS, width=width), "text").splitlines()
        assert lines[0].split()[0] == found.verdict.upper()
        assert len(lines) <= most
        assert max(map(columns, lines)) <= width
        assert all(line.isprintable() for line in lines)
    for part in texts(found, run).split("=" * 20)[1:]:
        # Reports wrap, capitalise, escape and bind words; the letters stay.
        letters = "".join(filter(str.isalnum, part)).lower()
        # A screen tells what shows the cause in this run, longer reports what it does to any.
        checks = [f.title for f in found.findings if f.status == "fired"]
        meant = ["".join(filter(str.isalnum, words)).lower() in letters for words in (cause.says, *checks)]
        assert any(meant), cause.says
        for words in (cause.title, found.causes[0].id):
            assert "".join(filter(str.isalnum, words)).lower() in letters, words
