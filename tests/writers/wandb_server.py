"""A local W&B server with just the answers that a run needs."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer(ThreadingHTTPServer):
    """Records the requests of runs, and the rows of history that they send."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []
        self.operations: list[tuple[str, dict[str, Any]]] = []
        self.rows: list[dict[str, Any]] = []

    def runs_named(self, operation: str) -> list[str]:
        """Return the run ids in all requests of one operation."""
        return [variables["name"] for name, variables in self.operations if name == operation]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: the client may have disconnected."""


class Answers(BaseHTTPRequestHandler):
    server: WandbServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests.append(f"{self.command} {self.path}")
        given: Any = {}
        if self.path == "/graphql":
            asked = json.loads(body)
            self.server.operations.append((asked["operationName"], asked["variables"]))
            given = {"data": self.data_of(asked["operationName"], asked["variables"])}
        elif self.path.endswith("/file_stream"):
            content = json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.server.rows.extend(json.loads(line) for line in content)
        text = json.dumps(given).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer  # noqa: N815  # the base class sets the names

    def data_of(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        if operation == "RunResumeStatus":
            return {"model": None}
        if operation == "UpsertBucket":
            project = {"id": "p", "name": "digits", "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "b", "name": variables["name"], "displayName": "x", "config": "{}", "project": project}
            return {"upsertBucket": {"bucket": bucket | {"historyLineCount": 0}, "inserted": True}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.server.url}/upload/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}


@contextmanager
def serving() -> Iterator[WandbServer]:
    """Run the server while the context lasts."""
    with WandbServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
