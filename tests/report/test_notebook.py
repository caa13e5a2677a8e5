"""What a Python session shows of runs and diagnoses: text, HTML, tables and figures."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ppo_doctor
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.request import Request
from ppo_doctor.report import notebook

ROOT = Path(__file__).resolve().parents[2]
LOGS = sorted(ROOT.glob("sample_logs/*/*.sb3/progress.csv"))
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e\"'</style>$x_1$"


@pytest.fixture(scope="module")
def sick():
    return ppo_doctor.analyze(ROOT / "sample_logs/sick/old-policy-aliased.sb3/progress.csv")


class Elements(HTMLParser):
    """Collects elements, and complains of tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], set()
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.parent.name)
def test_a_report_is_small_whole_and_harmless(log):
    diagnosis = ppo_doctor.analyze(log)
    for page in (diagnosis._repr_html_(), diagnosis.full_run._repr_html_()):
        assert len(page.encode()) < 60_000
        elements = Elements(page)
        assert {"script", "link", "img", "iframe", "object", "a"}.isdisjoint(elements.seen)
        assert not any(name.startswith("on") or name in ("href", "src") for name in elements.attributes)
        assert "url(" not in page and "@import" not in page
    assert diagnosis.verdict in diagnosis._repr_html_()


def test_the_report_says_what_is_wrong_and_what_to_do(sick):
    page = sick._repr_html_()
    assert all(problem.title in page for problem in sick.problems)
    assert sick.first_step in page


def test_no_style_applies_to_the_rest_of_a_notebook(sick):
    [style] = re.findall(r"<style>(.*?)</style>", sick._repr_html_(), re.DOTALL)
    selectors = [part.strip() for rule in style.split("}") if "{" in rule for part in rule.partition("{")[0].split(",")]
    assert selectors and all(selector.startswith(".ppo-doctor-output") for selector in selectors)


def test_every_run_says_its_matter_in_five_short_lines(sick):
    for shown in (repr(sick), repr(sick.full_run), repr(read_run(str(LOGS[0]), Request()))):
        lines = shown.split("\n")
        assert 1 <= len(lines) <= 5 and all(len(line) <= 200 for line in lines)
    assert sick.verdict in repr(sick) and sick.full_run.id in repr(sick.full_run)


def hostile_rows(rows=30):
    row = {
        "step": 1,
        "approx_kl": 0.0,
        "episode_return": 0.0,
        "entropy": 1.0,
        "policy_loss": 0.0,
        "env_name": HOSTILE,
        HOSTILE: 1.0,
    }
    return [row | {"step": step} for step in range(rows)]


def test_texts_of_a_log_are_escaped():
    diagnosis = ppo_doctor.analyze(pd.DataFrame(hostile_rows()), settings={"gamma": HOSTILE})
    spoilt = replace(diagnosis.full_run, id=HOSTILE, framework=HOSTILE, not_understood=(HOSTILE,))
    series = {name: replace(each, raw=HOSTILE) for name, each in spoilt.series.items()}
    spoilt = replace(spoilt, series=series)
    judged = notebook.diagnosis_of(diagnose(spoilt, load_pack()), spoilt)
    for page in (judged._repr_html_(), judged.full_run._repr_html_()):
        elements = Elements(page)
        assert {"script", "img"}.isdisjoint(elements.seen) and elements.seen.count("style") == 1
        assert "\x1b" not in page and "\u202e" not in page
    assert "\x1b" not in repr(judged) + repr(spoilt) and "\u202e" not in repr(judged) + repr(spoilt)


def test_many_metrics_and_long_names_stay_small():
    wide = [row | {f"reward/{'part' * 40}_{i}": 1.0 * i for i in range(500)} for row in hostile_rows()]
    diagnosis = ppo_doctor.analyze(wide)
    assert len(diagnosis._repr_html_()) < 60_000 and len(diagnosis.full_run._repr_html_()) < 60_000
    assert len(repr(diagnosis.full_run)) < 1_010


def test_findings_are_rows_with_the_fired_ones_first(sick):
    frame = sick.to_frame()
    assert len(frame) == len(sick.findings)
    fired = frame[frame["status"] == "fired"]
    assert list(fired.index) == list(range(len(fired))) and fired["severity"].iloc[0] in ("critical", "high")
    assert {finding.rule for finding in sick.findings} == set(frame["check"])


