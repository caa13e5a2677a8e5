"""How many native names the grammar of names reads right without any profile, and how many it reads wrong.

`python -m lab.names` holds it against what each framework's profile says of the names that it maps; with CSV files of
the columns framework, native_key and canonical against those too. What no metric of ours stands for is not counted.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.frameworks import Profile, profiles
from ppo_doctor.frameworks.matching import is_pattern
from ppo_doctor.ingest.naming import metric_of, of_language
from ppo_doctor.metrics import METRICS

#: Metrics that the grammar leaves to clocks and counters.
NOT_ASKED = ("time_", "env_steps", "iteration", "fps", "mfu", "num_tokens", "optimizer_steps", "epochs_", "samples_")
#: metric → what a name may say without telling sign, unit or estimator; less than all, and nothing wrong.
VAGUER = {
    "entropy": {"entropy_loss"},
    "approx_kl_k1": {"approx_kl"},
    "approx_kl_k2": {"approx_kl"},
    "reward_total": {"reward_mean"},
    "episode_return": {"reward_mean"},
    "episode_return_min": {"reward_min"},
    "episode_return_max": {"reward_max"},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A name, what it means, and the kind of training that the names beside it show."""

    framework: str
    key: str
    means: str
    language: bool

    @property
    def answer(self) -> str:
        """Tell how it was read: right, vaguer, missed or wrong."""
        found = metric_of(self.key, language=self.language)
        if found is None:
            return "missed"
        return "right" if found == self.means else "vaguer" if found in VAGUER.get(self.means, ()) else "wrong"


def of_profiles(chosen: Mapping[str, Profile]) -> Iterator[Asked]:
    """Yield the names that profiles map, but for patterns."""
    for name, profile in chosen.items():
        if profile.ppo_family and name != "canonical":
            named = {key: m.name for m in profile.metrics.values() for key in m.keys if not is_pattern(key)}
            settings = [key for keys in profile.config.values() for key in keys]
            yield from _asked(name, named, [*named, *profile.ignore, *settings])


def of_table(path: Path) -> Iterator[Asked]:
    """Yield the names of a CSV file whose canonical name is ours."""
    by_framework: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(path.open(encoding="utf-8", newline="")):
        by_framework.setdefault(row["framework"], {})[row["native_key"]] = row["canonical"]
    for framework, named in by_framework.items():
        yield from _asked(framework, {key: name for key, name in named.items() if name in METRICS}, named)


def _asked(framework: str, named: Mapping[str, str], beside: Iterable[str]) -> Iterator[Asked]:
    language = of_language(beside)
    for key, name in named.items():
        if not name.startswith(NOT_ASKED):
            yield Asked(framework, key, name, language)


def main(paths: list[str]) -> None:
    """Print one line for each source, and every name that was read wrong."""
    for source, asked in (("profiles", of_profiles(profiles())), *((path, of_table(Path(path))) for path in paths)):
        answers = [(each, each.answer) for each in asked]
        count = {kind: sum(answer == kind for _, answer in answers) for kind in ("right", "vaguer", "missed", "wrong")}
        told = ", ".join(f"{kind} {number} ({number / len(answers):.3f})" for kind, number in count.items())
        sys.stdout.write(f"{source}: {len(answers)} names, {told}\n")
        for each, answer in answers:
            if answer == "wrong":
                sys.stdout.write(f"  {each.framework}: {each.key} is {each.means}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
