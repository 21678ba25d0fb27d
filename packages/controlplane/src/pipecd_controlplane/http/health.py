# SPDX-License-Identifier: Apache-2.0
"""The pages for health, readiness and version."""

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.probes import Probes


def health_routes(probes: Probes) -> list[Route]:
    """Returns the routes /healthz and /readyz (200 `ok`, or 503 with the reason) and /version."""
    text = f"pipecd {version('pipecd-controlplane')}\n"

    async def healthz(_request: Request) -> PlainTextResponse:
        return _answer(await probes.health())

    async def readyz(_request: Request) -> PlainTextResponse:
        return _answer(await probes.readiness())

    async def show_version(_request: Request) -> PlainTextResponse:
        return PlainTextResponse(text)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/version", show_version),
    ]


def _answer(trouble: str) -> PlainTextResponse:
    if trouble:
        return PlainTextResponse(f"{trouble}\n", status_code=503)
    return PlainTextResponse("ok")
