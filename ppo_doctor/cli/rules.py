"""`ppo-doctor rules`: list, test and document rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import rules_app
from ppo_doctor.cli.options import (
    RuleFolders,
)
from ppo_doctor.errors import ExitCode
from ppo_doctor.output import write


@rules_app.command("list")
def list_rules(rules: RuleFolders = None) -> None:
    """List every rule: code, name, severity, link and title."""
    from ppo_doctor.rulepack import load_pack

    pack = load_pack(rules or [])
    width = max(len(rule.name) for rule in pack.rules)
    for rule in sorted(pack.rules, key=lambda rule: rule.code):
        write(f"{rule.code}  {rule.name:<{width}}  {rule.severity:<8}  {rule.link:<10}  {rule.title}\n", None)


@rules_app.command("test")
def test_rules(rules: RuleFolders = None) -> None:
    """Run the cases that rules carry."""
    from ppo_doctor.rulepack import load_pack, prose
    from ppo_doctor.testing import run_case

    results = [run_case(rule, case) for rule in load_pack(rules or []).rules for case in prose(rule.path)["case"]]
    failed = [result for result in results if result.problems]
    for result in failed:
        write(f"{result.rule}: {result.case}: {'; '.join(result.problems)}\n", None)
    write(f"{len(results)} cases, {len(failed)} failed\n", None)
    raise typer.Exit(ExitCode.SICK if failed else ExitCode.OK)


@rules_app.command("docs")
def generate_docs(
    folder: Annotated[Path, typer.Option("--out", help="The docs folder.")] = Path("docs"),
    check: Annotated[
        bool, typer.Option("--check", help="Only tell which pages are stale; exit with 1 if any.")
    ] = False,
) -> None:
    """Write the pages of rules, causes and frameworks."""
    from ppo_doctor import docs

    names = docs.stale(folder) if check else docs.write(folder)
    write("".join(f"{'stale' if check else 'written'}: {name}\n" for name in names), None)
    raise typer.Exit(ExitCode.SICK if check and names else ExitCode.OK)
