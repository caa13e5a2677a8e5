"""Answers of the API of W&B, as its own client asks for them: a server on the loopback with runs in memory.

The queries are those of wandb 0.31 (wandb/apis/public/runs.py and wandb-core); the shapes of the answers follow what
the client reads of them.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

#: The only key that the server takes.
KEY = "0123456789abcdef0123456789abcdef01234567"
#: Runs of one page, whatever the client asks for.
PAGE = 2


class Api:
    """Projects of an entity: run ID → its configuration, state and records."""

    def __init__(self):
        self.url = ""
        self.projects = {}
        self.asked = []
        self.broken = 0

    def put(self, project, run_id, records, config=(), state="finished", summary=(), heartbeat="2026-01-02T03:04:05Z"):
        self.projects.setdefault(project, {})[run_id] = {
            "records": list(records),
            "attrs": {
                "id": f"storage-{run_id}",
                "projectId": "7",
                "tags": [],
                "name": run_id,
                "displayName": f"name of {run_id}",
                "sweepName": None,
                "state": state,
                "config": json.dumps({key: {"value": value, "desc": None} for key, value in dict(config).items()}),
                "group": None,
                "jobType": None,
                "commit": None,
                "readOnly": False,
                "createdAt": "2026-01-02T03:00:00Z",
                "heartbeatAt": heartbeat,
                "description": None,
                "notes": None,
                "systemMetrics": "{}",
                "summaryMetrics": json.dumps(dict(summary)),
                "historyLineCount": len(records),
                "user": {"name": "x", "username": "x"},
                "historyKeys": {"lastStep": max((record["_step"] for record in records), default=-1), "keys": {}},
            },
        }

    def answer(self, query, variables):
        name = re.search(r"query (\w+)", query)[1]
        self.asked.append(name)
        if name in ("Viewer", "GetDefaultEntity"):
            teams = {"edges": [{"node": {"name": "team"}}]}
            return {
                "viewer": {"id": "v", "entity": "team", "username": "x", "email": "", "flags": "{}", "teams": teams}
            }
        if name == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        project = self.projects.get(variables.get("project"))
        if project is None:
            return {"project": None}
        if name == "Runs":
            return {"project": self._page(project, variables)}
        run = project.get(variables.get("name") or variables.get("run") or variables.get("runName"))
        return {"project": {"run": run and self._of_run(name, run, variables)}}

    def _page(self, project, variables):
        first = int(variables.get("cursor") or 0)
        runs = list(project.values())
        edges = [
            {"node": dict(run["attrs"]), "cursor": str(number)}
            for number, run in enumerate(runs[first : first + PAGE], first + 1)
        ]
        info = {"endCursor": edges[-1]["cursor"] if edges else None, "hasNextPage": first + PAGE < len(runs)}
        return {"internalId": "7", "runCount": len(runs), "readOnly": False, "runs": {"edges": edges, "pageInfo": info}}

    def _of_run(self, name, run, variables):
        if name == "RunParquetHistory":
            return {"parquetHistory": {"parquetUrls": [], "liveData": run["records"]}}
        if name == "HistoryPage":
            low, high = int(variables["minStep"]), int(variables["maxStep"])
            return {"history": [json.dumps(each) for each in run["records"] if low <= each["_step"] < high]}
        return run["attrs"]


@contextmanager
def wandb_api():
    """Run the server until the block ends."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
            if api.broken:
                api.broken -= 1
                self._send(503, {"errors": [{"message": "down"}]})
            elif self.headers.get("Authorization") != expected:
                self._send(401, {"errors": [{"message": "user is not logged in"}]})
            else:
                self._send(200, {"data": api.answer(body["query"], body.get("variables") or {})})

        def _send(self, status, answer):
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
