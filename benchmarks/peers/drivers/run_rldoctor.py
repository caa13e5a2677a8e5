"""Runs inside rldoctor's environment: its own command on the log as it is. Prints one JSON list of findings."""

import json
import subprocess
import sys
from pathlib import Path

command = [str(Path(sys.executable).with_name("rldoctor")), "diagnose", sys.argv[1], "-f", "json"]
done = subprocess.run(command, capture_output=True, text=True, check=True)
findings = json.loads(done.stdout)["findings"]
names = [
    f["detector"] + (":non-finite" if "finite" in (f["summary"] + " ".join(f["evidence"])).lower() else "")
    for f in findings
    if f["severity"] in ("WARNING", "CRITICAL")
]
print(json.dumps(sorted(set(names))))
