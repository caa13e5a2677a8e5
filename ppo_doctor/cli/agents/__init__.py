"""The command `mcp`: the diagnosis as tools for agents, over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.model.errors import DoctorError, ExitCode


@app.command()
def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option(help="Read only below this folder. Repeatable. Default: the folders that the client names."),
    ] = None,
    http: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Serve on 127.0.0.1:PORT/mcp, not on stdio.")
    ] = None,
    allow_run: Annotated[
        bool, typer.Option("--allow-run", help="Offer a tool that runs training scripts below the roots.")
    ] = False,
) -> None:
    """Serve the diagnosis to agents over MCP, on stdin and stdout."""
    roots = [_folder(path) for path in root or ()]
    if http is not None and not roots:
        hint = "name what may be read: ppo-doctor mcp --http 8765 --root runs"
        raise DoctorError("--http needs --root, for any program here may connect", hint=hint, code=ExitCode.USAGE)
    if http is not None and allow_run:
        hint = "serve on stdin and stdout to run scripts"
        raise DoctorError(
            "--allow-run: not over HTTP, for any program here may connect", hint=hint, code=ExitCode.USAGE
        )
    try:
        from ppo_doctor.cli.agents.server import serve
    except ImportError as error:
        if error.name is None or error.name.startswith("ppo_doctor"):
            raise
        hint = "pip install 'ppo-doctor[mcp]'"
        raise DoctorError(f"mcp needs the package {error.name}", hint=hint, code=ExitCode.USAGE) from error
    serve(roots, http, allow_run=allow_run)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DoctorError(f"--root {path}: no such folder", code=ExitCode.USAGE)
    return path.resolve()
