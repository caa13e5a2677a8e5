"""What every HTML page of ours has around its content: a head that lets nothing foreign run, and one pattern."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.report.html_markup import NOTHING, Markup, el, text

if TYPE_CHECKING:
    from collections.abc import Iterable

_ASSETS = Path(__file__).parent / "assets"


def document(
    title: str, body: Iterable[Markup], *, styles: Iterable[str], script: str = "", head: Iterable[Markup] = ()
) -> str:
    """Return a page with style sheets of ours, and a script of ours where it has one; nothing else runs in it."""
    css, code = "".join(map(_asset, styles)), _asset(script) if script else ""
    first = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(css, code)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", text(title, 200)),
        *head,
        Markup(f"<style>{css}</style>"),
    )
    end = Markup(f"<script>{code}</script>") if code else NOTHING
    return f"<!doctype html>\n{el('html', first, el('body', *body, _hatch(), end), lang='en')}\n"


def _hatch() -> Markup:
    """Return the pattern for records that are not finite."""
    line = el("path", d="M0 0V7", cls="hatch")
    shape = {"width": "7", "height": "7", "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    pattern = el("pattern", line, id="hatch", **shape)
    return el("svg", el("defs", pattern), cls="unseen", width="0", height="0", aria_hidden="true", focusable="false")


@cache
def _asset(name: str) -> str:
    """Return a style sheet or script of ours; it must not hold what would close its element."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    """Return a content security policy that lets only these run, whatever a log smuggled into the page."""
    rules = (
        "default-src 'none'",
        f"style-src 'sha256-{_digest(css)}'",
        *([f"script-src 'sha256-{_digest(script)}'"] if script else []),
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _digest(content: str) -> str:
    return b64encode(sha256(content.encode()).digest()).decode()
