"""Tables of consoles: a header that comes once, grids, two columns without rules, a CSV file among words."""

from __future__ import annotations

import pytest

from ppo_doctor.diagnosis.analyze import load_run

ELEGANT = (
    "ID     Step    Time |    avgR   stdR   avgS  stdS |    expR   objC   objA   etc.\n"
    "-1 2.05e+03       9 | -120.74    3.0     60     0 |   -2.84   6.06  -0.22   6.76\n"
    "-1 4.10e+03      17 |  -83.51    5.2     60     0 |  -16.39  10.68   0.14   6.79\n"
    "| Save the actor\n"
    "-1 6.14e+03      28 |  -55.76   16.7     60     0 |  -16.39  11.75   0.15   6.77\n"
)


def test_rows_below_a_header_that_comes_once(reading):
    got = reading("| `avgR`: Average value of rewards.\n" + "#" * 80 + "\n" + ELEGANT)
    assert [record["avgR"] for record in got.records] == [-120.74, -83.51, -55.76]
    assert [record["Step"] for record in got.records] == [2050, 4100, 6140]
    assert got.records[0]["etc."] == 6.76


def test_columns_set_with_tabs(reading):
    got = reading("Iteration\tMeanReward\tKL\n1\t-3.5\t0.1\nsaved\n2\t-3\tnan\n")
    assert [record["MeanReward"] for record in got.records] == [-3.5, -3]


def test_a_message_of_as_many_words_is_no_header(reading):
    got = reading(ELEGANT + "one more word than there should be here now stop it\n" + ELEGANT.splitlines()[1] + "\n")
    assert len(got.records) == 4
    assert {record["avgR"] for record in got.records} == {-120.74, -83.51, -55.76}


@pytest.mark.parametrize(
    "text",
    [
        "Confusion matrix of test\n3 4 5 6\n1 2 3 4\n" * 3,
        "loss  kl  ent\n 0.1 0.2 0.3\n",
        "Loaded 7 files in 0.5 seconds\nEpoch 3 took 12.5 s\nprocessed batch 3 took 0.25\n" * 5,
        "files        120\nfree         30\nscanned\n" * 4,
        "numpy        1.26\nwheel        0.42\nsix          1.16\n",
        "Conv2d-1     [-1, 6, 28, 28]   156\nReLU-2       [-1, 6, 28, 28]    0\n" * 3,
        "Downloading numpy-1.26.4.whl (18.3 MB)\n     ---- 18.3/18.3 MB 10.2 MB/s eta 0:00:00\n" * 4,
        "[ 12%] Building C object x.c.o\nx.c:3:12: warning: unused variable 'a'\n" * 4,
        "usb 1-1: new high-speed device number 3\n" * 4,
    ],
)
def test_what_is_no_table_of_metrics(reading, text):
    assert reading(text).records == []


def grid(names, values):
    rule = "+" + "+".join("-" * 14 for _ in names) + "+"
    rows = ("|" + "|".join(f" {cell:<12} " for cell in cells) + "|" for cells in (names, values))
    return "\n".join([rule, next(rows), rule, next(rows), rule, ""])


def test_a_grid_is_a_record_and_goes_on_below_itself(reading):
    text = "".join(
        f"[05-14 17:31:12] INFO === Training Iteration {n} ===\n"
        + grid(["Name", "cur_lr", "total_loss"], ["Value", "0.0003", f"0.{n}"])
        + grid(["Name", "entropy", "kl"], ["Value", "0.69", f"0.0{n}"])
        for n in (1, 2)
    )
    got = reading(text)
    assert [(r["cur_lr"], r["total_loss"], r["entropy"], r["kl"]) for r in got.records] == [
        (0.0003, 0.1, 0.69, 0.01),
        (0.0003, 0.2, 0.69, 0.02),
    ]


def test_a_grid_of_many_rows_is_as_many_records(reading):
    lines = grid(["epoch", "reward", "kl"], ["1", "-3", "0.1"]).splitlines()
    got = reading("\n".join([*lines[:4], lines[3].replace("1", "2"), lines[4], "done"]) + "\n")
    assert got.records == [{"epoch": 1, "reward": -3, "kl": 0.1}, {"epoch": 2, "reward": -3, "kl": 0.2}]


