"""The HTML report: structure, safety, and the promises that a reader relies on; no browser needed."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.evidence import drawn
from ppo_doctor.model.run import Axis, Run, Series
from ppo_doctor.model.words import CHAIN, Severity
from ppo_doctor.report import RenderOptions, render, render_many
from ppo_doctor.report.html import key_steps
from ppo_doctor.report.html_markup import el, text
from ppo_doctor.report.html_plots import exhibits
from ppo_doctor.report.phrases import apart, gravity
from ppo_doctor.report.plots import bound_applies
from ppo_doctor.report.summary import KeyStep, Row, Table, summarize

from .cases import (
    CASES,
    CODE,
    CONSTANT,
    FLAT_GROUPS,
    FLAT_LOSS,
    NOTHING_TO_LEARN,
    RIVAL,
    TOGETHER,
    ZERO,
    counted,
    hostile,
    observed,
    unhealthy,
)

VOID = {"meta", "link", "input", "br"}
INJECTION = "\"'><script>alert(1)</script><img src=x onerror=alert(1)></style></title>&amp;javascript:alert(1)<!--"


class Page(HTMLParser):
    """A page read strictly: elements must close in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.raw: dict[str, str] = {}
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} repeats an attribute"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            self.raw[self.open[-1]] = data
        else:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"comment {data!r}")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def classed(self, name: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.elements if name in (a.get("class") or "").split()]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def html(found: Diagnosis, run: Run | None = None, **options: Any) -> str:
    return render(found, run, RenderOptions(**options), "html")


def a_run(records: int = 412, **values: Any) -> Run:
    steps = np.arange(1, records + 1)
    axis = Axis(path="run.jsonl", steps=steps, lines=steps)
    given = {
        "frac_reward_zero_std": np.where(steps < 12, 0.2, 1.0),
        "loss": np.where(steps < 12, 0.3, 0.0),
        "reward_std": np.where(steps < 12, 0.5, 0.0),
        "kl": np.full(records, 0.01),
    } | values
    held = {name: Series(name=name, raw=name, axis=axis, values=np.asarray(array)) for name, array in given.items()}
    return Run(id="x", framework="trl-grpo", algorithm="grpo", sources=(), series=held)


def strings(value: Any) -> Any:
    """Return a copy of a diagnosis with an injection behind every string that comes from outside."""
    return value + INJECTION


def injected() -> Diagnosis:
    evidence = replace(ZERO.evidence[0], raw=strings("raw"), metric=strings("metric"), unit=strings("unit"))
    fired = replace(ZERO, evidence=(evidence,), title=strings("title"), rule=strings("rule"), code=strings("code"))
    cause = replace(
        FLAT_GROUPS,
        id=strings("id"),
        title=strings("title"),
        says=strings("says"),
        ledger=(replace(FLAT_GROUPS.ledger[0], finding=fired.rule, says=strings("says"), link=strings("link")),),
    )
    run = replace(
        unhealthy().run,
        id=strings("id"),
        framework=strings("framework"),
        config={strings("key"): strings("value")},
        notes=(strings("note"),),
    )
    return replace(
        unhealthy(),
        run=run,
        findings=(fired,),
        causes=(cause,),
        problems=(replace(NOTHING_TO_LEARN, title=strings("title"), findings=(fired.rule,)),),
        verdict_because=strings("because"),
        tool_version=strings("0"),
    )


def pages() -> Iterator[str]:
    yield from (html(found) for found in CASES.values())
    yield html(unhealthy(), a_run())
    yield html(injected(), a_run(**{strings("raw"): np.ones(412)}))
    yield render_many(list(CASES.values()), RenderOptions(), "html")


@pytest.fixture(params=range(len(CASES) + 3), scope="module")
def source(request: pytest.FixtureRequest) -> str:
    return list(pages())[request.param]


def test_is_a_whole_document(source: str) -> None:
    page = Page(source)
    assert source.startswith("<!doctype html>\n<html lang=")
    for tag in ("html", "head", "title", "body", "main", "footer", "h1"):
        assert len(page.all(tag)) == 1, tag
    source.encode("utf-8")


def test_ids_are_unique_and_every_link_within_the_page_leads_somewhere(source: str) -> None:
    page = Page(source)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    named = [a[key] or "" for _, a in page.elements for key in ("aria-labelledby", "for") if key in a]
    linked = [(a["href"] or "").removeprefix("#") for a in page.all("a")]
    assert set(named) | set(linked) <= set(ids)


