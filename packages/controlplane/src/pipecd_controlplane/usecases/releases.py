# SPDX-License-Identifier: Apache-2.0
"""Released versions of piped, as GitHub lists them: what a launcher can run.

Fetched at most once an hour, however many callers ask: GitHub allows 60 anonymous calls an hour.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pipecd_model.errors import UnavailableError
from pipecd_runtime.logs import logger

log = logger(__name__)

URL: Final = "https://api.github.com/repos/pipe-cd/pipecd/releases"
FRESH_SECONDS: Final = 3600.0
TIMEOUT_SECONDS: Final = 10.0
SEMVER: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
BREAKING: Final = re.compile(r"^#+\s*breaking changes?\s*$", re.IGNORECASE)
HEADING: Final = re.compile(r"^#+\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedRelease:
    """One released version and its release notes."""

    version: str
    notes: str


def parse_version(version: str) -> tuple[int, ...] | None:
    """Returns a key that orders versions; None for a text that is no plain version."""
    found = SEMVER.fullmatch(version)
    return tuple(int(part) for part in found.groups()) if found else None


class Releases:
    """The list of releases, cached."""

    def __init__(self, url: str = URL, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._known: list[PipedRelease] = []
        self._asked_at: float | None = None

    async def list_all(self) -> list[PipedRelease]:
        """Returns the releases, newest first; the cached ones when they cannot be fetched now.

        Raises UnavailableError when they cannot be fetched and none are cached.
        """
        fresh = self._asked_at is not None and self._clock() - self._asked_at < FRESH_SECONDS
        if not fresh:
            try:
                self._known = parse_releases(await self._fetch())
            except UnavailableError:
                if not self._known:
                    raise
            self._asked_at = self._clock()
        return self._known

    async def _fetch(self) -> Any:
        import httpx2  # noqa: PLC0415 - loaded only when releases are listed

        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=True) as client:
                answer = await client.get(
                    self._url, headers={"accept": "application/vnd.github+json"}
                )
                answer.raise_for_status()
                return answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            log.info("releases.unavailable", url=self._url, error=str(error))
            raise UnavailableError("the list of released versions cannot be had now") from error


def parse_releases(listed: Any) -> list[PipedRelease]:
    """Returns the releases in GitHub's response: no drafts, no previews, only plain versions."""
    found = [
        PipedRelease(version=str(each.get("tag_name", "")), notes=str(each.get("body") or ""))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict) and not each.get("draft") and not each.get("prerelease")
    ]
    return sorted(
        (each for each in found if parse_version(each.version)),
        key=lambda each: parse_version(each.version) or (),
        reverse=True,
    )


def breaking_notes(releases: Iterable[PipedRelease], versions: Iterable[str]) -> str:
    """Returns the breaking changes since the oldest of these versions, as Markdown.

    Empty when none are known.
    """
    known = [key for version in versions if (key := parse_version(version))]
    if not known:
        return ""
    oldest = min(known)
    parts = [
        f"## {each.version}\n\n{section}"
        for each in releases
        if (parse_version(each.version) or ()) > oldest
        and (section := _find_breaking_section(each.notes))
    ]
    return "\n\n".join(parts)


def _find_breaking_section(notes: str) -> str:
    lines: list[str] = []
    inside = False
    for line in notes.splitlines():
        if BREAKING.match(line.strip()):
            inside = True
        elif inside and HEADING.match(line):
            break
        elif inside:
            lines.append(line)
    return "\n".join(lines).strip()
