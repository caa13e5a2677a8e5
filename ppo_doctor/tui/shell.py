"""What the interactive report consists of, and how it is filled: bars, five views, and the pages in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import work
from textual.app import App
from textual.events import Key, Paste
from textual.widgets import ContentSwitcher, Input, OptionList

from ppo_doctor.tui import bars, look
from ppo_doctor.tui.findings import Findings
from ppo_doctor.tui.keyboard import OneByOne
from ppo_doctor.tui.metrics import Metrics
from ppo_doctor.tui.places import Places
from ppo_doctor.tui.session import Frame, Session
from ppo_doctor.tui.settings import Settings
from ppo_doctor.tui.story import Story
from ppo_doctor.tui.subject import folded
from ppo_doctor.tui.widgets import Bar, Pane, Split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Event

    from ppo_doctor.report import RenderOptions
    from ppo_doctor.tui.session import Case
    from ppo_doctor.tui.subject import Subject

VIEWS = ("story", "findings", "metrics", "settings", "places")


class Shell(App[None]):
    """Bars, views and what fills them; what keys do is added by the application."""

    CSS_PATH = "report.tcss"
    TITLE = "ppo-doctor"
    HORIZONTAL_BREAKPOINTS = look.BREAKPOINTS

    def __init__(
        self,
        cases: Sequence[Case],
        options: RenderOptions,
        *,
        ascii_signs: bool = False,
        native: bool = False,
        light: bool = False,
    ) -> None:
        """Make the report; `native` keeps to the terminal's own colours, `ascii_signs` to ASCII, `light` to white."""
        # Before the theme: this decides how NO_COLOR is honoured.
        super().__init__(ansi_color=True if native else None)
        self.session = Session(cases=tuple(cases), why=options.why)
        self.options = options
        self.ascii_signs = ascii_signs
        #: what ended the report, when that was a bug of ours
        self.crash: Exception | None = None
        self.interrupted = False
        self.subjects: dict[str, Subject] = {}
        #: view and row whose page is on the screen
        self._on_page: tuple[str, str] | None = None
        self._keys = OneByOne(self, super().on_event, self._handle_exception)
        self.fresh_subjects()
        self.register_theme(look.THEME)
        self.ansi_theme_dark = look.COLORS
        self.theme = "ansi-dark" if native else look.LIGHT if light else look.THEME.name

    def fresh_subjects(self) -> None:
        """Make the subjects of the views anew, for another run."""
        session = self.session
        self.findings, self.settings, self.places = Findings(session), Settings(session), Places(session)
        made = (Story(session), self.findings, Metrics(session), self.settings, self.places)
        self.subjects = dict(zip(VIEWS, made, strict=True))

    def compose(self) -> ComposeResult:
        """Lay bars and views out."""
        yield Bar(ascii_signs=self.ascii_signs, id="title")
        yield Bar(ascii_signs=self.ascii_signs, id="tabs")
        yield Bar(ascii_signs=self.ascii_signs, id="banner")
        with ContentSwitcher(initial=VIEWS[0]):
            for name in VIEWS:
                yield Split(ascii_signs=self.ascii_signs, id=name, listed=name != "story")
        yield Bar(ascii_signs=self.ascii_signs, id="keys")

    def on_mount(self) -> None:
        """Fill the views once their size is known, and put the cursor in the list."""
        self.split.home.focus()
        self.call_after_refresh(self.refresh_all)

    @property
    def view(self) -> str:
        """Return the name of the view that is shown."""
        return self.query_one(ContentSwitcher).current or VIEWS[0]

    @property
    def _stands(self) -> bool:
        """Tell whether the views are there: what a closing report still hears of its lists has nowhere to go."""
        return bool(self.query(ContentSwitcher))

    @property
    def split(self) -> Split:
        """Return the widgets of the view that is shown."""
        return self.query_one(f"#{self.view}", Split)

    @property
    def subject(self) -> Subject:
        """Return what the view that is shown is about."""
        return self.subjects[self.view]

    def refresh_all(self) -> None:
        """Draw bars, list and pages of the view that is shown."""
        self.refresh_bars()
        self.refresh_rows()

    def refresh_bars(self) -> None:
        """Draw the title, the tabs, what is supposed, and the keys."""
        width = self.size.width
        self.query_one("#title", Bar).show(bars.title(self.session, width))
        names = [(name, subject.title) for name, subject in self.subjects.items()]
        self.query_one("#tabs", Bar).show(bars.tabs(names, self.view, width))
        self.query_one("#keys", Bar).show(bars.keys(self.view, self.session, width))
        banner = self.query_one("#banner", Bar)
        banner.set_class(bool(self.session.overrides), "shown")
        banner.show(bars.banner(self.session, width))

    def refresh_rows(self, key: str = "") -> None:
        """Fill the list of the view, choosing the row with this key, else the one that was chosen, else the first."""
        split = self.split
        width = (split.choices if split.listed else split.page).scrollable_content_region.width - 1
        if width <= 0:
            return
        wanted = key or split.choices.chosen
        split.choices.fill(self.subject.rows(split.search.value, width), wanted)
        self.refresh_page()

    def refresh_page(self, *, keep: bool = False) -> None:
        """Draw the page about the chosen row."""
        split, key = self.split, self.split.choices.chosen
        self._on_page = self.view, key
        if self.view == "metrics":
            onset = bool(self.subject.plots(key, self._frame(split.plots, alone=False)))
            split.set_class(onset, "onset")
        frame = self._frame(split.page, alone=not split.plots.display)
        if self.subject.slow:
            self._show_later(self.view, key, frame)
            return
        split.page.show(folded(self.subject.page(key, frame), frame.width), keep=keep)
        if split.plots.display:
            split.plots.show(self.subject.plots(key, self._frame(split.plots, alone=False)), keep=keep)

    def _frame(self, pane: Pane, *, alone: bool) -> Frame:
        # One column stays free, so that a scrollbar that appears shifts no line.
        region = pane.scrollable_content_region
        width = max(region.width - 1, 20)
        why, ascii_signs = self.session.why, self.ascii_signs
        return Frame(width=width, height=max(region.height, 5), why=why, ascii=ascii_signs, alone=alone)

    @work(exclusive=True, group="page")
    async def _show_later(self, view: str, key: str, frame: Frame) -> None:
        lines = await asyncio.to_thread(self.subjects[view].page, key, frame)
        if not self._stands:
            return
        split = self.query_one(f"#{view}", Split)
        if split.choices.chosen == key:
            split.page.show(folded(lines, frame.width))

    def on_split_resized(self, event: Split.Resized) -> None:
        """Wrap everything anew."""
        event.stop()
        self.call_after_refresh(self.refresh_all)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the page about the row that was chosen in a list of ours."""
        if not self._stands:
            return
        if event.option_list is self.split.choices and self._on_page != (self.view, self.split.choices.chosen):
            self.refresh_page()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the query is written."""
        if self._stands and event.input is self.split.search:
            self.refresh_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the rows that were found."""
        if self._stands and event.input is self.split.search:
            self.split.choices.focus()

    async def on_event(self, event: Event) -> None:
        """Take keys and what is pasted one after the other; Ctrl-C waits for nothing."""
        typed = isinstance(event, Key | Paste) and not event.is_forwarded
        if typed and not (isinstance(event, Key) and event.key == "ctrl+c"):
            self._keys.take(event)
        else:
            await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        # The caller tells what went wrong, in the words of the command line and after the screen was restored.
        self._exit_renderables.clear()