def test_headings_skip_no_level(source: str) -> None:
    levels = [int(tag[1]) for tag, _ in Page(source).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_policy_admits_exactly_what_is_inlined(source: str) -> None:
    page = Page(source)
    metas = page.all("meta")
    policy = next(a["content"] or "" for a in metas if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("style", "script"):
        assert len(page.all(tag)) == 1
        digest = b64encode(sha256(page.raw[tag].encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    # The policy must stand before anything that it governs.
    tags = [tag for tag, _ in page.elements]
    assert tags.index("style") > [a.get("http-equiv") for a in metas].index("Content-Security-Policy")


def test_nothing_is_inline_and_nothing_is_fetched(source: str) -> None:
    page = Page(source)
    for tag, attributes in page.elements:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "srcset", "action", "formaction", "xlink:href", "data", "poster"):
            assert name not in attributes, (tag, name)
        assert (attributes.get("href") or "#").startswith(("#", "data:image/svg+xml,"))
    for code in page.raw.values():
        assert not re.search(r"@import|fetch\(|XMLHttpRequest|import\(|eval\(|innerHTML|url\((?!#)", code)
        assert set(re.findall(r"https?://[^\s\"')]+", code)) <= {"http://www.w3.org/2000/svg"}
    allowed = {"html", "head", "meta", "title", "link", "style", "script", "body", "header", "nav", "main", "footer"}
    allowed |= {"section", "article", "div", "span", "p", "a", "ul", "ol", "li", "dl", "dt", "dd", "br", "code"}
    allowed |= {"strong", "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure"}
    allowed |= {"figcaption", "svg", "g", "path", "line", "rect", "text", "defs", "pattern", "label", "input"}
    allowed |= {"output", "button", "h1", "h2", "h3", "h4", "h5"}
    assert {tag for tag, _ in page.elements} <= allowed


def test_tables_say_what_their_headings_head(source: str) -> None:
    page = Page(source)
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))


def test_injected_markup_stays_text() -> None:
    source = html(injected(), a_run(**{strings("raw"): np.ones(412)}))
    page = Page(source)
    assert INJECTION in page.text.replace("\u00a0", " ")
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert page.classed("exhibit")


def test_the_line_of_an_observed_script_is_code() -> None:
    source = render(observed(replace(CODE, text="if a < b and c: pass")), None, RenderOptions(), "html")
    line = "<code>train.py:205 in update: if a &lt; b and c: pass</code>"
    assert f"<dt>at</dt><dd>{line}</dd>" in source
    assert source.count(line) == 2  # of the problem, and of its check


def test_further_lines_of_an_observed_script_follow_the_first() -> None:
    source = render(observed(TOGETHER), None, RenderOptions(), "html")
    lines = "".join(f"<dd><code>{line}</code></dd>" for line in (CODE.says, *(each.does for each in TOGETHER.also)))
    assert f"<dt>at</dt>{lines}<dt>" in source
    assert source.count("set at conf.py:26: EPS = 2e-6") == 2  # of the problem, and of its check


def test_no_control_or_invisible_character_reaches_the_page() -> None:
    source = html(hostile())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\u2066\ufeff\U000e0041\ud800-\udfff]", source)
    assert r"\u202etxt" in source
    assert "http://e.vil" not in "".join(str(a) for _, a in Page(source).elements if "href" in a)


@pytest.mark.parametrize("verdict", ["healthy", "warning", "unhealthy", "inconclusive"])
def test_the_verdict_is_the_heading(verdict: str) -> None:
    source = html(CASES[verdict])
    assert re.search(rf'<h1 id="verdict"><span class="badge {verdict}">.*?{verdict}</span></h1>', source)


def test_a_problem_tells_what_it_is_what_to_do_and_what_would_settle_it() -> None:
    source = html(unhealthy(), a_run()).replace("\u00a0", " ")
    problem = source[source.index("<article") : source.index("</article>")]
    order = [
        ZERO.title,
        ">critical<",
        "since step 12",
        "line 12",
        f"likely: {FLAT_GROUPS.title}",
        CONSTANT.title,
    ]
    order += [
        "num_generations: 8 → 16.",
        "Print the rewards of one group",
        "log the rewards",
        "<figure",
    ]
    places = [problem.index(words) for words in order]
    assert places == sorted(places)


