"""What logs of real trainers show and those of the lab do not: float noise, empty cells, ratios that are off alike."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from lab.numpy_lab.faults import FAULTS
from ppo_doctor.checks.cases import case_run, parse_series
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Run, Series
from tests.synthetic import a_series, an_axis, observe

TWENTY = range(1, 21)


SETTINGS = {"num_ppo_epochs": 1, "num_mini_batches": 4, "gradient_accumulation_steps": 4}


def trl_ppo(folder: Path, rows: dict[str, list[float]], settings: dict[str, float] | None) -> Run:
    """Read a log of TRL's PPO with these columns, and a configuration beside it if there are settings."""
    records = [{"step": i + 1} | {key: values[i] for key, values in rows.items()} for i in range(len(TWENTY))]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": records}))
    if settings:
        (folder / "config.json").write_text(json.dumps(settings))
    return read_run(str(folder / "trainer_state.json"), Request())


def partial(share: float) -> dict[str, list[float]]:
    """Return what a sound run logs when only that share of its cells is filled."""
    rng = np.random.default_rng(1)
    scatter = 1 + 0.1 * rng.standard_normal(20)
    return {
        "policy/approxkl_avg": list(share * 0.01 * scatter),
        "policy/entropy_avg": list(share * np.linspace(2.5, 1.5, 20)),
        "policy/clipfrac_avg": list(share * 0.1 * scatter),
        "loss/policy_avg": list(-share * 0.01 * scatter),
        "loss/value_avg": list(share * 0.2 * scatter),
        "val/ratio": [share] * 20,
        "val/ratio_var": [share * (1 - share) * 16 / 15] * 20,
        "objective/kl": list(np.linspace(0, 3, 20)),
        "objective/scores": list(np.linspace(0.2, 0.7, 20)),
        "lr": [1e-4] * 20,
    }


def values(run: Run, name: str) -> np.ndarray:
    found = run.series[name]
    assert isinstance(found, Series)
    return found.values


def test_means_over_empty_cells_are_restored_where_the_settings_are_known(tmp_path):
    run = trl_ppo(tmp_path, partial(0.25), SETTINGS)
    assert values(run, "ratio_mean") == pytest.approx(1.0)
    assert values(run, "entropy")[0] == pytest.approx(2.5)
    assert "ratio_batch_var" not in run.series
    assert any("0.25" in note.text for note in run.notes)


def test_means_over_empty_cells_are_not_used_where_the_settings_are_unknown(tmp_path):
    run = trl_ppo(tmp_path, partial(0.25), None)
    assert not {"ratio_mean", "approx_kl", "entropy", "clip_fraction"} & set(run.series)
    assert "reward_mean" in run.series
    assert diagnose(run, load_pack()).verdict in ("inconclusive", "healthy")


def test_full_cells_stay_as_they_are_logged(tmp_path):
    for number, settings in enumerate((None, SETTINGS | {"gradient_accumulation_steps": 1})):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = trl_ppo(folder, partial(1.0), settings)
        assert values(run, "ratio_mean") == pytest.approx(1.0)
        assert "ratio_batch_var" in run.series


def pufferlib(folder: Path, settings: str) -> Run:
    """Read a history of PufferLib 1, which adds its losses up over the epochs, with a configuration beside it."""
    row = {"losses/clipfrac": 0.4, "losses/entropy": 2.772, "losses/explained_variance": 0.5, "0verview/SPS": 900}
    lines = [json.dumps({"0verview/agent_steps": 1024 * step, **row}) for step in TWENTY]
    (folder / "wandb-history.jsonl").write_text("\n".join(lines))
    (folder / "config.yaml").write_text(settings)
    return read_run(str(folder / "wandb-history.jsonl"), Request())


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [("update_epochs: 8", 8), ("seed: 1", 4), ("update_epochs: 8\ntarget_kl: 0.02", 1)],
    ids=["configured", "by default", "an early stop, of which the log tells no epoch"],
)
def test_sums_over_epochs_are_divided_by_them(tmp_path, settings, epochs):
    run = pufferlib(tmp_path, settings)
    assert values(run, "clip_fraction") == pytest.approx(0.4 / epochs)
    assert values(run, "entropy") == pytest.approx(2.772 / epochs)
    assert values(run, "explained_variance") == pytest.approx(0.5)


