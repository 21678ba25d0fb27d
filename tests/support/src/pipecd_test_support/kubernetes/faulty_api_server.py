# SPDX-License-Identifier: Apache-2.0
"""An API server that fails as a test says, and does everything else as the real one behind it.

It has the real one's certificate, so a kubeconfig for it differs in the address alone; a client
shows it a token, because a client's certificate ends here.

    faulty_api_server.fail(THROTTLED, method="PATCH", path="/deployments/", times=2)
"""

import re
import socket
import ssl
import struct
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Final

import httpx2

from pipecd_test_support.kubernetes.faults import UNAUTHORIZED, Fault, PlannedFault
from pipecd_test_support.kubernetes.real_cluster import RealCluster
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN
from pipecd_test_support.web_server import Answer, Question, WebServer

_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "upgrade"})
GATE_SECONDS: Final = 60.0
"""How long a request waits for its gate at most: a test that forgets it must end."""


class ResetError(ConnectionError):
    """The connection to the client was reset, on purpose."""


class FaultyApiServer(WebServer):
    """Stands between a client and the API server of a cluster, while a block runs."""

    def __init__(self, cluster: RealCluster) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cluster.folder / "server.pem", cluster.folder / "server.key")
        super().__init__(tls)
        self._cluster = cluster
        self._real = httpx2.Client(
            base_url=cluster.server,
            verify=ssl.create_default_context(cafile=str(cluster.authority)),
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
        )
        self._lock = threading.Lock()
        self._planned: list[PlannedFault] = []
        self._expired: set[str] = set()
        self._streams: dict[BaseHTTPRequestHandler, httpx2.Response] = {}

    def write_kubeconfig(self, path: Path, *, token: str = ADMIN_TOKEN) -> Path:
        """Write a kubeconfig with the address of this server and a token."""
        return self._cluster.write_kubeconfig(path, token=token, server=self.url)

    def fail(
        self, fault: Fault, *, method: str = "", path: str = "", times: int = 1
    ) -> PlannedFault:
        """Fail the next requests of a method whose path and query match; the first plan wins.

        `path` is a regular expression to be found in `/path?query`; `times` may be `faults.ALWAYS`.
        """
        planned = PlannedFault(fault=fault, method=method, pattern=re.compile(path), rest=times)
        with self._lock:
            self._planned.append(planned)
        return planned

    def heal(self) -> None:
        """Fail no request from now on; expired tokens stay expired."""
        with self._lock:
            self._planned.clear()

    def expire_token(self, token: str) -> None:
        """Know this token no more."""
        self._expired.add(token)

    def cut_streams(self) -> int:
        """Cut all answers that are being sent, watches above all; return their number."""
        with self._lock:
            cut = list(self._streams.items())
        for handler, response in cut:
            _shut(response)
            _reset(handler)
        return len(cut)

    def find(self, question: Question) -> Answer:
        """Answer one request as planned, or as the real server does."""
        fault = self._find_fault(question)
        if fault is None:
            return self._forward(question)
        if fault.gate is not None:
            fault.gate.wait(GATE_SECONDS)
            return fault.answer or self._forward(question)
        if fault.is_after:
            self._forward(question, is_answer_kept=False)
        if fault.answer is None:
            _reset(question.handler)
            raise ResetError
        return fault.answer

    def _find_fault(self, question: Question) -> Fault | None:
        token = str(question.headers.get("Authorization", "")).removeprefix("Bearer ")
        if token in self._expired:
            return UNAUTHORIZED
        with self._lock:
            for planned in self._planned:
                if planned.take(question):
                    return planned.fault
        return None

    def _forward(self, question: Question, *, is_answer_kept: bool = True) -> Answer:
        headers = {
            name: value
            for name, value in question.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        request = self._real.build_request(
            question.method, question.handler.path, headers=headers, content=question.body
        )
        response = self._real.send(request, stream=True)
        if not is_answer_kept:
            response.read()
            return Answer()
        kept = {
            name: value
            for name, value in response.headers.items()
            if name.lower() not in _HOP_BY_HOP | {"content-length"}
        }
        kept["Transfer-Encoding"] = "chunked"

        def write(handler: BaseHTTPRequestHandler) -> None:
            self._stream(response, handler)

        return Answer(status=response.status_code, headers=kept, write=write)

    def _stream(self, response: httpx2.Response, handler: BaseHTTPRequestHandler) -> None:
        """Send what the real server sends, as it comes."""
        with self._lock:
            self._streams[handler] = response
        try:
            for part in response.iter_raw():
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            handler.wfile.write(b"0\r\n\r\n")
        finally:
            with self._lock:
                self._streams.pop(handler, None)
            response.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for planned in self._planned:
            if planned.fault.gate is not None:
                planned.fault.gate.set()
        super().__exit__(kind, error, trace)
        self.cut_streams()
        self._real.close()


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """End a connection as a machine does that has forgotten it, not by saying goodbye."""
    with suppress(OSError):  # the client was faster
        linger = struct.pack("ii", 1, 0)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        socket.close(handler.connection.detach())


def _shut(response: httpx2.Response) -> None:
    """End the wait of another thread for more of an answer."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
