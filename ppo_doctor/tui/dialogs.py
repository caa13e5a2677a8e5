"""Small windows over the report: export, copy, other runs, a supposed setting, and help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ppo_doctor.errors import DoctorError
from ppo_doctor.report import FORMATS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Page, Span, wrap
from ppo_doctor.tui.widgets import Pane, Rows, rich_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

    from ppo_doctor.report.layout import Line

#: Format → how a file of it is named.
ENDINGS = {"text": "txt", "markdown": "md", "junit": "xml", "github": "txt"}
#: Columns within a window.
INSIDE = 56
HELP: tuple[tuple[str, str], ...] = (
    ("1 2 3 4 5", "story, checks, all metrics, configuration and K, lines of the log"),
    ("↑ ↓, j k", "choose; in a page: scroll"),
    ("Tab, → ←", "go to the page, and back to the list"),
    ("space, b", "scroll the page without leaving the list"),
    ("/", "search in the list (fuzzy); Enter keeps the result, Esc drops it"),
    ("w", "why: the story with all that is behind it, every number that was weighed"),
    ("f", "checks: only fired, errored, clear, skipped, or all"),
    ("Enter", "a check: its lines in the log; a setting: suppose another value"),
    ("x", "drop what was supposed and go back to what was read"),
    ("c", "copy a key, a remedy or a place (OSC 52: works over ssh)"),
    ("e", "export the report in any format"),
    ("[ ], r", "the previous or next run; a list of all runs"),
    ("Ctrl-P", "command palette: everything by name"),
    ("q, Ctrl-C", "quit"),
)

MARKS = (
    "Chain: ✓ alive, ~ weak, ! wrong, ✗ dead, ? not logged; nothing comes through ─×. "
    "Checks: ✗ fired, ✓ clear, ? skipped. A check that was skipped did not pass.",
    "Plots: ┊ and ▲ the onset, ╌ a bound with its sign at the left, ━ the steps that offend, × not finite. "
    "≈ marks what is hypothetical.",
    "Weights are in dB: 10·log10 of how much likelier a finding is under the cause than in a healthy run.",
)


class Dialog(ModalScreen[str]):
    """A window that Esc closes; it answers with a text, an empty one for nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def action_close(self) -> None:
        """Answer with nothing."""
        self.dismiss("")

    def say(self, words: str) -> None:
        """Put what is wrong in the place of the hint."""
        hint = self.query_one(".hint", Static)
        hint.update(words)
        hint.add_class("wrong")


class Help(Dialog):
    """Every key and mark on one page."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,q,enter", "close", "Close")]

    def __init__(self, *, ascii_signs: bool = False) -> None:
        super().__init__()
        self._pane = Pane(ascii_signs=ascii_signs, id="help")

    def compose(self) -> ComposeResult:
        """Lay the page out."""
        with Vertical(classes="window wide"):
            yield self._pane

    def on_mount(self) -> None:
        """Scroll with the keys at once."""
        self._pane.focus()

    def on_resize(self) -> None:
        """Wrap the page to the width of the window."""
        self.call_after_refresh(lambda: self._pane.show(help_lines(self._pane.scrollable_content_region.width - 1)))


def help_lines(width: int) -> list[Line]:
    """Return the help as lines."""
    page = Page(width=max(width, 30))
    page.add((Span("Keys", "bold underline"), Span("  Esc closes this page", "dim")))
    for keys, words in HELP:
        page.labelled(Span(keys, "bold cyan"), words, column=12)
    page.blank()
    page.add(Span("Marks", "bold underline"))
    for words in MARKS:
        page.add(words)
    return page.lines


class Choose(Dialog):
    """A list to choose one line from; answers with the place of the line."""

    def __init__(self, title: str, lines: Sequence[Line], *, at: int = 0) -> None:
        super().__init__()
        self._title, self._lines, self._at = title, lines, at

    def compose(self) -> ComposeResult:
        """Lay title and list out."""
        with Vertical(classes="window"):
            yield Static(self._title, markup=False, classes="title")
            yield Rows(*(Option(rich_text(wrap(line, INSIDE, "", "  "))) for line in self._lines), markup=False)

    def on_mount(self) -> None:
        """Begin at the line that holds now."""
        self.query_one(OptionList).highlighted = self._at

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the place of the line."""
        self.dismiss(str(event.option_index))


class Ask(Dialog):
    """A question with one line of text; `accept` returns what is wrong with an answer, or nothing."""

    def __init__(self, title: str, hint: str, value: str, accept: Callable[[str], str]) -> None:
        super().__init__()
        self._title, self._hint, self._value, self._accept = title, hint, value, accept

    def compose(self) -> ComposeResult:
        """Lay title, field and hint out."""
        with Vertical(classes="window"):
            yield Static(self._title, markup=False, classes="title")
            yield Input(self._value, compact=True)
            yield Static(self._hint, markup=False, classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer, or say what is wrong."""
        wrong = self._accept(event.value)
        if wrong:
            self.say(wrong)
        else:
            self.dismiss(event.value)


class Export(Dialog):
    """Asks for a format and a file, and writes; answers with the file."""

    def __init__(self, stem: str, write: Callable[[str, Path], None], note: str) -> None:
        super().__init__()
        self._stem, self._write, self._note = stem, write, note
        self._confirmed: Path | None = None

    def compose(self) -> ComposeResult:
        """Lay formats, file and hint out."""
        with Vertical(classes="window"):
            yield Static("Export the report", markup=False, classes="title")
            yield Rows(*FORMATS, markup=False)
            yield Input(file_name(self._stem, next(iter(FORMATS))), compact=True)
            yield Static(self._note, markup=False, classes="hint")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Name the file after the format."""
        field = self.query_one(Input)
        field.value = file_name(str(Path(field.value or self._stem).with_suffix("")), list(FORMATS)[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go on to the file."""
        event.stop()
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write the file; an existing one only when Enter is pressed again."""
        path = Path(event.value).expanduser()
        if not event.value.strip():
            self.say("name a file")
        elif path.exists() and path != self._confirmed:
            self._confirmed = path
            self.say(f"{plain(str(path))} exists; Enter again replaces it")
        else:
            self._export(path)

    def _export(self, path: Path) -> None:
        chosen = self.query_one(OptionList).highlighted or 0
        try:
            self._write(list(FORMATS)[chosen], path)
        except DoctorError as error:
            self.say(plain(error.message))
        else:
            self.dismiss(str(path))


def file_name(stem: str, format: str) -> str:
    """Return the usual name for a report in a format."""
    return f"{stem}.{ENDINGS.get(format, format)}"
