"""Console text: each line goes to the first dialect that recognises it.

Dialects in order, with example lines and the record of them:

    YamlResults     `Result for PPO_1:` and indented `kl: 0.1`, or three levels of YAML -> `info/learner/kl`
    Dicts           `step 3: {'loss': 0.5}`, on one line or several -> `step`, `loss`
    Lists           `rewards: tensor([1., 2.,` and the lines up to `]` -> one line, for the dialects below
    Panels          a box with a title, rows `loss  kl: 0.1 | clip: 0.2` -> `loss/kl`, `loss/clip`
    Grids           rule, header, rule, rows with corners `+---+---+---+` -> a record per row
    Pipes           `step | loss`, `--- | ---`, rows -> a record per row
    Boxes           `| train/ | |`, `|  kl | 0.1 |` -> `train/kl`
    Verl            `step:12 - actor/kl:0.1` -> `step`, `actor/kl`
    RslRl           `Learning iteration 3/1500`, `Mean reward: -4.9` -> both
    NemoRl          `==== Step 3/100 ====`, `• Loss: 0.1` below "Training Results" -> `Step`, `Loss`
    DeepSpeedChat   `epoch: 0|step: 6|act_loss: 0.1`, `average reward score: 1` -> all of them
    SampleFactory   `Fps is (…). Total num frames: 64.`, `Avg episode reward: [(0, '1.0')]` -> both
    UnitySummaries  `Walker. Step: 5000. Time Elapsed: 43.5 s. Mean Reward: 0.5.` -> all of them
    Columns         `kl    0.1` between rules of dashes, or again and again -> a record per table
    Rows            `it R kl` once, then `1 -3.5 0.1` -> a record per row
    Pairs           `step=3, loss=0.5`, `Step 3 | loss: 0.5`, a bar of tqdm -> `step`, `loss`
    Words           `epoch 3 reward 12.5 kl 0.1`, twice or more -> `epoch`, `reward`, `kl`
    Sentences       `lap 3 earned 2.5 coins`, four times or more -> `lap`, `lap earned`

Before all of these, the dialects of `console_messages` read what is no record: sections of another method, planned
passes, exceptions, messages and evaluations. Records of `Grids`, `Columns` without rules, `Rows`, `Pairs`, `Words` and
`Sentences` are loose: they are dropped if the log holds better ones (`Sink`). `console_several` rewrites a line for
the last three, and finds a name for each number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import Dialect, Line, Sink
from ppo_doctor.readers.console_dicts import Dicts, Lists
from ppo_doctor.readers.console_messages import Evaluations, Exceptions, Messages, Plans, Sections
from ppo_doctor.readers.console_pairs import Pairs, Words
from ppo_doctor.readers.console_sentences import Sentences
from ppo_doctor.readers.console_tables import Boxes, Columns, Grids, Panels, Pipes, Rows
from ppo_doctor.readers.console_trainers import (
    DeepSpeedChat,
    NemoRl,
    RslRl,
    SampleFactory,
    UnitySummaries,
    Verl,
    YamlResults,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: "(TaskRunner pid=1234) ", "(main_task pid=1, ip=10.0.0.1)"
_RAY = re.compile(r"\([^()]*\bpid=\d+[^()]*\) ?")
#: Boxes drawn with Unicode, as rich does, become ASCII, and East Asian punctuation its counterpart with a blank.
_DRAWING = str.maketrans(
    dict.fromkeys("│┃║", "|")
    | {"\N{MINUS SIGN}": "-"}
    | dict.fromkeys("─━═╌┄", "-")
    | {"，": ", ", "、": ", ", "；": "; ", "：": ": ", "（": " (", "）": ") ", "＝": "=", "｜": "|", "％": "%"}
    | dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇┢┪╔╗╚╝╠╣╦╩╬╒╕╘╛╞╡╤╧╪", "+")
)
#: The guides that rich draws before the lines of a value that spans several.
_GUIDES = re.compile(r"[ \t]*(?:│ {3})+(?=\S)(?!.*│\s*\Z)")
#: The marks of a quotation in mail and Markdown.
_QUOTED = re.compile(r"(?:> )++")
#: The rest of a longer line is not read.
_LONGEST = 1 << 18
#: More blanks than any table has are shortened, because patterns with blanks on both sides take quadratic time.
_PADDING = re.compile(r"[ \t]{257,}")


def read(source: Source) -> Iterator[Item]:
    """Yield the records of console text; lines that no dialect reads are counted in one note."""
    feed = Feed(source)
    for number, raw in source.numbered():
        feed.line(raw, number, torn=not source.ended)
        if feed.sink.packer.full:
            yield from feed.sink.packer.flush()
    yield from feed.end()


#: The dialects in order: Ray's results hold dicts, an open dict may hold any line, and `Pairs` matches lines of others.
DIALECTS: tuple[Callable[[Sink], Dialect | Exceptions], ...] = (
    *(Sections, Plans, Exceptions, Messages, Evaluations),
    *(YamlResults, Dicts, Lists, Panels, Grids, Pipes, Boxes),
    *(Verl, RslRl, NemoRl, DeepSpeedChat, SampleFactory, UnitySummaries, Columns),
    *(Rows, Pairs, Words, Sentences),
)


class Feed:
    """Passes the lines of a source to the dialects, and counts those that none of them reads."""

    def __init__(self, source: Source) -> None:
        self.sink = Sink(source)
        self._dialects = tuple(dialect(self.sink) for dialect in DIALECTS)

    def line(self, raw: bytes, number: int, *, torn: bool = False) -> None:
        """Read a line of the file; blank lines, of which there may be millions, are not passed to the dialects."""
        if not raw or raw.isspace():
            return
        _feed(_fragments(raw, number, torn=torn), self._dialects, self.sink)

    def end(self) -> Iterator[Item]:
        """Yield the remaining records at the end of the file, then the notes with the number of lines not read."""
        for dialect in self._dialects:
            dialect.finish()
            _feed([], self._dialects, self.sink)
        yield from self.sink.finish()
        if self.sink.unread.lines:
            self.sink.notes.tell("ignored", f"lines that hold no metrics and were not read: {self.sink.unread}")


def _feed(fragments: list[Line], dialects: tuple[Dialect | Exceptions, ...], sink: Sink) -> None:
    """Pass the fragments of a line, and the lines that dialects give back, to the dialects; count the unread ones."""
    used = [_take(fragment, dialects) for fragment in fragments]
    if used and not any(used):
        sink.unread.add(fragments[-1].text, fragments[-1].number)
    while sink.given_back:  # at least one line fewer each time
        again, sink.given_back = sink.given_back, []
        line = again.pop(0)
        if not _take(line, dialects):
            sink.unread.add(line.text, line.number)
        sink.given_back += again


def _take(line: Line, dialects: tuple[Dialect | Exceptions, ...]) -> bool:
    return any(dialect.take(line) for dialect in dialects)


def _fragments(raw: bytes, number: int, *, torn: bool) -> list[Line]:
    """Return the parts of a line between carriage returns, cleaned; blank parts are left out."""
    text = raw[:_LONGEST].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if len(text) > 256:
        text = _PADDING.sub(" " * 256, text)
    if not text.isascii():
        text = _GUIDES.sub(lambda guides: " " * len(guides[0]), text).translate(_DRAWING)
    if text.startswith("> "):
        text = _QUOTED.sub("", text)
    parts = [part for part in (_without_ray(part).rstrip() for part in text.split("\r")) if part]
    last = len(parts) - 1
    return [Line(part, number, torn and i == last) for i, part in enumerate(parts)]


def _without_ray(text: str) -> str:
    return _RAY.sub("", text, count=1) if "pid=" in text else text
