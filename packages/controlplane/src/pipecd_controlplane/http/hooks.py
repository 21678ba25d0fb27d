# SPDX-License-Identifier: Apache-2.0
"""The address of hooks: takes what git hosts send, and responds with a sentence for people."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.usecases.hook_deliveries import Delivery, HookDeliveries, HookResponse
from pipecd_controlplane.usecases.hooks import PATH
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger

log = logger(__name__)

HOOKS_PATH: Final = f"{PATH}/"
USAGE: Final = (
    "this is the address of a hook: let a git host POST to it. See docs/guides/webhooks.md"
)
FULL: Final = "too much is arriving at hooks now. The agents look by themselves at their next poll"
BROKEN: Final = "the control plane cannot take this now. The agents look by themselves"

CountHook = Callable[[str, str], None]
"""Called after each delivery: the project, empty for one that was refused, and the outcome."""


class _HooksFullError(Exception):
    """The bodies that are held for all hooks have no room for this one."""


class _HeldBytes:
    """The bytes of all bodies that are held at the same time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def take(self, count: int) -> None:
        if self._held + count > self._most:
            raise _HooksFullError
        self._held += count

    def give_back(self, count: int) -> None:
        self._held -= count


class HookRoutes:
    """The routes under /hooks/v1."""

    def __init__(self, deliveries: HookDeliveries, count: CountHook, max_bytes: int) -> None:
        """`max_bytes` is held of all bodies together; one body has the limit of the front."""
        self._deliveries = deliveries
        self._count = count
        self._held = _HeldBytes(max_bytes)

    def routes(self) -> list[Route]:
        path = f"{PATH}/{{project}}/{{hook}}"
        return [
            Route(path, self.receive, methods=["POST"]),
            Route(path, self.explain, methods=["GET"]),
        ]

    async def explain(self, _request: Request) -> Response:
        """Tells a person who has opened the address what it is for."""
        return PlainTextResponse(f"{USAGE}\n", status_code=405, headers={"allow": "POST"})

    async def receive(self, request: Request) -> Response:
        """Takes one delivery."""
        with ExitStack() as ended:
            delivery = Delivery(
                project_id=request.path_params["project"],
                hook_id=request.path_params["hook"],
                headers=dict(request.headers),
                network=network(request.client.host if request.client else ""),
                read_body=_BodyReader(request, self._held, ended).read,
            )
            try:
                made = await self._deliveries.receive(delivery)
            except _HooksFullError:
                made = HookResponse(
                    status=503, sentence=FULL, outcome="limited", retry_after_seconds=5
                )
            except PipecdError as error:
                log.warning("hook.failed", error=str(error))
                made = HookResponse(
                    status=503, sentence=BROKEN, outcome="failed", retry_after_seconds=5
                )
        self._count(made.project_id, made.outcome)
        return _to_response(made)


class _BodyReader:
    """The body of one request, read once."""

    def __init__(self, request: Request, held: _HeldBytes, ended: ExitStack) -> None:
        self._request = request
        self._held = held
        self._ended = ended
        self._body: bytes | None = None

    async def read(self, is_kept: bool) -> bytes:
        """Returns the body; an empty one when it is not to be kept, which costs no memory."""
        if self._body is None:
            parts: list[bytes] = []
            async for chunk in self._request.stream():
                if is_kept:
                    self._held.take(len(chunk))
                    self._ended.callback(self._held.give_back, len(chunk))
                    parts.append(chunk)
            self._body = b"".join(parts)
        return self._body


def _to_response(made: HookResponse) -> Response:
    headers = {"cache-control": "no-store"}
    if made.retry_after_seconds:
        headers["retry-after"] = str(made.retry_after_seconds)
    return PlainTextResponse(f"{made.sentence}\n", status_code=made.status, headers=headers)
