"""A folder of headerless CSV files, one for each metric, is one run."""

from __future__ import annotations

import pytest

METRICS = {"train/loss_objective": 0.01, "train/kl_approx": 0.002, "train_entropy": 0.6, "clip_fraction": 0.1}


@pytest.fixture
def folder(tmp_path):
    """A run of 40 records as TorchRL's CSVLogger leaves it; a metric whose name holds a slash lies in a folder."""
    for name, value in METRICS.items():
        file = tmp_path / "exp" / "scalars" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{step * 1000},{value + step / 1e4}\n" for step in range(40)))
    return tmp_path


def test_its_files_are_the_metrics_of_one_run(cli, folder):
    run = cli("analyze", folder, "--format", "json").json["run"]
    assert run["records"] == 40
    assert run["steps"] == [0, 39_000]
    mapped = cli("inspect", folder).out
    for raw, name in (("train/loss_objective", "policy_loss"), ("train/kl_approx", "approx_kl")):
        assert any(raw in line and f"→ {name}" in line for line in mapped.splitlines())


def test_a_line_that_is_none_costs_itself_alone(cli, folder):
    file = folder / "exp" / "scalars" / "train_entropy.csv"
    lines = file.read_text().splitlines()
    lines[3] = "three,0.6"
    file.write_text("\n".join(lines) + "\n")
    inspected = cli("inspect", folder).out
    assert "not “step,value”" in inspected
    assert "39 records" in inspected


def test_tables_with_a_header_are_not_taken_for_metrics(cli, tmp_path):
    for name in ("one", "two"):
        rows = "".join(f"{i},0.0{i % 9 + 1},0.5\n" for i in range(1, 40))
        (tmp_path / f"{name}.csv").write_text("step,approx_kl,entropy\n" + rows)
    assert cli("inspect", tmp_path).out.count("csv: 39 records") == 2
