"""The server with the client of the SDK, on one event loop so that its worker processes are started once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).resolve().parents[3] / "sample_logs"


class Agent:
    """Calls tools of a server as an agent does."""

    def __init__(self, portal: Any) -> None:
        self._portal = portal

    def run(self, function: Any, *arguments: object) -> Any:
        return self._portal.call(function, *arguments)

    def call(self, roots: list[Path], tool: str, arguments: dict[str, object], **client: object) -> Any:
        """Return the result of one call to a server that reads some roots."""
        from mcp import Client

        from ppo_doctor.cli.agents.server import server

        async def called() -> Any:
            async with Client(server(roots), **client) as agent:
                return await agent.call_tool(tool, arguments)

        return self.run(called)

    def asks(self, root: Path, tool: str, **arguments: object) -> dict[str, Any]:
        """Return the answer of a tool, which is typed, and the same in text."""
        import json

        result = self.call([root], tool, arguments)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    def refused(self, root: Path, tool: str, **arguments: object) -> str:
        """Return the error in the place of an answer."""
        result = self.call([root], tool, arguments)
        assert result.is_error
        assert "Traceback" not in result.content[0].text
        return result.content[0].text


@pytest.fixture(scope="package")
def agent() -> Iterator[Agent]:
    pytest.importorskip("mcp")
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        yield Agent(portal)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with a sick and a sound run."""
    root = tmp_path / "runs"
    for kind, name in (("sick", "lr-zero.canonical"), ("healthy", "healthy.canonical"), ("sick", "lr-zero.sb3")):
        shutil.copytree(SAMPLES / kind / name, root / name)
    return root
