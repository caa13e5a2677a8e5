"""Commands that look things up: `inspect`, `explain` and `frameworks`."""

from __future__ import annotations

from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    Configs,
    Debug,
    Framework,
    RuleFolders,
    SaveAliases,
    Settings,
    Steps,
    complete_name,
    request_of,
    save_aliases,
)
from ppo_doctor.cli.output import write


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="A log, a run folder, or - for stdin.")],
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    save_alias: SaveAliases = False,
    steps: Steps = None,
    rules: RuleFolders = None,
    all_keys: Annotated[bool, typer.Option("--all", help="Every key, default and note.")] = False,
    debug: Debug = False,
) -> None:
    """Show what was read: names, configuration, K, and which causes this log can decide."""
    from ppo_doctor.inspection import inspect as look
    from ppo_doctor.pipeline import runs_of
    from ppo_doctor.report.inspection_text import render
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    request = request_of(framework, config, settings, steps, None, None, debug, alias)
    pack = load_pack(rules or [])
    found, missing = gather([source])
    if missing:
        raise missing[0]
    if save_alias:
        save_aliases(request, found)
    for run in (run for one in found for run in runs_of(one, request)):
        write(render(look(run, pack), everything=all_keys), None)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A rule, its code, a cause, or a metric.", autocompletion=complete_name)],
) -> None:
    """Print the manual page of a rule, a cause or a metric."""
    from ppo_doctor.manual import page
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.manpage import show

    write(show(page(name), RenderOptions()), None)


@app.command()
def frameworks() -> None:
    """List the frameworks whose logs we know, with the keys that give them away."""
    from ppo_doctor.frameworks import profiles

    for profile in sorted(profiles().values(), key=lambda profile: profile.name):
        prints = "; ".join(" + ".join(group) for group in profile.any_of)
        write(f"{profile.name:<16}  {profile.title}\n{'':<16}  {prints}\n", None)
