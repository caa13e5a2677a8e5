"""The application of the interactive report, and its dialogs: export, other runs, a supposed setting, help."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import ContentSwitcher, Input, OptionList, Static
from textual.widgets.option_list import Option

from ppo_doctor.cli.interactive.shell import VIEWS, Shell
from ppo_doctor.cli.interactive.widgets import VERDICT_SIGNS, Bar, Choices, Pane, Rows, rich_text
from ppo_doctor.cli.output import files_of, rendered, write
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.report import FORMATS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Page, Span, wrap
from ppo_doctor.report.phrases import VERDICT_STYLE, what
from ppo_doctor.report.summary import summarize
from ppo_doctor.trainers.config_formats import parse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from textual.app import ComposeResult
    from textual.screen import Screen

    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.report.layout import Line

#: Format → suffix of its files, where that is not its name.
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
    """A window that Esc closes; its answer is a text, empty if there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def action_close(self) -> None:
        """Answer with nothing."""
        self.dismiss("")

    def show_error(self, words: str) -> None:
        """Show an error in place of the hint."""
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
        """Create the page."""
        with Vertical(classes="window wide"):
            yield self._pane

    def on_mount(self) -> None:
        """Focus the page, so that keys scroll it."""
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
    """A list to choose one line from; its answer is the index of the line."""

    def __init__(self, title: str, lines: Sequence[Line], *, at: int = 0) -> None:
        super().__init__()
        self._title, self._lines, self._at = title, lines, at

    def compose(self) -> ComposeResult:
        """Create title and list."""
        with Vertical(classes="window"):
            yield Static(self._title, markup=False, classes="title")
            yield Rows(*(Option(rich_text(wrap(line, INSIDE, "", "  "))) for line in self._lines), markup=False)

    def on_mount(self) -> None:
        """Select the current line."""
        self.query_one(OptionList).highlighted = self._at

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the index of the line."""
        self.dismiss(str(event.option_index))


class Ask(Dialog):
    """A question with one line of text; `accept` returns the error in an answer, or an empty text."""

    def __init__(self, title: str, hint: str, value: str, accept: Callable[[str], str]) -> None:
        super().__init__()
        self._title, self._hint, self._value, self._accept = title, hint, value, accept

    def compose(self) -> ComposeResult:
        """Create title, field and hint."""
        with Vertical(classes="window"):
            yield Static(self._title, markup=False, classes="title")
            yield Input(self._value, compact=True)
            yield Static(self._hint, markup=False, classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer, or show the error."""
        wrong = self._accept(event.value)
        if wrong:
            self.show_error(wrong)
        else:
            self.dismiss(event.value)


class Export(Dialog):
    """Asks for a format and a file and writes the report; its answer is the file."""

    def __init__(self, stem: str, write: Callable[[str, Path], None], note: str) -> None:
        super().__init__()
        self._stem, self._write, self._note = stem, write, note
        self._confirmed: Path | None = None

    def compose(self) -> ComposeResult:
        """Create formats, file and hint."""
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
            self.show_error("name a file")
        elif path.exists() and path != self._confirmed:
            self._confirmed = path
            self.show_error(f"{plain(str(path))} exists; Enter again replaces it")
        else:
            self._export(path)

    def _export(self, path: Path) -> None:
        chosen = self.query_one(OptionList).highlighted or 0
        try:
            self._write(list(FORMATS)[chosen], path)
        except DoctorError as error:
            self.show_error(plain(error.message))
        else:
            self.dismiss(str(path))


def file_name(stem: str, format: str) -> str:
    """Return the usual name for a report in a format."""
    return f"{stem}.{ENDINGS.get(format, format)}"


