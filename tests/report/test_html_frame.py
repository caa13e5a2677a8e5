"""The frame of every page: nothing but its own style and script may run in it."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from ppo_doctor.report.html_markup import NOTHING, document, el, text


def test_a_page_without_a_script_lets_none_run() -> None:
    page = document("x", el("p", text("y")), styles=("report.css",))
    assert "<script" not in page
    assert "script-src" not in page
    assert "default-src 'none'" in page.replace("&#39;", "'").replace("&#x27;", "'")


def test_the_policy_names_the_style_that_is_in_the_page() -> None:
    page = document("x", NOTHING, styles=("report.css", "comparison.css"), script="report.js")
    for element, kind in (("style", "style-src"), ("script", "script-src")):
        (held,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert f"sha256-{b64encode(sha256(held.encode()).digest()).decode()}" in page, kind


def test_a_title_is_text() -> None:
    assert "<b>" not in document("<b>x</b>", NOTHING, styles=())
