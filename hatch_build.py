"""Build hook: a wheel carries its rule pack and framework profiles compiled, so that no TOML is parsed at start.

It also carries the two sample logs that `ppo-doctor demo` judges.
"""

import json
import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The runs of `ppo_doctor.cli.demo.DEMO`, which cannot be imported where only the build tools are installed.
DEMO = ("sick/old-policy-aliased.sb3", "healthy/healthy.sb3")


class CompiledPacks(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        try:
            from ppo_doctor.checks import rulepack
            from ppo_doctor.model.toml_files import parse_folder
            from ppo_doctor.trainers import detection
        finally:
            sys.path.remove(str(root))
        packs = {
            "rules": parse_folder(root / "rules", rulepack.build),
            "frameworks": parse_folder(root / "ppo_doctor" / "trainers", detection.build),
        }
        folder = Path(tempfile.mkdtemp(prefix="ppo-doctor-"))
        for kind, pack in packs.items():
            path = folder / f"{kind}.json"
            path.write_text(json.dumps(pack), encoding="utf-8")
            build_data["force_include"][str(path)] = f"ppo_doctor/_compiled/{kind}.json"
        for run in DEMO:
            build_data["force_include"][str(root / "sample_logs" / run)] = f"ppo_doctor/_demo/{run}"
