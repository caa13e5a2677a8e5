"""How the reports read: their lines over other people's logs, foreign runs and samples, and values in their actions.

`python -m lab.reports` prints, by verdict, how many lines a report of one run has at 100 columns and how many are over
its limit; then how many actions about a setting that the log or the configuration holds tell the value it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, runs_of
from ppo_doctor.diagnosis.first_step import value_in_force
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Run
from ppo_doctor.report import RenderOptions, render
from ppo_doctor.report.screen import HEALTHY_LINES, LINES
from ppo_doctor.report.summary import summarize
from ppo_doctor.runs.discover import gather

from .environments import ROOT
from .foreign import foreign_runs, real_logs

SAMPLES = ROOT.parent / "sample_logs"


def given() -> Iterator[list[str]]:
    """Yield what a user would name: the files of each foreign run and real log, and each sample."""
    seen = set()
    for label, folder in (*foreign_runs(), *real_logs()):
        files = [str(folder / label.case / name) for name in label.files]
        if (key := tuple(files)) not in seen:
            seen.add(key)
            yield files
    yield from ([str(path)] for path in sorted(SAMPLES.glob("*/*")))


def judged() -> Iterator[tuple[Run, Diagnosis]]:
    """Yield every run that can be read, judged."""
    pack = load_pack()
    for files in given():
        try:
            found, _ = gather(files)
            runs = [run for source in found for run in runs_of(source, Request())]
        except DoctorError:
            continue
        yield from ((run, diagnose(run, pack)) for run in runs)


def main() -> None:
    """Print both tables."""
    lines: dict[str, list[int]] = defaultdict(list)
    over, actions = [], [0, 0, 0]
    for run, diagnosis in judged():
        told = summarize(diagnosis, run)
        size = len(render(diagnosis, run, RenderOptions(color=False, width=100)).rstrip().splitlines())
        lines[diagnosis.verdict].append(size)
        most = HEALTHY_LINES if diagnosis.verdict == "healthy" else LINES
        if size > most:
            over.append(diagnosis.run.id)
        remedies = {r.do: r for cause in diagnosis.causes if cause.leader for r in cause.remedies}
        for action in (each for problem in told.problems for each in problem.do):
            remedy = remedies.get(action.do)
            if remedy is not None and remedy.setting and value_in_force(remedy.setting, run) is not None:
                actions = [
                    actions[0] + 1,
                    actions[1] + (action.now is not None),
                    actions[2] + (action.then is not None),
                ]
    for verdict, sizes in sorted(lines.items()):
        print(f"{verdict}: {len(sizes)} reports, {mean(sizes):.1f} lines in the mean, {max(sizes)} at most")
    print(f"over their limit: {len(over)}", *map(Path, over[:5]))
    print("actions about a setting that is held: {}, with its value {}, with one to set {}".format(*actions))


if __name__ == "__main__":
    main()