def test_a_run_is_a_table_of_its_series(sick):
    frame = sick.full_run.to_frame()
    assert list(frame.columns) == list(sick.full_run.series) and frame.index.name == "step"


def test_the_extended_classes_are_the_ones_of_model(sick):
    plain = read_run(str(LOGS[0]), Request())
    judged = diagnose(plain, load_pack())
    assert notebook.diagnosis_of(judged, plain) == notebook.diagnosis_of(judged, plain)
    assert isinstance(sick, type(judged)) and replace(sick, headline="x").full_run is sick.full_run
    with pytest.raises(AttributeError):
        sick.verdict = "healthy"


def test_a_diagnosis_can_be_kept(sick):
    again = pickle.loads(pickle.dumps(sick))  # noqa: S301 - our own
    assert again == sick and repr(again.full_run) == repr(sick.full_run)


# Figures


@pytest.fixture
def matplotlib(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    return pytest.importorskip("matplotlib")


@pytest.mark.usefixtures("matplotlib")
def test_a_figure_has_the_metrics_that_tell_and_the_onset(sick, tmp_path):
    figure = sick.plot()
    titles = [axis.get_title(loc="left") for axis in figure.axes if axis.get_visible()]
    assert "rollout/ep_rew_mean" in titles and "train/approx_kl" in titles
    onset = sick.problems[0].since_step
    assert all(any(list(line.get_xdata()) == [onset, onset] for line in axis.lines) for axis in figure.axes[:2])
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.usefixtures("matplotlib")
def test_a_figure_is_shown_once(sick):
    from matplotlib import pyplot

    sick.plot("approx_kl")
    assert pyplot.get_fignums() == []


@pytest.mark.usefixtures("matplotlib")
def test_names_of_metrics_choose_the_plots(sick):
    for figure, marks in ((sick.full_run.plot("fps"), 0), (sick.plot("fps"), 1)):
        assert [axis.get_visible() for axis in figure.axes] == [True, False]
        assert len(figure.axes[0].lines) == 1 + marks
    with pytest.raises(ppo_doctor.DoctorError, match="no metric nothing"):
        sick.plot("entropy", "nothing")


@pytest.mark.usefixtures("matplotlib")
def test_odd_numbers_and_names_can_be_drawn(tmp_path):
    values = [np.nan, np.inf, 1e-300, 1e300, -1.0] * 6
    rows = [row | {"approx_kl": value} for row, value in zip(hostile_rows(), values, strict=True)]
    diagnosis = ppo_doctor.analyze(rows)
    diagnosis.plot().savefig(tmp_path / "figure.png")
    run = replace(diagnosis.full_run, series={k: replace(s, raw=HOSTILE) for k, s in diagnosis.full_run.series.items()})
    run.plot().savefig(tmp_path / "figure.png")


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch, sick):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ppo_doctor.DoctorError) as error:
        sick.plot()
    assert error.value.hint.startswith("pip install")


# In a notebook

CELLS = (
    "import ppo_doctor, pandas as pd\ndiagnosis = ppo_doctor.analyze(pd.read_csv(LOG))\ndiagnosis",
    "diagnosis.full_run",
    "diagnosis.plot()",
    "print(diagnosis)",
)


@pytest.mark.usefixtures("matplotlib")
def test_a_notebook_shows_reports_and_each_figure_once(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.delenv("MPLBACKEND")  # the kernel has its own
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [nbformat.v4.new_code_cell(source.replace("LOG", repr(str(LOGS[0])))) for source in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    report, run, figure, printed = ([*cell.outputs] for cell in book.cells)
    assert (
        "ppo-doctor-output" in report[-1]["data"]["text/html"] and "ppo-doctor-output" in run[-1]["data"]["text/html"]
    )
    assert len(report[-1]["data"]["text/plain"].split("\n")) <= 5
    assert [("data" in output and "image/png" in output["data"]) for output in figure] == [True]
    assert printed[0]["text"].startswith("Diagnosis of <DataFrame>")
