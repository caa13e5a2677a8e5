"""The state of the interactive report, the base of its views, and helpers for their lists and pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ppo_doctor.report.layout import Page, Span, columns
from ppo_doctor.report.summary import Summary, relative, summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run, Setting
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.report.layout import Line

    Judged: TypeAlias = tuple[Run, Diagnosis]
    Rediagnose: TypeAlias = Callable[[Mapping[str, ConfigValue]], Judged]

#: The settings that people ask about first; K is the number of optimizer steps per rollout batch.
USUAL = ("K", "clip_range", "target_kl")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One run as it was read and judged, and how to judge it under other settings."""

    run: Run
    diagnosis: Diagnosis
    rediagnose: Rediagnose
    #: names that can be supposed
    settable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How much room there is, and how to fill it."""

    width: int
    height: int
    #: the full account of a cause rather than its main lines
    why: bool = False
    ascii: bool = False
    #: True where plots have no pane of their own and belong on the page
    alone: bool = True


@dataclass(slots=True, kw_only=True)
class Session:
    """The cases of a report, the chosen one, and the settings that are supposed for it."""

    cases: tuple[Case, ...]
    index: int = 0
    overrides: dict[str, ConfigValue] = field(default_factory=dict)
    why: bool = False
    _supposed: Judged | None = None
    #: the diagnosis that is shown, the same with shortened paths, and its summary
    _prepared: tuple[Diagnosis, Diagnosis, Summary] | None = None

    @property
    def case(self) -> Case:
        """Return the chosen case."""
        return self.cases[self.index]

    @property
    def run(self) -> Run:
        """Return the run that is shown: as read, or as supposed."""
        return self._supposed[0] if self._supposed else self.case.run

    @property
    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis that is shown: as read, or as supposed."""
        return self._supposed[1] if self._supposed else self.case.diagnosis

    @property
    def shortened(self) -> Diagnosis:
        """Return the diagnosis that is shown with long paths shortened in its sentences."""
        return self._prepare()[1]

    @property
    def summary(self) -> Summary:
        """Return the summary of the diagnosis that is shown."""
        return self._prepare()[2]

    def _prepare(self) -> tuple[Diagnosis, Diagnosis, Summary]:
        if self._prepared is None or self._prepared[0] is not self.diagnosis:
            self._prepared = self.diagnosis, relative(self.diagnosis), summarize(self.diagnosis, self.run)
        return self._prepared

    def choose(self, index: int) -> None:
        """Show another run as it was read."""
        self.index = index % len(self.cases)
        self.reset()

    def suppose(self, name: str, value: ConfigValue) -> None:
        """Judge the run as if a setting had another value.

        Raises:
            DoctorError: no such setting or value; the values supposed before stay.
        """
        overrides = {**self.overrides, name: value}
        self._supposed = self.case.rediagnose(overrides)
        self.overrides = overrides

    def reset(self) -> None:
        """Show the run as it was read."""
        self.overrides, self._supposed = {}, None


def shown_value(run: Run, name: str) -> str:
    """Return the value of a setting as text, empty if it is unknown."""
    setting: Setting | None = run.config.get(name)
    return "" if setting is None else str(setting.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One entry of a list: its name within the list, and its lines."""

    key: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A text that can be copied from a page, and what it is."""

    what: str
    text: str


class Subject(ABC):
    """One of the five views of a report."""

    #: the word on its tab
    title = ""
    #: True if pages are read from a file, and therefore made in the background
    slow = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the entries that match a query, the best first; none if the view is a single page."""
        del query, width
        return []

    @abstractmethod
    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the page about an entry; the key is empty if there is none."""

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the plots of an entry for a separate pane; none if the view has no plots."""
        del key, frame
        return []

    @abstractmethod
    def copies(self, key: str) -> Sequence[Copy]:
        """Return what can be copied from the page about an entry."""


#: Most columns of prose: the start of the next line is hard to find after longer ones.
WIDEST = 110


def page_of(frame: Frame) -> Page:
    """Return an empty page as wide as a frame, but at most `WIDEST`."""
    return Page(width=min(frame.width, WIDEST), ascii=frame.ascii)


def folded(lines: Sequence[Line], width: int) -> list[Line]:
    """Return lines no wider than `width`; a longer word, such as a path, continues in the next line."""
    return [piece for line in lines for piece in _folded(line, width)]


def _folded(line: Line, width: int) -> list[Line]:
    if sum(columns(span.text) for span in line) <= width:
        return [line]
    pieces: list[list[Span]] = [[]]
    room = width
    for span in line:
        text = ""
        for character in span.text:
            size = columns(character)
            if size > room:
                pieces[-1].append(Span(text, span.style))
                pieces.append([])
                text, room = "", width
            text, room = text + character, room - size
        pieces[-1].append(Span(text, span.style))
    return [tuple(piece) for piece in pieces]


def cut(text: str, width: int) -> str:
    """Return the text of a table cell, cut with an ellipsis if it is wider."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def heading(page: Page, text: str, note: str = "") -> None:
    """Begin a part of a page."""
    page.blank()
    page.add((Span(text, "bold underline"), Span(f"  {note}" if note else "", "dim")))


def nothing(frame: Frame, text: str) -> list[Line]:
    """Return a page that says why it is empty."""
    page = page_of(frame)
    page.add(Span(text, "dim"))
    return page.lines


Item = TypeVar("Item")
#: Points for a letter that begins a word, or follows the letter matched before it.
_STARTS, _FOLLOWS = 3, 2


def score(query: str, text: str) -> float | None:
    """Return how well a query matches a text, None if it lacks the letters in this order; blanks are ignored.

    A match of consecutive letters scores higher than scattered ones, and highest at the start of a word.
    """
    wanted, text = "".join(query.lower().split()), text.lower()
    if not wanted:
        return 0.0
    at = text.find(wanted)
    if at >= 0:
        return 100.0 * len(wanted) + (50 if _starts(text, at) else 0) - len(text) / 100
    points, last = 0.0, -1
    for letter in wanted:
        at = text.find(letter, last + 1)
        if at < 0:
            return None
        points += 1 + (_STARTS if _starts(text, at) else 0) + (_FOLLOWS if at == last + 1 else 0)
        last = at
    return points - len(text) / 100


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def ranked(query: str, items: Iterable[Item], words: Callable[[Item], str]) -> list[Item]:
    """Return the items that match, the best first; all of them in their order for an empty query."""
    if not query.strip():
        return list(items)
    scored = [(points, item) for item in items if (points := score(query, words(item))) is not None]
    return [item for _, item in sorted(scored, key=lambda pair: -pair[0])]
