"""Build HTML from `Markup`; a plain `str` becomes `Markup` only by escaping.

The content security policy of a page forbids other scripts and all loading.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NewType

from ppo_doctor.report.escape import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Text that is HTML already; the type checker prevents that unescaped strings are used as such.
Markup = NewType("Markup", str)

NOTHING = Markup("")
_ASSETS = Path(__file__).parent / "assets"
_VOID = frozenset({"meta", "link", "input", "br", "line", "rect", "path", "circle"})


def text(words: str, limit: int = 2000) -> Markup:
    """Return untrusted text as HTML: markup is escaped, and control and invisible characters are made visible."""
    return Markup(escape(plain(words, limit), quote=True))


def el(tag: str, *children: Markup, cls: str = "", **attributes: str | bool | None) -> Markup:
    """Return an element; `aria_label` becomes `aria-label`, a trailing `_` is removed, and True has no value."""
    named: dict[str, str | bool | None] = {"class": cls or None, **attributes}
    inside = "".join(_attribute(name, value) for name, value in named.items())
    if tag in _VOID:
        return Markup(f"<{tag}{inside}>" if tag in ("meta", "link", "input", "br") else f"<{tag}{inside}/>")
    return Markup(f"<{tag}{inside}>{join(children)}</{tag}>")


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(plain(value, 100_000), quote=True)}"'


def join(pieces: Iterable[Markup], between: Markup = NOTHING) -> Markup:
    """Return pieces of HTML joined."""
    return Markup(between.join(pieces))


def code(words: str) -> Markup:
    """Return a name as a code element."""
    return el("code", text(words))


def row(*cells: str) -> Markup:
    """Return a row of a table; its first cell is a heading."""
    return el("tr", el("th", text(cells[0]), scope="row"), *(el("td", text(cell)) for cell in cells[1:]))


def table(heads: Iterable[Markup], rows: Iterable[Markup], caption: str, cls: str = "") -> Markup:
    """Return a table with a caption that only screen readers read, because a visible heading precedes the table."""
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in heads)))
    return el("table", el("caption", text(caption), cls="unseen"), head, el("tbody", *rows), cls=cls)


def fold(title: str, body: Markup, *, cls: str = "", unfolded: bool = False) -> Markup:
    """Return a section that opens on a click, or nothing if its body is empty."""
    return el("details", el("summary", text(title)), body, cls=cls, open=unfolded) if body else NOTHING


def document(
    title: str, body: Markup, *, styles: Iterable[str], scripts: Iterable[str] = (), head: Markup = NOTHING
) -> str:
    """Return a page with style sheets and scripts of the package; its policy forbids everything else."""
    css, code = ("".join(map(_asset, names)) for names in (styles, scripts))
    page = from_asset(
        "page.html",
        policy=text(_policy(css, code)),
        title=text(title, 200),
        head=head,
        style=Markup(css),
        body=body,
        script=Markup(f"<script>{code}</script>" if code else ""),
    )
    return f"<!doctype html>\n{page}\n"


def from_asset(name: str, **values: Markup) -> Markup:
    """Return an HTML file of the package with values for its `$names`, without its line ends and indents."""
    lines = (line.strip() for line in _asset(name).splitlines())
    return Markup(Template("".join(lines)).substitute(values))


@cache
def _asset(name: str) -> str:
    """Return a style sheet, script or HTML file of the package; it must not contain the end tag of its element."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    """Return a content security policy that allows only this style sheet and script."""
    scripts = f"script-src 'sha256-{_digest(script)}'; " if script else ""
    end = "img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; style-src 'sha256-{_digest(css)}'; {scripts}{end}"


def script_digest(names: Iterable[str]) -> str:
    """Return the SHA-256 by which a content security policy allows scripts of the package, without "sha256-"."""
    return _digest("".join(map(_asset, names)))


def _digest(content: str) -> str:
    return b64encode(sha256(content.encode()).digest()).decode()