def test_the_headline_and_the_table_are_the_run_s_own_numbers() -> None:
    page = Page(html(unhealthy(), a_run(reward_mean=np.linspace(0.9, 0.0, 412))))
    words = page.text.replace("\u00a0", " ")
    assert "The reward (reward_mean) shows no clear rise: 0.5 throughout." in words
    assert "reward_mean 0.9" in words
    assert len(page.classed("moments")) == 1
    assert {a["class"] for _, a in page.elements if "at-onset" in (a.get("class") or "")} == {"at-onset"}


def test_what_is_usual_and_what_stands_out_are_told_where_they_are_known() -> None:
    rows = (
        Row(name="approx_kl", key="kl", values=(0.4,), usual=".003–.03", remark="off"),
        Row(name="x", key="x", values=(None,)),
    )
    told = Table(key_steps=(KeyStep(name="end", step=9),), rows=rows)
    for table, known in ((told, True), (replace(told, rows=rows[1:]), False)):
        page = Page(str(key_steps(table)))
        assert (".003–.03" in page.text) is known
        assert len(page.all("th")) == 2 + 2 * known + len(table.rows)
        assert "–" in page.words


def test_an_open_verdict_tells_what_keeps_it_open() -> None:
    words = Page(html(CASES["inconclusive"])).text
    assert "whether the policy moves (log ratio_std, ratio_max or clip_fraction)" in words


def test_every_cause_has_its_account_that_adds_up() -> None:
    source = html(unhealthy())
    for cause in (FLAT_GROUPS, CONSTANT, RIVAL):
        assert cause.title in source
    account = source[source.index(f"Account of {FLAT_GROUPS.id}") :]
    amounts = re.findall(r'<td class="db">(.\d+|0)</td>', account[: account.index("</table>")])
    *parts, total = (int(amount.replace("−", "-")) for amount in amounts)
    assert total == sum(parts) == 30


def test_accounts_are_folded_unless_asked_for() -> None:
    assert not [a for a in Page(html(unhealthy())).all("details") if "open" in a]
    assert [a for a in Page(html(unhealthy(), why=True)).all("details") if "open" in a]
    assert [a for a in Page(html(unhealthy(), all=True)).classed("all-checks") if "open" in a]


def test_the_chain_tells_states_in_words_and_signs() -> None:
    page = Page(html(unhealthy()))
    assert len(page.classed("link")) == len(CHAIN) + 1
    assert "dead" in page.text
    assert "not logged" in page.text


def test_a_dead_link_is_flat_and_crossed_and_a_living_one_beats() -> None:
    """The picture tells what the words do: no beat where the signal is dead."""
    source = html(unhealthy())
    drawn = dict(re.findall(r'<li class="link (\w+)"><svg[^>]*><path d="([^"]*)"', source))
    assert drawn["dead"].startswith("M0 20H100M")
    assert drawn["unknown"] == "M0 20H100"
    assert "L48 4" in drawn["alive"]


def test_the_chain_is_folded_where_nothing_is_wrong_with_it() -> None:
    assert "<summary>Signal chain</summary>" in html(CASES["healthy"])
    assert "<summary>Signal chain</summary>" not in html(unhealthy())


def test_whatever_is_no_part_of_the_story_is_folded() -> None:
    source = html(unhealthy(), a_run())
    unfolded = re.sub("<details.*?</details>", "", source)
    for words in (RIVAL.title, "Every check with its outcome", "Account of", "reward-hacking", "Statistics"):
        assert words not in unfolded
    assert FLAT_GROUPS.title in unfolded


def test_a_check_that_did_not_run_never_looks_passed() -> None:
    source = html(CASES["errored"])
    assert "Did not run: ZeroDivisionError" in source
    assert "The ratio is one throughout" not in source
    assert "A check that did not run is not a passed one" in source


def test_every_check_is_listed_and_can_be_searched() -> None:
    found = unhealthy()
    source = html(found)
    assert len(Page(source).classed("filtered")) == len(found.findings) + len(found.causes)
    for finding in found.findings:
        assert f"<code>{finding.rule}</code>" in source


def test_without_a_run_plots_are_left_out_and_the_page_says_so() -> None:
    page = Page(html(unhealthy()))
    assert page.classed("exhibit") == []
    assert "Plots are left out" in page.text


