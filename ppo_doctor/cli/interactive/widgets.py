"""Widgets and colours of the screen: a scrolling pane, a list next to pages, and the bars above and below."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.theme import Theme
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Span, ascii_only, columns
from ppo_doctor.report.phrases import VERDICT_STYLE, facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Click

    from ppo_doctor.cli.interactive.subjects import Row, Session
    from ppo_doctor.model.words import Verdict
    from ppo_doctor.report.layout import Line

#: Signs of plots and lists that the reports' own table of stand-ins does not have; none changes its width.
_SIGNS = str.maketrans("┤│└─┴━┊╌▲↑↓▶≈≡…", "+|+-+=:.^^v>~=~")


def in_ascii(text: str) -> str:
    """Return text for a terminal whose font has ASCII only."""
    return ascii_only(text.translate(_SIGNS))


def rich_text(lines: Iterable[Line], *, ascii_signs: bool = False) -> Text:
    """Return lines of spans as rich text; nothing in them is read as markup."""
    text = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for span in line:
            text.append(in_ascii(span.text) if ascii_signs else span.text, span.style or None)
    return text


class Pane(ScrollView, can_focus=True):
    """Scrolling lines; each is drawn only when it is visible."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("space", "page_down", "Page down", show=False),
        Binding("b", "page_up", "Page up", show=False),
        Binding("g,home", "scroll_home", "Top", show=False),
        Binding("G,end", "scroll_end", "End", show=False),
    ]

    def __init__(self, *, ascii_signs: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._ascii = ascii_signs

    def show(self, lines: Sequence[Line], *, keep: bool = False) -> None:
        """Replace the lines; `keep` keeps the scroll position."""
        self._lines = list(lines)
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._lines))
        if not keep:
            self.scroll_home(animate=False)
        self.refresh()

    def text(self) -> str:
        """Return all lines without their styles."""
        return "\n".join("".join(span.text for span in line) for line in self._lines)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        at = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if not 0 <= at < len(self._lines):
            return Strip.blank(width, base)
        parts = ((in_ascii(s.text) if self._ascii else s.text, s.style) for s in self._lines[at])
        segments = [Segment(text, base + Style.parse(style) if style else base) for text, style in parts]
        return Strip(segments).adjust_cell_length(width, base)


class Rows(OptionList):
    """A list that marks the chosen row even without colours: reversed, or bold if the list has no focus."""

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        strip = super().render_line(y)
        if self.highlighted is None or not self.app.native_ansi_color:
            return strip
        chosen = any(part.style and part.style.meta.get("option") == self.highlighted for part in strip)
        return strip.apply_style(Style(reverse=True) if self.has_focus else Style(bold=True)) if chosen else strip


class Choices(Rows):
    """The rows of a view; arrows, j and k, and the mouse choose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
    ]

    def __init__(self, *, ascii_signs: bool = False, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._ascii = ascii_signs
        self.keys: list[str] = []

    def fill(self, rows: Sequence[Row], key: str) -> None:
        """Replace the rows, and choose the one with this key, else the first."""
        self.keys = [row.key for row in rows]
        self.set_options(Option(rich_text(row.lines, ascii_signs=self._ascii)) for row in rows)
        self.highlighted = (self.keys.index(key) if key in self.keys else 0) if rows else None

    def on_click(self, event: Click) -> None:
        """Choose the row under the mouse, or open it if it is chosen already."""
        event.prevent_default()  # the list of textual opens with the first click
        row = event.style.meta.get("option")
        if row is not None and row != self.highlighted:
            self.highlighted = row
        elif row is not None:
            self.action_select()

    @property
    def chosen(self) -> str:
        """Return the key of the chosen row, empty if there is none."""
        at = self.highlighted
        return self.keys[at] if at is not None and at < len(self.keys) else ""


class Split(Vertical):
    """A search field above a list, next to a page and, on wide screens, a pane for plots."""

    class Resized(Message):
        """The sizes of the panes have changed."""

    def __init__(self, *, ascii_signs: bool, id: str, listed: bool = True) -> None:
        super().__init__(id=id, classes="split")
        #: False if there is only one page and thus no list
        self.listed = listed
        self.choices = Choices(ascii_signs=ascii_signs)
        self.page = Pane(ascii_signs=ascii_signs)
        self.plots = Pane(ascii_signs=ascii_signs)
        self.search = Input(placeholder="search", compact=True)
        self.page.add_class("page")
        self.plots.add_class("plots")

    def compose(self) -> ComposeResult:
        """Lay the parts out."""
        with Horizontal():
            with Vertical(classes="side"):
                yield self.search
                yield self.choices
            yield self.page
            yield self.plots

    def on_mount(self) -> None:
        """Hide the search field until it is opened, and the list of a view without rows."""
        self.search.display = False
        self.query_one(".side").display = self.listed

    @property
    def home(self) -> Choices | Pane:
        """Return the widget that gets the focus first: the list, or the only page."""
        return self.choices if self.listed else self.page

    def on_resize(self) -> None:
        """Request a new layout of the pages."""
        self.post_message(self.Resized())

    def open_search(self) -> None:
        """Show the search field and put the cursor there."""
        self.search.display = True
        self.search.focus()

    def close_search(self) -> None:
        """Empty the search field, hide it, and go back to the list."""
        self.search.value = ""
        self.search.display = False
        self.home.focus()


class Bar(Static):
    """One line of parts; a click on a part runs its action."""

    class Pressed(Message):
        """A part of a bar was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, ascii_signs: bool = False, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._ascii = ascii_signs
        self._parts: list[tuple[int, int, str]] = []

    def show(self, parts: Sequence[tuple[Line, str]]) -> None:
        """Show parts side by side, each with the action of a click on it ("" for none)."""
        at, self._parts = 0, []
        line: list[Span] = []
        for spans, action in parts:
            size = Text("".join(span.text for span in spans)).cell_len
            self._parts.append((at, at + size, action))
            line += spans
            at += size
        self.update(rich_text([tuple(line)], ascii_signs=self._ascii))

    def on_click(self, event: Click) -> None:
        """Report the action of the part under the mouse."""
        for start, end, action in self._parts:
            if action and start <= event.x < end:
                self.post_message(self.Pressed(action))


