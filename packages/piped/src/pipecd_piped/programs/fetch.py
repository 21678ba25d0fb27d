# SPDX-License-Identifier: Apache-2.0
"""Fetches a program's executable: a local file, a download, or an installed package.

Files are copied to a cache under their checksum, so that another content is another version, and
replacing the original while the program runs is harmless.
"""

import asyncio
import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from pipecd_piped.programs.cache import CHUNK, Cache, SourceRecord
from pipecd_piped.programs.download import DownloadLimits, redact_url
from pipecd_piped.programs.errors import ProgramError
from pipecd_piped.programs.remote import Remote
from pipecd_piped.programs.source import ProgramSource
from pipecd_runtime.installed_plugins import list_installed_plugins

EXECUTABLE: Final = "pipecd-plugin-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedProgram:
    """A program that is ready to start."""

    path: Path
    url: str
    """Its source in a form that every plugin accepts in its configuration."""
    is_package: bool


async def fetch(
    source: ProgramSource,
    folder: Path,
    *,
    ask: bool = True,
    limits: DownloadLimits | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> FetchedProgram:
    """Returns the program, ready to start. Raises ProgramError, or SourceAwayError.

    With `ask`, a source on the network is checked for a newer version, unless it is pinned.
    `on_progress` is called with the progress as a text.
    """
    address = urlsplit(source.url)
    cache = Cache(folder, source)
    match address.scheme:
        case "package":
            return await asyncio.to_thread(_package, source, address.netloc + address.path)
        case "" if not source.url:
            return await asyncio.to_thread(_package, source, source.name)
        case "" | "file" if address.netloc in ("", "localhost"):
            path = unquote(address.path) if address.scheme else source.url
            return await asyncio.to_thread(_file, Path(path), cache, source.kind)
        case "http" | "https" | "oci":
            remote = Remote(
                source, cache, limits or DownloadLimits(), on_progress or (lambda _: None)
            )
            try:
                kept = await remote.get(ask=ask)
            except OSError as error:
                raise ProgramError(
                    f"cannot keep the file of the {source.label}: {error.strerror or error}"
                ) from None
            # Plugins of upstream refuse a configuration with an http:// address.
            url = kept.absolute().as_uri() if address.scheme == "http" else redact_url(source.url)
            return FetchedProgram(path=kept, url=url, is_package=False)
        case _:
            raise ProgramError(
                f"cannot fetch {redact_url(source.url)!r}",
                hint="give a path, file:///path, https://, oci:// or package://name",
            )


def _package(source: ProgramSource, name: str) -> FetchedProgram:
    if source.sha256:
        raise ProgramError(
            f"the {source.label} has a sha256 but is an installed package",
            hint="a checksum goes with a file; give its path as url",
        )
    executable = _find_installed(source, name)
    return FetchedProgram(path=executable, url=source.url or f"package://{name}", is_package=True)


def _find_installed(source: ProgramSource, name: str) -> Path:
    """Returns the command of an installed plugin. Raises ProgramError."""
    installed = list_installed_plugins()
    matching = [each for each in installed if each.name == name]
    if len(matching) > 1:
        raise ProgramError(
            f"several installed distributions have a {source.kind} {name!r}: "
            + ", ".join(each.distribution for each in matching),
            hint="uninstall all but one, or give the path of a file as url",
        )
    executable = matching[0].command if matching else f"{EXECUTABLE}{name}"
    beside = Path(sys.executable).parent
    found = shutil.which(executable, path=beside) or shutil.which(executable)
    if not executable or "/" in executable or found is None:
        known = ", ".join(sorted({each.name for each in installed})) or "none"
        raise ProgramError(
            f"there is no executable {executable!r}",
            hint=f"install the package of the {source.kind}; installed here: {known}; "
            f"looked for in {beside} and on the PATH",
        )
    return Path(found)


def _file(path: Path, cache: Cache, kind: str) -> FetchedProgram:
    path = path.absolute()
    try:
        with path.open("rb") as original, cache.incoming_file() as copy:
            record = SourceRecord(source=str(path), sha256=_transfer(original, copy))
            kept = cache.store(copy, record)
    except OSError as error:
        raise ProgramError(
            f"cannot copy the {kind}'s file {str(path)!r}: {error.strerror or error}"
        ) from None
    return FetchedProgram(path=kept, url=path.as_uri(), is_package=False)


def _transfer(original: BinaryIO, copy: Path) -> str:
    digest = hashlib.sha256()
    with copy.open("wb") as out:
        while chunk := original.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()
