"""Whatever stands in a log, a configuration, a path or a rule pack: no report changes its structure for it.

Each report is made twice, once with harmless words in every place that somebody else fills and once with hostile ones.
Both must have the same skeleton: elements, keys, tokens, commands. What is left of an attack is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.run import Axis, Run, Series
from ppo_doctor.report import FORMATS, RenderOptions, render, render_error, render_many
from ppo_doctor.report.escape import unsafe
from ppo_doctor.report.github import summary

from .cases import CASES
from .test_html import Page

ATTACKS = (
    "\x1b[31mred\x1b]8;;http://e.vil\x07",
    "\x9b2J",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\udcff\x00\x7f",
    "\r\n\n",
    "\u2028",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "--></style></title></script><!--",
    "]]>",
    "<![CDATA[",
    "&lt;b&gt;&#0;&nbsp;",
    "<?xml version='1.0'?>",
    "| a | b |\n|---|---|\n",
    "\n# heading\n\n- list\n1. one\n> quote\n```\n",
    "`code` ``two`` ~~~",
    "[link](javascript:alert(1)) ![picture](http://e.vil/p.png)",
    "<http://e.vil> https://e.vil www.e.vil @everyone #1 GH-1",
    "**bold** __bold__ ~~gone~~ $x^2$ \\",
    "\n::error file=x,line=1::forged\n::set-output name=a::b",
    "%0A::warning::forged",
    "[bold red]rich[/] [link=http://e.vil]x[/link]",
    "{{ expression }} ${{ secrets.TOKEN }} %(x)s {0}",
    "A" * 60,
    "z" + "\u0301" * 12,
)
HOSTILE = (
    st.lists(st.one_of(st.sampled_from(ATTACKS), st.text(max_size=12)), min_size=1, max_size=2)
    .map("".join)
    .filter(str.strip)
)
TAME = "q"
#: Fields that a log, a path, a configuration or somebody's rule pack fills.
OUTSIDE = frozenset(
    [
        "id",
        "next_step",
        "path",
        "container",
        "now",
        "then",
        "framework",
        "algorithm",
        "notes",
        "title",
        "says",
        "reason",
        "missing",
        "missing_metrics",
        "metric",
        "raw",
        "statistic",
        "unit",
        "bound_source",
        "key",
        "origin",
        "ask",
        "do",
        "log",
        "because",
        "check_title",
        "evidence",
        "witness",
        "level_with",
        "suppressed",
        "verdict_because",
        "headline",
        "first_step",
        "avoid",
        "rule",
        "finding",
        "code",
        "openers",
        "findings",
        "causes",
        "leader",
        "problem",
        "file",
        "function",
        "text",
    ]
)
#: Closed lists of ours, whatever their field is called.
OURS = frozenset(("link", "family"))
NAMES = [name for name in CASES if name != "hostile"]
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def poisoned(value: Any, word: str, field: str = "") -> Any:
    """Return a diagnosis with a word before and after every string that comes from outside."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: poisoned(getattr(value, f.name), word, f.name) for f in fields(value)})
    if isinstance(value, tuple):
        return tuple(poisoned(inner, word, field) for inner in value)
    if isinstance(value, Mapping) and field == "config":
        return {f"{word}{key}": f"{word}{inner}{word}" for key, inner in value.items()}
    if isinstance(value, Mapping):
        return {key: poisoned(inner, word, "reason") for key, inner in value.items()}
    return f"{word}{value}{word}" if value and type(value) is str and field in OUTSIDE - OURS else value


def run_of(word: str) -> Run:
    steps = np.arange(1, 50)
    axis = Axis(path=f"{word}log{word}", steps=steps, lines=steps)
    names = [f"{word}{name}{word}" for name in ("frac_reward_zero_std", "loss", "reward_std", "kl")]
    values = np.where(steps < 12, 0.0, 1.0)
    series = {name: Series(name=name, raw=name, axis=axis, values=values, unit=word) for name in names}
    return Run(id=word, framework=word, algorithm=word, sources=(), series=series)


OPTIONS = RenderOptions(why=True, all=True, color=False, width=100)


def report(name: str, word: str, format: str) -> str:
    return render(poisoned(CASES[name], word), run_of(word), OPTIONS, format)


def reports(name: str, word: str, format: str) -> list[str]:
    """Return a report of one run, of several, and of an error."""
    found: Diagnosis = poisoned(CASES[name], word)
    one = report(name, word, format)
    error = render_error(f"{word}no file{word}", f"{word}look{word}", 3, format)
    if format == "svg":
        return [one]
    return [one, render_many([found, found], OPTIONS, format, [run_of(word), None]), error]


def elements(source: str) -> list[tuple[str, ...]]:
    return [(tag, *sorted(given)) for tag, given in Page(source).elements]


def tree(source: str) -> list[tuple[str, ...]]:
    return [(node.tag, *sorted(node.keys())) for node in ET.fromstring(source).iter()]  # noqa: S314 - our own output


