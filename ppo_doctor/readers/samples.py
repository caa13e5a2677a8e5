"""Answers that a trainer wrote down with their rewards: TRL's and W&B's tables, verl's and NeMo-RL's dumps.

TRL writes completions/completions_STEP.parquet, W&B media/table/NAME.table.json, verl STEP.jsonl in `rollout_data_dir`,
NeMo-RL train_data_stepSTEP.jsonl.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.opening import contents, plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.parquet_log import damaged, open_parquet
from ppo_doctor.readers.tensors.rows import parsed
from ppo_doctor.trainers.configuration import redact_text

#: The most tables that are read, the last ones; rows of each; bytes of a JSON document, of a line, and of the unpacked
#: columns of a Parquet table.
MOST_TABLES, MOST_ROWS = 64, 20_000
LARGEST_JSON, LONGEST_LINE, LARGEST_COLUMNS = 64 << 20, 4 << 20, 1 << 30
#: The most characters of a text that are kept; its length counts all of them.
LONGEST_TEXT = 2_000
#: How many answers are kept of each kind, and how many tables are named that could not be read.
KEPT, MOST_NAMED = 5, 2
#: Limits of the search below a folder: its depth, and the files and folders that are looked at.
DEEPEST, MOST_ENTRIES = 6, 50_000
_ROWS, _HEAD = 256, 64
_TABLE = lazy_pattern(
    r"completions_(?P<trl>\d{1,18})\.parquet|train_data_step(?P<nemo>\d{1,18})\.jsonl"
    r"|.+?(?:_(?P<wandb>\d{1,18})_\w+)?\.table\.json"
)
_DUMP = lazy_pattern(r"(?P<verl>\d{1,18})\.jsonl")
#: What a column holds → its names, the first that is there.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "global_steps"),
    "prompt": ("prompt", "input", "question", "query", "prompts", "inputs"),
    "answer": (
        *("completion", "output", "response", "answer", "generation", "completions", "outputs", "responses"),
        "content",  # NeMo-RL: the prompt and the answer in one text
    ),
    "reward": ("reward", "score", "total_reward", "rewards", "scores"),
    "advantage": ("advantage", "advantages"),
}
#: Columns of numbers that are no part of a reward.
_NO_REWARD = lazy_pattern(r"(^|_)(step|steps|epoch|id|idx|index|len|lengths?|tokens?|time|rank|gts?|uid)(_|$)", re.I)


@frozen
class Sample:
    """One answer: its step, texts, reward with its parts, and where it stands; `length` is in characters."""

    step: int | None
    prompt: str
    answer: str
    length: int
    reward: float | None
    advantage: float | None
    parts: Mapping[str, float]
    source: SourceRef


@frozen
class Answers:
    """The answers with the highest rewards and the longest ones, and how many there are of which they are taken.

    `reward` says which columns the reward is; `steps` are those of the answers; `left_out` says what was not read.
    """

    highest: tuple[Sample, ...] = ()
    longest: tuple[Sample, ...] = ()
    rows: int = 0
    reward: str = ""
    #: median length of the answers with the highest rewards and of all, in characters
    length_of_highest: float | None = None
    length_of_all: float | None = None
    steps: tuple[int, int] | None = None
    tables: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def is_rollout_dump(path: Path) -> bool:
    """Return whether a file is a dump of answers of one step (verl), by its name and its first key."""
    if not _DUMP.fullmatch(path.name):
        return False
    try:
        with plain_file(path) as file:
            head = file.read(_HEAD)
    except (OSError, DoctorError):
        return False
    return re.match(rb'\{\s*"input"\s*:', head) is not None


def tables_below(folder: Path, *, of_another_run: Sequence[str] = ()) -> list[Path]:
    """Return the tables of answers in a folder and below it, in the order of their steps.

    A folder that holds a file with a name in `of_another_run` is not entered.
    """
    found: list[Path] = []
    seen = 0
    for place, below, names in os.walk(folder):
        here = Path(place)
        seen += len(names) + len(below)
        others = here != folder and not set(names).isdisjoint(of_another_run)
        deep = len(here.relative_to(folder).parts) >= DEEPEST
        below[:] = [] if others or deep or seen > MOST_ENTRIES else sorted(n for n in below if not n.startswith("."))
        if not others:
            found += [here / name for name in names if _TABLE.fullmatch(name)]
            dumps = [here / name for name in names if _DUMP.fullmatch(name)]
            found += dumps if dumps and is_rollout_dump(min(dumps)) else []
    return sorted(found, key=lambda path: (_step_of(path) or 0, str(path)))


def answers_in(tables: Sequence[Path], since: int | None = None) -> Answers:
    """Return the best and the longest answers of some tables, from step `since` on if there are any."""
    later = [path for path in tables if since is None or (_step_of(path) or since) >= since] or list(tables)
    left_out = [f"{_count(len(tables) - len(later))} before step {since}"] if len(later) < len(tables) else []
    left_out += (
        [f"{_count(len(later) - MOST_TABLES)} before the last {MOST_TABLES}"] if len(later) > MOST_TABLES else []
    )
    best = _Best()
    failed: list[DoctorError] = []
    for path in later[-MOST_TABLES:]:
        try:
            for samples in _batches(path, best):
                best.add(samples)
        except DoctorError as error:
            failed.append(error)
    left_out += [f"{error.message}{f' ({error.hint})' if error.hint else ''}" for error in failed[:MOST_NAMED]]
    left_out += [f"{_count(len(failed) - MOST_NAMED)} more"] if len(failed) > MOST_NAMED else []
    return best.answers(tuple(map(str, later[-MOST_TABLES:])), tuple(left_out))


def _count(tables: int) -> str:
    return "1 table" if tables == 1 else f"{tables} tables"


class _Best:
    """Keeps the best and the longest answers, and the lengths of all."""

    def __init__(self) -> None:
        self.reward = ""
        self._lengths = array("q")
        self._steps: list[int] = []
        self._highest: list[Sample] = []
        self._longest: list[Sample] = []

    def add(self, samples: Sequence[Sample]) -> None:
        """Take in some answers; the same answer is kept once."""
        self._lengths.extend(sample.length for sample in samples)
        steps = [sample.step for sample in samples if sample.step is not None]
        self._steps = [min([*self._steps, *steps]), max([*self._steps, *steps])] if steps else self._steps
        rewarded = [sample for sample in samples if sample.reward is not None]
        self._highest = _first([*self._highest, *rewarded], lambda sample: sample.reward or 0.0)
        self._longest = _first([*self._longest, *samples], lambda sample: sample.length)

    def answers(self, tables: tuple[str, ...], left_out: tuple[str, ...]) -> Answers:
        """Return what was kept."""
        return Answers(
            highest=tuple(map(_without_secrets, self._highest)),
            longest=tuple(map(_without_secrets, self._longest)),
            rows=len(self._lengths),
            reward=self.reward,
            length_of_highest=median(np.array([sample.length for sample in self._highest], np.float64))
            if self._highest
            else None,
            length_of_all=median(np.array(self._lengths, np.float64)) if self._lengths else None,
            steps=(self._steps[0], self._steps[1]) if self._steps else None,
            tables=tables,
            left_out=left_out,
        )


def _without_secrets(sample: Sample) -> Sample:
    return replace(sample, prompt=redact_text(sample.prompt), answer=redact_text(sample.answer))


def _first(samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[Sample]:
    """Return the samples with the greatest values and different answers; among equals those that come last."""
    chosen: dict[tuple[str, int], Sample] = {}
    for sample in sorted(samples, key=value)[::-1]:
        chosen.setdefault((sample.answer, sample.length), sample)
        if len(chosen) == KEPT:
            break
    return list(chosen.values())


def _batches(path: Path, best: _Best) -> Iterator[list[Sample]]:
    """Yield the answers of a table, some at a time.

    Raises:
        DoctorError: it is damaged or too large, or pyarrow is missing.
    """
    rows = enumerate(islice(_rows(path), MOST_ROWS), 1)
    columns: dict[str, str] = {}
    while block := list(islice(rows, _ROWS)):
        names = list(block[0][1])
        columns = columns or {role: name for role, known in _NAMES.items() for name in known if name in names}
        if "answer" not in columns:
            raise DoctorError(f"{path}: no column holds answers", hint=f"one of {', '.join(_NAMES['answer'])}")
        parts = tuple(key for key in names if _is_part(key, block, columns))
        best.reward = best.reward or columns.get("reward", " + ".join(parts))
        yield [_sample(path, number, row, columns, parts) for number, row in block]


def _is_part(key: str, block: Sequence[tuple[int, Mapping[str, Any]]], columns: Mapping[str, str]) -> bool:
    """Return whether a column of numbers is a part of the reward."""
    if key in columns.values() or _NO_REWARD.search(key):
        return False
    return any(_number(value) is not None for _, row in block if not isinstance(value := row.get(key), list))


def _sample(
    path: Path, number: int, row: Mapping[str, Any], columns: Mapping[str, str], parts: Sequence[str]
) -> Sample:
    held = {role: row.get(name) for role, name in columns.items()}
    numbers = ((key, _number(row.get(key))) for key in parts)
    values = {key: value for key, value in numbers if value is not None}
    step = _number(held.get("step"))
    reward = _number(held["reward"]) if "reward" in held else sum(values.values()) if values else None
    answer, prompt = _text(held.get("answer")), _text(held.get("prompt"))
    return Sample(
        step=_step_of(path) if step is None else int(step),
        prompt=prompt[-LONGEST_TEXT:],
        answer=answer[:LONGEST_TEXT],
        length=len(answer),
        reward=reward,
        advantage=_number(held.get("advantage")),
        parts=values,
        source=SourceRef(path=str(path), line=number),
    )


def _number(value: object) -> float | None:
    if isinstance(value, list) and value and all(isinstance(each, int | float) for each in value):
        value = sum(value)  # of an answer's tokens
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _text(value: object) -> str:
    """Return a text, or the contents of the messages of a conversation."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return "\n".join(str(each.get("content", "")) for each in value)
    return "" if value is None else str(value)


