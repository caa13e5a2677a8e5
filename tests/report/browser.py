"""A headless Chromium, driven over a pipe with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
#: A browser that says nothing for so long has died; no test waits for it otherwise.
PATIENCE = 60


class Tab:
    """One page: `do` sends a command of the DevTools protocol, `js` evaluates, `seen` keeps what the browser tells."""

    def __init__(self, into: int, out: int) -> None:
        self.into, self.out = into, out
        self.seen: list[dict[str, Any]] = []
        self.last, self.session, self.rest = 0, "", b""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        os.write(
            self.into, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while True:
            answer = self._read()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]
            self.seen.append(answer)

    def wait(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.seen):
            self.seen.append(self._read())

    def open(self, page: Path | str, width: int, *, dark: bool = False) -> Tab:
        theme = "dark" if dark else "light"
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.seen.clear()
        self.do("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self.wait("Page.loadEventFired")
        return self

    def js(self, code: str) -> Any:
        answer = self.do("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, *, code: int, text: str = "") -> None:
        shape = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.do("Input.dispatchKeyEvent", type="keyDown", text=text, **shape)
        self.do("Input.dispatchKeyEvent", type="keyUp", **shape)

    def picture(self, height: int = 900) -> bytes:
        width = self.js("innerWidth")
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        return base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"])

    def events(self, *methods: str) -> list[dict[str, Any]]:
        self.js("0")  # what the page did before has been told when this is answered
        return [event["params"] for event in self.seen if event.get("method") in methods]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.out], [], [], PATIENCE)
            part = os.read(self.out, 1 << 20) if ready else b""
            assert part, "the browser has gone"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start Chromium with an empty profile in a folder, and end it."""
    assert CHROMIUM
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()  # a browser that root starts has none
    flags = (*FLAGS, *sandbox, f"--user-data-dir={folder / 'profile'}", "about:blank")
    # The protocol lives on descriptors 3 and 4.
    command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "-", CHROMIUM, *flags]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=quiet, stderr=quiet)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        tab = Tab(ours_in, ours_out)
        yield tab
        tab.session = ""
        tab.do("Browser.close")
    finally:
        os.close(ours_in)
        os.close(ours_out)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
