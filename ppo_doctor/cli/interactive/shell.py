"""The application without its keys: its views, and a queue that handles keys one after the other.

Textual gives a key to the widget that has the focus when it arrives. Keys that arrive together, from pasted text or a
slow line, would all go to the widget that the first of them is about to leave, and text for a search field or a dialog
would run commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from textual import work
from textual.app import App
from textual.events import Key, Paste
from textual.widgets import ContentSwitcher, Input, OptionList

from ppo_doctor.cli.interactive import widgets
from ppo_doctor.cli.interactive.findings import Findings, Story
from ppo_doctor.cli.interactive.metrics import Metrics
from ppo_doctor.cli.interactive.places import Places
from ppo_doctor.cli.interactive.settings import Settings
from ppo_doctor.cli.interactive.subjects import Frame, Session, folded
from ppo_doctor.cli.interactive.widgets import Bar, Pane, Split

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from textual.app import ComposeResult
    from textual.events import Event
    from textual.message_pump import MessagePump

    from ppo_doctor.cli.interactive.subjects import Case, Subject
    from ppo_doctor.report import RenderOptions

#: Seconds that one key may take; after that the next one is handled.
LONGEST = 2.0
#: Seconds between two looks at whether a window that is opening has the focus yet.
LOOK = 0.01
#: Times that the messages of one key pass through the application: the action, a new focus, a new window.
ROUNDS = 3


class OneByOne:
    """A queue of keys; each is handled when the effects of the one before have been drawn."""

    def __init__(
        self, app: App[None], handle: Callable[[Event], Awaitable[None]], fail: Callable[[Exception], None]
    ) -> None:
        """Queue the keys of an application; `handle` handles one, `fail` gets the error if that fails."""
        self._app = app
        self._handle = handle
        self._fail = fail
        self._waiting: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None

    def take(self, event: Event) -> None:
        """Handle a key now, or when its turn comes."""
        self._waiting.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting and self._open:
            involved = self._involved()
            try:
                await self._handle(self._waiting.popleft())
                await asyncio.wait_for(self._done(involved), LONGEST)
            except TimeoutError:
                continue
            except Exception as error:  # noqa: BLE001 - reported like every crash of the application
                self._fail(error)

    def _involved(self) -> list[MessagePump]:
        """Return the widgets that a key passes through: the one with the focus and its ancestors."""
        focused = self._app.focused
        return [] if focused is None else [*focused.ancestors_with_self]

    async def _done(self, involved: Iterable[MessagePump]) -> None:
        for pump in (*involved, *[self._app] * ROUNDS):
            await _reached(pump)
        while self._open and self._app.screen.focused is None:
            await asyncio.sleep(LOOK)

    @property
    def _open(self) -> bool:
        """Return whether the application still has a screen."""
        return self._app.is_running and bool(self._app.screen_stack)


async def _reached(pump: MessagePump) -> None:
    """Wait until a widget has handled the messages sent so far, or is gone."""
    done = asyncio.Event()
    if not pump.call_later(done.set):
        return
    while pump.is_running and not done.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 5 * LOOK)


VIEWS = ("story", "findings", "metrics", "settings", "places")


class Shell(App[None]):
    """The bars and views of the report and their content; `ReportApp` adds the keys."""

    CSS_PATH = "report.tcss"
    TITLE = "ppo-doctor"
    HORIZONTAL_BREAKPOINTS = widgets.BREAKPOINTS

    def __init__(
        self,
        cases: Sequence[Case],
        options: RenderOptions,
        *,
        ascii_signs: bool = False,
        native: bool = False,
        light: bool = False,
    ) -> None:
        """Create the report: in the terminal's own colours if `native`, in a light theme if `light`."""
        # Before the theme: this decides how NO_COLOR is honoured.
        super().__init__(ansi_color=True if native else None)
        self.session = Session(cases=tuple(cases), why=options.why)
        self.options = options
        self.ascii_signs = ascii_signs
        #: the exception that ended the report, if it was a bug of ours
        self.crash: Exception | None = None
        self.interrupted = False
        self.subjects: dict[str, Subject] = {}
        #: view and row whose page is on the screen
        self._on_page: tuple[str, str] | None = None
        self._keys = OneByOne(self, super().on_event, self._handle_exception)
        self.fresh_subjects()
        self.register_theme(widgets.THEME)
        self.ansi_theme_dark = widgets.COLORS
        self.theme = "ansi-dark" if native else widgets.LIGHT if light else widgets.THEME.name

    def fresh_subjects(self) -> None:
        """Create the subjects of the views, for another run."""
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
    def _has_views(self) -> bool:
        """Return whether the views exist: a report that is closing still gets messages from its lists."""
        return bool(self.query(ContentSwitcher))

    @property
    def split(self) -> Split:
        """Return the widgets of the view that is shown."""
        return self.query_one(f"#{self.view}", Split)

    @property
    def subject(self) -> Subject:
        """Return the subject of the view that is shown."""
        return self.subjects[self.view]

    def refresh_all(self) -> None:
        """Draw bars, list and pages of the view that is shown."""
        self.refresh_bars()
        self.refresh_rows()

    def refresh_bars(self) -> None:
        """Draw the title, the tabs, what is supposed, and the keys."""
        width = self.size.width
        self.query_one("#title", Bar).show(widgets.title(self.session, width))
        names = [(name, subject.title) for name, subject in self.subjects.items()]
        self.query_one("#tabs", Bar).show(widgets.tabs(names, self.view, width))
        self.query_one("#keys", Bar).show(widgets.keys(self.view, self.session, width))
        banner = self.query_one("#banner", Bar)
        banner.set_class(bool(self.session.overrides), "shown")
        banner.show(widgets.banner(self.session, width))

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
        if not self._has_views:
            return
        split = self.query_one(f"#{view}", Split)
        if split.choices.chosen == key:
            split.page.show(folded(lines, frame.width))

    def on_split_resized(self, event: Split.Resized) -> None:
        """Draw everything in the new size."""
        event.stop()
        self.call_after_refresh(self.refresh_all)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the page about the row that was chosen in the list of a view."""
        if not self._has_views:
            return
        if event.option_list is self.split.choices and self._on_page != (self.view, self.split.choices.chosen):
            self.refresh_page()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the query is written."""
        if self._has_views and event.input is self.split.search:
            self.refresh_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the rows that were found."""
        if self._has_views and event.input is self.split.search:
            self.split.choices.focus()

    async def on_event(self, event: Event) -> None:
        """Queue keys and pasted text; Ctrl-C is handled at once."""
        typed = isinstance(event, Key | Paste) and not event.is_forwarded
        if typed and not (isinstance(event, Key) and event.key == "ctrl+c"):
            self._keys.take(event)
        else:
            await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        # The caller reports the error as the command line does, after the screen was restored.
        self._exit_renderables.clear()
