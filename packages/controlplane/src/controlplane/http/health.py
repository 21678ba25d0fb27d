# SPDX-License-Identifier: Apache-2.0
"""The small pages: is it alive, which version is it."""

from importlib.metadata import version

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def health_app() -> Starlette:
    """The HTTP side of the control plane until there is a console."""
    text = f"pipecd {version('pipecd-controlplane')}\n"

    async def healthz(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def show_version(_request: Request) -> PlainTextResponse:
        return PlainTextResponse(text)

    async def root(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("This is a PipeCD control plane. The console is not built yet.\n")

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/version", show_version),
            Route("/", root),
        ]
    )
