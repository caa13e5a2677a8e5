"""Columns of words that nobody knows: read where all together are a policy's training, and nowhere else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.request import Request
from ppo_doctor.trainers.guessing.inference import infer_columns
from ppo_doctor.trainers.guessing.relations import related

RECORDS = 100
AT = np.arange(RECORDS)


def noise(size, seed=0):
    return np.random.default_rng(seed).normal(size=RECORDS) * size


def update():
    """Return metric → numbers of a sound run: how far each update went is in its KL, its clipping and its ratios."""
    kl = 0.006 * np.exp(noise(0.5, 1))
    return {
        "episode_return": -150 + 1.4 * AT + noise(8, 2),
        "policy_loss": -0.4 * kl + noise(0.002, 3),
        "value_loss": 4 * np.exp(-AT / 40) * np.exp(noise(0.3, 4)),
        "entropy": np.log(6) - AT / 120 + noise(0.004, 5),
        "approx_kl": kl,
        "clip_fraction": np.clip(12 * kl + noise(0.01, 6), 0, 1),
        "ratio_abs_dev": 1.13 * np.sqrt(kl) * np.exp(noise(0.03, 7)),
        "explained_variance": 0.9 - 1.0 * np.exp(-AT / 20) * np.exp(noise(0.3, 4)) + noise(0.01, 8),
        "grad_norm": 0.4 * np.exp(noise(0.2, 9)),
        "learning_rate": np.full(RECORDS, 3e-4),
    }


def completions():
    """Return the same of groups of completions, without a critic."""
    held = update()
    far = np.r_[0.0, 0.9 * (1 - np.exp(-AT[1:] / 40))] * np.exp(noise(0.1, 11))
    reward = 0.2 + 0.8 * (1 - np.exp(-AT / 30)) + noise(0.01, 12)
    return {
        "reward_mean": reward,
        "reward_std": 0.2 + noise(0.01, 13),
        "policy_loss": 0.05 * far + noise(0.004, 14),
        "ref_kl": far,
        "approx_kl": np.abs(held["approx_kl"]) / 10,
        "clip_fraction": held["clip_fraction"] / 10,
        "entropy": 1.7 - AT / 70 + noise(0.004, 15),
        "grad_norm": held["grad_norm"],
        "learning_rate": held["learning_rate"],
    }


WORDS = {
    "episode_return": "acorns",
    "policy_loss": "thistle",
    "value_loss": "bramble",
    "entropy": "mist",
    "approx_kl": "wander",
    "clip_fraction": "hedge",
    "ratio_abs_dev": "sway",
    "explained_variance": "owl",
    "grad_norm": "gust",
    "learning_rate": "stride",
    "reward_mean": "acorns",
    "reward_std": "acorns_scatter",
    "ref_kl": "miles",
}


def read(columns, named=()):
    return {key: one.metric for key, one in infer_columns(columns, named, columns.keys()).items()}


def in_words(held):
    return {WORDS[metric]: values for metric, values in held.items()}


@pytest.mark.parametrize("held", [update(), completions()])
def test_nothing_is_read_wrongly_and_most_is_read(held):
    found = read(in_words(held))
    truth = {WORDS[metric]: metric for metric in held}
    assert {key: truth[key] for key in found} == found
    assert len(found) >= 2 * len(held) / 3


def test_a_log_without_a_policys_update_is_not_read():
    held = update()
    for lacking in (("entropy",), ("episode_return",), ("approx_kl", "clip_fraction", "ratio_abs_dev")):
        left = {metric: values for metric, values in held.items() if metric not in lacking}
        assert not {"entropy", "episode_return", "approx_kl"} <= set(read(in_words(left)).values())
    assert read(in_words({m: held[m] for m in ("episode_return", "entropy", "learning_rate", "grad_norm")})) == {}


def test_too_few_records_are_not_read():
    assert read({key: values[:12] for key, values in in_words(update()).items()}) == {}


def test_a_word_of_another_method_refuses_the_log():
    assert read({**in_words(update()), "perplexity": 5 + noise(1)}) == {}


def test_a_word_of_another_task_does_not_refuse_a_log_whose_names_are_a_policys():
    names = {
        "episode_return": "return",
        "approx_kl": "kl",
        "clip_fraction": "clip_frac",
        "policy_loss": "actor_loss",
        "value_loss": "critic_loss",
        "entropy": "dither",
    }
    columns = {names[metric]: values for metric, values in update().items() if metric in names}
    assert read({**columns, "perplexity": 5 + noise(1)})["dither"] == "entropy"


def test_a_name_that_goes_on_a_counters_is_no_statistic_of_it():
    columns = {**in_words(update()), "gather": np.arange(float(RECORDS)) + 1}
    columns["gather_score"] = columns.pop(WORDS["episode_return"])
    assert read(columns)["gather_score"] == "episode_return"


def test_units_and_signs_of_names():
    held = update()
    columns = {
        "R": held["episode_return"],
        "U": -held["policy_loss"],
        "H": held["entropy"],
        "D": held["approx_kl"],
        "Y%": 100 * held["clip_fraction"],
        "drho%": 100 * held["ratio_abs_dev"],
        "V%": 100 * held["explained_variance"],
        "lg": np.log10(held["grad_norm"]),
    }
    found = infer_columns(columns, (), columns.keys())
    ours = {"R": "episode_return", "H": "entropy", "D": "approx_kl", "Y%": "clip_fraction", "lg": "grad_norm"}
    assert ours.items() <= {key: one.metric for key, one in found.items()}.items()
    assert found["V%"].metric == "explained_variance"
    assert found["V%"].scale == 0.01
    assert found["lg"].antilog
    assert "U" not in found or found["U"].scale == -1.0


def test_columns_of_zeros_are_a_policy_that_stands_still_only_as_a_pair():
    held = completions()
    zero = np.zeros(RECORDS)
    still = {**held, "approx_kl": zero, "clip_fraction": zero}
    found = read(in_words(still))
    assert found[WORDS["approx_kl"]] == "approx_kl"
    assert found[WORDS["clip_fraction"]] == "clip_fraction"
    alone = read({**in_words(held), "faults": zero})
    assert "faults" not in alone


def test_the_root_of_a_kl_is_a_ratios_deviation_only_at_its_own_size():
    kl = update()["approx_kl"]
    near = related({"a": kl, "b": 1.13 * np.sqrt(kl)})
    far = related({"a": kl, "b": 0.02 * np.sqrt(kl)})
    assert ("b", "ratio_abs_dev") in near
    assert ("b", "ratio_abs_dev") not in far


def test_what_is_left_of_a_norm_and_the_term_of_a_kl_take_no_metrics_place():
    held = completions()
    norm, far = held["grad_norm"], held["ref_kl"]
    columns = in_words(held) | {"gust_used": np.minimum(norm, 0.4), "miles_cost": 0.04 * far}
    found = read(columns)
    assert found["gust"] == "grad_norm"
    assert "gust_used" not in found
    assert found["miles_cost"] == "kl_term"
    assert found["miles"] == "ref_kl"


def test_a_log_is_read_and_says_that_it_was_guessed(tmp_path):
    columns = in_words(completions())
    rows = ({"dawn": n} | {key: float(values[n]) for key, values in columns.items()} for n in range(RECORDS))
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (run,) = read_runs(str(path), Request())
    assert run.inferred["acorns"] == "reward_mean"
    assert run.series["entropy"].raw == "mist"


def test_prose_is_read_with_the_steps_that_were_planned(tmp_path):
    held = update()
    lines = (
        f"[lap {n}] the keeper's score was {held['episode_return'][n]:.2f} on average over 8 tries (worst"
        f" {held['episode_return'][n] - 9:.2f}, best {held['episode_return'][n] + 7:.2f}).\n"
        f"[lap {n}] did 2 of 16 pushes, actor woe {held['policy_loss'][n]:.5f}, critic woe {held['value_loss'][n]:.4f},"
        f" critic's sight {held['explained_variance'][n]:.3f}.\n"
        f"[lap {n}] went {held['approx_kl'][n]:.6f} nats, {100 * held['clip_fraction'][n]:.2f}% of samples held back,"
        f" haze at {held['entropy'][n]:.4f}.\n"
        for n in range(RECORDS)
    )
    path = tmp_path / "out.log"
    path.write_text("".join(lines), encoding="utf-8")
    (run,) = read_runs(str(path), Request())
    ours = {"approx_kl", "clip_fraction", "policy_loss", "value_loss", "explained_variance", "optimizer_steps"}
    assert ours <= run.inferred.keys() | set(run.inferred.values())
    assert run.series["clip_fraction"].values.max() <= 1
    assert run.config["updates_per_batch"].value == 16


def falling(start, end, seed, pace=25):
    return end + (start - end) * np.exp(-AT / pace) + np.abs(noise(0.02 * start, seed))


#: logs of other kinds: what each column is, and its numbers
OTHERS = {
    "a classifier": [falling(2.3, 0.1, 1), 1 - falling(0.9, 0.05, 2), np.full(RECORDS, 1e-3), np.exp(noise(0.3, 3))],
    "a classifier, validated": [
        falling(2.3, 0.1, 1),
        falling(2.3, 0.3, 2),
        1 - falling(0.9, 0.05, 3),
        1 - falling(0.9, 0.1, 4),
        np.full(RECORDS, 1e-3),
    ],
    "a language model": [falling(10, 2.8, 1), np.exp(falling(3, 1, 2)), 3e-4 * (1 - AT / 100), np.exp(noise(0.3, 3))],
    "prices": [100 * np.exp(np.cumsum(noise(0.01, n))) for n in range(4)] + [np.exp(14 + noise(0.3, 9))],
    "deep Q-learning": [-200 + 2 * AT + noise(30, 1), np.maximum(1 - AT / 60, 0.05), np.abs(noise(0.3, 2)), 0.3 * AT],
    "a machine": [np.clip(50 + noise(20, n), 0, 100) for n in range(3)] + [np.zeros(RECORDS), np.zeros(RECORDS)],
    "two networks against each other": [
        0.69 + noise(0.1, 1),
        1.2 + noise(0.3, 2),
        np.clip(0.6 + noise(0.1, 3), 0, 1),
        np.clip(0.4 + noise(0.1, 4), 0, 1),
        np.full(RECORDS, 2e-4),
    ],
    "an autoencoder": [falling(130, 30, 1), np.minimum(0.3 * AT, 20) + np.abs(noise(0.3, 2)), np.minimum(AT / 50, 1)],
    "an evolution strategy": [-200 + 1.5 * AT + noise(10, n) for n in range(3)] + [0.1 * 0.99**AT],
    "a sampler of a posterior": [
        -300 + noise(2, 1),
        np.clip(0.65 + noise(0.08, 2), 0, 1),
        falling(0.1, 0.02, 3),
        np.zeros(RECORDS),
    ],
    "weather": [15 + 8 * np.sin(AT / 15) + noise(1, 1), np.clip(60 + noise(10, 2), 0, 100), np.abs(noise(5, 3))],
    "distillation": [
        falling(2, 0.2, 1),
        falling(0.5, 0.02, 2),
        falling(2.2, 0.2, 3, 50),
        1 - falling(0.7, 0.05, 4),
        np.full(RECORDS, 1e-3),
        np.exp(noise(0.3, 5)),
    ],
    "a bandit": [np.cumsum(np.abs(noise(1, 1))), 0.5 + 0.003 * AT + noise(0.1, 2), np.full(RECORDS, 0.1)],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_logs_of_other_kinds_are_refused(kind):
    words = list(dict.fromkeys(WORDS.values()))
    assert read(dict(zip(words, OTHERS[kind], strict=False))) == {}
    letters = [f"{letter}{letter}" for letter in "qwxzjyk"]
    assert read(dict(zip(letters, OTHERS[kind], strict=False))) == {}


@pytest.mark.parametrize(
    ("name", "start", "sign"), [("cost_move", 150, -1), ("gain_move", 150, 1), ("cost_move", -150, 1)]
)
def test_a_cost_that_is_logged_for_the_return_has_its_sign_turned(name, start, sign):
    told = update()
    told["episode_return"] = start - 1.0 * AT + noise(8, 2) if start > 0 else start + 1.0 * AT + noise(8, 2)
    columns = {name: np.abs(told["episode_return"]) * np.sign(start)}
    columns |= {"pi_loss": told["policy_loss"], "crit_mse": told["value_loss"], "dkl": told["approx_kl"]}
    columns |= {"snip": told["clip_fraction"], "ent": told["entropy"], "pull": told["grad_norm"]}
    found = infer_columns(columns, (), columns)[name]
    assert (found.metric, found.scale) == ("episode_return", sign)
