"""Pages of rules, causes, frameworks and metrics: their parts, their examples, the site, and the view on a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import ppo_doctor.checks.cases
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli import explain, pages
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.trainers import detection

PACK = load_pack()
CAUSE_HEADINGS = [
    *("What it means", "How common", "Evidence for and against", "What it looks like", "Told apart from"),
    *("What to do", "What would settle it"),
]
RULE_HEADINGS = [
    *("What it finds", "Why it matters", "Look-alikes", "Blind spots", "What to try", "Parameters", "Sound runs"),
    *("Examples", "References"),
]
#: A page of each kind.
NAMES = ("entropy-gone", "old-policy-aliased", "sb3", "approx_kl")


@pytest.fixture(scope="module")
def site():
    return pages.site()


def headings(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", page, re.MULTILINE)


def test_every_rule_cause_framework_and_metric_has_a_page(site):
    expected = [
        *(f"rules/{rule.name}.md" for rule in PACK.rules),
        *(f"causes/{cause.id}.md" for cause in PACK.causes),
        *(f"frameworks/{name}.md" for name in detection.profiles()),
        *(f"metrics/{name}.md" for name in METRICS),
    ]
    indexes = ["README.md", *(f"{folder}/README.md" for folder in pages.COLUMNS)]
    assert sorted(site) == sorted([*expected, *indexes])


def test_causes_have_all_parts_and_rules_theirs_in_order(site):
    for cause in PACK.causes:
        assert headings(site[f"causes/{cause.id}.md"]) == CAUSE_HEADINGS
    for rule in PACK.rules:
        found = headings(site[f"rules/{rule.name}.md"])
        assert found == [title for title in RULE_HEADINGS if title in found]
        assert {"What it finds", "Examples"} <= set(found)


def test_links_of_the_site_lead_to_its_pages(site):
    for path, text in site.items():
        folder = path.rpartition("/")[0]
        targets = re.findall(r"`\]\(\.\./([^)]+)\)" if folder else r"\]\(([^)]+)\)", text)
        assert set(targets) <= set(site), path
    assert "(../rules/learning-rate-zero.md)" in site["causes/lr-zero.md"]
    assert "(../causes/lr-zero.md)" in site["causes/README.md"]
    assert "(../metrics/approx_kl.md)" in site["frameworks/sb3.md"]


def test_tables_have_as_many_cells_in_every_row(site):
    for path, text in site.items():
        for block in text.split("\n\n"):
            rows = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines() if line.startswith("| ")]
            assert len(set(rows)) <= 1, path


def test_the_site_is_what_explain_prints_with_links(site, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "site", lambda: site)
    outcome = cli("rules", "docs", "--out", tmp_path / "site")
    assert (outcome.code, outcome.err) == (0, "")
    written = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.md")}
    assert written == set(site)
    linked = (tmp_path / "site" / "causes" / "lr-zero.md").read_text(encoding="utf-8")
    assert re.sub(r"\[(`[^`\n]+`)\]\(\.\./[^)]+\)", r"\1", linked) == pages.page("lr-zero")


def test_a_folder_that_cannot_be_written_is_an_error(cli, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    outcome = cli("rules", "docs", "--out", tmp_path / "file")
    assert outcome.code == 2
    assert "file" in outcome.err


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("LR001", "learning-rate-zero"), ("ADV001", "advantages-all-zero"), ("train/approx_kl", "approx_kl")],
)
def test_a_code_names_its_rule_and_a_native_key_its_metric(name, canonical):
    assert pages.page(name) == pages.page(canonical)


@pytest.mark.parametrize(("wrong", "near"), [("learning-rate-zer", "learning-rate-zero"), ("cleanrll", "cleanrl")])
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(cli, wrong, near):
    outcome = cli("explain", wrong)
    assert (outcome.code, near in outcome.err) == (2, True)


def test_examples_are_run_and_not_written_down(monkeypatch):
    """A rule that answers something else shows on its page and on those of its causes."""
    real = ppo_doctor.checks.cases.run_case
    before = pages.page("learning-rate-zero"), pages.page("lr-zero")
    assert all("fired: " in page for page in before)
    monkeypatch.setattr(
        "ppo_doctor.checks.cases.run_case", lambda rule, case: real(rule, {**case, "series": {}, "config": {}})
    )
    after = pages.page("learning-rate-zero"), pages.page("lr-zero")
    assert not any("fired: " in page for page in after)


def test_a_cause_shows_the_report_of_a_sample_log():
    page = pages.page("lr-zero")
    assert "ppo-doctor analyze sample_logs/sick/lr-zero" in page
    assert "UNHEALTHY  sample_logs/sick/lr-zero" in page


def test_a_pack_without_sample_logs_shows_cases_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("ppo_doctor.checks.rulepack.builtin_rules", lambda: tmp_path / "rules")
    page = pages.cause_page(PACK.cause("lr-zero"), PACK)
    assert "UNHEALTHY" not in page
    assert headings(page) == CAUSE_HEADINGS


def test_html_and_escapes_of_a_pack_do_no_harm():
    evil = "\x1b[2J<script>alert(1)</script> and `a < b`"
    page = pages.rule_page(replace(PACK.rule("entropy-gone"), title=evil), PACK)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "`a < b`" in page


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_shows_every_word_within_its_width(cli, monkeypatch, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = cli("explain", name).out
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown  # nothing is cut
    for heading in headings(pages.page(name)):
        assert f"\n{heading}\n" in shown


def test_a_wide_terminal_is_not_filled(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, cli("explain", "entropy-gone").out.splitlines())) <= explain.WIDEST


def test_colours_are_for_terminals_that_take_them(cli, monkeypatch):
    assert "\x1b" not in cli("explain", "entropy-gone").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli("explain", "entropy-gone").out
