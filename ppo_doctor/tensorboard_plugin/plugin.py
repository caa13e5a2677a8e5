"""What TensorBoard asks of a plugin.

TensorBoard imports this module whenever it starts, so it imports little but what TensorBoard has imported already.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from ppo_doctor.tensorboard_plugin.run_list import RunList

_STATIC = Path(__file__).parent / "static"
_REPORT_ASSETS = Path(__file__).parents[1] / "report" / "assets"
THEMES = ("light", "dark")
#: What --logdir_spec takes for a path although it has a colon: one from the root, and the URL of a storage.
_PATH = re.compile(r"/|[A-Za-z][0-9A-Za-z.]*://")


class DoctorPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab: a page, a style sheet, the list of runs, and the report of each run."""

    plugin_name = "ppo_doctor"

    def __init__(self, context: Any) -> None:  # noqa: ANN401 - TensorBoard's, which has no types
        flags = context.flags
        self._places = places(context.logdir or "", getattr(flags, "logdir_spec", "") or "")
        self._list = RunList(self._places)

    def get_plugin_apps(self) -> Mapping[str, Callable[..., Any]]:
        """Return what answers below /data/plugin/ppo_doctor."""
        return {
            "/index.js": Request.application(lambda request: _static(request, _STATIC / "index.js", "text/javascript")),
            "/index.css": Request.application(lambda request: _static(request, _STATIC / "index.css", "text/css")),
            "/report.css": Request.application(
                lambda request: _static(request, _REPORT_ASSETS / "report.css", "text/css")
            ),
            "/runs": Request.application(self._runs),
            "/report": Request.application(self._report),
        }

    def is_active(self) -> bool:
        """Return whether there is a folder to look into."""
        return bool(self._places)

    def frontend_metadata(self) -> Any:  # noqa: ANN401 - TensorBoard's, which has no types
        """Return the name of the tab and its script; the tab polls by itself."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="PPO Doctor", disable_reload=True)

    def _runs(self, request: Request) -> Response:
        """Answer with the runs as they are known now; `open` is the key of the run whose report is shown."""
        return _respond(request, self._list.state(request.args.get("open", "")), "application/json")

    def _report(self, request: Request) -> Response:
        """Answer with the report of the run of a key, if it was judged and its report is kept."""
        page = self._list.page(request.args.get("run", ""))
        if page is None:
            return _respond(request, "There is no report of this run.", "text/plain", code=404)
        from ppo_doctor.report.html import SCRIPTS
        from ppo_doctor.report.html_markup import script_digest

        theme = request.args.get("theme")
        if theme in THEMES:
            page = page.replace("<html ", f'<html data-theme="{theme}" ', 1)
        return _respond(request, page, "text/html", csp_scripts_sha256s=[script_digest(SCRIPTS)])


def places(logdir: str, spec: str) -> dict[Path, str]:
    """Return the local folders that --logdir or --logdir_spec names, each with the name that it has there."""
    found: dict[Path, str] = {}
    for text in filter(None, [logdir] if logdir else spec.split(",")):
        name, colon, path = text.partition(":")
        named = not logdir and colon and not _PATH.match(text) and not os.path.splitdrive(text)[0]
        folder = path if named else text
        if "://" not in folder:
            found[Path(folder).expanduser()] = name if named else ""
    return found


def _static(request: Request, path: Path, kind: str) -> Response:
    return _respond(request, _content(path), kind)


@cache
def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _respond(request: Request, content: Any, kind: str, **more: Any) -> Response:  # noqa: ANN401 - as TensorBoard's
    """Answer as TensorBoard does, with its content security policy, compressed and never cached."""
    answer: Response = http_util.Respond(request, content, kind, **more)
    return answer
