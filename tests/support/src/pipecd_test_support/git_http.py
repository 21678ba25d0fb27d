# SPDX-License-Identifier: Apache-2.0
"""A git host over real HTTP: git's own CGI program behind a small server."""

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _do_nothing() -> None:
    """Tells nobody of a push."""


class GitHost(ThreadingHTTPServer):
    """Serves the repositories of a folder over HTTP, to the one who knows the password."""

    daemon_threads = True

    def __init__(self, root: Path, credentials: str = "") -> None:
        """`credentials` are `name:password`; without them everybody may read and push."""
        super().__init__(("127.0.0.1", 0), GitHandler)
        self.root = root
        self.expected: str | None = None
        if credentials:
            self.expected = "Basic " + base64.b64encode(credentials.encode()).decode()
        self.redirect_to = ""
        self.seen: list[str | None] = []
        self.on_push: Callable[[], None] = _do_nothing
        """Called when a push has been taken, before its client learns of it."""

    @contextmanager
    def serving(self) -> Iterator["GitHost"]:
        """Serves while the block runs."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def make_repository(self, name: str) -> str:
        """Makes an empty repository that can be pushed to; returns its address."""
        folder = self.root / name
        for command in (
            ["init", "--quiet", "--bare", "--initial-branch=main", str(folder)],
            ["-C", str(folder), "config", "http.receivepack", "true"],
        ):
            subprocess.run(["git", *command], check=True, capture_output=True, timeout=60)
        return f"{self.address}/{name}"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class GitHandler(BaseHTTPRequestHandler):
    """One request, answered by git's own CGI program."""

    server: GitHost

    def do_GET(self) -> None:
        host = self.server
        host.seen.append(self.headers.get("Authorization"))
        if host.redirect_to:
            self.send_response(302)
            self.send_header("Location", host.redirect_to + self.path)
            self.end_headers()
            return
        if host.expected and self.headers.get("Authorization") != host.expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        self._cgi()

    do_POST = do_GET  # noqa: N815 - the base class calls it by this name

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _cgi(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            },
            capture_output=True,
            check=True,
            timeout=60,
        )
        if self.command == "POST" and path.endswith("/git-receive-pack"):
            self.server.on_push()
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
