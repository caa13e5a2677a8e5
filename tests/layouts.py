"""One log written in other ways that change nothing: what every way of writing it down has to be judged by."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import tempfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, runs_of
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Run, Series
from ppo_doctor.runs.discover import gather

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv"}
#: Files that lie beside a log and belong to it.
SETTINGS = ("config.json", "config.yml", "args.yml", "params.json")


@dataclass(frozen=True, slots=True)
class Log:
    """A log taken apart: its records, and what stands before or around them."""

    name: str
    form: str
    records: list[dict[str, Any]]
    head: list[dict[str, Any]] = field(default_factory=list)
    around: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """Files that hold a log, in the order in which they are named."""

    files: Mapping[str, bytes]
    together: bool = False
    #: named by their folder
    folder: bool = False


def read(path: Path) -> Log:
    """Take a log apart; ValueError for one that is no list of records."""
    form = SUFFIXES[path.suffix]
    text = path.read_text(encoding="utf-8")
    if form == "csv":
        return Log(path.name, form, list(csv.DictReader(io.StringIO(text))))
    if form == "jsonl":
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        head = lines[:1] if lines and "ppo_doctor" in lines[0] else []
        return Log(path.name, form, lines[len(head) :], head)
    document = json.loads(text)
    if isinstance(document, list):
        return Log(path.name, form, document)
    key = max(document, key=lambda k: len(document[k]) if isinstance(document[k], list) else -1)
    if not isinstance(document[key], list) or not all(isinstance(record, dict) for record in document[key]):
        raise ValueError(f"{path}: no list of records")
    return Log(path.name, form, document[key], [], {k: v for k, v in document.items() if k != key}, key)


def write(log: Log, *, indent: int | None = 2) -> bytes:
    """Put a log together again."""
    if log.form == "csv":
        out = io.StringIO()
        columns = list(dict.fromkeys(key for record in log.records for key in record))
        table = csv.DictWriter(out, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(log.records)
        return out.getvalue().encode()
    if log.form == "jsonl":
        return "".join(json.dumps(record) + "\n" for record in (*log.head, *log.records)).encode()
    document = {**log.around, log.key: log.records} if log.key else log.records
    return json.dumps(document, indent=indent).encode()


def as_it_is(log: Log, _: random.Random) -> Written:
    return _one(log)


def indented(log: Log, _: random.Random) -> Written:
    """A file of JSON objects, each over several lines, or a document that is indented."""
    if log.form == "jsonl":
        rows = "\n".join(json.dumps(record, indent=4) for record in (*log.head, *log.records))
        return Written({"run.json": rows.encode()})
    return Written({log.name: write(log, indent=8)})


def on_one_line(log: Log, _: random.Random) -> Written:
    if log.form == "jsonl":
        return Written({"run.json": write(replace(log, form="json", records=[*log.head, *log.records]), indent=None)})
    return Written({log.name: write(log, indent=None)})


def keys_in_another_order(log: Log, rng: random.Random) -> Written:
    columns = list(dict.fromkeys(key for record in log.records for key in record))
    rng.shuffle(columns)
    return _one(replace(log, records=[{k: record[k] for k in columns if k in record} for record in log.records]))


def with_crlf(log: Log, _: random.Random) -> Written:
    return Written({log.name: write(log).replace(b"\n", b"\r\n")})


def gzipped(log: Log, _: random.Random) -> Written:
    return Written({f"{log.name}.gz": gzip.compress(write(log))})


def rounded(digits: int) -> Callable[[Log, random.Random], Written]:
    def to_digits(log: Log, _: random.Random) -> Written:
        return _one(replace(log, records=[{k: _round(v, digits) for k, v in r.items()} for r in log.records]))

    return to_digits


def split(parts: int, *, folder: bool = False) -> Callable[[Log, random.Random], Written]:
    """Parts that follow each other, each under a name that says nothing of its place."""

    def into_parts(log: Log, rng: random.Random) -> Written:
        size = len(log.records)
        cuts = sorted(rng.sample(range(1, size), parts - 1))
        held = [log.records[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        return _parts(log, held, rng, folder=folder)

    return into_parts


def resumed(log: Log, rng: random.Random) -> Written:
    """One file in which a run goes on from a checkpoint: some records stand there twice."""
    at, back = _checkpoint(log, rng)
    return _one(replace(log, records=log.records[:at] + log.records[at - back :]))


def resumed_in_two_files(log: Log, rng: random.Random) -> Written:
    at, back = _checkpoint(log, rng)
    return _parts(log, [log.records[:at], log.records[at - back :]], rng)


def given_twice(log: Log, _: random.Random) -> Written:
    stem, dot, suffix = log.name.partition(".")
    return Written({log.name: write(log), f"{stem}-copy{dot}{suffix}": write(log)}, together=True)


def each_record_twice(log: Log, _: random.Random) -> Written:
    return _one(replace(log, records=[record for record in log.records for _ in range(2)]))


def in_reverse(log: Log, _: random.Random) -> Written:
    return _one(replace(log, records=log.records[::-1]))


WAYS: Mapping[str, Callable[[Log, random.Random], Written]] = {
    "written again": as_it_is,
    "indented": indented,
    "on one line": on_one_line,
    "key order": keys_in_another_order,
    "CRLF": with_crlf,
    "gz": gzipped,
    "%.6g": rounded(6),
    "%.4g": rounded(4),
    "split in two": split(2),
    "split in three": split(3),
    "split in two, a folder": split(2, folder=True),
    "resumed": resumed,
    "resumed in two files": resumed_in_two_files,
    "given twice": given_twice,
    "each record twice": each_record_twice,
    "reversed": in_reverse,
}
#: Ways that may take away what a verdict needs: it may become inconclusive, and nothing else.
COARSE = ("%.4g",)


def _one(log: Log) -> Written:
    return Written({log.name: write(log)})


def _parts(log: Log, held: Sequence[list[dict[str, Any]]], rng: random.Random, *, folder: bool = False) -> Written:
    suffix = log.name.partition(".")[2]
    numbers = rng.sample(range(len(held)), len(held))
    names = [f"part-{number}.{suffix}" for number in numbers]
    parts = [replace(log, records=records, head=[] if i else log.head) for i, records in enumerate(held)]
    files = {name: write(part) for name, part in zip(names, parts, strict=True)}
    return Written(dict(sorted(files.items())), together=not folder, folder=folder)


def _checkpoint(log: Log, rng: random.Random) -> tuple[int, int]:
    """Return how many records stand before a run stopped, and how many of these it made again."""
    at = rng.randrange(2 * len(log.records) // 3, len(log.records))
    return at, min(3, at - 1)


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, str):
        try:
            return f"{float(value):.{digits}g}" if not value.lstrip("-").isdigit() else value
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: _round(inner, digits) for key, inner in value.items()}
    return value


def seen(run: Run) -> object:
    """Return what rules see of a run, for comparison: everything but the places where its numbers stand."""
    axes: dict[int, int] = {}
    series = {name: (axes.setdefault(id(s.axis), len(axes)), _content(s)) for name, s in sorted(run.series.items())}
    config = {name: repr(setting.value) for name, setting in run.config.items()}
    return run.framework, run.algorithm, config, {name: repr(fact.value) for name, fact in run.facts.items()}, series


def _content(series: Series) -> tuple[object, ...]:
    arrays = (series.values, series.axis.steps, series.axis.update, series.axis.epoch, series.axis.minibatch)
    held = tuple(b"" if array is None else array.tobytes() for array in arrays)
    return (*held, series.unit, series.resolution, series.estimator, series.aggregation, series.reference)


def told(diagnosis: Diagnosis) -> tuple[object, ...]:
    """Return what may not hang on the layout: verdict and leaders, each with the step at which it begins."""
    return (diagnosis.verdict, tuple(sorted((c.id, c.onset_step) for c in diagnosis.causes if c.leader)))


def read_back(written: Written, folder: Path, settings: Iterable[Path] = ()) -> list[Run]:
    """Write files into an empty folder, and return the runs in them."""
    for path in settings:
        (folder / path.name).write_bytes(path.read_bytes())
    for name, content in written.files.items():
        (folder / name).write_bytes(content)
    names = [str(folder)] if written.folder else [str(folder / name) for name in written.files]
    sources, missing = gather(names, together=written.together)
    if missing:
        raise missing[0]
    return [run for source in sources for run in runs_of(source, Request())]


def changes(path: Path, ways: Iterable[str] = WAYS, *, always: Container[str] = WAYS, seed: int = 0) -> dict[str, str]:
    """Return what each way of writing a log changes in its verdict and its leading causes; empty where nothing does.

    A way that is not among `always` is judged only where the run that comes of it is another than that of the log.
    """
    log = read(path)
    settings = [path.parent / name for name in SETTINGS if (path.parent / name).is_file()]
    found: dict[str, str] = {}
    runs = _runs(as_it_is(log, random.Random(seed)), settings)
    expected = _verdicts(runs)
    for way in ways:
        others = _runs(WAYS[way](log, random.Random(f"{seed} {path.name} {way}")), settings)
        if way not in always and _alike(runs, others):
            continue
        result = _verdicts(others)
        if result != expected and not (way in COARSE and _only_less_sure(expected, result)):
            found[way] = f"{expected} became {result}"
    return found


def _runs(written: Written, settings: Iterable[Path]) -> list[Run] | str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return read_back(written, Path(folder), settings)
        except DoctorError as error:
            return f"exit {int(error.code)}"


def _alike(ours: list[Run] | str, theirs: list[Run] | str) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    return list(map(seen, ours)) == list(map(seen, theirs))


def _verdicts(runs: list[Run] | str) -> object:
    return runs if isinstance(runs, str) else [told(diagnose(run, load_pack())) for run in runs]


def _only_less_sure(expected: object, result: object) -> bool:
    return isinstance(result, list) and [verdict for verdict, _ in result] == ["inconclusive"] and expected != result


def logs_in(paths: Iterable[str]) -> list[Path]:
    """Return the files among paths and below them whose records can be told apart here."""
    found: list[Path] = []
    for path in map(Path, paths):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in (file for file in files if file.suffix in SUFFIXES and file.name not in SETTINGS):
            try:
                held = len(read(file).records)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            if held >= 10:
                found.append(file)
    return found
