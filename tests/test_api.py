"""The public names of the package: what they are, their parameters, their types, and the examples of their page."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections import namedtuple
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ppo_doctor
from ppo_doctor.model.diagnosis import Problem, RankedCause, RunSummary
from ppo_doctor.model.rules import Finding
from ppo_doctor.model.run import Axis, Series, Setting

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LOG = ROOT / "sample_logs" / "sick" / "old-policy-aliased.sb3" / "progress.csv"

PUBLIC = {
    "ppo_doctor": [
        *("Diagnosis", "DoctorError", "Run", "__version__", "analyze", "fleet", "judge_batch", "load_run"),
    ],
    "ppo_doctor.record": ["Recorder"],
    "ppo_doctor.testing": ["assert_healthy"],
}

#: To change one of these is to change what people's programs rely on: add a parameter at most, and say so in CHANGELOG.
SIGNATURES = {
    "ppo_doctor:analyze": "source, *, settings=None, framework=None, aliases=None, target_return=None, rules=()",
    "ppo_doctor:load_run": "source, *, settings=None, framework=None, aliases=None",
    "ppo_doctor:fleet": (
        "sources, *, engine='local', ray_address=None, jobs=None, out=None, settings=None, framework=None"
    ),
    "ppo_doctor:judge_batch": "batch, column='path'",
    "ppo_doctor:DoctorError": "message, *, hint='', code=<ExitCode.NOTHING_TO_JUDGE: 3>",
    "ppo_doctor:Diagnosis.to_frame": "self",
    "ppo_doctor:Diagnosis.plot": "self, *names",
    "ppo_doctor:Run.to_frame": "self",
    "ppo_doctor:Run.plot": "self, *names",
    "ppo_doctor.testing:assert_healthy": (
        "source, *, policy=None, fail_on=None, baseline=None, settings=None, framework=None"
    ),
    "ppo_doctor.record:Recorder": (
        "target, *, every=1, config=None, clip_range=None, model=None, optimizer=None, old_policy=None, "
        "reference=None, sequence_ratio=False, dump_when=None, dump_folder=None, stop_on=None"
    ),
}

#: Attributes that the page names, by class.
ATTRIBUTES = {
    ppo_doctor.Diagnosis: "verdict headline first_step findings problems causes run full_run",
    ppo_doctor.Run: "id framework algorithm steps series config notes unknown_keys",
    Finding: "rule title status severity link onset_step evidence",
    Problem: "title severity since_step causes findings",
    RankedCause: "id title confidence leader problem remedies",
    RunSummary: "id framework algorithm steps records notes",
    Series: "values raw axis",
    Axis: "steps lines",
    Setting: "value key",
}


def find(name):
    module, _, attribute = name.partition(":")
    found = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def parameters(function):
    """Return the names, kinds and defaults of the parameters of a function, without their types."""
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(bare))[1:-1]


@pytest.mark.parametrize("module", PUBLIC)
def test_what_is_public_is_in_all(module):
    assert sorted(import_module(module).__all__) == sorted(PUBLIC[module])
    assert all(hasattr(import_module(module), name) for name in PUBLIC[module])


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_stay(name):
    assert parameters(find(name)) == SIGNATURES[name]


@pytest.mark.parametrize("kind", ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_attributes_that_the_page_names_are_there(kind):
    held = {field.name for field in fields(kind)} | {name for name in dir(kind) if not name.startswith("_")}
    assert set(ATTRIBUTES[kind].split()) <= held
    assert all(f"`{name}`" in PAGE or f".{name}`" in PAGE for name in ATTRIBUTES[kind].split())


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'diagnose'"):
        ppo_doctor.diagnose  # noqa: B018 - the attribute is the test


def test_every_parameter_is_on_the_page():
    named = {
        name
        for function in (ppo_doctor.analyze, ppo_doctor.load_run)
        for name in inspect.signature(function).parameters
    }
    assert all(f"| `{name}` |" in PAGE for name in named - {"source"})


# The examples of the page

Event = namedtuple("Event", "wall_time step value")


class Api:
    """W&B's public API, with one run."""

    def run(self, path):
        rows = [{"_step": i, "approx_kl": 0.01, "episode_return": 1.0 * i, "entropy": 1.0} for i in range(30)]
        return type("Run", (), {"id": path[-6:], "config": {}, "scan_history": lambda _: iter(rows)})()


class EventAccumulator:
    """TensorBoard's, of a folder that is not on this machine."""

    def __init__(self, path):
        self.path, self._tags = path, []

    def Reload(self):  # noqa: N802 - TensorBoard's
        self._tags = ["train/approx_kl", "rollout/ep_rew_mean"]

    def Tags(self):  # noqa: N802 - TensorBoard's
        return {"scalars": self._tags}

    def Scalars(self, tag):  # noqa: N802 - TensorBoard's
        return [Event(0.0, step, 0.01 if "kl" in tag else 1.0 * step) for step in range(30)]


def stand_in(monkeypatch, name, **held):
    """Let a module of a library that takes a server, or is large, be one of our own."""
    for length in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:length])
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    vars(sys.modules[name]).update(held)


def test_every_example_of_the_page_runs(tmp_path, monkeypatch):
    for file in LOG.parent.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    stand_in(monkeypatch, "wandb", Api=Api)
    stand_in(monkeypatch, "tensorboard.backend.event_processing.event_accumulator", EventAccumulator=EventAccumulator)
    names: dict[str, object] = {}
    ran = 0
    for block in BLOCKS:
        needs = {"polars" if "polars" in block else "", "matplotlib" if ".plot(" in block else ""} - {""}
        if all(_there(name) for name in needs):
            exec(compile(block, "python.md", "exec"), names)  # noqa: S102 - our own page
            ran += 1
    assert ran >= len(BLOCKS) - 2 and len(BLOCKS) >= 8


def _there(name):
    try:
        import_module(name)
    except ImportError:
        return False
    return True


# Parameters


def test_a_target_is_held_against_the_reward():
    assert [ppo_doctor.analyze(LOG, target_return=goal).outcome.reached for goal in (100, 500)] == [True, False]


def test_rules_of_a_folder_are_added(tmp_path, cli):
    assert cli("rules", "new", "entropy-collapses-late", "--dir", tmp_path).code == 0
    for rules in (tmp_path, str(tmp_path), [tmp_path]):
        frame = ppo_doctor.analyze(LOG, rules=rules).to_frame()
        assert "entropy-collapses-late" in set(frame["check"])
    with pytest.raises(ppo_doctor.DoctorError, match="no-such-folder"):
        ppo_doctor.analyze(LOG, rules="no-such-folder")


def test_a_setting_that_the_trainer_does_not_have_is_an_error_that_names_it():
    with pytest.raises(ppo_doctor.DoctorError, match="n_epoch") as error:
        ppo_doctor.analyze(LOG, settings={"n_epoch": 4})
    assert error.value.code == 2 and "n_epochs" in error.value.hint


def test_a_metric_that_is_not_used_is_named_with_the_reason():
    with pytest.raises(ppo_doctor.DoctorError) as raised:
        ppo_doctor.analyze({"approx_kl": [0.1] * 10})
    assert "approx_kl" in raised.value.hint


@pytest.mark.parametrize("path", ["", "x" * 5_000, "a\0b", "no-such.csv"], ids=["empty", "long", "NUL", "missing"])
def test_a_path_that_cannot_be_read_is_an_error_for_people(path):
    with pytest.raises(ppo_doctor.DoctorError) as refused:
        ppo_doctor.analyze(path)
    assert refused.value.code == 3