def test_a_problem_has_the_plots_of_its_evidence_and_of_the_table_with_their_marks() -> None:
    source = html(unhealthy(), a_run())
    page = Page(source)
    # Three of the evidence, in the order of its weight; kl is of the table only.
    assert [a["data-name"] for a in page.classed("exhibit")] == ["frac_reward_zero_std", "loss", "reward_std"]
    assert source.count("onset: step 12") == 3
    assert "bound: ≥ 0.95" in source
    assert len(page.classed("window")) == 3
    alternatives = [a["aria-label"] or "" for a in page.classed("data")]
    assert all("onset marked at step 12" in words and "offending window" in words for words in alternatives)


def test_each_of_two_problems_has_its_own_plots_and_onset() -> None:
    other = replace(CONSTANT, problem="p2", level_with=(), onset_step=200, ledger=RIVAL.ledger)
    second = replace(NOTHING_TO_LEARN, id="p2", findings=(FLAT_LOSS.rule,), since_step=200)
    causes = (replace(FLAT_GROUPS, level_with=()), other)
    found = replace(unhealthy(), causes=causes, problems=(NOTHING_TO_LEARN, second))
    run = a_run(reward_mean=np.ones(412))
    groups = exhibits(summarize(found, run), found, run)
    assert [[exhibit.series for exhibit in group] for group in groups] == [
        ["frac_reward_zero_std", "loss", "reward_std", "reward_mean"],
        ["loss", "frac_reward_zero_std"],
    ]
    assert [{exhibit.since for exhibit in group} for group in groups] == [{12}, {200}]
    few = exhibits(summarize(found, run), found, run, most=5)
    assert list(map(len, few)) == [4, 1]


def test_a_problem_without_a_cause_has_the_plots_of_what_shows_it() -> None:
    alone = replace(NOTHING_TO_LEARN, leader="", causes=(), openers=(), findings=(FLAT_LOSS.rule,))
    found = replace(unhealthy(), causes=(), problems=(alone,))
    first = exhibits(summarize(found, a_run()), found, a_run())[0][0]
    assert (first.series, first.findings, first.since) == ("loss", (FLAT_LOSS,), 12)


def test_a_sound_run_shows_the_metrics_of_its_table_without_marks() -> None:
    signs = {name: np.linspace(0.0, 1.0, 412) for name in ("entropy", "episode_return")}
    page = Page(html(CASES["healthy"], a_run(**signs)))
    assert {"episode_return", "entropy"} <= {a["data-name"] for a in page.classed("exhibit")}
    assert not page.classed("window")
    assert not page.classed("onset")


def test_a_key_that_serves_two_metrics_is_drawn_once() -> None:
    run = a_run()
    twin = replace(run.series["frac_reward_zero_std"], name="other")
    twins = replace(run, series={**run.series, "other": twin})
    ours = [
        exhibit.series for group in exhibits(summarize(unhealthy(), twins), unhealthy(), twins) for exhibit in group
    ]
    assert "frac_reward_zero_std" in ours
    assert "other" not in ours


def test_an_onset_that_a_finding_does_not_tell_is_the_cause_s() -> None:
    quiet = tuple(replace(finding, onset_step=None) for finding in unhealthy().findings)
    assert html(replace(unhealthy(), findings=quiet), a_run()).count("onset: step 12") == 3


def test_a_metric_within_a_phrase_is_found() -> None:
    run = a_run()
    assert drawn(counted("change of loss from pass to pass", "==", 0.0, 1, 1, 1, metric="change"), run) == ["loss"]


def test_a_bound_of_a_derived_quantity_is_drawn_only_where_the_log_bears_it_out() -> None:
    held = a_run().series["loss"]
    assert bound_applies(counted("loss", "==", 0.0, 401, 401, 12, metric="change"), held)
    assert not bound_applies(counted("loss", "==", 0.0, 180, 180, 12, metric="change"), held)
    assert bound_applies(counted("loss", ">", 9.0, 1, 1, 12), held)


def test_names_in_a_formula_find_their_series() -> None:
    run = a_run()
    assert drawn(counted("1 - frac_reward_zero_std", "<=", 0.0, 1, 1, 1, metric="spread"), run) == [
        "frac_reward_zero_std"
    ]
    assert drawn(counted("kl, loss", "<=", 0.0, 1, 1, 1, metric="many"), run) == ["loss", "kl"]


