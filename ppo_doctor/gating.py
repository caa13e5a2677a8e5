"""The gate from sources to rulings: policy found, runs judged, each run or group of seeds held against it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.errors import ExitCode, worst
from ppo_doctor.policy import Policy, applied, find_policy, known_rules, read_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.pipeline import Request
    from ppo_doctor.ruling import Ruling


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What came out of a gate: the judged runs, a ruling for each, and the exit code over all."""

    judged: tuple[tuple[Run, Diagnosis], ...]
    rulings: Mapping[str, Ruling]
    code: ExitCode


def policy_for(
    path: Path | None, *, fail_on: str | None = None, baseline: Path | None = None, rules: Sequence[Path] = ()
) -> Policy:
    """Return the policy to go by: the file named, else the nearest one, with what the caller adds.

    Raises:
        DoctorError: the policy cannot be read or means nothing (exit code 2).
    """
    policy = read_policy(path) if path else find_policy(Path())
    return replace(
        policy,
        fail_on=fail_on or policy.fail_on,
        baseline=baseline or policy.baseline,
        rules=(*policy.rules, *rules),
    )


def gate(sources: Sequence[str], policy: Policy, request: Request, *, group: bool = False) -> Gated:
    """Judge sources and hold them against a policy.

    Raises:
        DoctorError: a policy that names what does not exist, or nothing that could be judged.
    """
    from ppo_doctor.baseline import read_baseline
    from ppo_doctor.gate import rule_on
    from ppo_doctor.judging import judge_all
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    pack = applied(policy, load_pack(policy.rules))
    known_rules(pack, (*request.select, *request.ignore))
    baseline = read_baseline(policy.baseline) if policy.baseline else None
    runs, missing = gather(sources)
    if not runs and len(missing) == 1:
        raise missing[0]
    judged, codes = judge_all(runs, missing, _narrowed(request, policy), pack)
    rulings: dict[str, Ruling] = {}
    for together in _together(judged, group=group):
        ruling = rule_on(together, policy, baseline)
        rulings |= {run.id: ruling for run, _ in together}
    code = worst([*codes, *(ruling.code for ruling in rulings.values())])
    return Gated(judged=tuple(judged), rulings=rulings, code=code)


def _together(judged: Sequence[tuple[Run, Diagnosis]], *, group: bool) -> list[list[tuple[Run, Diagnosis]]]:
    if not group:
        return [[pair] for pair in judged]
    from ppo_doctor.groups import grouped

    return grouped(judged)


def _narrowed(request: Request, policy: Policy) -> Request:
    """Return the request with the policy's rules; the caller's selection replaces, what it ignores adds."""
    return replace(
        request,
        select=tuple(request.select) or policy.select,
        ignore=(*policy.ignore, *request.ignore),
        framework=request.framework or policy.framework,
        target_return=policy.target_return if request.target_return is None else request.target_return,
        project_aliases=policy.alias,
    )
