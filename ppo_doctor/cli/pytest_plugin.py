"""The pytest plugin: `pytest --ppo-doctor RUN` adds one test per run, which passes if the gate passes.

Every pytest of an environment with ppo-doctor installed imports this module, so it imports nothing but pytest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ppo-doctor RUN` and what goes with it."""
    group = parser.getgroup("ppo-doctor", "training runs judged by ppo-doctor")
    group.addoption("--ppo-doctor", action="append", default=[], metavar="RUN", help="judge this run; repeatable")
    group.addoption("--ppo-doctor-policy", default=None, metavar="FILE", help="the policy; else the nearest one")
    group.addoption("--ppo-doctor-fail-on", default=None, metavar="SEVERITY", help="critical, high, medium or low")


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add a test for every run that was named."""
    items.extend(_tests(session, session.config.getoption("--ppo-doctor")))


def _tests(session: pytest.Session, runs: Iterable[str]) -> list[pytest.Item]:
    return [RunTest.from_parent(session, name=f"ppo-doctor[{run}]", run=run) for run in runs]


class RunTest(pytest.Item):
    """One training run, judged."""

    def __init__(self, *, run: str, **rest: Any) -> None:  # noqa: ANN401 - pytest's own arguments
        super().__init__(**rest)
        self.run = run

    def runtest(self) -> None:
        """Judge the run by the policy."""
        from ppo_doctor.testing import assert_healthy

        policy = self.config.getoption("--ppo-doctor-policy")
        fail_on = self.config.getoption("--ppo-doctor-fail-on")
        assert_healthy(self.run, policy=Path(policy) if policy else None, fail_on=fail_on)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401
        """Return the report, or the error that prevented judging; a traceback only for a bug of ours."""
        from ppo_doctor.model.errors import DoctorError

        if isinstance(excinfo.value, DoctorError):
            return f"{excinfo.value.message}\n{excinfo.value.hint}".strip()
        if isinstance(excinfo.value, AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the test: its run."""
        return Path(self.run), None, self.name
