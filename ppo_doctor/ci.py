"""The bodies of the commands for CI: gate and compare."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.gating import gate
from ppo_doctor.opening import plain_file
from ppo_doctor.output import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.compare import Comparison, Side
    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.output import Wanted
    from ppo_doctor.pipeline import Request
    from ppo_doctor.policy import Policy
    from ppo_doctor.report import RenderOptions


def run_gate(
    sources: Sequence[str],
    policy: Policy,
    request: Request,
    options: RenderOptions,
    places: Sequence[Wanted],
    *,
    group: bool = False,
) -> ExitCode:
    """Judge sources by a policy, write the reports, and return the exit code.

    What was ruled stands at the end of the text report; without one it goes to stderr.
    """
    gated = gate(sources, policy, request, group=group)
    options = replace(options, rulings=gated.rulings)
    report(gated.judged, options, places)
    if not any(name == "text" for name, _ in places):
        from ppo_doctor.report.gate_lines import text

        sys.stderr.write(text(gated.rulings))
    return gated.code


def run_compare(sources: Sequence[str], request: Request, rules: Sequence[Path], *, group: bool) -> Comparison:
    """Compare two runs, reports or, with `group`, the seeds of two configurations.

    Raises:
        DoctorError: there are not two sides (exit code 2), or nothing to judge.
    """
    from ppo_doctor.compare import compare

    sides = [*_sides(sources, request, rules, group=group)]
    if len(sides) != 2:
        kind = "configurations" if group else "runs"
        hint = "name two runs or reports; several seeds of two configurations with --group"
        raise DoctorError(f"compare needs two {kind}, not {len(sides)}", hint=hint, code=ExitCode.USAGE)
    return compare(*sides)


def _sides(sources: Sequence[str], request: Request, rules: Sequence[Path], *, group: bool) -> list[Side]:
    from ppo_doctor.baseline import read_report
    from ppo_doctor.compare import side_of, side_of_report
    from ppo_doctor.groups import grouped
    from ppo_doctor.judging import judge
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    pack = load_pack(rules)
    sides: list[Side] = []
    judged: list[tuple[Run, Diagnosis]] = []
    for text in sources:
        if _is_report(Path(text)):
            sides.append(side_of_report(read_report(Path(text))))
            continue
        found, missing = gather([text])
        if missing:
            raise missing[0]
        judged += [pair for source in found for pair in judge(source, request, pack)]
        if not group:
            sides += [side_of([pair]) for pair in judged]
            judged = []
    return sides + [side_of(pairs) for pairs in grouped(judged)]


def _is_report(path: Path) -> bool:
    """Tell a report of ours from a log by its first bytes; a log of training has no `schema_version`."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with plain_file(path) as file:
        return b'"schema_version"' in file.read(200)
