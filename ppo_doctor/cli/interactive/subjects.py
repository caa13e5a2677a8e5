"""The state of the interactive report: its runs, the chosen one, and supposed settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

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

#: The settings that people wonder about first; K stands for the optimizer steps per rollout batch.
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
    """The cases of a report, the chosen one, and the settings that are supposed about it."""

    cases: tuple[Case, ...]
    index: int = 0
    overrides: dict[str, ConfigValue] = field(default_factory=dict)
    why: bool = False
    _supposed: Judged | None = None
    _told: tuple[Diagnosis, Diagnosis, Summary] | None = None

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
    def told(self) -> Diagnosis:
        """Return the diagnosis that is shown with long paths shortened in its sentences."""
        return self._in_words()[1]

    @property
    def story(self) -> Summary:
        """Return the story of what is shown."""
        return self._in_words()[2]

    def _in_words(self) -> tuple[Diagnosis, Diagnosis, Summary]:
        if self._told is None or self._told[0] is not self.diagnosis:
            self._told = self.diagnosis, relative(self.diagnosis), summarize(self.diagnosis, self.run)
        return self._told

    def choose(self, index: int) -> None:
        """Show another run; what was supposed about this one is dropped."""
        self.index = index % len(self.cases)
        self.reset()

    def suppose(self, name: str, value: ConfigValue) -> None:
        """Judge the run as if a setting were another.

        Raises:
            DoctorError: no such setting or value; what was supposed before stays.
        """
        overrides = {**self.overrides, name: value}
        self._supposed = self.case.rediagnose(overrides)
        self.overrides = overrides

    def reset(self) -> None:
        """Go back to what was read."""
        self.overrides, self._supposed = {}, None


def shown_value(run: Run, name: str) -> str:
    """Return the value of a setting as people write it, an empty text where none is known."""
    setting: Setting | None = run.config.get(name)
    return "" if setting is None else str(setting.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One entry of a list: its name within the list, and its lines."""

    key: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Something worth copying from a page: what it is, and the text itself."""

    what: str
    text: str


class Subject(Protocol):
    """One of the five views of a report."""

    #: the word on its tab
    title: str
    #: True where a page is read from a file, and so made in the background
    slow: bool

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the entries that fit a query, the best first."""

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the page about an entry; an empty key means that there is none."""

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the pictures that belong to an entry, for a pane of their own."""

    def copies(self, key: str) -> Sequence[Copy]:
        """Return what can be copied from the page about an entry."""


#: Prose is not set wider than this: longer lines are hard to come back from.
WIDEST = 110


def page_of(frame: Frame) -> Page:
    """Return an empty page as wide as a frame, or as prose should be."""
    return Page(width=min(frame.width, WIDEST), ascii=frame.ascii)


def folded(lines: Sequence[Line], width: int) -> list[Line]:
    """Return lines no wider than this; a word that is, such as a path, goes on in the next line."""
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
    """Return one line of a table cell, with an ellipsis where it does not fit."""
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
    """Return how well a query fits a text, None when its letters are not there in order; blanks do not count.

    The text itself is better than its beginning, that better than its inside, and any of them than scattered letters.
    """
    wanted, held = "".join(query.lower().split()), text.lower()
    if not wanted:
        return 0.0
    at = held.find(wanted)
    if at >= 0:
        return 100.0 * len(wanted) + (50 if _starts(held, at) else 0) - len(held) / 100
    return _scattered(wanted, held)


def _scattered(wanted: str, held: str) -> float | None:
    points, last = 0.0, -1
    for letter in wanted:
        at = held.find(letter, last + 1)
        if at < 0:
            return None
        points += 1 + (_STARTS if _starts(held, at) else 0) + (_FOLLOWS if at == last + 1 else 0)
        last = at
    return points - len(held) / 100


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def ranked(query: str, items: Iterable[Item], words: Callable[[Item], str]) -> list[Item]:
    """Return the items that fit, the best first; all of them in their order for an empty query."""
    if not query.strip():
        return list(items)
    scored = [(points, item) for item in items if (points := score(query, words(item))) is not None]
    return [item for _, item in sorted(scored, key=lambda pair: -pair[0])]
