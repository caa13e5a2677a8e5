"""Keys one after the other: each is done with before the next is looked at, however fast they come.

The application hands a key to the widget that has the focus when it arrives. Keys that arrive together, as they do when
something is pasted or a slow line delivers a second's typing at once, would all go to the widget that the first of them
is about to leave: what was meant for a search field or a dialog would be taken for commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from textual.app import App
    from textual.events import Event
    from textual.message_pump import MessagePump

#: Seconds that one key may take; the next one goes its way after that, whatever the first is still about.
LONGEST = 2.0
#: Seconds between two looks at whether a window that is opening has the focus yet.
LOOK = 0.01
#: Messages of a key's effects go through the application this often: to act, to move the focus, to open a window.
ROUNDS = 3


class OneByOne:
    """Holds keys back until the effects of the one before are there."""

    def __init__(
        self, app: App[None], handle: Callable[[Event], Awaitable[None]], fail: Callable[[Exception], None]
    ) -> None:
        """Keep keys for an application; `handle` does what one asks for, `fail` is told what went wrong with that."""
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
            except Exception as error:  # noqa: BLE001 - told as every crash of the report is
                self._fail(error)

    def _involved(self) -> list[MessagePump]:
        """Return what a key passes through: the widget with the focus, and all around it up to the application."""
        focused = self._app.focused
        return [] if focused is None else [*focused.ancestors_with_self]

    async def _done(self, involved: Iterable[MessagePump]) -> None:
        for pump in (*involved, *[self._app] * ROUNDS):
            await _reached(pump)
        while self._open and self._app.screen.focused is None:
            await asyncio.sleep(LOOK)

    @property
    def _open(self) -> bool:
        """Tell whether the application still has a screen."""
        return self._app.is_running and bool(self._app.screen_stack)


async def _reached(pump: MessagePump) -> None:
    """Wait until all that a widget was sent so far has been dealt with, or the widget is gone."""
    done = asyncio.Event()
    if not pump.call_later(done.set):
        return
    while pump.is_running and not done.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 5 * LOOK)