def test_a_rollout_that_a_console_prints_first_belongs_to_the_steps_that_follow(tmp_path):
    """slime prints each rollout before the steps that are taken on it, and no step beside it."""
    lines = []
    for rollout in range(12):
        lines.append(f"data.py:395 - rollout {rollout}: {{'rollout/raw_reward': {0.1 + rollout / 20}}}")
        for step in (2 * rollout, 2 * rollout + 1):
            row = {"train/loss": -0.01 * (step % 2), "train/pg_clipfrac": 0.02 * (step % 2), "train/step": step}
            lines.append(f"model.py:918 - step {step}: {row | {'train/ppo_kl': 0.001 * (step % 2)}}")
    (tmp_path / "train.log").write_text("\n".join(lines))
    run = read_run(str(tmp_path / "train.log"), Request())
    assert run.framework == "slime"
    assert run.series["reward_mean"].axis.steps.tolist() == list(range(0, 24, 2))
    updates = RunView(run).fact("updates_observed")
    assert updates is not None
    assert updates.value == 2


@pytest.mark.parametrize(("changes", "evenly"), [(range(50, 400, 50), True), ((50, 90, 200, 330), False)])
def test_a_batch_of_many_records_is_no_batch_that_never_changes(changes, evenly):
    """trlX writes a record per optimizer step, with 50 epochs 50 of each batch, and takes values anew in each."""
    axis, rng = an_axis(range(1, 401)), np.random.default_rng(2)
    batch = np.searchsorted(np.array(changes), np.arange(400), "right")
    told = {"returns_mean": rng.normal(size=9)[batch], "returns_std": rng.random(size=9)[batch]}
    told["values_mean"] = rng.normal(size=400)
    kl = np.where(np.isin(np.arange(400), [0, *changes]), 0.0, 0.3)
    series = [a_series(name, list(values), axis=axis) for name, values in (told | {"approx_kl": kl}).items()]
    seen = observe(*series)
    assert (seen.fact("records_per_batch") is not None) is evenly
    assert (seen.series("batch_repeats") is None) is evenly
    dips = seen.fact("dips")
    assert dips is not None
    assert dips.value == 0


@pytest.mark.parametrize(
    ("estimator", "rounding", "movement"),
    [("k2", 1e-14, 1e-11), ("k3", 8e-9, 1e-6), ("k1", 3e-7, 1e-4)],
)
def test_the_noise_floor_of_a_kl_follows_its_estimator(estimator, rounding, movement):
    axis = an_axis(TWENTY)
    entropy = a_series("entropy", [2.5] * 20, axis=axis)
    for kl, below in ((rounding, True), (-rounding, True), (movement, False)):
        seen = observe(a_series("approx_kl", [kl] * 20, axis=axis, estimator=estimator), entropy)
        times = seen.series("kl_over_noise")
        assert times is not None
        assert bool((times.values < 1).all()) is below


def test_float32_passes_over_equal_weights_stay_below_the_floor():
    """Two sums over the same numbers in another order, as two batch sizes give: what the floor is there for."""
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((4000, 13)).astype(np.float32)
    order = rng.permutation(13)
    one = logits[:, 0] - np.log(np.exp(logits).sum(axis=1, dtype=np.float32))
    other = logits[:, 0] - np.log(np.exp(logits[:, order]).cumsum(axis=1, dtype=np.float32)[:, -1])
    log_ratio = (other - one).astype(np.float32)
    assert (log_ratio != 0).any()
    k3 = float(np.mean((np.exp(log_ratio) - np.float32(1)) - log_ratio))
    axis = an_axis(TWENTY)
    entropy = a_series("entropy", [2.5] * 20, axis=axis)
    for estimator, kl in (("k3", k3), ("k2", float(np.mean(log_ratio.astype(np.float64) ** 2) / 2))):
        seen = observe(a_series("approx_kl", [kl] * 20, axis=axis, estimator=estimator), entropy)
        times = seen.series("kl_over_noise")
        assert times is not None
        assert (times.values < 1).all()


def test_a_first_minibatch_at_one_always_leaves_room_for_itself():
    """Whatever the later minibatches do, a set of means that holds a 1 is never called impossible."""
    rng = np.random.default_rng(5)
    axis = an_axis(TWENTY)
    cells = np.concatenate([np.ones((20, 1)), rng.lognormal(1.0, 1.0, (20, 15))], axis=1)
    mean = a_series("ratio_mean", list(cells.mean(axis=1)), axis=axis)
    spread = a_series("ratio_batch_var", list(cells.var(axis=1, ddof=1)), axis=axis)
    found = observe(mean, spread, config={"ppo_epochs": 4, "num_minibatches": 4}).series("first_cell_off")
    assert found is not None
    assert (found.values <= 1 + 1e-9).all()
    tight = a_series("ratio_batch_var", [1e-5] * 20, axis=axis)
    refuted = observe(mean, tight, config={"ppo_epochs": 4, "num_minibatches": 4}).series("first_cell_off")
    assert refuted is not None
    assert (refuted.values > 4).all()


