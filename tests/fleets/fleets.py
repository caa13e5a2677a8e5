"""Folders with the runs of a fleet: every layout of trainers and trackers, and many small runs in six formats."""

from __future__ import annotations

import json
from pathlib import Path

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from tests.runs.folders import as_csv, as_events, as_jsonl, as_state, events_name, grpo_rows, sb3_rows, write
from tests.runs.test_discover import LAYOUTS, cleanrl_rows, mlflow, wandb_run

TORCHRL = {
    f"scalars/{name}.csv": "".join(f"{step},{values[key]}\n" for step, values in cleanrl_rows())
    for name, key in (("approx_kl", "losses/approx_kl"), ("value_loss", "losses/value_loss"))
}
MONITOR = '#{"t_start": 1}\nr,l,t\n' + "".join(f"{i}.0,20,{i}.5\n" for i in range(40))


def below(folder, files):
    return {f"{folder}/{name}": content for name, content in files.items()}


def wandb(name, rows, **settings):
    return {f"{name}/run-{name.rpartition('-')[2]}.wandb": wandb_run(rows, **settings)}


#: A layout → its files. Several runs in each, so that what belongs together has to be told from what does not.
FLEETS = {
    **{f"two of {name}": below("a", files) | below("b", files) for name, (files, _) in LAYOUTS.items()},
    "mlflow": mlflow("aaa", cleanrl_rows(), update_epochs=4) | mlflow("bbb", cleanrl_rows()[:9], update_epochs=8),
    "torchrl": below("a", TORCHRL) | below("b", TORCHRL),
    "wandb": wandb("wandb/run-20250101_120000-abc", cleanrl_rows(), update_epochs=4)
    | wandb("wandb/run-20250102_120000-def", cleanrl_rows()[:9], update_epochs=8),
    "a resumed run of wandb": wandb("wandb/run-20250101_120000-abc", cleanrl_rows()[:12], update_epochs=4)
    | wandb("wandb/run-20250105_120000-abc", cleanrl_rows()[10:])
    | wandb("wandb/run-20250105_120000-def", cleanrl_rows()),
    "many of wandb, one resumed": {
        name: held
        for i in range(12)
        for name, held in wandb(f"wandb/run-202501{i + 10}_120000-x{i % 11}", cleanrl_rows()[i:]).items()
    },
    "monitors alone": {f"{name}/{i}.monitor.csv": MONITOR for name in "ab" for i in range(2)},
    "monitors beside runs": {"a/0.monitor.csv": MONITOR, "b/progress.csv": as_csv(sb3_rows())},
    "nested, settings above": {
        "config.yaml": "n_epochs: 4\n",
        "exp1/config.yaml": "n_steps: 2048\n",
        **{f"exp1/seed{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(3)},
        "exp2/deep/er/progress.csv": as_csv(sb3_rows(seed=9)),
    },
    "a stray table above": {
        "results.csv": as_csv(sb3_rows(seed=5)),
        "config.yaml": "n_epochs: 4\n",
        **{f"seed{i}/progress.csv": as_csv(sb3_rows(seed=i)) for i in range(3)},
    },
    "text above one run": {"train.log": "hello\n" * 5, "out/progress.csv": as_csv(sb3_rows())},
    "text above two runs": {
        "train.log": "hello\n" * 5,
        **{f"{name}/progress.csv": as_csv(sb3_rows(seed=ord(name))) for name in "ab"},
    },
    "logs in one folder": {f"seed{i}.csv": as_csv(sb3_rows(seed=i)) for i in range(3)},
    "a run with parts": {
        "a/progress.csv": as_csv(sb3_rows()),
        f"a/tb/{events_name()}": as_events(sb3_rows()),
        "a/config.yml": "n_epochs: 4\n",
        "b/log.txt": "nothing\n",
        f"b/logs/{events_name()}": as_events(sb3_rows(seed=2)),
    },
    "settings alone": {"config.yaml": "n_epochs: 4\nclip_range: 0.2\nlearning_rate: 0.1\n"},
    "notes alone": {"a/notes.md": as_jsonl(sb3_rows()).decode()},
}


def analyzed(folder):
    """Return what `analyze FOLDER` finds: for each run its files, verdict, findings and causes."""
    sources, errors = gather([str(folder)])
    assert errors == []
    pack, request = load_pack(), Request()
    return sorted(told_of(d, run) for source in sources for run, d in attempt(source, request, pack).judged)


def told_of(diagnosis, run):
    findings = [f.rule for f in diagnosis.findings if f.status == "fired" and f.severity.value in ("medium", "high")]
    causes = [cause.id for cause in diagnosis.causes]
    source = diagnosis.run.sources[0].path if diagnosis.run.sources else ""
    return (run.id, source, str(diagnosis.verdict), diagnosis.headline, str(sorted(findings)), str(causes))


def told(rows, folder=None, place=None):
    """Return the same of rows; `place` stands for a local folder where that was read from elsewhere."""

    def moved(text):
        return text.replace(place, str(folder)) if place else text

    return sorted(
        (
            moved(row["run"]),
            moved(row["source"]),
            row["verdict"],
            moved(row["headline"]),
            str(sorted(each["id"] for each in row["findings"])),
            str([each["id"] for each in row["causes"]]),
        )
        for row in rows
        if row["status"] == "judged"
    )


FORMATS = ("jsonl", "csv", "events", "wandb", "state", "mlflow")


def _varied(rows, number):
    """Return rows of which every third is of a policy that does not move and every fifth of one that does too much."""
    factor = 0.0 if number % 3 == 0 else 40.0 if number % 5 == 0 else 1.0
    keys = ("approx_kl", "clip_fraction", "clipfrac", "/kl", "grad_norm")
    return [(s, {k: v * factor if k.endswith(keys) else v for k, v in values.items()}) for s, values in rows]


def files_of(number):
    """Return the files of one small run, in the format that its number gives it, below a folder of that format."""
    form, name = FORMATS[number % 6], f"{number:06d}"
    rows = _varied(sb3_rows(seed=number), number)
    if form == "jsonl":
        return {f"jsonl/{name}/run.jsonl": as_jsonl(rows), f"jsonl/{name}/config.json": json.dumps({"n_epochs": 4})}
    if form == "csv":
        return {f"sb3/{name}/progress.csv": as_csv(rows), f"sb3/{name}/config.yml": "n_epochs: 10\nbatch_size: 64\n"}
    if form == "events":
        return {f"board/{name}/{events_name()}": as_events(rows)}
    if form == "wandb":
        return wandb(f"wandb/{name}/run-20250101_120000-w{name}", _varied(cleanrl_rows(), number), update_epochs=4)
    if form == "state":
        return {f"hf/{name}/checkpoint-20/trainer_state.json": as_state(_varied(grpo_rows(seed=number), number))}
    return below("mlflow", mlflow(f"m{name}", _varied(cleanrl_rows(), number), update_epochs=4))


def many(folder: Path, count: int, first: int = 0) -> Path:
    """Write so many runs in six formats."""
    for number in range(first, first + count):
        write(folder, files_of(number))
    return folder


#: Every format below folders of which one is named as a part of a run.
FLEETS["six formats"] = {name.replace("board", "events"): held for i in range(12) for name, held in files_of(i).items()}


class Here:
    """An engine that judges in this process."""

    def map(self, units, judge):
        for unit in units:
            yield unit, judge(unit)


def judged(sources, path, *, engine=None, request=None, pack=None, **options):
    """Judge sources into a table; return what was done and the rows of the table."""
    from ppo_doctor.fleets.run import judge_fleet
    from ppo_doctor.fleets.table import Table

    given = [str(source) for source in sources]
    done = judge_fleet(given, request or Request(), pack or load_pack(), engine or Here(), Table(path), **options)
    return done, list(Table(path).rows())
