"""What hot paths cost, counted: bytes read, parses, memory, packs loaded. Nothing here is timed."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest

import ppo_doctor
from ppo_doctor import arrays, compiled, derive, engine, frameworks, readers, rulepack
from ppo_doctor.cli.judge import judge_runs
from ppo_doctor.derive import outcome
from ppo_doctor.diagnose import accounts
from ppo_doctor.model import Run
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.readers.source import Source
from ppo_doctor.rulepack import Pack, load_pack
from ppo_doctor.sources import RunSource
from ppo_doctor.table import Table
from tests.call_counts import calls_of

NAMES = ["policy_loss", "value_loss", "entropy", "approx_kl", "learning_rate", "episode_return"]
FURTHER = [f"extra/number_{i}" for i in range(34)]
RECORDS = 20_000


def lines(records: int, keys: list[str], nan_every: int = 0) -> list[str]:
    """Return records as JSON Lines; every so many hold a NaN."""
    chance = np.random.default_rng(0)
    rows = chance.random((records, len(keys)))
    if nan_every:
        rows[::nan_every, 0] = np.nan
    return [json.dumps({"step": i, **dict(zip(keys, row, strict=True))}) for i, row in enumerate(rows.tolist())]


class Counting(io.BytesIO):
    """A file that counts what is read of it, and cannot be read again."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self.taken += len(block)
        return block

    def seek(self, *_: object) -> int:
        raise AssertionError("read again")


JSONL = "\n".join(lines(3_000, NAMES)) + "\n"
CSV = "\n".join([",".join(NAMES), *(",".join(["0.25"] * len(NAMES)) for _ in range(9_000))]) + "\n"
CONSOLE = "".join(f"{{'loss': 0.{i}, 'grad_norm': 1.5, 'epoch': 0.1}}\n" for i in range(100, 3_000))


@pytest.mark.parametrize("text", [JSONL, CSV, CONSOLE], ids=["jsonl", "csv", "console"])
def test_every_byte_is_read_once(text):
    stream = Counting(text.encode())
    _, items = readers.read_source(Source("log", stream))
    assert sum(len(item.records) for item in items if isinstance(item, Table)) > 2_000
    assert stream.taken == len(text.encode())


@pytest.mark.parametrize(("nan_every", "most"), [(0, 1.0), (10, 1.2)])
def test_a_line_is_parsed_once_and_one_with_nan_once_more(monkeypatch, nan_every, most):
    held = lines(2_000, NAMES, nan_every)
    parsed = Counter()
    loads = orjson.loads

    def counted(line: bytes) -> object:
        parsed["lines"] += 1
        return loads(line)

    slow = json.loads
    monkeypatch.setattr(orjson, "loads", counted)
    monkeypatch.setattr("json.loads", lambda *a, **k: parsed.update(["lenient"]) or slow(*a, **k))
    source = Source("log", io.BytesIO("\n".join(held).encode()))
    read = sum(len(item.records) for item in readers.read_source(source)[1] if isinstance(item, Table))
    assert read == 2_000
    assert parsed["lines"] <= most * 2_000 + 65  # sixty to tell the container
    assert (
        parsed["lenient"] < 20
    )  # the first of a layout, the first with NaN, those that tell the container and hold NaN


def test_a_long_log_keeps_the_columns_that_mean_something(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(lines(RECORDS, NAMES + FURTHER)), encoding="utf-8")
    read_run(str(log), Request())  # imports, names of frameworks
    tracemalloc.start()
    run = read_run(str(log), Request())
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert set(run.series) == set(NAMES)
    assert set(run.unknown_keys) == set(FURTHER)
    column = 8 * RECORDS
    assert held < column * (len(NAMES) + 2) * 1.3 + 500_000
    # Every column of 16,384 records at once, packed and turned, and the kept ones twice while they are put in order.
    assert peak < 2.3 * 8 * 16_384 * (len(NAMES) + len(FURTHER) + 3) + 2.5 * column * (len(NAMES) + 2) + 2_000_000


def test_whatever_a_framework_maps_is_kept():
    for profile in frameworks.profiles().values():
        named = {key for metric in profile.metrics.values() for key in metric.keys}
        named |= {key for keys in profile.axis.values() for key in keys}
        plain = frozenset(key.replace("*", "x") for key in named)
        assert frameworks.meaningful(plain | {"extra/number_1"}) == plain


def test_a_short_log_and_a_long_one_give_the_same_series(tmp_path):
    held = lines(1_500, NAMES + FURTHER)
    short, long = tmp_path / "short.jsonl", tmp_path / "long.jsonl"
    short.write_text("\n".join(held[:900]), encoding="utf-8")
    long.write_text("\n".join(held), encoding="utf-8")
    one, other = read_run(str(short), Request()), read_run(str(long), Request())
    assert one.unknown_keys == other.unknown_keys
    assert {name: series.values.tolist() for name, series in one.series.items()} == {
        name: series.values[:900].tolist() for name, series in other.series.items()
    }


