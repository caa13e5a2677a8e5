"""The commands `rules list`, `new`, `test` and `docs`."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import rules_app
from ppo_doctor.cli.options import RuleFolders
from ppo_doctor.cli.output import write
from ppo_doctor.model.errors import DoctorError, ExitCode

#: What `rules new` writes; CODE and NAME stand for those of the new rule.
TEMPLATE = Path(__file__).with_name("rule_template.toml")


@rules_app.command("list")
def list_rules(rules: RuleFolders = None) -> None:
    """List every rule: code, name, severity, link, folder of origin, and title."""
    from ppo_doctor.checks.rulepack import load_pack

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
    folder: Annotated[Path, typer.Option("--dir", help="The folder of rules to add it to; made if it is missing.")],
    rules: RuleFolders = None,
) -> None:
    """Write a rule to start from, with cases that pass."""
    from ppo_doctor.checks.rulepack import load_pack

    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        hint = "small letters, digits and hyphens: entropy-collapses-late"
        raise DoctorError(f"'{name}' cannot name a rule", hint=hint, code=ExitCode.USAGE)
    pack = load_pack([*(rules or []), *([folder] if any(folder.rglob("*.toml")) else [])])
    if taken := pack.rule(name) or pack.cause(name):
        raise DoctorError(f"'{name}' is taken", hint=taken.path, code=ExitCode.USAGE)
    letters = re.sub(r"[^A-Z]", "", folder.resolve().name.upper())[:4].ljust(2, "X")
    codes = {rule.code for rule in pack.rules}
    code = next(code for number in count(1) if (code := f"{letters}{number:03}") not in codes)
    path = folder / f"{name}.toml"
    _write_new(path, TEMPLATE.read_text(encoding="utf-8").replace("CODE", code).replace("NAME", name))
    write(f"written: {path}\ntry it: ppo-doctor rules test --rules {folder}\n", None)


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise DoctorError(f"{path}: cannot write: {error.strerror}", code=ExitCode.USAGE) from error


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
            help="Print the value and bound of every condition, case by case, and the thresholds that no case is near.",
        ),
    ] = False,
) -> None:
    """Run the cases that rules carry."""
    from ppo_doctor.checks.cases import read_cases, run_cases, values_of
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.model.toml_schema import one_of

    pack = load_pack(rules or [])
    for name in names or ():
        one_of("rules test", "rule", name, [rule.name for rule in pack.rules])
    folders = [folder.resolve() for folder in rules or ()]
    mine = [rule for rule in pack.rules if not folders or any(map(Path(rule.path).is_relative_to, folders))]
    chosen = [rule for rule in pack.rules if rule.name in names] if names else mine
    results = run_cases(chosen)
    failed = [result for result in results if result.problems]
    for rule in chosen if show_values else ():
        write("".join(f"{line}\n" for line in values_of(rule, read_cases(rule))), None)
    for result in failed:
        write(f"{result}\n", None)
    write(f"{len(results)} cases, {len(failed)} failed\n", None)
    raise typer.Exit(ExitCode.SICK if failed else ExitCode.OK)


@rules_app.command("docs")
def write_docs(
    folder: Annotated[Path, typer.Option("--out", help="The folder to write them to.")],
) -> None:
    """Write what `explain` prints as linked pages: every rule, cause, framework and metric, in Markdown."""
    from ppo_doctor.cli.pages import site

    folder.mkdir(parents=True, exist_ok=True)  # refuse a folder that cannot be written before the pages are built
    pages = site()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write(f"{len(pages)} pages written: start at {folder / 'README.md'}\n", None)