def test_metrics_that_broke_are_hatched() -> None:
    broken = np.where(np.arange(412) > 200, math.nan, 1.0)
    source = html(unhealthy(), a_run(loss=broken))
    assert "not finite 211" in source
    assert 'fill="url(#hatch)"' in source
    assert 'id="hatch"' in source


def test_output_is_the_same_every_time() -> None:
    assert html(unhealthy(), a_run()) == html(unhealthy(), a_run())


def test_a_page_of_a_normal_run_is_small() -> None:
    assert len(html(unhealthy(), a_run(100_000)).encode()) < 150_000


def test_several_runs_have_a_table_with_a_link_to_each() -> None:
    found = [replace(CASES[name], run=replace(CASES[name].run, id=f"runs/{name}")) for name in ("healthy", "unhealthy")]
    source = render_many(found, RenderOptions(), "html")
    rows = re.findall('<th scope="row"><a href="#(run-.)">(.*?)</a></th>.*?badge (.*?)">', source)
    assert rows == [("run-0", "unhealthy", "unhealthy"), ("run-1", "healthy", "healthy")]
    assert "2\u00a0runs judged" in source
    first = source[source.index("<tbody>") : source.index("</tr>", source.index("<tbody>"))].replace("\u00a0", " ")
    assert ZERO.title in first
    assert "num_generations: 8 → 16." in first
    assert render_many([], RenderOptions(), "html").startswith("<!doctype html>")


def many(size: int) -> list[Diagnosis]:
    return [replace(unhealthy(), run=replace(unhealthy().run, id=f"runs/{i}/log.jsonl")) for i in range(size)]


def test_several_runs_are_folded_and_drawn_each_in_its_fold() -> None:
    found = many(3)
    source = render_many(found, RenderOptions(), "html", [a_run(), None, a_run(reward_mean=np.ones(412))])
    page = Page(source)
    assert len(page.classed("one-run")) == 3
    assert not [a for a in page.classed("one-run") if "open" in a]
    drawn = [part.count('<figure class="exhibit"') for part in source.split('<details class="one-run"')]
    assert drawn == [0, 3, 0, 4]
    assert len(page.classed("small")) == 1


def test_the_gravest_run_comes_first() -> None:
    """By verdict, and among equals by how grave the leading fault is."""
    mild = replace(unhealthy(), causes=(replace(FLAT_GROUPS, severity=Severity.HIGH),))
    order = [unhealthy(), mild, CASES["warning"], CASES["inconclusive"], CASES["healthy"]]
    shuffled = [order[i] for i in (4, 1, 3, 0, 2)]
    assert sorted(shuffled, key=gravity) == order


def test_a_page_of_many_runs_stays_small_and_keeps_the_gravest() -> None:
    """Healthy runs give way first; what has no section still has its line, and the page says so."""
    sick = replace(unhealthy(), run=replace(unhealthy().run, id="the-sick-one"))
    sound = [replace(CASES["healthy"], run=replace(CASES["healthy"].run, id=f"runs/{i}")) for i in range(400)]
    source = render_many([*sound, sick], RenderOptions(), "html", [a_run(2000)] * 401)
    assert len(source.encode()) < 2_000_000
    page = Page(source)
    assert '<a href="#run-0">the-sick-one</a>' in source
    assert "run-0" in {a.get("id") for a in page.classed("one-run")}
    assert len(page.classed("one-run")) < 401
    assert len([a for a in page.classed("filtered") if a["class"] == "filtered"]) >= 401
    assert "in the table only" in page.text


def test_names_in_the_table_tell_runs_apart() -> None:
    assert apart(["runs/a/log.csv", "runs/b/log.csv"]) == ["a", "b"]
    assert apart(["runs/log.csv", "runs/a/log.csv"]) == ["log.csv", "a/log.csv"]
    assert apart(["x", "x"]) == ["x", "x"]
    assert apart(["log", "other"]) == ["log", "other"]
    assert apart([]) == []


def test_markup_escapes_children_and_attributes() -> None:
    made = el("a", text("<b>&"), cls='x"y', href="#'", hidden=True, title=None)
    assert made == '<a class="x&quot;y" href="#&#x27;" hidden>&lt;b&gt;&amp;</a>'
