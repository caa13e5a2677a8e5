"""The interactive report as an application: what keys, the mouse and the command palette do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, OptionList

from ppo_doctor.cli.output import files_of, rendered, write
from ppo_doctor.configs.values import parse_value
from ppo_doctor.errors import DoctorError
from ppo_doctor.report.escape import plain
from ppo_doctor.report.fleet import what
from ppo_doctor.report.layout import Span
from ppo_doctor.report.summary import summarize
from ppo_doctor.report.words import VERDICT_STYLE
from ppo_doctor.tui import bars
from ppo_doctor.tui.dialogs import Ask, Choose, Export, Help
from ppo_doctor.tui.shell import VIEWS, Shell
from ppo_doctor.tui.widgets import Bar, Choices

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from textual.screen import Screen

    from ppo_doctor.tui.session import Case


class ReportApp(Shell):
    """Diagnoses to walk through; it shows what it is given, and judges nothing."""

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
        """Show a view; from the story or a check the log opens at its evidence."""
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
        """Go on from a row: to the log, to its page, or to another value of a setting."""
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
        """End the report as Ctrl-C ends any program."""
        self.interrupted = True
        self.exit()

    def action_help(self) -> None:
        """Show every key and mark."""
        self.push_screen(Help(ascii_signs=self.ascii_signs))

    def action_search(self) -> None:
        """Search in the list; the story has none, and leads to that of all checks."""
        if not self.split.listed:
            self.action_view("findings")
        self.split.open_search()

    async def action_back(self) -> None:
        """Leave the search, or the page."""
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
        """Show the story with all that is behind it, or by itself."""
        self.session.why = not self.session.why
        if self.view != "story":
            self.action_view("story")
        self.refresh_page(keep=True)
        self.notify("with all that is behind it" if self.session.why else "the story", timeout=2, markup=False)

    def action_filter(self) -> None:
        """Narrow the checks to one outcome after the other."""
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
        """Copy something from the page; with one thing to copy without asking."""
        held = list(self.subject.copies(self.split.choices.chosen))
        if not held:
            self.notify("nothing to copy here", timeout=2, markup=False)
            return
        answer = "0"
        if len(held) > 1:
            lines = [(Span(f"{copy.what:<12} ", "dim"), Span(plain(copy.text, 200))) for copy in held]
            answer = await self.push_screen_wait(Choose("Copy to the clipboard", lines))
        if answer:
            text = held[int(answer)].text
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
        """Write the diagnosis of the run that is shown, as read, in a format.

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
        """Judge the run under another setting, in the background, and show what comes of it."""
        try:
            await asyncio.to_thread(self.session.suppose, name, parse_value(answer.strip()))
        except DoctorError as error:
            self.notify(supposed_says(error), severity="error", markup=False)
        else:
            self.refresh_all()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go from a row to what lies behind it."""
        if isinstance(event.option_list, Choices):
            self.follow(self.split.choices.chosen)

    def on_bar_pressed(self, event: Bar.Pressed) -> None:
        """Do what was clicked on."""
        self.run_worker(self.run_action(event.action))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield everything that can be done, for the command palette."""
        for number, (name, subject) in enumerate(self.subjects.items(), start=1):
            yield SystemCommand(
                f"View {number}: {subject.title}", "Go to this view", lambda n=name: self.action_view(n)
            )
        yield from self.commands()
        yield from super().get_system_commands(screen)

    def commands(self) -> Iterable[SystemCommand]:
        """Yield the commands of the palette beside the views."""
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
    word = Span(f"{bars.VERDICT_SIGNS[diagnosis.verdict]} {diagnosis.verdict:<13}", VERDICT_STYLE[diagnosis.verdict])
    return (word, Span(plain(diagnosis.run.id)), Span(f"  {what(summarize(diagnosis, case.run))}", "dim"))
