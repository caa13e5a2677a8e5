"""Records of methods outside the PPO family are left out of a file that holds those of PPO as well."""

import json

import pytest

from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.reading import Request

QUEUE = [f"step {800 * n} | ret {-90 + n}.5 | td_err 0.0{n + 10} | q -{n}.25 | eps 0.{99 - n}" for n in range(1, 21)]
POLICY = [
    f"step {640 * n} | ret {-80 + 2 * n + n % 3}.5 | pi_loss -0.00{n % 7 + 1} | v_loss 0.{90 - n} | entropy 1.{60 - n}"
    f" | kl 0.00{n % 5 + 3} | clipfrac 0.0{n % 4 + 5}"
    for n in range(1, 31)
]


def with_algo(lines, name):
    return [line.replace(" | ret", f" | algo {name} | ret") for line in lines]


def the_run(path):
    (source,), _ = gather([str(path)])
    (run,) = runs_of(source, Request())
    return run


@pytest.mark.parametrize(
    "lines",
    [
        ["== DQN ==", *QUEUE, "== PPO ==", *POLICY],
        ["== PPO ==", *POLICY, "== DQN ==", *QUEUE],
        [*with_algo(QUEUE, "DQN"), *with_algo(POLICY, "PPO")],
        [line for pair in zip(with_algo(QUEUE, "DQN"), with_algo(POLICY, "PPO"), strict=False) for line in pair],
    ],
    ids=["headed", "headed, PPO first", "a word in each line", "line by line in turn"],
)
def test_lines_of_another_method_are_left_out_and_told(tmp_path, lines):
    path = tmp_path / "compare.log"
    path.write_text("\n".join(lines) + "\n")
    run = the_run(path)
    assert "values_mean" not in run.series
    assert run.series["episode_return"].values.max() < 2 * 30
    assert len(run.series["episode_return"]) == sum("pi_loss" in line for line in lines)
    assert any("DQN" in note.text and note.kind == "said" for note in run.notes)


def test_rows_of_another_method_are_left_out_by_their_column(tmp_path):
    rows = [{"algo": "sac", "step": 100 * n, "return": n / 3, "critic_loss": 1 / n} for n in range(1, 20)]
    rows += [
        {
            "algo": "ppo",
            "step": 100 * n,
            "return": n + n % 4,
            "policy_loss": -0.01 / n,
            "entropy": 2 - n / 40,
            "approx_kl": 0.01 + n / 9999,
        }
        for n in range(1, 26)
    ]
    path = tmp_path / "both.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = the_run(path)
    assert {len(series) for series in run.series.values()} == {25}


def test_a_heading_that_names_another_method_above_records_of_ppo_takes_nothing(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("\n".join(["== PPO ==", *POLICY[:10], "-- compared with DQN --", *POLICY[10:]]) + "\n")
    assert len(the_run(path).series["episode_return"]) == len(POLICY)