def _step_of(path: Path) -> int | None:
    for pattern in (_TABLE, _DUMP):
        if match := pattern.fullmatch(path.name):
            return next((int(step) for step in match.groupdict().values() if step), None)
    return None


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table.

    Raises:
        DoctorError: it is damaged or too large, or pyarrow is missing.
    """
    try:
        if path.suffix == ".parquet":
            yield from _of_parquet(path)
        elif path.suffix == ".json":
            yield from _of_document(path)
        else:
            yield from _of_lines(path)
    except OSError as error:
        raise DoctorError(f"{path} cannot be read: {error.strerror}") from error


def _of_parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    with plain_file(path) as stream:
        arrow, file = open_parquet(stream, path)
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > LARGEST_COLUMNS:
            raise DoctorError(f"{path} unpacks to more than {LARGEST_COLUMNS >> 30} GiB")
        try:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
        except (arrow.ArrowException, OSError) as error:
            raise damaged(path, error) from error


def _of_document(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table of W&B: {"columns": […], "data": [[…], …]}."""
    table = parsed(contents(path, LARGEST_JSON))
    if table is None:
        raise DoctorError(f"{path} is cut off or no JSON")
    columns, data = (table.get("columns"), table.get("data")) if isinstance(table, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(data, list):
        raise DoctorError(f"{path} is no table of W&B", hint="it has columns and data")
    for row in data:
        if isinstance(row, list):
            yield dict(zip(map(str, columns), row, strict=False))


def _of_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with plain_file(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise DoctorError(f"{path} has a line of more than {LONGEST_LINE >> 20} MiB")
            row = parsed(line)
            if isinstance(row, dict):  # else it is cut off, or still being written
                yield row
