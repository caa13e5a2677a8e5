"""Runs inside rlx-workbench's environment: its diagnosis of a run folder of its own making. Prints metrics and issues.

What it says of a missing evaluation, or of CartPole below 400, says nothing about the log, and is left out.
"""

import csv
import json
import sys
import tempfile
from pathlib import Path

from rlx.core.diagnose import diagnose_run

with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "run"
    folder.mkdir()
    with Path(sys.argv[1]).open() as file, (folder / "metrics.jsonl").open("w") as out:
        for row in csv.DictReader(file):
            held = {key: float(value) for key, value in row.items() if value}
            out.write(json.dumps({"step": int(float(row["time/total_timesteps"])), **held}) + "\n")
    about = {"run_id": "run", "status": "completed", "environment": "other", "algorithm": "ppo"}
    (folder / "metadata.json").write_text(json.dumps(about))
    (folder / "config_snapshot.yaml").write_text("seed: 0\n")
    told = diagnose_run(str(folder)).diagnostics
    words = {
        f"{item.area}: {item.evidence if item.area == 'PPO metric' else item.issue}"
        for item in told
        if item.severity in ("high", "medium") and item.area != "Evaluation"
    }
    print(json.dumps(sorted(words)))
