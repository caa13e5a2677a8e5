"""Columns of what takes turns, as one column."""

from __future__ import annotations

import numpy as np

from ppo_doctor.readers.table import Table, of_several


def table(first: int, **columns: float) -> Table:
    at = np.array([first])
    return Table(
        path="log",
        records=at,
        lines=at + 1,
        columns={name: np.array([value]) for name, value in columns.items()},
        decimals=dict.fromkeys(columns, 1),
    )


def test_environments_that_take_turns_have_one_column() -> None:
    found = of_several([table(0, step=1, reward_env_0=5), table(1, step=2, reward_env_3=7), table(2, step=3, loss=1)])
    assert [sorted(each.columns) for each in found] == [
        ["reward_env", "step"],
        ["reward_env", "step"],
        ["loss", "step"],
    ]
    assert found[1].decimals == {"step": 1, "reward_env": 1}


def test_what_one_record_holds_of_several_stays_apart() -> None:
    held = [table(0, layer_1=1, layer_2=2), table(1, layer_1=3)]
    assert of_several(held) == held
    named = [table(0, group_1=1), table(1, group=2), table(2, group_2=2)]
    assert of_several(named) == named
