"""The lines that every report prints of a problem, each with its label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import number
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.phrases import flowing, remedy_says, sentence, stopped, to_do

if TYPE_CHECKING:
    from ppo_doctor.model.rules import Measurement
    from ppo_doctor.model.run import CodePlace
    from ppo_doctor.report.layout import Page
    from ppo_doctor.report.summary import ProblemSummary


#: The most characters of the name of a checkpoint.
LONGEST_NAME = 32
#: The most characters of what is said of it, which fit into one line of 80 columns.
ONE_LINE = 70


def code_lines(page: Page, place: CodePlace | None, indent: int) -> None:
    """Add a line of the script, and below it the others that are part of the matter."""
    if place is not None:
        page.add(prose(place.says), indent, 2)
        for each in place.also:
            page.add(prose(each.does), indent + 2, 2)


def advice(
    problem: ProblemSummary, *, also: int | None = None, seen: int = 2, resort: bool = True, because: bool = True
) -> list[tuple[str, str]]:
    """Return the lines of a problem with their labels: code, evidence, cost, causes, remedies, measurement, not to do.

    The label of a further line of code is empty: it continues the line above. The checkpoint to go back to follows the
    remedies. The measurement precedes them if the leading cause is only suspected. `also` is the number of further
    lines of code, all where it is None, and `seen` that of statistics; without `resort` only the first remedy is given,
    without `because` the measurement has no reason.
    """
    code = problem.code
    lines = [("at", prose(code.says)), *(("", prose(each.does)) for each in code.also[:also])] if code else []
    lines += [("seen", "; ".join(map(flowing, problem.seen[:seen])))] if problem.seen[:seen] else []
    if problem.cost is not None:
        lines.append(("cost", f"{problem.cost.share:.0%} of the run: {problem.cost.what}"))
    lines += _why(problem)
    measure = problem.check if because or problem.check is None else replace(problem.check, because="")
    check = [("check", _check(measure))] if measure is not None else []
    actions = problem.do if resort else problem.do[:1]
    do = [("then" if i else "do", remedy_says(action)) for i, action in enumerate(actions)]
    lines += [*do, *_back(problem), *check] if problem.sure else [*check, *do, *_back(problem)]
    return [*lines, *([("not", sentence(problem.avoid))] if problem.avoid else [])]


def _why(problem: ProblemSummary) -> list[tuple[str, str]]:
    """Return the leading causes of a problem with their confidence; "or" precedes those as likely as the first."""
    if not problem.why:
        return [("why", "not told by this log")] if problem.state == "course" else []
    first, *others = problem.why
    lines = [("why", f"{first.confidence}: {flowing(first.title)}")]
    alike = [flowing(why.title) for why in others if why.confidence == first.confidence]
    if alike:
        lines.append(("or", f"{'; or: '.join(alike)} (this log cannot tell which)"))
    lines += [
        ("also", f"{why.confidence}: {flowing(why.title)}") for why in others if why.confidence != first.confidence
    ]
    return lines


def _back(problem: ProblemSummary) -> list[tuple[str, str]]:
    """Return the line on the checkpoint to go back to, if there is one."""
    found = problem.checkpoint
    if found is None:
        return []
    which = "last checkpoint before" if found.last else "last good checkpoint"
    text = f"{which}: {plain(Path(found.path).name, LONGEST_NAME)}, step {found.step}"
    reward = f", reward {number(found.reward)}" if found.reward is not None else ""
    return [("back", f"{text}{reward}" if len(text + reward) <= ONE_LINE else text)]


def _check(measure: Measurement) -> str:
    because = f": {flowing(measure.because)}" if measure.because else ""
    return stopped(f"{to_do(measure)} {flowing(measure.log)}{because}")