def test_rules_are_loaded_once_for_many_runs(tmp_path, monkeypatch):
    logs = [tmp_path / f"{i}.jsonl" for i in range(3)]
    for log in logs:
        log.write_text("\n".join(lines(60, NAMES)), encoding="utf-8")
    rulepack._alone.cache_clear()
    loaded: list[str] = []
    load = compiled.load
    monkeypatch.setattr(rulepack, "load", lambda kind, *rest: loaded.append(kind) or load(kind, *rest))
    judged = list(judge_runs([RunSource(logs=(str(log),)) for log in logs], [], Request(), load_pack()))
    assert len(judged) == 3
    assert loaded == ["rules"]


def test_the_levels_of_the_reward_are_computed_once(tmp_path, monkeypatch):
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(lines(600, NAMES)), encoding="utf-8")
    run, pack = ppo_doctor.load_run(log), load_pack()
    asked: list[int] = []
    levels = outcome.Levels
    monkeypatch.setattr(outcome, "Levels", lambda values, *more: asked.append(len(values)) or levels(values, *more))
    diagnose(run, pack)
    assert len(asked) == 1


def test_judging_makes_no_copy_of_the_run(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(lines(RECORDS, NAMES)), encoding="utf-8")
    run, pack = ppo_doctor.load_run(log), load_pack()
    diagnose(run, pack)
    tracemalloc.start()
    diagnose(run, pack)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 8 * RECORDS + 2_000_000  # ten columns, of which derived series are seven, beside the findings


def judged(tmp_path: Path, records: int) -> tuple[Run, Pack]:
    """Return a run of some records, judged once: what is kept from run to run is kept by then."""
    log = tmp_path / f"{records}.jsonl"
    log.write_text("\n".join(lines(records, [*NAMES, "clip_fraction", "explained_variance", "grad_norm"])))
    run, pack = ppo_doctor.load_run(log), load_pack()
    diagnose(run, pack)
    return run, pack


@pytest.mark.parametrize(("few", "many", "each"), [(100, 390, 8.0), (2_000, 8_000, 0.05)])
def test_judging_loops_over_no_records(tmp_path, few, many, each):
    """A loop over records, windows or tails in Python shows as calls; long series are thinned to 200 points first."""
    short, long = (calls_of(partial(diagnose, *judged(tmp_path, size))) for size in (few, many))
    assert long - short < each * (many - few) + 1_000  # which rules fire makes a few hundred


@pytest.mark.parametrize("records", [390, 3_000])
def test_order_statistics_are_few_and_over_a_bounded_number_of_values(tmp_path, monkeypatch, records):
    run, pack = judged(tmp_path, records)
    asked: list[int] = []
    neighbours, sort = arrays._neighbours, np.sort
    monkeypatch.setattr(arrays, "_neighbours", lambda v, low: asked.append(len(v)) or neighbours(v, low))
    monkeypatch.setattr(np, "sort", lambda v, *a, **k: asked.append(v.size) or sort(v, *a, **k))
    diagnose(run, pack)
    assert len(asked) < len(run.series) * 15
    # Ten series, some of them asked by ten quantities; windows of twenty of them count each value twenty times.
    assert sum(asked) < len(run.series) * 15 * records


def test_each_quantity_is_computed_once_in_a_diagnosis(tmp_path, monkeypatch):
    run, pack = judged(tmp_path, 390)
    asked: Counter[str] = Counter()
    function = derive._function
    monkeypatch.setattr(derive, "_function", lambda name: asked.update([name]) or function(name))
    diagnose(run, pack)
    assert len(asked) > 100
    assert set(asked.values()) == {1}


def test_what_a_log_lacks_is_worded_once_for_all_runs(tmp_path, monkeypatch):
    run, pack = judged(tmp_path, 60)
    made: list[str] = []
    finding = engine._finding
    monkeypatch.setattr(engine, "_finding", lambda rule, status, **k: made.append(status) or finding(rule, status, **k))
    coverage = diagnose(run, pack).coverage
    assert coverage.skipped > 100
    assert len(made) - made.count("skipped") == coverage.evaluated
    assert made.count("skipped") < 20  # those whose values are too few, told anew each time


def test_ledgers_are_put_in_words_for_causes_that_are_shown(tmp_path, monkeypatch):
    run, pack = judged(tmp_path, 390)
    worded: list[str] = []
    entry = accounts._entry
    monkeypatch.setattr(accounts, "_entry", lambda line: worded.append(line.finding.rule) or entry(line))
    told = diagnose(run, pack)
    assert len(worded) == sum(len(cause.ledger) for cause in told.causes)