THREADS = tomllib.loads((Path(__file__).parent / "threads" / "ratio_one.toml").read_text(encoding="utf-8"))["thread"]


K4 = {"ppo_epochs": 4, "num_minibatches": 4}


def leaders(found):
    return {cause.id for cause in found.causes if cause.leader}


MINE = {name for name, fault in FAULTS.items() if fault.inject.__module__.endswith("decision_table")}


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["source"])
def test_a_public_thread(thread, tmp_path):
    import ppo_doctor

    found = ppo_doctor.analyze(rebuilt(thread, tmp_path))
    assert found.verdict in thread["verdicts"]
    assert leaders(found) & MINE <= set(thread["causes"])
    if found.verdict == "unhealthy":
        assert leaders(found) & set(thread["causes"])


def rebuilt(thread, folder):
    """Write a thread's numbers as the framework would have logged them."""
    columns = {key: parse_series(text) for key, text in thread["series"].items()}
    size = max(len(values) for values in columns.values())
    rows = [
        {"step": i + 1} | {key: values[i] for key, values in columns.items() if i < len(values)} for i in range(size)
    ]
    canonical = thread["framework"] == "canonical"
    header = [{"ppo_doctor": 1, "config": thread["config"]}] if canonical else []
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*header, *rows]), encoding="utf-8")
    if not canonical and thread["config"]:
        (folder / "config.json").write_text(json.dumps(thread["config"]), encoding="utf-8")
    return path


# Derived quantities


def observed(series, config=None, **rest):
    return RunView(case_run({"series": series, "config": config or {}, **rest}))


def test_kl_size_is_that_of_the_kl_else_half_the_variance_of_the_ratio():
    assert observed({"approx_kl": "-0.002x4"}).series("kl_size").values.tolist() == [0.002] * 5
    assert observed({"ratio_std": "0.1x4"}).series("kl_size").values == pytest.approx([0.005] * 5)
    rounded = observed({"ratio_std": "0x4"}, resolution={"ratio_std": 0.0005}).series("kl_size")
    assert rounded.resolution.absolute == pytest.approx(1.25e-7)


def test_usual_learning_rates_depend_on_the_task_and_a_printed_zero_is_none():
    assert observed({"learning_rate": "1e-6x5", "episode_return": "1x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(0.1)
    assert observed({"learning_rate": "1e-6x5", "response_length": "9x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(10)
    assert observed({"learning_rate": "0x5"}, resolution={"learning_rate": 0.0005}).fact("rate_over_usual") is None


def test_skipped_share_counts_against_the_plan_or_against_all_steps():
    assert observed({"skipped_steps": "8x3"}, K4).series("skipped_share").values.tolist() == [0.5] * 4
    both = observed({"skipped_steps": "3x3", "optimizer_steps": "1x3"}).series("skipped_share")
    assert both.values.tolist() == [0.75] * 4
    assert observed({"skipped_steps": "3x3"}).series("skipped_share") is None


def test_a_jump_of_the_learning_rate_is_no_schedule():
    assert observed({"learning_rate": "0.001-0.0001x9"}).fact("rate_left").value == pytest.approx(0.1)
    assert observed({"learning_rate": "0.001x9 0x9"}).fact("rate_left").value == 1


def test_infinite_gradients_count_only_beside_finite_losses():
    assert observed({"grad_norm": "inf 0.5", "loss": "0.1x1"}).series("overflowing_gradient").values.tolist() == [1, 0]
    assert observed({"grad_norm": "infx1", "loss": "nanx1"}).series("overflowing_gradient").values.tolist() == [0, 0]


def test_a_controller_may_stay_inside_its_band():
    band = observed({"learning_rate": "0.001 0.002x8", "approx_kl": "0.01x9"}, {"desired_kl": 0.01})
    assert band.series("controller_idle").values.sum() == 0
    assert observed({"learning_rate": "0.001x9", "approx_kl": "0.1x9"}).series("controller_idle") is None
