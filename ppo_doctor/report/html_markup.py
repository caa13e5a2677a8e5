"""HTML built from checked pieces: a plain `str` never becomes `Markup` without being escaped here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NewType

from ppo_doctor.report.escape import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Text that is HTML already; a type checker keeps strings of a log out of places that ask for it.
Markup = NewType("Markup", str)

NOTHING = Markup("")
_VOID = frozenset({"meta", "link", "input", "br", "line", "rect", "path"})


def text(words: str, limit: int = 2000) -> Markup:
    """Return text from anywhere as HTML: controls and invisible characters visible, every sign of markup inert."""
    return Markup(escape(plain(words, limit), quote=True))


def el(tag: str, *children: Markup, cls: str = "", **attributes: str | bool | None) -> Markup:
    """Return an element; `aria_label` becomes `aria-label`, a trailing `_` is dropped, True is a bare attribute."""
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
    """Return pieces of HTML one after the other."""
    return Markup(between.join(pieces))


def code(words: str) -> Markup:
    """Return a name from a log or of ours in the typewriter face."""
    return el("code", text(words))


def row(*cells: str) -> Markup:
    """Return a row of a table; its first cell is the row's heading."""
    return el("tr", el("th", text(cells[0]), scope="row"), *(el("td", text(cell)) for cell in cells[1:]))


def table(heads: Iterable[Markup], rows: Iterable[Markup], caption: str, cls: str = "") -> Markup:
    """Return a table whose caption is for screen readers: a heading stands above it for everybody else."""
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in heads)))
    return el("table", el("caption", text(caption), cls="unseen"), head, el("tbody", *rows), cls=cls)


def fold(title: str, body: Markup, *, cls: str = "", unfolded: bool = False) -> Markup:
    """Return a part that opens on a click; no part, no fold."""
    return el("details", el("summary", text(title)), body, cls=cls, open=unfolded) if body else NOTHING