def test_a_rule_of_a_grid_may_stand_between_pipes(reading):
    top, header, _, row, bottom = grid(["Trial name", "iter", "reward"], ["PPO_1", "3", "-2.5"]).splitlines()
    table = "\n".join([top, header, top.replace("+", "|", 1)[:-1] + "|", row, bottom, "running", ""])
    assert reading(table * 2).records == [{"iter": 3, "reward": -2.5}] * 2


def test_a_panel_is_no_grid(reading):
    rule, panel = "+" + "------------+" * 3, "| GPU  Name   | Bus-Id  Disp | 3 |\n|   0  A100   | 00:04.0      | 0 |"
    assert reading(f"{rule}\n{panel}\n{rule}\n" * 3).records == []


def test_a_row_of_a_grid_with_too_few_cells_is_skipped(reading):
    lines = grid(["epoch", "reward", "kl"], ["1", "-3", "0.1"]).splitlines()
    got = reading("\n".join([*lines[:3], "| 1 | 2 |", *lines[3:]]) + "\n")
    assert got.records == [{"epoch": 1, "reward": -3, "kl": 0.1}]
    assert got.skipped == 1


def test_two_columns_without_rules_are_a_table_where_they_come_again(reading):
    head = "2026-11-23 15:50:0{n} | [trainer] epoch #{n} | Optimizing policy...\n"
    block = head + "Policy/KL    0.0{n}\nLossAfter    -1e-{n}\nSteps   {n}00\n"
    got = reading("".join(block.format(n=n) for n in (1, 2, 3)))
    assert got.records == [{"Policy/KL": n / 100, "LossAfter": -(10.0**-n), "Steps": n * 100} for n in (1, 2, 3)]


def test_a_frame_that_pandas_prints_numbers_its_rows(reading):
    got = reading(
        "   step  reward      kl\n0    10     1.5   0.010\n1    20     2.5   0.012\n2    30     3.5   0.011\n"
    )
    assert got.records == [
        {"step": 10, "reward": 1.5, "kl": 0.010},
        {"step": 20, "reward": 2.5, "kl": 0.012},
        {"step": 30, "reward": 3.5, "kl": 0.011},
    ]


def test_a_table_in_a_quotation(reading):
    table = "-----------------------\n| approx_kl  | 0.01  |\n| value_loss | 2.5   |\n-----------------------\n"
    got = reading("".join(f"> {line}\n" for line in table.splitlines()) * 2)
    assert got.records == [{"approx_kl": 0.01, "value_loss": 2.5}] * 2


GROUPS = (
    "  It |   Bel   ±Bel  hit%  proef | rho^   clip‰ |   |g|  H[bit] n |sig\n"
    "   2 | 0.532  0.344    3%    2.4 | 1.70    13.1 |  0.59   0.859 40 |0.7\n"
    "   4 | 0.541  0.342    4%      . | 1.73     4.2 |  0.59   0.819 40 |0.6\n"
)


def test_bars_between_groups_of_columns_set_a_table(reading):
    got = reading(GROUPS)
    assert [record["±Bel"] for record in got.records] == [0.344, 0.342]
    assert [record.get("proef") for record in got.records] == [2.4, None]
    assert [record["‖g‖"] for record in got.records] == [0.59, 0.59]
    assert [record["sig"] for record in got.records] == [0.7, 0.6]
    assert [record["hit%"] for record in got.records] == [3, 4]


TABLE = """It does not learn, see below.

```csv
step,ep_rew_mean,approx_kl,entropy_loss
1,-200.0,,
2,-199.5,0.0031,-1.09
3,-198.0,0.0042,-1.08
4,-197.0,0.0040,-1.07
```

Any idea?
"""


def test_a_csv_file_pasted_among_words_is_read_with_its_empty_cells(tmp_path):
    (tmp_path / "question.md").write_text(TABLE)
    run = load_run(tmp_path)
    assert run.series["episode_return"].values.tolist() == [-200.0, -199.5, -198.0, -197.0]
    assert run.series["approx_kl"].values.tolist() == [0.0031, 0.0042, 0.0040]
