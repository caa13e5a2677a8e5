"""How many native names the grammar of names reads right without any profile, and how many it reads wrong.

`python -m lab.names` holds it against what each framework's profile says of the names that it maps; with CSV files of
the columns framework, native_key and canonical against those too, with folders of runs against how each is read with
its profile, and with tables of scripts' names as `lab.scripts` says. What no metric of ours stands for is not counted.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import scripts
from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Run
from ppo_doctor.trainers.detection import CANONICAL, profiles
from ppo_doctor.trainers.names import metric_of, of_language
from ppo_doctor.trainers.profiles import Profile, is_pattern

#: Metrics that the grammar leaves to clocks and counters.
NOT_ASKED = ("time_", "env_steps", "iteration", "fps", "mfu", "num_tokens", "optimizer_steps", "epochs_", "samples_")
#: metric → what a name may say without telling sign, unit or estimator; less than all, and nothing wrong.
VAGUER = {
    "entropy": {"entropy_loss"},
    "approx_kl_k1": {"approx_kl"},
    "approx_kl_k2": {"approx_kl"},
    "reward_total": {"reward_mean"},
    "reward_group_std": {"reward_std"},
    "episode_return": {"reward_mean"},
    "episode_return_min": {"reward_min"},
    "episode_return_max": {"reward_max"},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A name, what it means, and what it was read as without a profile."""

    framework: str
    key: str
    means: str
    found: str | None

    @property
    def answer(self) -> str:
        """Tell how it was read: right, vaguer, missed or wrong."""
        if self.found is None:
            return "missed"
        return (
            "right" if self.found == self.means else "vaguer" if self.found in VAGUER.get(self.means, ()) else "wrong"
        )


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


def of_runs(folder: Path) -> Iterator[Asked]:
    """Yield the names that the profiles of the runs in a folder map, each once."""
    held: dict[tuple[str, str], Asked] = {}
    for path in map(str, sorted(folder.iterdir())):
        for run, plain in zip(_runs(path, None), _runs(path, CANONICAL), strict=False):
            found = {series.raw: name for name, series in plain.series.items()}
            for name, raw in ((name, series.raw) for name, series in run.series.items()):
                if run.framework != CANONICAL and run.keys.get(raw) == "mapped" and not name.startswith(NOT_ASKED):
                    held[run.framework, raw] = Asked(run.framework, raw, name, found.get(raw))
    yield from held.values()


def _runs(path: str, framework: str | None) -> list[Run]:
    try:
        return read_runs(path, Request(framework=framework))
    except DoctorError:
        return []


def _asked(framework: str, named: Mapping[str, str], beside: Iterable[str]) -> Iterator[Asked]:
    language = of_language(beside)
    for key, name in named.items():
        if not name.startswith(NOT_ASKED):
            yield Asked(framework, key, name, metric_of(key, language=language))


def main(paths: list[str]) -> None:
    """Print one line for each source, and every name that was read wrong."""
    tables = [path for path in map(Path, paths) if path.is_file() and scripts.is_table(path)]
    others = [path for path in map(Path, paths) if path not in tables]
    sys.stdout.write("".join(f"{line}\n" for path in tables for line in scripts.table(path)))
    given = ((path, (of_runs if path.is_dir() else of_table)(path)) for path in others)
    for source, asked in (("profiles", of_profiles(profiles())), *given):
        answers = [(each, each.answer) for each in asked]
        count = {kind: sum(answer == kind for _, answer in answers) for kind in ("right", "vaguer", "missed", "wrong")}
        told = ", ".join(f"{kind} {number} ({number / len(answers):.3f})" for kind, number in count.items())
        sys.stdout.write(f"{source}: {len(answers)} names, {told}\n")
        for each, answer in answers:
            if answer == "wrong":
                sys.stdout.write(f"  {each.framework}: {each.key} is {each.means}, read as {each.found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
