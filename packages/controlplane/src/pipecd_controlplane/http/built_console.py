# SPDX-License-Identifier: Apache-2.0
"""Our own console: files that a build has put into the installed package, served from memory.

A build may come or change while the server runs: the page is looked at again at each request for
it. Only names that the build has are served, whatever a path says.
"""

import asyncio
import hashlib
import importlib.resources
import mimetypes
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from pipecd_controlplane.http.plain_pages import show_no_console
from pipecd_runtime.logs import logger

log = logger(__name__)

FOLDER: Final = "console_dist"
"""Inside the package: made by tools/build_console.py, carried by a wheel, never committed."""

INDEX: Final = "index.html"
ASSETS: Final = "assets/"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltFile:
    """One file of the build."""

    data: bytes
    packed: bytes
    """The same, packed with gzip; empty when the build has packed none."""
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """All files of one build, by their path."""

    mark: tuple[int, int] | None = None
    """Of its page: when it was written, and its size. None when there is no build."""
    files: dict[str, BuiltFile] = field(default_factory=dict)


def find_console() -> Path:
    """Returns where the console of this installation is, once it is built."""
    return Path(str(importlib.resources.files("pipecd_controlplane"))) / FOLDER


RESERVED: Final = ("/auth/", "/download/", "/hooks/")
"""Paths that never are a page of the console's: there a wrong method or name is an error."""


class PageRoute(Route):
    """Every path that is not reserved."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and str(scope["path"]).startswith(RESERVED):
            return Match.NONE, {}
        return super().matches(scope)


class BuiltConsole:
    """Serves the console of a folder, and says how to build it where there is none yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._build = Build()
        self._loading = asyncio.Lock()

    def routes(self) -> list[BaseRoute]:
        return [Route("/", self.serve), PageRoute("/{path:path}", self.serve)]

    async def serve(self, request: Request) -> Response:
        build = await self._find_build()
        path = request.path_params.get("path", "")
        if build.mark is None:
            if path:
                return PlainTextResponse("Not Found", status_code=404)
            return show_no_console()
        found = build.files.get(path) if path else None
        if found is None and path.startswith(ASSETS):
            # A page of an older build asks for its parts: another page in their place would not do.
            return PlainTextResponse("Not Found", status_code=404)
        if found is None or path == INDEX:
            return _answer(request, build.files[INDEX], cache="no-cache")
        return _answer(request, found, cache=IMMUTABLE if path.startswith(ASSETS) else "no-cache")

    async def _find_build(self) -> Build:
        mark = _read_mark(self._folder)
        if mark == self._build.mark:
            return self._build
        async with self._loading:
            if mark != self._build.mark:
                self._build = await asyncio.to_thread(_load, self._folder, mark)
                log.info("console.loaded", files=len(self._build.files))
        return self._build


def _read_mark(folder: Path) -> tuple[int, int] | None:
    try:
        found = (folder / INDEX).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _load(folder: Path, mark: tuple[int, int] | None) -> Build:
    if mark is None:
        return Build()
    files: dict[str, BuiltFile] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".gz" or path.name.startswith(".") or not path.is_file():
            continue
        with suppress(FileNotFoundError):  # of an older build, which is being removed
            files[path.relative_to(folder).as_posix()] = _read_file(path)
    return Build(mark=mark, files=files) if INDEX in files else Build()


def _read_file(path: Path) -> BuiltFile:
    data = path.read_bytes()
    packed = path.with_name(f"{path.name}.gz")
    guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return BuiltFile(
        data=data,
        packed=packed.read_bytes() if packed.is_file() else b"",
        media_type=TYPES.get(path.suffix, guessed),
        etag=f'"{hashlib.sha256(data).hexdigest()[:32]}"',
    )


def _answer(request: Request, file: BuiltFile, *, cache: str) -> Response:
    headers = {"cache-control": cache, "etag": file.etag, "vary": "accept-encoding"}
    known = {each.strip().removeprefix("W/") for each in _read_list(request, "if-none-match")}
    if file.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    if file.packed and _accepts_gzip(request):
        headers["content-encoding"] = "gzip"
        return Response(file.packed, media_type=file.media_type, headers=headers)
    return Response(file.data, media_type=file.media_type, headers=headers)


def _accepts_gzip(request: Request) -> bool:
    for entry in _read_list(request, "accept-encoding"):
        name, _, weight = entry.replace(" ", "").partition(";")
        if name.lower() == "gzip":
            return weight not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _read_list(request: Request, name: str) -> list[str]:
    return [each.strip() for each in request.headers.get(name, "").split(",")]
