"""What the screen is made of: a pane of lines that scrolls, a list beside pages, and the bars above and below."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ppo_doctor.report.layout import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.app import ComposeResult
    from textual.events import Click

    from ppo_doctor.report.layout import Line, Span
    from ppo_doctor.tui.subject import Row


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
    """Lines that scroll; each is drawn only when it comes into view."""

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
        """Replace what is shown; the place is kept where the page is the same at another size."""
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
    """A list whose chosen row shows without colours, too: reversed, or bold while the list is not in use."""

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
        """Choose the row under the mouse; a row that is chosen already opens."""
        event.prevent_default()  # the list of textual opens with the first click
        row = event.style.meta.get("option")
        if row is not None and row != self.highlighted:
            self.highlighted = row
        elif row is not None:
            self.action_select()

    @property
    def chosen(self) -> str:
        """Return the key of the chosen row, an empty text where there is none."""
        at = self.highlighted
        return self.keys[at] if at is not None and at < len(self.keys) else ""


class Split(Vertical):
    """A search field over a list, beside a page and, where there is room, a pane for plots."""

    class Resized(Message):
        """The panes have other sizes now."""

    def __init__(self, *, ascii_signs: bool, id: str, listed: bool = True) -> None:
        super().__init__(id=id, classes="split")
        #: False where there is only one page, and nothing to choose from
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
        """Hide the search field until it is asked for, and a list without rows for good."""
        self.search.display = False
        self.query_one(".side").display = self.listed

    @property
    def home(self) -> Choices | Pane:
        """Return what keys go to first: the list, or the only page."""
        return self.choices if self.listed else self.page

    def on_resize(self) -> None:
        """Tell that pages have to be laid out anew."""
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
    """One line of spans; a click on a part does what the part's key does."""

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
        """Find the part under the mouse."""
        for start, end, action in self._parts:
            if action and start <= event.x < end:
                self.post_message(self.Pressed(action))
