# SPDX-License-Identifier: Apache-2.0
"""The pages for health, readiness and version."""

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.probes import CHECKS, Probes


def health_routes(probes: Probes) -> list[Route]:
    """Returns the routes /healthz and /readyz (200 `ok`, or 503 with the reason) and /version.

    `/readyz?exclude=blobs` leaves the blob store out: a bucket that all servers share, and that is
    gone, must not make a balancer take all of them away.
    """
    text = f"pipecd {version('pipecd-controlplane')}\n"

    async def healthz(_request: Request) -> PlainTextResponse:
        return _answer(await probes.health())

    async def readyz(request: Request) -> PlainTextResponse:
        excluded = frozenset(request.query_params.getlist("exclude"))
        if excluded - CHECKS:
            known = ", ".join(sorted(CHECKS))
            return PlainTextResponse(f"exclude can only name: {known}\n", status_code=400)
        return _answer(await probes.readiness(exclude=excluded))

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
