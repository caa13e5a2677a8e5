"""An S3 server on the loopback, which can be stopped for a while."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

#: What a client needs to know of it.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}


class Server:
    """A server of moto. It keeps its buckets while it is down: its process is stopped, and connections time out."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url, "FSSPEC_S3_ENDPOINT_URL": self.url}
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, seconds=120.0):
        end = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5):  # noqa: S310 - of our own
                    return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def storage(self):
        import s3fs

        options = {"endpoint_url": self.url}
        return s3fs.S3FileSystem(key="x", secret="y", client_kwargs=options, skip_instance_cache=True)  # noqa: S106

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def s3_server():
    """Run a server until the block ends."""
    server = Server()
    try:
        server.wait()
        yield server
    finally:
        server.process.kill()
        server.process.wait()
