"""One whole text per disease, and one for health, in terminal, Markdown and HTML; JSON reads back as what was said."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.model import Diagnosis, Run
from ppo_doctor.report import RenderOptions, render

from .cases import CASES
from .diseases import disease, ids, pack
from .golden import GOLDENS, check_golden
from .outline import outline
from .test_html import a_run

OPTIONS = RenderOptions(width=100, color=False, ascii=False)
FOLDER = "diseases"


def texts(found: Diagnosis, run: Run) -> str:
    """Return the three reports for people as one text."""
    parts = {
        "terminal": render(found, run, OPTIONS, "text"),
        "markdown": render(found, run, OPTIONS, "markdown"),
        "html": outline(render(found, run, OPTIONS, "html")),
    }
    return "".join(f"{'=' * 20} {name}\n{text}\n" for name, text in parts.items())


@pytest.mark.parametrize("name", ids())
def test_golden_of_a_disease(name: str) -> None:
    cause = pack().cause(name)
    assert cause is not None
    check_golden(f"{FOLDER}/{name}.txt", texts(*disease(cause)))


def test_golden_of_health() -> None:
    signs = {name: np.linspace(0.0, 1.0, 412) for name in ("reward_mean", "entropy")}
    check_golden(f"{FOLDER}/healthy.txt", texts(CASES["healthy"], a_run(**signs)))


def test_there_is_a_golden_for_each_disease_and_for_nothing_else() -> None:
    assert sorted(path.stem for path in (GOLDENS / FOLDER).glob("*.txt")) == sorted([*ids(), "healthy"])


@pytest.mark.parametrize("name", ids())
def test_every_report_names_the_disease_its_meaning_and_the_first_remedy(name: str) -> None:
    cause = pack().cause(name)
    assert cause is not None
    found, run = disease(cause)
    for part in texts(found, run).split("=" * 20)[1:]:
        # Reports wrap, capitalise, escape and bind words; the letters stay.
        letters = "".join(filter(str.isalnum, part)).lower()
        # A screen tells what shows the cause in this run, longer reports what it does to any.
        checks = [f.title for f in found.findings if f.status == "fired"]
        meant = ["".join(filter(str.isalnum, words)).lower() in letters for words in (cause.says, *checks)]
        assert any(meant), cause.says
        for words in (cause.title, found.causes[0].id):
            assert "".join(filter(str.isalnum, words)).lower() in letters, words