def keys(value: Any, name: str = "") -> Any:
    """Return the skeleton of JSON: its keys, but for those of a configuration, and the types of its values."""
    if isinstance(value, dict):
        return [("?" if name == "config" else key, keys(inner, key)) for key, inner in value.items()]
    if isinstance(value, list):
        return [keys(inner) for inner in value]
    return type(value).__name__


def tokens(source: str) -> list[tuple[str, ...]]:
    """Return what Markdown makes of a report: its tokens, and HTML as it stands."""
    found = []
    for block in GFM.parse(source):
        found.append((block.type, block.tag, block.markup if block.type != "fence" else ""))
        for token in block.children or ():
            if token.type.startswith("html"):
                found.append((token.type, token.content))
            elif token.type not in ("text", "text_special", "softbreak"):
                found.append((token.type, token.tag))
        if block.type == "html_block":
            found.append(tuple(re.findall("<[^>]*>", block.content)))
    return found


def commands(source: str) -> list[tuple[str, ...]]:
    """Return the workflow commands of an output: name and properties."""
    found = []
    for line in source.split("\n"):
        match = re.match(r"::([\w-]+)(?: ([^:]*))?::", line)
        assert match or "::" not in line[:2], line
        if match:
            found.append((match[1], *(part.partition("=")[0] for part in (match[2] or "").split(","))))
    return found


def headings(source: str) -> list[str]:
    """Return the lines of a terminal that begin as ours do: a log's words never begin a line."""
    ours = "HEALTHY UNHEALTHY WARNING INCONCLUSIVE Signal Cause Causes Harmless Checks Not Notes Also Seen Account"
    return [line.split(" ")[0] for line in source.split("\n") if line.split(" ")[0] in {*ours.split(), *"123"}]


SKELETONS = {
    "text": headings,
    "json": lambda source: keys(json.loads(source)),
    "svg": lambda source: set(tree(source)),  # long words take more lines
    "html": elements,
    "markdown": tokens,
    "sarif": lambda source: keys(json.loads(source)),
    "junit": tree,
    "github": commands,
}


def without_errors_as_text(format: str, made: Iterable[str]) -> list[str]:
    """Return the reports that are documents of their format: an error has no form of its own in some."""
    return list(made)[: 2 if format in ("text", "html", "markdown") else None]


@cache
def tame_reports(name: str, format: str) -> list[str]:
    return reports(name, TAME, format)


@pytest.fixture(scope="module", autouse=True)
def _comments_of_any_length() -> Iterator[None]:
    """Let no report be cut: where a comment ends depends on how long the hostile words are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ppo_doctor.report.markdown.LONGEST", 10**9)
        yield


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=4)
@given(name=st.sampled_from(NAMES), word=HOSTILE)
@example(
    name="unhealthy",
    word="\x1b[31mred\x1b]8;;http://e.vil\x07[link](javascript:alert(1)) ![picture](http://e.vil/p.png)",
)
def test_hostile_text_changes_no_structure(format: str, name: str, word: str) -> None:
    made, tame = reports(name, word, format), tame_reports(name, format)
    skeleton = SKELETONS[format]
    for ours, theirs in zip(without_errors_as_text(format, made), without_errors_as_text(format, tame), strict=True):
        assert skeleton(ours) == skeleton(theirs)
    for text in made:
        assert not [sign for sign in text if sign != "\n" and unsafe(sign)]
        text.encode("utf-8")


@settings(max_examples=12)
@given(word=HOSTILE)
def test_the_page_of_a_job_is_markdown_that_keeps_its_structure(word: str) -> None:
    options = RenderOptions()
    made, tame = (summary([poisoned(CASES["unhealthy"], w)], options) for w in (word, TAME))
    assert tokens(made) == tokens(tame)


@pytest.mark.parametrize("format", FORMATS)
def test_each_attack_alone(format: str) -> None:
    skeleton = SKELETONS[format]
    tame = skeleton(report("unhealthy", TAME, format))
    assert [attack for attack in ATTACKS if skeleton(report("unhealthy", attack, format)) != tame] == []


def test_every_place_that_others_fill_is_attacked() -> None:
    """The test of the test: each string of a diagnosis is poisoned, or is one of a closed list of ours."""
    closed = {"tool_version", "verdict", "status", "link", "op", "how", "state", "family", "complaint", "confidence"}
    closed |= {"role", "setting", "to", "what", "follows"}
    seen = set()

    def walk(value: Any, field: str) -> None:
        if is_dataclass(value) and not isinstance(value, type):
            for f in fields(value):
                walk(getattr(value, f.name), f.name)
        elif isinstance(value, tuple):
            for inner in value:
                walk(inner, field)
        elif type(value) is str:
            seen.add(field)

    for found in CASES.values():
        walk(found, "")
    assert seen <= OUTSIDE | closed
