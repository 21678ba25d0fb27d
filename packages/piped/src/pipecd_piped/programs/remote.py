# SPDX-License-Identifier: Apache-2.0
"""Downloads a program, or takes it from the cache when no download is needed.

A source that is pinned by a checksum or a digest is downloaded once. Any other is checked for a
newer version when piped starts and when a user restarts the program, never after a crash. While the
source is unavailable, the cached version is used.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from pipecd_model.oci import parse_reference
from pipecd_piped.programs.cache import Cache, SourceRecord
from pipecd_piped.programs.download import (
    DownloadLimits,
    DownloadSession,
    download_session,
    is_framed,
    redact_url,
)
from pipecd_piped.programs.errors import ProgramSourceError
from pipecd_piped.programs.registry import OciRepository, check_digest, new_hash
from pipecd_piped.programs.source import ProgramSource
from pipecd_runtime.logs import logger

log = logger(__name__)

LONGEST_ETAG: Final = 1024


class Remote:
    """The source of one program on the network."""

    def __init__(
        self,
        source: ProgramSource,
        cache: Cache,
        limits: DownloadLimits,
        on_progress: Callable[[str], None],
    ) -> None:
        self._source = source
        self._cache = cache
        self._limits = limits
        self._on_progress = on_progress
        self._where = redact_url(source.url)

    async def get(self, *, ask: bool) -> Path:
        """Returns the executable; with `ask`, a newer one if there is one. Raises ProgramError."""
        reference = parse_reference(self._source.url) if self._is_artifact else None
        is_pinned = bool(self._source.sha256 or (reference and reference.digest))
        last = await asyncio.to_thread(self._cache.find_last)
        if last and (is_pinned or not ask):
            return last[1]
        self._on_progress(f"getting {self._where}")
        try:
            async with download_session(self._source, self._limits, self._on_progress) as session:
                if reference is not None:
                    registry = OciRepository(session, reference, insecure=self._source.insecure)
                    return await self._pull(session, registry, last)
                return await self._download(session, last)
        except ProgramSourceError as error:
            if last is None:
                raise
            log.warning("plugin.source_away", plugin=self._source.name, reason=str(error))
            return last[1]

    @property
    def _is_artifact(self) -> bool:
        return self._source.url.startswith("oci://")

    async def _download(
        self, session: DownloadSession, last: tuple[SourceRecord, Path] | None
    ) -> Path:
        headers = {"If-None-Match": last[0].version} if last and last[0].version else {}
        async with session.get(self._source.url, headers) as response:
            if last and response.status_code == 304:
                return last[1]
            session.check(response)
            if not self._source.sha256 and not is_framed(response):
                raise ProgramSourceError(
                    f"the source {self._where} does not say how long the file is",
                    hint="give its sha256",
                )
            etag = response.headers.get("ETag", "")
            with self._cache.incoming_file() as file:
                total = hashlib.sha256()
                with file.open("xb") as out:
                    async for chunk in session.content(response):
                        await asyncio.to_thread(_write, out, chunk, total)
                version = etag if len(etag) <= LONGEST_ETAG else ""
                return await self._keep(file, total.hexdigest(), version)

    async def _pull(
        self,
        session: DownloadSession,
        registry: OciRepository,
        last: tuple[SourceRecord, Path] | None,
    ) -> Path:
        layers = await registry.layers()
        version = ",".join(layer.digest for layer in layers)
        if last and last[0].version == version:
            return last[1]
        with self._cache.incoming_file() as file:
            total = hashlib.sha256()
            with file.open("xb") as out:
                for layer in layers:
                    part = new_hash(layer)
                    async with registry.blob(layer) as response:
                        async for chunk in session.content(response):
                            await asyncio.to_thread(_write, out, chunk, total, part)
                    check_digest(layer.digest, part.hexdigest(), "layer")
            return await self._keep(file, total.hexdigest(), version)

    async def _keep(self, file: Path, digest: str, version: str) -> Path:
        record = SourceRecord(source=self._where, sha256=digest, version=version)
        return await asyncio.to_thread(self._cache.store, file, record)


def _write(out: BinaryIO, chunk: bytes, *sums: "hashlib._Hash") -> None:
    out.write(chunk)
    for each in sums:
        each.update(chunk)
