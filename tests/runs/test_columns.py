"""Logs of one-file scripts with names of their own, from their text to the report."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ppo_doctor.diagnosis.analyze import analyze, load_run, read_run
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.report import RenderOptions, render

RECORDS = 120


def course(**changed):
    """Return metric → numbers of a sound run of three actions, with what a fault changes."""
    at, draw = np.arange(RECORDS), np.random.default_rng(7)
    learned = 1 / (1 + np.exp((50 - at) / 12))
    return {
        "ret": -180 + 170 * learned + draw.normal(size=RECORDS) * 8,
        "pl": draw.normal(size=RECORDS) * 0.006 - 0.012,
        "vl": 60 * np.exp(-at / 40) + 3 + np.abs(draw.normal(size=RECORDS)),
        "ent": math.log(3) - 0.7 * learned + draw.normal(size=RECORDS) * 0.004,
        "kl": np.abs(0.008 + draw.normal(size=RECORDS) * 0.003),
        "cf": np.clip(0.11 + draw.normal(size=RECORDS) * 0.03, 0, 1),
        "ratio": 1 + draw.normal(size=RECORDS) * 0.0015,
        "lr": 3e-4 * (1 - at / RECORDS),
        "none": draw.normal(size=RECORDS),
    } | changed


def symbols(held):
    return {
        "G": held["ret"],
        "La": held["pl"],
        "Lc": held["vl"],
        "Ent2": held["ent"] / math.log(2),
        "cf%": 100 * held["cf"],
        "rho-1": held["ratio"] - 1,
        "dKL": held["kl"],
        "zz": held["none"],
    }


def gains(held):
    return {
        "R̄": held["ret"],
        "J_π": -held["pl"],
        "v_err": held["vl"],
        "H": held["ent"],
        "η": held["lr"],
        "KL_post": held["kl"],
    }


def words(held):
    return {
        "回报": held["ret"],
        "策略误差": held["pl"],
        "价值误差": held["vl"],
        "熵": held["ent"],
        "KL散度": held["kl"],
    }


def jsonl(path, columns):
    records = zip(*columns.values(), strict=True)
    path.write_text("".join(f"{json.dumps(dict(zip(columns, row, strict=True)))}\n" for row in records))
    return str(path)


def csv(path, columns):
    lines = [
        ",".join(columns),
        *(",".join(f"{cell:.6g}" for cell in row) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def console(path, columns):
    rows = zip(*columns.values(), strict=True)
    lines = (" | ".join(f"{k}: {v:.6g}" for k, v in zip(columns, row, strict=True)) for row in rows)
    path.write_text("".join(f"[iter {i}] {line}\n" for i, line in enumerate(lines)), encoding="utf-8")
    return str(path)


def test_symbols_are_read_in_our_units(tmp_path):
    held = course()
    run = load_run(jsonl(tmp_path / "log.jsonl", symbols(held)))
    read = {name: series.raw for name, series in run.series.items()}
    assert read == {
        "episode_return": "G",
        "policy_loss": "La",
        "value_loss": "Lc",
        "entropy": "Ent2",
        "approx_kl": "dKL",
        "clip_fraction": "cf%",
        "ratio_mean": "rho-1",
    }
    for name, of in (("clip_fraction", "cf"), ("ratio_mean", "ratio"), ("entropy", "ent")):
        assert run.series[name].values == pytest.approx(held[of])
    assert run.not_understood == ("zz",)
    assert run.inferred.keys() >= {"G", "La", "Lc", "cf%", "dKL"}
    assert {run.keys[key] for key in run.inferred} == {"guessed"}


@pytest.mark.parametrize("written", [csv, console, jsonl])
def test_a_gain_is_a_loss_with_its_sign_turned(tmp_path, written):
    held = course()
    run = load_run(written(tmp_path / f"log.{'csv' if written is csv else 'log'}", gains(held)))
    assert run.series["policy_loss"].values == pytest.approx(held["pl"], rel=1e-4)
    assert run.series["learning_rate"].raw == "η"
    assert run.series["probe_kl"].raw == "KL_post"


def test_a_reward_of_every_tenth_iteration_is_read(tmp_path):
    columns = symbols(course())
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    kept = [row if i % 10 == 0 else {k: v for k, v in row.items() if k != "G"} for i, row in enumerate(rows)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    assert len(load_run(path).series["episode_return"]) == RECORDS // 10


def test_chinese_words_are_read_like_english_ones(tmp_path):
    run = load_run(csv(tmp_path / "log.csv", words(course())))
    assert {"episode_return", "policy_loss", "value_loss", "entropy", "approx_kl"} == run.series.keys()


def test_a_guess_proves_nothing(tmp_path):
    still = np.zeros(RECORDS)
    noise = 1e-8 * course()["none"]
    frozen = course(kl=still, cf=still, ratio=still + 1, ent=still + math.log(3), pl=noise, ret=still - 180)
    told = analyze(jsonl(tmp_path / "log.jsonl", symbols(frozen)))
    assert told.causes
    assert "established" not in {cause.confidence for cause in told.causes}


def test_the_screen_names_what_was_inferred_and_what_was_not_understood(tmp_path):
    path = jsonl(tmp_path / "log.jsonl", symbols(course()))
    page = render(analyze(path), read_run(path, Request()), RenderOptions(width=100, color=False), "text")
    words_ = " ".join(page.split())
    assert "G = episode_return" in words_
    assert "1 column not understood: zz" in words_
    assert len(page.splitlines()) <= 24


def test_the_option_that_names_a_column_is_quoted_for_a_shell(tmp_path):
    told = analyze(jsonl(tmp_path / "log.jsonl", {"Total Zz": np.full(RECORDS, 0.5)} | symbols(course())))
    page = " ".join(render(told, None, RenderOptions(width=100, color=False), "text").split())
    assert "--alias 'Total Zz=METRIC'" in page


def test_many_columns_are_cut_to_a_few_names(tmp_path):
    columns = symbols(course()) | {f"zq{'x' * n}": np.full(RECORDS, 0.5) for n in range(1, 40)}
    told = analyze(jsonl(tmp_path / "log.jsonl", columns))
    page = render(told, None, RenderOptions(width=100, color=False), "text")
    assert len(told.run.not_understood) == 40
    assert len(page.splitlines()) <= 24


def test_hostile_names_do_not_reach_the_terminal(tmp_path):
    columns = symbols(course()) | {"z\u001b[31mz\u0007": np.full(RECORDS, 0.5)}
    page = render(analyze(jsonl(tmp_path / "log.jsonl", columns)), None, RenderOptions(color=False), "text")
    assert "\u001b" not in page
    assert "\u0007" not in page


OTHERS = (
    {"G": "ret", "L": "vl", "eps": "lr"},
    {"R": "ret", "Lq1": "vl", "Lpi": "pl", "H": "ent"},
    {"O": "vl", "H": "vl", "L": "vl", "C": "vl", "V": "vl"},
)


@pytest.mark.parametrize("columns", OTHERS)
def test_a_log_of_something_else_stays_refused(tmp_path, columns):
    with pytest.raises(DoctorError, match="no metric"):
        load_run(jsonl(tmp_path / "log.jsonl", {key: course()[metric] for key, metric in columns.items()}))


def test_a_known_trainers_further_columns_are_its_tasks(tmp_path):
    columns = {"train/approx_kl": course()["kl"], "train/clip_fraction": course()["cf"], "train/n_updates": 0}
    columns |= {"rollout/ep_rew_mean": course()["ret"], "G": course()["ret"], "train/std": course()["cf"]}
    columns = {key: np.broadcast_to(values, RECORDS) for key, values in columns.items()}
    run = load_run(jsonl(tmp_path / "log.jsonl", {key: values.tolist() for key, values in columns.items()}))
    assert (run.inferred, run.not_understood) == ({}, ())


def test_a_known_trainers_columns_of_costs_are_told_as_unread(tmp_path):
    columns = {
        "train/approx_kl": course()["kl"],
        "train/clip_fraction": course()["cf"],
        "rollout/ep_rew_mean": course()["ret"],
    }
    columns |= {"rollout/ep_cost_mean": course()["ret"], "rollout/ep_zz": course()["ret"]}
    run = load_run(jsonl(tmp_path / "log.jsonl", {key: values.tolist() for key, values in columns.items()}))
    assert run.not_understood == ("rollout/ep_cost_mean",)


def test_a_long_log_keeps_the_columns_that_its_others_explain(tmp_path):
    columns = {key: np.tile(values, 10) for key, values in symbols(course()).items()}
    assert load_run(jsonl(tmp_path / "log.jsonl", columns)).series["value_loss"].raw == "Lc"


def test_chinese_sentences_of_a_console_are_read(tmp_path):
    columns = words(course())
    rows = zip(*columns.values(), strict=True)
    lines = ("，".join(f"{k}：{v:.6g}" for k, v in zip(columns, row, strict=True)) for row in rows)
    path = tmp_path / "train.log"
    path.write_text("".join(f"第{i}轮，{line}\n" for i, line in enumerate(lines)), encoding="utf-8")
    run = load_run(path)
    assert {"episode_return", "policy_loss", "value_loss", "entropy", "approx_kl"} == run.series.keys()
    assert len(run.series["entropy"]) == RECORDS


@pytest.mark.parametrize(("grows", "metric"), [(0, "optimizer_steps_total"), (10, None)])
def test_a_count_of_updates_is_one_of_steps_where_it_stands_at_0_alone(tmp_path, grows, metric):
    """One that grows may count passes, or rollouts."""
    rows = [f"{i},{i / 7:.4f},-0.0{i},0.5,0.01,1.0,{grows * i}" for i in range(1, 10)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["iter,ep_return,policy_loss,value_loss,approx_kl,entropy,n_updates", *rows]))
    held = {series.raw: name for name, series in load_run(path).series.items()}
    assert held.get("n_updates") == metric


def test_a_column_of_step_sizes_is_a_learning_rate_and_no_clock(tmp_path):
    held = course()
    columns = symbols(held) | {"step": held["lr"]}
    run = load_run(jsonl(tmp_path / "log.jsonl", columns))
    assert run.series["learning_rate"].raw == "step"
    assert run.series["episode_return"].values == pytest.approx(held["ret"])  # and the log is not turned about


@pytest.mark.parametrize(("counts", "metric"), [([8.0], "optimizer_steps"), ([1.0, 3.0, 2.0], "optimizer_steps")])
def test_steps_that_do_not_grow_are_those_of_a_batch(tmp_path, counts, metric):
    columns = {"iter": np.arange(float(RECORDS)), "approx_kl": course()["kl"], "G": course()["ret"]}
    run = load_run(jsonl(tmp_path / "log.jsonl", columns | {"steps": np.resize(counts, RECORDS)}))
    assert run.series[metric].raw == "steps"


@pytest.mark.parametrize(
    "counts", [np.arange(float(RECORDS)), np.full(RECORDS, 2048.0), np.linspace(20.5, 90.25, RECORDS)]
)
def test_other_steps_count_no_updates(tmp_path, counts):
    columns = {"iter": np.arange(float(RECORDS)), "approx_kl": course()["kl"], "G": course()["ret"]}
    assert "optimizer_steps" not in load_run(jsonl(tmp_path / "log.jsonl", columns | {"steps": counts})).series