#: Least columns → the class of a layout: below 100 the list gives way, from 150 on plots have a pane of their own.
BREAKPOINTS = [(0, "-narrow"), (100, "-medium"), (150, "-wide")]

#: The theme for terminals with a light background.
LIGHT = "textual-light"
THEME = Theme(
    name="ppo-doctor",
    primary="#5fa8d3",
    secondary="#62b6b7",
    warning="#e5c07b",
    error="#e06c75",
    success="#98c379",
    accent="#c678dd",
    foreground="#d7dae0",
    background="#14171c",
    surface="#14171c",
    panel="#1e232b",
    boost="#242a33",
    dark=True,
)
#: The sixteen colours that the words of reports are styled with, on the theme's background.
COLORS = TerminalTheme(
    (20, 23, 28),
    (215, 218, 224),
    [
        *((30, 35, 43), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((95, 168, 211), (198, 120, 221), (86, 182, 194), (200, 204, 212)),
    ],
    [
        *((110, 118, 130), (240, 130, 140), (170, 215, 140), (240, 205, 140)),
        *((120, 190, 230), (215, 150, 235), (110, 205, 215), (240, 242, 246)),
    ],
)


VERDICT_SIGNS: Mapping[Verdict, str] = {"healthy": "✓", "warning": "!", "unhealthy": "✗", "inconclusive": "?"}
#: (key, word, action, view that has it or "", needs several runs, needs something supposed), the most wanted first.
KEYS = (
    ("w", "why", "why", "story"),
    ("f", "filter", "filter", "findings"),
    ("Enter", "suppose", "", "settings"),
    ("/", "search", "search", ""),
    ("c", "copy", "copy", ""),
    ("e", "export", "export", ""),
    ("?", "help", "help", ""),
    ("q", "quit", "leave", ""),
)
_MANY = ("[ ]", "run", "runs", "")

#: A part of a bar: its spans and what a click on it does.
Part = tuple["Line", str]


def title(session: Session, width: int) -> list[Part]:
    """Return the parts of the title: verdict, run and what was read; facts that do not fit are left out."""
    diagnosis = session.shortened
    supposed = "≈ " if session.overrides else ""
    word = f" {supposed}{VERDICT_SIGNS[diagnosis.verdict]} {diagnosis.verdict.upper()} "
    which = f"{session.index + 1}/{len(session.cases)} " if len(session.cases) > 1 else ""
    read = [fact.replace(BOUND, " ") for fact in facts(diagnosis)]
    room = width - columns(word) - columns(which) - 1
    name = plain(session.diagnosis.run.id)
    if columns(name) > room:
        name = "…" + name[-(max(room, 12) - 1) :]
    left = room - columns(name)
    kept = [" · ".join(read[start:]) for start in range(len(read))]
    about = next((f"  {text} " for text in kept if columns(text) + 3 <= left), "")
    pad = " " * max(left - columns(about), 0)
    parts: list[Part] = [((Span(word, f"{VERDICT_STYLE[diagnosis.verdict]} reverse"),), "view('story')")]
    parts.append(((Span(" ", ""), Span(which, "bold cyan"), Span(name, "bold")), "runs" if which else ""))
    return [*parts, ((Span(pad), Span(about, "dim")), "view('settings')")]


def tabs(names: Sequence[tuple[str, str]], shown: str, width: int) -> list[Part]:
    """Return the tabs; the one that is shown is reversed and in brackets."""
    short = sum(len(words) + 5 for _, words in names) > width
    parts: list[Part] = []
    for number, (name, words) in enumerate(names, start=1):
        text = words.partition(" ")[0] if short else words
        style = "bold reverse" if name == shown else "dim"
        label = f"[{number} {text}]" if name == shown else f" {number} {text} "
        parts.append(((Span(label, style), Span(" ")), f"view('{name}')"))
    return parts


def banner(session: Session, width: int) -> list[Part]:
    """Return the supposed settings, and the key that drops them."""
    supposed = ", ".join(f"{plain(name)} = {plain(str(value))}" for name, value in session.overrides.items())
    words = f" ≈ HYPOTHETICAL: {supposed}. This was not logged."
    back = "  x: back to what was read"
    if columns(words) + columns(back) > width:
        words = f" ≈ HYPOTHETICAL: {supposed}"
    return [((Span(words),), ""), ((Span(back),), "reset")]


def keys(view: str, session: Session, width: int) -> list[Part]:
    """Return the keys of a view, as many as fit, the most useful first."""
    wanted = [key for key in KEYS if key[3] in ("", view)]
    if len(session.cases) > 1:
        wanted.insert(1, _MANY)
    parts: list[Part] = [((Span(" 1-5 ", "bold cyan"), Span("views ", "dim")), "")]
    used = 11
    for key, word, action, _ in wanted:
        size = columns(key) + columns(word) + 3
        if used + size > width:
            break
        parts.append(((Span(f" {key} ", "bold cyan"), Span(f"{word} ", "dim")), action))
        used += size
    return parts
