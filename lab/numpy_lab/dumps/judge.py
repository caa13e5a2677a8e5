"""What the doctor says of the dumps of the lab: whether the fault is named first, and alarms on sound ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run, runs_of
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather

from .kinds import Kind

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

#: What anybody knows of a run, and tells with --set.
KNOWN = {"ppo_epochs": 4, "num_minibatches": 3, "clip_range": 0.2}
#: The same in the words of the trainer whose names the log has.
KNOWN_OF_LOG = {"n_epochs": 4, "n_steps": 96, "n_envs": 1, "batch_size": 32, "clip_range": 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The diagnosis of one run's dumps."""

    kind: Kind
    seed: int
    diagnosis: Diagnosis

    @property
    def sound(self) -> bool:
        """Tell whether nothing is wrong with the run."""
        return self.kind.cause in ("healthy", "dtype-noise-floor")

    @property
    def alarms(self) -> tuple[str, ...]:
        """Return the harmful causes that lead, however sure."""
        return tuple(cause.id for cause in self.diagnosis.causes if cause.leader and not cause.benign)

    @property
    def named(self) -> bool:
        """Tell whether the fault is first, alone or level with causes that the same tensors allow."""
        first = self.diagnosis.causes[:1]
        leading = {name for cause in first for name in (cause.id, *cause.level_with)}
        return self.kind.cause in leading and leading <= {self.kind.cause, *self.kind.level_with}

    @property
    def good(self) -> bool:
        """Tell whether the doctor is right."""
        if self.kind.cause == "healthy":
            return not self.alarms
        return self.named


def judge_folder(kind: Kind, seed: int, folder: Path, pack: Pack | None = None) -> Judged:
    """Judge the dumps in a folder."""
    known: dict[str, object] = {**KNOWN_OF_LOG} if kind.shape == "logged" else {**KNOWN, **_told(kind, seed)}
    settings = {**known, **kind.settings}
    request = Request(settings=settings, debug=True)  # type: ignore[arg-type]
    return Judged(kind=kind, seed=seed, diagnosis=diagnose(_run(kind, folder, request), pack or load_pack()))


def _run(kind: Kind, folder: Path, request: Request) -> Run:
    if kind.shape != "logged":
        return read_run(str(folder), request)
    log = folder / "log" / "metrics.jsonl"
    (source,), _ = gather([str(log), *(str(path) for path in sorted(folder.iterdir()) if path.is_file())])
    return runs_of(source, request)[0]


def _told(kind: Kind, seed: int) -> dict[str, object]:
    """Return the settings in which a plan departs from what is known."""
    plan = kind.plan(seed)
    if plan.fault == "benign-single-update":
        return {"ppo_epochs": 1, "num_minibatches": 1}
    names = {"epochs": "ppo_epochs", "num_minibatches": "num_minibatches"}
    return {names[name]: value for name, value in plan.config.items() if name in names}


def line(judged: Judged) -> str:
    """Return one run as one line."""
    causes = ", ".join(
        f"{c.id} {c.score_db}{'*' if c.leader else ''} {c.confidence}" for c in judged.diagnosis.causes[:4]
    )
    fired = ", ".join(f.code for f in judged.diagnosis.findings if f.status == "fired")
    mark = "ok  " if judged.good else "MISS"
    return f"{mark} {judged.kind.name:<30} {judged.seed:>4} {judged.diagnosis.verdict:<12} {causes} | {fired}"


def summary(found: Sequence[Judged]) -> str:
    """Return the shares: faults that are first, sound runs with an alarm."""
    faulty = [one for one in found if one.kind.cause != "healthy"]
    sound = [one for one in found if one.sound]
    named = sum(one.good for one in faulty)
    alarms = sum(bool(one.alarms) for one in sound)
    return f"first: {named} of {len(faulty)}; alarms on sound runs: {alarms} of {len(sound)}"
