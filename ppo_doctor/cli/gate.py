"""`ppo-doctor gate`: judge runs by a policy and a baseline, for CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    All,
    Configs,
    Debug,
    Formats,
    Framework,
    Ignore,
    NoColor,
    Output,
    Quiet,
    RuleFolders,
    Select,
    Settings,
    Sources,
    Steps,
    Why,
    check_fail_on,
    complete_severity,
    refuse_inputs,
    request_of,
)
from ppo_doctor.cli.output import places, report, report_error
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from ppo_doctor.cli.policy import Policy
    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run

GATE_FAIL_ON = "As in analyze; high unless the policy says otherwise."


@app.command()
def gate(
    sources: Sources,
    policy: Annotated[Path | None, typer.Option(help="The policy; else the nearest ppo-doctor.toml.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A JSON report; only new or worse causes fail.")] = None,
    group: Annotated[bool, typer.Option("--group", help="Judge seeds of one configuration together.")] = False,
    formats: Formats = None,
    output: Output = None,
    fail_on: Annotated[str | None, typer.Option(help=GATE_FAIL_ON, autocompletion=complete_severity)] = None,
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    why: Why = False,
    all_checks: All = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Judge training runs for CI, by a policy and a baseline; exit with 1 for what the policy forbids."""
    from ppo_doctor.report import RenderOptions

    if not formats and output is None and os.environ.get("GITHUB_ACTIONS") == "true":
        formats = ["text", "github"]  # annotations between the lines of the job's log
    reports = places(formats, output)
    refuse_inputs(reports, sources, [policy, baseline, *(config or ())], rules or [])
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    inputs: set[str] = set()
    try:
        if fail_on is not None:
            check_fail_on(fail_on)
        ours = policy_for(policy, fail_on=fail_on, baseline=baseline, rules=rules or ())
        refuse_inputs(reports, (), [ours.source, ours.baseline], ours.rules)
        request = request_of(framework, config, settings, steps, select, ignore, debug, alias)
        judged, results, code = run_gate(sources, ours, request, group=group)
        report(judged, replace(options, gate_results=results), reports, inputs)
    except DoctorError as error:
        report_error(error, reports, inputs)
        raise
    if not any(name == "text" for name, _ in reports):
        from ppo_doctor.report.gate import text

        sys.stderr.write(text(results))
    raise typer.Exit(code)


def policy_for(
    path: Path | None, *, fail_on: str | None = None, baseline: Path | None = None, rules: Sequence[Path] = ()
) -> Policy:
    """Return the policy of a gate: the file named, else the nearest one, with what the caller adds.

    Raises:
        DoctorError: the policy cannot be read or means nothing (exit code 2).
    """
    from ppo_doctor.cli.policy import find_policy, read_policy

    policy = read_policy(path) if path else find_policy(Path())
    return replace(
        policy,
        fail_on=fail_on or policy.fail_on,
        baseline=baseline or policy.baseline,
        rules=(*policy.rules, *rules),
    )


def run_gate(
    sources: Sequence[str], policy: Policy, request: Request, *, group: bool = False
) -> tuple[list[tuple[Run, Diagnosis]], Mapping[str, GateResult], ExitCode]:
    """Judge sources by a policy; return the judged runs, the result of each by its id, and the exit code over all.

    Raises:
        DoctorError: a policy that names what does not exist, or nothing that could be judged.
    """
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.cli.decision import decide, read_baseline
    from ppo_doctor.cli.judge import judge_runs
    from ppo_doctor.cli.policy import applied, known_rules
    from ppo_doctor.diagnosis.divergence import grouped
    from ppo_doctor.runs.discover import gather

    pack = applied(policy, load_pack(policy.rules))
    known_rules(pack, (*request.select, *request.ignore))
    baseline = read_baseline(policy.baseline) if policy.baseline else None
    found, errors = gather(sources)
    if not found and len(errors) == 1:
        raise errors[0]
    judged = list(judge_runs(found, errors, _with_policy(request, policy), pack))
    results: dict[str, GateResult] = {}
    for seeds in grouped(judged) if group else [[pair] for pair in judged]:
        result = decide(seeds, policy, baseline)
        results |= {run.id: result for run, _ in seeds}
    return judged, results, worst([error.code for error in errors] + [result.code for result in results.values()])


def _with_policy(request: Request, policy: Policy) -> Request:
    """Return the request with the policy's rules; the caller's selection replaces, what it ignores adds."""
    return replace(
        request,
        select=tuple(request.select) or policy.select,
        ignore=(*policy.ignore, *request.ignore),
        framework=request.framework or policy.framework,
        target_return=policy.target_return if request.target_return is None else request.target_return,
        project_aliases=policy.alias,
    )
