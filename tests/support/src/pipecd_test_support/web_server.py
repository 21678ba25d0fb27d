# SPDX-License-Identifier: Apache-2.0
"""A web server on a free port of this machine, whose answers a test gives."""

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass
class Question:
    """What somebody asked the server."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Any
    body: bytes
    handler: BaseHTTPRequestHandler


@dataclass
class Answer:
    """What the server says. A body that is not a text is written by the test itself."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[BaseHTTPRequestHandler], None] | None = None


class WebServer:
    """Serves while the block runs, with TLS if it is given a context."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        """Method and path of every question, in order."""
        self.questions: list[Question] = []
        self._answers: dict[str, Callable[[Question], Answer]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self) -> None:
                server._answer(self)

            do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815 - the library's names
            do_PATCH = do_DELETE = answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self.scheme = "http"
        if tls is not None:
            self.scheme = "https"
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def give(self, path: str, answer: Answer | Callable[[Question], Answer]) -> str:
        """Answer at a path from now on; the address of it."""
        self._answers[path] = answer if callable(answer) else lambda _: answer
        return f"{self.url}{path}"

    def find(self, question: Question) -> Answer:
        """The answer to a question; servers with a mind of their own override this."""
        given = self._answers.get(question.path)
        return given(question) if given is not None else Answer(status=404, body=b"no such page")

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        question = Question(
            method=handler.command,
            path=parts.path,
            query=parse_qs(parts.query),
            headers=handler.headers,
            body=handler.rfile.read(int(handler.headers.get("Content-Length", "0"))),
            handler=handler,
        )
        self.asked.append(f"{question.method} {question.path}")
        self.questions.append(question)
        answer = self.find(question)
        handler.send_response(answer.status)
        headers = dict(answer.headers)
        if answer.write is None:
            headers.setdefault("Content-Length", str(len(answer.body)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if answer.write is not None:
            answer.write(handler)
        elif question.method != "HEAD":
            handler.wfile.write(answer.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Be away from now on."""
        self._server.shutdown()
        self._server.server_close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._thread.join(10)
