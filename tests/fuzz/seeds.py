"""What is mutated: sample logs, real logs where they are at hand, and small files of every other kind, written here."""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ppo_doctor.readers.sniffing import sniff
from tests.readers.event_files import event_file, scalars
from tests.readers.test_notebook import notebook, shown, stream
from tests.readers.test_sqlite_log import mlflow_db, trackio_db
from tests.readers.wandb_files import config, history, run_file

ROOT = Path(__file__).resolve().parent.parent.parent
#: Read at import, before a test's conftest scrubs our variables from the environment.
REAL_LOGS = Path(os.environ.get("PPO_DOCTOR_REAL_LOGS", ROOT.parent / "shared" / "real-logs"))
#: Longer files are cut: a case costs as long as its file.
LARGEST = 300_000
CONFIGS = (".yaml", ".yml", ".toml", ".sh")
#: Kind of file → the tokens of its format.
TOKENS = {
    **dict.fromkeys(("jsonl", "json", "notebook", "baseline", "wandb", "sqlite", "dump-rows"), "json"),
    **dict.fromkeys(("csv", "mlflow"), "csv"),
    **dict.fromkeys(("yaml", "toml", "shell", "console"), ""),
    "policy": "toml",
}


@dataclass(frozen=True, slots=True)
class Seed:
    """One file: its kind (the container, or what it is for), where it is from, its name and its content."""

    kind: str
    origin: str
    name: str
    data: bytes

    @property
    def tokens(self) -> str:
        return TOKENS.get(self.kind, "binary") or self.kind


def all_seeds(*, real: bool) -> dict[str, list[Seed]]:
    """Return the seeds by kind; real logs where they are asked for and at hand."""
    found = [*_of_folder(ROOT / "sample_logs"), *_written(), *_tensors()]
    if real and REAL_LOGS.is_dir():
        found += _of_folder(REAL_LOGS)
    kinds: dict[str, list[Seed]] = {}
    for seed in found:
        kinds.setdefault(seed.kind, []).append(seed)
    return kinds


def _of_folder(folder: Path) -> Iterator[Seed]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("index.toml", "README.md", "manifest.csv"):
            continue
        with path.open("rb") as file:
            data = file.read(LARGEST)
        suffix = path.suffix.lower()
        kind = {".yml": "yaml", ".sh": "shell"}.get(suffix, suffix[1:]) if suffix in CONFIGS else sniff(data, path.name)
        if kind is not None:
            yield Seed(kind, str(path.relative_to(folder)), path.name, data)


@cache
def records() -> tuple[dict[str, float], ...]:
    """Return the records of a sound sample log."""
    path = ROOT / "sample_logs" / "healthy" / "healthy.canonical" / "run.jsonl"
    read = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return tuple({key: value for key, value in row.items() if key != "ppo_doctor"} for row in read if "step" in row)


def _written() -> Iterator[Seed]:
    rows = [{key: float(value) for key, value in row.items()} for row in records()]
    keyed = [(int(row["step"]), {key: value for key, value in row.items() if key != "step"}) for row in rows]
    points = [(key, value, int(row["step"])) for row in rows for key, value in list(row.items())[:12]]
    with tempfile.TemporaryDirectory() as folder:
        yield Seed(
            "sqlite", "mlflow", "mlflow.db", mlflow_db(Path(folder) / "m.db", {"r": ("active", points)}).read_bytes()
        )
        held = {"one": [(int(row["step"]), row) for row in rows]}
        yield Seed("sqlite", "trackio", "trackio.db", trackio_db(Path(folder) / "t.db", held).read_bytes())
    history_of = [history(step, **values) for step, values in keyed]
    yield Seed("wandb", "written", "run-abc.wandb", run_file(config(n_epochs=4), *history_of))
    events = [(int(r["step"]), {f"train/{key}": value for key, value in list(r.items())[:8]}) for r in rows[:30]]
    yield Seed("tfevents", "written", "events.out.tfevents.1.host", event_file(*scalars(events)))
    yield from _archives()
    printed = ("policy_loss", "approx_kl", "entropy")
    text = "".join(f"{ {key: row[key] for key in printed} }\n" for row in rows)
    table = "<table><thead><tr><th>Step</th><th>loss</th><th>kl</th></tr></thead><tbody>" + "".join(
        f"<tr><td>{i}</td><td>{r['policy_loss']}</td><td>{r['approx_kl']}</td></tr>" for i, r in enumerate(rows, 1)
    )
    for indent in (1, None):
        document = notebook(stream(text), shown(table + "</tbody></table>"))
        yield Seed("notebook", f"indent {indent}", "train.ipynb", json.dumps(document, indent=indent).encode())
    boxes = [[f"| {key:<20} | {value:<12.6g} |\n" for key, value in list(row.items())[:10]] for row in rows]
    ruled = "".join("-" * 40 + "\n" + "".join(box) for box in boxes)
    yield Seed("console", "boxes", "train.log", ruled.encode())
    yield Seed("console", "dicts", "train.log", text.encode())
    store = "".join(f"{1000 + i} {row['approx_kl']} {i}\n" for i, row in enumerate(rows))
    yield Seed("mlflow", "store", "approx_kl", store.encode())
    yield from _settings()


