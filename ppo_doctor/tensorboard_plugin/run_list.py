"""The runs that the tab lists, found and judged in a thread while somebody looks at it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Found
    from ppo_doctor.tensorboard_plugin.judging import Judgement

#: Seconds for which the thread works after the tab last asked; the tab asks every two seconds while it is shown.
ATTENTION = 15.0
#: Least seconds between two searches of the folders, and between two judgements of a run that grows. Where one takes
#: long, its pause is so many times as long, so that it keeps a processor busy for one part in this many at most.
PAUSE, SHARE = 3.0, 20
#: Seconds after its last change for which a run is taken to be still written.
WRITING = 60.0
#: Most runs that are listed, the latest ones, and the bytes of one up to which it is judged before it is opened. A run
#: waits until those are judged that have fewer times `BATCH` bytes.
MOST_RUNS, LARGEST, BATCH = 500, 64 << 20, 4 << 20
#: Reports that are kept.
MOST_PAGES = 16
#: Seconds for which the thread sleeps when there is nothing to do, and at most after each judgement: it sleeps as long
#: as that took, so that TensorBoard's own threads get the interpreter.
NAP, REST = 0.5, 0.25

_log = logging.getLogger(__name__)


@dataclass(slots=True, repr=False, eq=False)
class _Listed:
    """A run of the list, how it was judged, and for which state of its files; times are monotonic."""

    found: Found
    judgement: Judgement | None = None
    judged_as: str = ""
    #: when a change was last seen, and from when on it may be judged again
    changed: float | None = None
    again: float = 0.0

    @property
    def writing(self) -> bool:
        """Return whether the run is probably still written: by its clock, which may not be ours, or as we saw it."""
        seen = self.changed is not None and time.monotonic() - self.changed < WRITING
        return seen or time.time() - self.found.unit.modified < WRITING

    @property
    def stamp(self) -> str:
        """Return what is another text when the run is to be judged again; once it is quiet, its last line counts."""
        return f"{self.found.unit.fingerprint}{'-growing' * self.writing}"


class RunList:
    """The runs below folders. `state` and `page` never wait for work: a thread does it, and ends when nobody asks."""

    def __init__(self, places: Mapping[Path, str]) -> None:
        self._places = places
        self._ready = Condition()
        self._listed: dict[str, _Listed] = {}
        self._pages: OrderedDict[str, str] = OrderedDict()
        self._notes: tuple[str, ...] = ()
        self._looked = False
        self._opened = ""
        self._judging = ""
        self._until = 0.0
        self._thread: Thread | None = None

    def state(self, opened: str = "") -> dict[str, Any]:
        """Return what is known by now, and go on working for a while; `opened` is the key of the run that is shown."""
        with self._ready:
            self._until = time.monotonic() + ATTENTION
            self._opened = opened
            if self._thread is None:
                self._thread = Thread(target=self._work, name="ppo-doctor", daemon=True)
                self._thread.start()
            self._ready.notify()
            latest = self._latest()
            hidden = {key for key, each in self._listed.items() if each.judgement and each.judgement.state == "empty"}
            rows = [self._row(each) for each in latest if each.found.key not in hidden]
            left_out = len(self._listed) - len(latest)
            return {
                "looked": self._looked,
                "notes": list(self._notes[:5]),
                "left_out": left_out,
                "runs": sorted(rows, key=lambda row: row["name"]),
            }

    def page(self, key: str) -> str | None:
        """Return the report of the run of a key, None if there is no such run or no report yet."""
        with self._ready:
            return self._pages.get(key)

    def _latest(self) -> list[_Listed]:
        return sorted(self._listed.values(), key=lambda each: -each.found.unit.modified)[:MOST_RUNS]

    def _row(self, each: _Listed) -> dict[str, Any]:
        key, unit, judgement = each.found.key, each.found.unit, each.judgement
        large = unit.size > LARGEST and key != self._opened
        return {
            "key": key,
            "name": each.found.name,
            "state": judgement.state if judgement else "large" if large else "waiting",
            "verdict": judgement.verdict if judgement else "",
            "headline": (judgement.headline or judgement.reason) if judgement else "",
            "step": judgement.step if judgement else None,
            "age": max(0, round(time.time() - unit.modified)),
            "writing": each.writing,
            "judging": key == self._judging,
            "report": each.judged_as if key in self._pages else "",
        }

    def _work(self) -> None:
        """Look for runs and judge them, one at a time, until nobody has asked for a while."""
        next_look = 0.0
        while True:
            with self._ready:
                if time.monotonic() > self._until:
                    self._thread = None
                    return
            begun = time.monotonic()
            if begun >= next_look:
                self._look()
                next_look = time.monotonic() + max(PAUSE, SHARE * (time.monotonic() - begun))
            with self._ready:
                each = self._next()
                self._judging = each.found.key if each else ""
                if each is None:
                    self._ready.wait(NAP)
                    continue
            begun = time.monotonic()
            self._judge(each)
            time.sleep(min(REST, time.monotonic() - begun))

    def _look(self) -> None:
        """List the runs as they are now; at the first time each is listed as soon as it is found."""
        from ppo_doctor.fleets.unit import found_below

        notes: list[str] = []
        keys = set()
        try:
            for found in found_below(self._places, notes):
                keys.add(found.key)
                with self._ready:
                    self._take(found)
            with self._ready:
                for key in self._listed.keys() - keys:
                    del self._listed[key]
                    self._pages.pop(key, None)
        except Exception as error:  # noqa: BLE001 - the page says it, and the thread goes on
            _log.exception("the runs could not be listed")
            notes.append(f"The runs could not be listed: {type(error).__name__}: {error}")
        with self._ready:
            self._notes, self._looked = tuple(notes), True

    def _take(self, found: Found) -> None:
        each = self._listed.setdefault(found.key, _Listed(found))
        if each.found.unit.fingerprint != found.unit.fingerprint:
            each.changed = time.monotonic()
        each.found = found

    def _next(self) -> _Listed | None:
        """Return the run to judge now: the opened one, else one never judged, a small and late one first, else any."""
        opened = self._listed.get(self._opened)
        if opened is not None and (_due(opened) or self._lacks_page(opened)):
            return opened
        due = [each for each in self._latest() if each.found.unit.size <= LARGEST and _due(each)]
        return min(due, key=lambda e: (e.judgement is not None, e.found.unit.size // BATCH), default=None)

    def _lacks_page(self, each: _Listed) -> bool:
        judged = each.judgement is None or each.judgement.state == "judged"
        return judged and each.found.key not in self._pages

    def _judge(self, each: _Listed) -> None:
        from ppo_doctor.tensorboard_plugin.judging import Judgement, judge

        found, stamp, growing = each.found, each.stamp, each.writing
        begun = time.monotonic()
        try:
            judgement = judge(found, growing=growing, page=found.key == self._opened)
        except Exception as error:  # noqa: BLE001 - the page says it, and the thread goes on
            _log.exception("%s could not be judged", found.name)
            judgement = Judgement("failed", reason=f"a bug of ours: {type(error).__name__}: {error}")
        ended = time.monotonic()
        with self._ready:
            self._judging = ""
            each.judgement, each.judged_as = judgement, stamp
            each.again = ended + max(PAUSE, SHARE * (ended - begun))
            self._pages.pop(found.key, None)  # also of a judgement without a page: it would be that of an earlier one
            if judgement.page is not None:
                self._pages[found.key] = judgement.page
            while len(self._pages) > MOST_PAGES:
                self._pages.popitem(last=False)


def _due(each: _Listed) -> bool:
    return each.judged_as != each.stamp and time.monotonic() >= each.again
