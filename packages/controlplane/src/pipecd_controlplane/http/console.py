# SPDX-License-Identifier: Apache-2.0
"""The files of a web client: hashed assets that never change, and one page for every path."""

from pathlib import Path
from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from pipecd_controlplane.http.built_console import BuiltConsole
from pipecd_controlplane.http.content_policy import FOR_UPSTREAM
from pipecd_model.errors import ConfigError

FOR_EVER: Final = "public, max-age=31536000"


class Assets(StaticFiles):
    """Files whose names change with their content."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code in {200, 304}:
            response.headers["cache-control"] = FOR_EVER
        return response


def console_routes(folder: Path | None, own: BuiltConsole) -> list[BaseRoute]:
    """Returns routes that serve a page at every path that has no route of its own.

    It is the one in the folder, or else our own. Raises ConfigError for a folder without an
    index.html.
    """
    if folder is None:
        return own.routes()
    index = folder / "index.html"
    if not index.is_file():
        raise ConfigError(
            f"there is no index.html in {str(folder)!r}", hint="--static-dir is a built console"
        )

    async def page(_request: Request) -> Response:
        return FileResponse(
            index,
            headers={"cache-control": "no-cache", "content-security-policy": FOR_UPSTREAM},
        )

    async def icon(_request: Request) -> Response:
        path = folder / "favicon.ico"
        return FileResponse(path) if path.is_file() else Response(status_code=404)

    routes: list[BaseRoute] = [Route("/favicon.ico", icon)]
    if (folder / "assets").is_dir():
        assets = GZipMiddleware(Assets(directory=folder / "assets"))
        routes.append(Mount("/assets", assets))
    return [*routes, Route("/{path:path}", page, methods=["GET", "HEAD"])]