def _archives() -> Iterator[Seed]:
    out = io.BytesIO()
    made = np.random.default_rng(0)
    np.savez(out, timesteps=np.arange(30) * 100, results=made.normal(size=(30, 5)), ep_lengths=np.full((30, 5), 20))
    yield Seed("npz-evaluations", "written", "evaluations.npz", out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(
            "data", json.dumps({"n_epochs": 10, "gamma": 0.99, "learning_rate": 3e-4, "clip_range": {":type:": "f"}})
        )
        archive.writestr("policy.pth", b"nothing")
    yield Seed("sb3-zip", "written", "model.zip", out.getvalue())


SETTINGS = {
    "gamma": 0.99,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "clip_range": 0.2,
    "nested": {"num_minibatches": 4, "tags": ["a"]},
}
YAML = b"""gamma: 0.99
base: &a {learning_rate: 3.0e-4, n_epochs: 4}
ppo:
  <<: *a
  clip_range: 0.2
  when: 2026-01-02T03:04:05Z
  tuple: !!python/tuple [1, 2]
- 1
"""
SHELL = b"""#!/bin/bash
export LR=1e-6
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  actor_rollout_ref.actor.optim.lr=$LR actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
  --n-epochs 4 --clip-coef 0.2 trainer.total_epochs=${EPOCHS:-15}
"""
POLICY = b"""fail-on = "high"
select = []
ignore = []
budgets = ["approx_kl.p95 < 0.5"]

[[allow]]
cause = "idle-clip"
reason = "known"
expires = 2031-01-01
"""


def _settings() -> Iterator[Seed]:
    yield Seed("yaml", "written", "config.yaml", YAML.replace(b"- 1\n", b""))
    yield Seed("yaml", "torn", "config.yaml", YAML)
    yield Seed("toml", "written", "config.toml", b"gamma = 0.99\n[ppo]\nn_epochs = 4\nlr = 3e-4\nwhen = 1979-05-27\n")
    yield Seed("config-json", "written", "config.json", json.dumps(SETTINGS, indent=1).encode())
    yield Seed("config-json", "printed", "args.txt", repr(SETTINGS).encode())
    yield Seed("config-json", "namespace", "args.txt", b"Namespace(gamma=0.99, n_epochs=4, lr=3e-4, clip=(0.1, 0.2))\n")
    yield Seed("shell", "written", "run.sh", SHELL)
    yield Seed("policy", "written", "ppo-doctor.toml", POLICY)
    yield Seed(
        "policy",
        "project",
        "pyproject.toml",
        b"[project]\nname = 'x'\n[tool.ppo-doctor]\n" + POLICY.partition(b"[[")[0],
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        pickled = pickle.dumps({"learning_rate": 3e-4, "gamma": 0.99, "num_train_epochs": 3}, protocol=2)
        archive.writestr("training_args/data.pkl", pickled)
    yield Seed("training-args", "written", "training_args.bin", out.getvalue())


def _tensors() -> Iterator[Seed]:
    fixtures = ROOT / "tests" / "runs" / "dumps" / "fixtures"
    for path in sorted(fixtures.glob("*.*")):
        if path.suffix in (".npz", ".pt", ".safetensors") and path.stat().st_size < LARGEST:
            yield Seed(path.suffix[1:], path.name, path.name, path.read_bytes())
    made = np.random.default_rng(0)
    old = made.normal(-1, 0.3, (16, 20)).astype(np.float32)
    dump = {"log_probs": old + 0.01, "old_log_probs": old, "advantages": made.normal(size=(16, 20)).astype(np.float32)}
    out = io.BytesIO()
    np.savez(out, **dump)
    yield Seed("npz", "dump", "dump.npz", out.getvalue())
    out = io.BytesIO()
    np.save(out, old)
    yield Seed("npy", "dump", "log_probs.npy", out.getvalue())
    rows = [{name: values[i].tolist() for name, values in dump.items()} for i in range(16)]
    yield Seed("dump-rows", "dump", "train_data_step1.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