class ReportApp(Shell):
    """The interactive report: shows diagnoses, and makes none itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"view('{name}')", show=False) for n, name in enumerate(VIEWS, start=1)),
        Binding("q", "leave", "Quit"),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help"),
        Binding("slash", "search", "Search"),
        Binding("w", "why", "Why"),
        Binding("f", "filter", "Filter"),
        Binding("c", "copy", "Copy"),
        Binding("e", "export", "Export"),
        Binding("x", "reset", "As read"),
        Binding("left_square_bracket", "run(-1)", "Previous run"),
        Binding("right_square_bracket", "run(1)", "Next run"),
        Binding("r", "runs", "Runs"),
        Binding("escape", "back", "Back", show=False),
        Binding("right", "to_page", "Page", show=False),
        Binding("left", "to_list", "List", show=False),
        Binding("space", "page_down", "Page down", show=False),
        Binding("b", "page_up", "Page up", show=False),
    ]

    def action_view(self, name: str) -> None:
        """Show a view; the log opens at the evidence of the story or check that was shown."""
        before, key = self.view, self.split.choices.chosen
        place = self._place(before, key) if name == "places" else ""
        self.query_one(ContentSwitcher).current = name
        self.split.home.focus()
        self.refresh_bars()
        self.call_after_refresh(self.refresh_rows, place)

    def _place(self, view: str, key: str) -> str:
        leading = next((cause for cause in self.session.diagnosis.causes if cause.leader), None)
        if view == "story" and leading is not None:
            return self.places.of_cause(leading)
        return self.places.of_rule(key) if view == "findings" else ""

    def follow(self, key: str) -> None:
        """Open what belongs to a row: the log, the dialog for another value, or its page."""
        if self.view == "findings" and self._place(self.view, key):
            self.action_view("places")
        elif self.view == "settings" and self.settings.can_suppose(key):
            self._ask_setting(key)
        else:
            self.split.page.focus()

    def action_leave(self) -> None:
        """End the report."""
        self.exit()

    def action_interrupt(self) -> None:
        """End the report as interrupted."""
        self.interrupted = True
        self.exit()

    def action_help(self) -> None:
        """Show every key and mark."""
        self.push_screen(Help(ascii_signs=self.ascii_signs))

    def action_search(self) -> None:
        """Search in the list; from the story, which has none, in that of all checks."""
        if not self.split.listed:
            self.action_view("findings")
        self.split.open_search()

    async def action_back(self) -> None:
        """Close the search, or leave the page."""
        split = self.split
        if split.search.display:
            split.close_search()
            self.refresh_rows()
        else:
            split.home.focus()

    def action_to_page(self) -> None:
        """Go to the page, where arrows scroll."""
        self.split.page.focus()

    def action_to_list(self) -> None:
        """Go to the list, where arrows choose."""
        self.split.home.focus()

    def action_page_down(self) -> None:
        """Scroll the page without leaving the list."""
        self.split.page.scroll_page_down(animate=False)

    def action_page_up(self) -> None:
        """Scroll the page back without leaving the list."""
        self.split.page.scroll_page_up(animate=False)

    def action_why(self) -> None:
        """Show the story with or without the full account of every cause."""
        self.session.why = not self.session.why
        if self.view != "story":
            self.action_view("story")
        self.refresh_page(keep=True)
        self.notify("with all that is behind it" if self.session.why else "the story", timeout=2, markup=False)

    def action_filter(self) -> None:
        """Show the checks of the next outcome."""
        if self.view != "findings":
            self.action_view("findings")
        self.notify(f"checks: {self.findings.turn()}", timeout=2, markup=False)
        self.call_after_refresh(self.refresh_rows)

    def action_run(self, by: int) -> None:
        """Show another run."""
        self._to_run(self.session.index + by)

    def _to_run(self, index: int) -> None:
        if len(self.session.cases) == 1:
            self.notify("there is only this run", timeout=2, markup=False)
            return
        self.session.choose(index)
        self.fresh_subjects()
        self.refresh_all()

    @work
    async def action_runs(self) -> None:
        """Choose one of all runs."""
        lines = [run_line(case) for case in self.session.cases]
        answer = await self.push_screen_wait(Choose("Runs", lines, at=self.session.index))
        if answer:
            self._to_run(int(answer))

    @work
    async def action_copy(self) -> None:
        """Copy a text from the page; ask which if there are several."""
        copies = list(self.subject.copies(self.split.choices.chosen))
        if not copies:
            self.notify("nothing to copy here", timeout=2, markup=False)
            return
        answer = "0"
        if len(copies) > 1:
            lines = [(Span(f"{copy.what:<12} ", "dim"), Span(plain(copy.text, 200))) for copy in copies]
            answer = await self.push_screen_wait(Choose("Copy to the clipboard", lines))
        if answer:
            text = copies[int(answer)].text
            self.copy_to_clipboard(text)
            self.notify(f"copied: {plain(text, 80)}", timeout=4, markup=False)

    @work
    async def action_export(self) -> None:
        """Write the report as it was read to a file."""
        supposed = bool(self.session.overrides)
        note = "↑ ↓ format, Enter, file, Enter." + (" What is written is the run as read, not as supposed." * supposed)
        answer = await self.push_screen_wait(Export("ppo-doctor-report", self.export, note))
        if answer:
            self.notify(f"written: {plain(answer, 80)}", timeout=4, markup=False)

    def export(self, format: str, path: Path) -> None:
        """Write the diagnosis of the run that is shown, without supposed settings, in a format.

        Raises:
            DoctorError: the file cannot be written, or the format fails.
        """
        case = self.session.case
        text = rendered([(case.run, case.diagnosis, None)], self.options, format, many=False)
        write(text, path, format, files_of(case.run))

    def action_reset(self) -> None:
        """Go back to what was read."""
        if self.session.overrides:
            self.session.reset()
            self.refresh_all()

    @work
    async def _ask_setting(self, name: str) -> None:
        hint = "Enter judges the same records under this value; “none” for no value; Esc leaves all as it is."
        ask = Ask(
            f"Suppose {name} =",
            hint,
            self.settings.present(name),
            lambda text: "" if text.strip() else "a value is needed",
        )
        answer = await self.push_screen_wait(ask)
        if answer:
            await self.suppose(name, answer)

    async def suppose(self, name: str, answer: str) -> None:
        """Judge the run with another setting, in the background, and show the result."""
        try:
            await asyncio.to_thread(self.session.suppose, name, parse_value(answer.strip()))
        except DoctorError as error:
            self.notify(supposed_says(error), severity="error", markup=False)
        else:
            self.refresh_all()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open what belongs to a row."""
        if isinstance(event.option_list, Choices):
            self.follow(self.split.choices.chosen)

    def on_bar_pressed(self, event: Bar.Pressed) -> None:
        """Run the action of the part that was clicked."""
        self.run_worker(self.run_action(event.action))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield all commands for the command palette."""
        for number, (name, subject) in enumerate(self.subjects.items(), start=1):
            yield SystemCommand(
                f"View {number}: {subject.title}", "Go to this view", lambda n=name: self.action_view(n)
            )
        yield from self.commands()
        yield from super().get_system_commands(screen)

    def commands(self) -> Iterable[SystemCommand]:
        """Yield the commands of the palette other than views."""
        rows = (
            ("Why: the full account", "The story with every number that was weighed", self.action_why),
            ("Search", "Search in the list of this view", self.action_search),
            ("Filter checks", "Only fired, errored, clear, skipped, or all", self.action_filter),
            ("Copy", "A key to change, a remedy, or a place in the log", self.action_copy),
            ("Export", "Write the report in any format to a file", self.action_export),
            ("Suppose K", "Judge the run as if K were another", lambda: self._ask_setting("K")),
            ("Suppose clip_range", "Judge the run under another clip range", lambda: self._ask_setting("clip_range")),
            ("Suppose target_kl", "Judge the run under another target KL", lambda: self._ask_setting("target_kl")),
            ("Back to what was read", "Drop everything that is supposed", self.action_reset),
            ("Runs", "Choose one of all runs", self.action_runs),
            ("All keys and marks", "Help on one page", self.action_help),
        )
        for title, words, callback in rows:
            yield SystemCommand(title, words, callback)


def supposed_says(error: DoctorError) -> str:
    """Return an error in one line."""
    return plain(f"{error.message}; {error.hint}" if error.hint else error.message)


def run_line(case: Case) -> tuple[Span, ...]:
    """Return one run for the list of runs: its verdict, name and first problem."""
    diagnosis = case.diagnosis
    word = Span(f"{VERDICT_SIGNS[diagnosis.verdict]} {diagnosis.verdict:<13}", VERDICT_STYLE[diagnosis.verdict])
    return (word, Span(plain(diagnosis.run.id)), Span(f"  {what(summarize(diagnosis, case.run))}", "dim"))
