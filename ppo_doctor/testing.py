"""For people's tests: `assert_healthy` judges a training run as `ppo-doctor gate` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ppo_doctor.cli.policy import Policy
    from ppo_doctor.report.notebook import Diagnosis

__all__ = ["assert_healthy"]


def assert_healthy(
    source: str | Path,
    *,
    policy: Policy | Path | None = None,
    fail_on: str | None = None,
    baseline: Path | None = None,
    settings: Mapping[str, object] | None = None,
    framework: str | None = None,
) -> Diagnosis:
    """Judge a training run by the project's policy, as `ppo-doctor gate` does, and return its diagnosis.

    Raises:
        AssertionError: the gate fails or cannot tell; the message is the report.
        DoctorError: nothing to judge, or a policy that means nothing.
    """
    __tracebackhide__ = True
    from ppo_doctor.cli.gate import policy_for, run_gate
    from ppo_doctor.cli.output import rendered
    from ppo_doctor.cli.policy import Policy
    from ppo_doctor.model.request import Request
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.notebook import diagnosis_of
    from ppo_doctor.trainers.configuration import flatten

    ours = policy if isinstance(policy, Policy) else policy_for(policy, fail_on=fail_on, baseline=baseline)
    request = Request(settings=flatten(settings or {}), framework=framework)
    judged, results, code = run_gate([str(source)], ours, request)
    if code != ExitCode.OK:
        options = RenderOptions(color=False, gate_results=results)
        raise AssertionError(rendered([(*pair, None) for pair in judged], options, "text", many=len(judged) > 1))
    run, diagnosis = judged[0]
    return diagnosis_of(diagnosis, run)
