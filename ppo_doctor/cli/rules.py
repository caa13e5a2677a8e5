"""`ppo-doctor rules`: list, start, test and document rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import rules_app
from ppo_doctor.cli.options import RuleFolders
from ppo_doctor.cli.output import write
from ppo_doctor.errors import ExitCode


@rules_app.command("list")
def list_rules(rules: RuleFolders = None) -> None:
    """List every rule: code, name, severity, link, the pack that it comes from, and title."""
    from ppo_doctor.rulepack import load_pack

    pack = load_pack(rules or [])
    width = max(len(rule.name) for rule in pack.rules)
    origin = {rule: further.name for further in pack.further for rule in further.rules}
    widest = max(map(len, ("builtin", *origin.values())))
    for rule in sorted(pack.rules, key=lambda rule: rule.code):
        comes = f"{origin.get(rule.name, 'builtin'):<{widest}}"
        write(f"{rule.code}  {rule.name:<{width}}  {rule.severity:<8}  {rule.link:<10}  {comes}  {rule.title}\n", None)
    write("".join(f"{further}\n" for further in pack.further), None)


@rules_app.command("new")
def new_rule(
    name: Annotated[str, typer.Argument(help="Small letters and hyphens; completes “this run shows …”.")],
    folder: Annotated[Path, typer.Option("--dir", help="The rule pack to add it to; made if it is none yet.")],
    rules: RuleFolders = None,
) -> None:
    """Write a rule to start from, with cases that pass."""
    from ppo_doctor.rule_skeleton import new_rule as make

    written = make(name, folder, rules or [])
    write("".join(f"written: {path}\n" for path in written), None)
    write(f"try it: ppo-doctor rules test --rules {folder}\n", None)


@rules_app.command("test")
def test_rules(
    names: Annotated[
        list[str] | None, typer.Argument(help="Rules to test; by default those of --rules, or all.")
    ] = None,
    rules: RuleFolders = None,
    show_values: Annotated[
        bool,
        typer.Option(
            "--show-values",
            help="Print every clause's value beside its bound, case by case, and the thresholds that no case is near.",
        ),
    ] = False,
) -> None:
    """Run the cases that rules carry."""
    from ppo_doctor.forms import one_of
    from ppo_doctor.rulepack import load_pack, prose
    from ppo_doctor.testing import run_case, values_of

    pack = load_pack(rules or [])
    for name in names or ():
        one_of("rules test", "rule", name, [rule.name for rule in pack.rules])
    folders = [folder.resolve() for folder in rules or ()]
    mine = [rule for rule in pack.rules if not folders or any(map(Path(rule.path).is_relative_to, folders))]
    chosen = [rule for rule in pack.rules if rule.name in names] if names else mine
    held = [(rule, prose(rule.path)["case"]) for rule in chosen]
    results = [run_case(rule, case) for rule, cases in held for case in cases]
    failed = [result for result in results if result.problems]
    for rule, cases in held if show_values else ():
        write("".join(f"{line}\n" for line in values_of(rule, cases)), None)
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

    written = [] if check else docs.write(folder)
    stale = docs.stale(folder)
    told = [f"written: {name}\n" for name in written]
    told += [f"stale: {name}\n" if check else f"left, for nothing generates it: {name}\n" for name in stale]
    write("".join(told), None)
    raise typer.Exit(ExitCode.SICK if check and stale else ExitCode.OK)
