"""The lines of a log around a place, without the values of secrets."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.opening import is_url
from ppo_doctor.readers.source import Source
from ppo_doctor.trainers.configuration import REDACTED, redact, redact_text

if TYPE_CHECKING:
    from ppo_doctor.model.run import SourceRef, SourceSummary

#: Containers with lines of text; others have only records.
TEXT = frozenset({"jsonl", "json", "csv", "console", "notebook"})
#: The most bytes of a line that are shown; a document on one line may have megabytes.
LONGEST = 1 << 16
_PAIR = re.compile(
    r"""(?P<quote>["']?)(?P<key>[A-Za-z_][\w.\-/]{0,80})(?P=quote)\s*[:=]\s*"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;}\]]+)"""
)


@frozen
class Excerpt:
    """Numbered lines of a file, or the reason why there are none."""

    lines: tuple[tuple[int, str], ...] = ()
    #: the names of the columns if the file is a table
    names: tuple[str, ...] = ()
    because: str = ""


def excerpt(place: SourceRef, sources: tuple[SourceSummary, ...], *, before: int, after: int) -> Excerpt:
    """Return the lines around a place, unpacked and decoded as the reader of the log does it."""
    container = next((source.container for source in sources if source.path == place.path), None)
    if place.line is None:
        return Excerpt(because="This number belongs to no line of the log.")
    if place.path in ("-", "<stdin>"):
        return Excerpt(because="The log came from stdin, which cannot be read twice; what was read from this line:")
    if is_url(place.path):
        return Excerpt(because="What was fetched from the URL was not kept; what was read from this line:")
    if container is not None and container not in TEXT:
        return Excerpt(because=f"{container} is a binary container; what was read from this record:")
    try:
        names = _names(place.path) if container == "csv" else ()
        return Excerpt(lines=_lines(place.path, max(place.line - before, 1), place.line + after), names=names)
    except DoctorError as error:
        return Excerpt(because=f"{error.message}.")


def _lines(path: str, first: int, last: int) -> tuple[tuple[int, str], ...]:
    upto = takewhile(lambda numbered: numbered[0] <= last, Source(path).numbered())
    wanted = dropwhile(lambda numbered: numbered[0] < first, upto)
    return tuple((number, hidden(line[:LONGEST].decode("utf-8", "replace"))) for number, line in wanted)


def _names(path: str) -> tuple[str, ...]:
    """Return the column names in the first line of a table."""
    _, line = next(Source(path).numbered(), (1, b""))
    names = re.split(r"[,\t;]", line[:LONGEST].decode("utf-8", "replace")) if line else ()
    return tuple(name.strip(" \"'\r") for name in names)


def hidden(line: str) -> str:
    """Return a line with the values of keys that name secrets, and values that look like one, replaced."""
    return redact_text(_PAIR.sub(_pair, line))


def _pair(match: re.Match[str]) -> str:
    value = match["value"]
    quote = value[:1] if value[:1] in "\"'" else ""
    # Fewer keys make a number a secret than a text: "max_tokens": 512 is not one.
    number = None if quote else _number(value)
    if redact(match["key"], value.strip("\"'") if number is None else number) != REDACTED:
        return match[0]
    return match[0][: match.start("value") - match.start()] + f"{quote}{REDACTED}{quote}"


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
