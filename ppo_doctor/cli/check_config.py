"""The command `check-config`: check training configurations before a run, one line per finding."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import Apply, Framework, RuleFolders, check_fail_on, complete_severity
from ppo_doctor.cli.output import write
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.report.patch import Patch

CHECK_FAIL_ON = "Exit with 1 for a finding of: critical, high, medium, low."


@app.command("check-config")
def check_config(
    files: Annotated[list[Path], typer.Argument(help="Training configurations: YAML, JSON or TOML.")],
    framework: Framework = None,
    fail_on: Annotated[str, typer.Option(help=CHECK_FAIL_ON, autocompletion=complete_severity)] = "medium",
    rules: RuleFolders = None,
    fix: Annotated[bool, typer.Option("--fix", help="Print the correction of misspelt keys as a diff.")] = False,
    apply: Apply = False,
) -> None:
    """Check training configurations before a run, by the rules that need no log."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.report.escape import prose

    check_fail_on(fail_on)
    pack = load_pack(rules or [])
    checked = [check_file(path, pack, framework, fix=fix or apply) for path in files]
    lines = "".join(f"{prose(line)}\n" for entry in checked for line in entry.lines())
    if fix or apply:
        from ppo_doctor.cli.patch import finish_patch

        sys.stderr.write(lines)
        finish_patch([entry.correction for entry in checked if entry.correction], apply=apply)
    else:
        write(lines)
    raise typer.Exit(max((entry.code(fail_on) for entry in checked), default=ExitCode.OK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of checking one configuration.

    `known` is the number of canonical settings in it, `judged` the keys of those with a known range, `correction` the
    patch of its spelling if it was asked for, and `why` the reason if the file is no configuration.
    """

    path: Path
    known: int
    framework: str = ""
    judged: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    correction: Patch | None = None
    why: str = ""

    def code(self, fail_on: str) -> ExitCode:
        """Return 1 for a finding at or above `fail_on`: without a run there is no leading cause that could fail."""
        from ppo_doctor.model.words import Severity

        fired = (finding for finding in self.findings if finding.status == "fired")
        if fail_on != "never" and any(finding.severity.at_least(Severity(fail_on)) for finding in fired):
            return ExitCode.SICK
        return ExitCode.OK

    def lines(self) -> list[str]:
        """Return one line for each place of a finding; without a fault also what was checked, or why nothing was."""
        fired = [finding for finding in self.findings if finding.status == "fired"]
        lines = [
            f"{place}: {f.severity}: {f.title}: {words} ({f.rule})" for f in fired for place, words in self._places(f)
        ]
        if any(finding.severity != "info" for finding in fired):
            return lines
        if not self.known:
            return [*lines, self.why]
        if not self.judged:
            return [*lines, f"{self.path}: nothing found; none of its settings has a range that we know"]
        checked = f"{len(self.judged)} settings of {self.framework}: {', '.join(self.judged)}"
        return [*lines, f"{self.path}: nothing impossible, pointless or unusual in {checked}"]

    def _places(self, finding: Finding) -> list[tuple[str, str]]:
        """Return the places of a finding with a sentence about each; for a single place, one about everything."""
        from ppo_doctor.model.evidence import says, sentence

        places = list(dict.fromkeys(str(e.source) for e in finding.evidence if e.source is not None))
        if len(places) < 2:
            return [(places[0] if places else str(self.path), says(finding))]
        return [(str(e.source or self.path), sentence(e)) for e in finding.evidence]


def check_file(path: Path, pack: Pack, framework: str | None = None, *, fix: bool = False) -> Checked:
    """Check one configuration file; with `fix` also correct its spelling.

    Raises:
        DoctorError: it cannot be read, or there is no such framework (exit code 2).
    """
    from ppo_doctor.checks.config import judged
    from ppo_doctor.checks.engine import check
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.request import Request
    from ppo_doctor.runs.config_runs import known_settings, run_of_settings

    try:
        run = run_of_settings(path, Request(configs=(path,), framework=framework))
    except DoctorError as error:
        if error.code != ExitCode.NOTHING_TO_JUDGE:
            raise
        return Checked(path=path, known=0, why=error.message)
    view = RunView(run)
    findings = tuple(check(view, rule) for rule in pack.rules)
    return Checked(
        path=path,
        known=known_settings(run.config.values()),
        framework=run.framework,
        judged=tuple(setting.key for setting in judged(view)),
        findings=findings,
        correction=_correction(view) if fix else None,
    )


def _correction(view: RunView) -> Patch:
    from ppo_doctor.checks.config import words_unknown
    from ppo_doctor.report.patch import propose_spelling

    return propose_spelling(view.run, [(setting, near) for setting, _, near in words_unknown(view) if near])
