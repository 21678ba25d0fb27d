# SPDX-License-Identifier: Apache-2.0
"""Get a plugin's executable: a file, a file of another machine, or an installed package.

Files are copied to a cache under their checksum, so that another content is another version and a
file that is replaced while it runs does no harm.
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

from pipecd_model.config import PluginConfig
from piped.plugins.cache import CHUNK, Cache, Record
from piped.plugins.download import DownloadLimits, shown
from piped.plugins.errors import PluginError
from piped.plugins.remote import Remote

EXECUTABLE: Final = "pipecd-plugin-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start."""

    path: Path
    url: str
    """Its source in a form that every plugin accepts in its configuration."""
    is_package: bool


async def fetch(
    plugin: PluginConfig,
    folder: Path,
    *,
    ask: bool = True,
    limits: DownloadLimits | None = None,
    tell: Callable[[str], None] | None = None,
) -> Program:
    """The program of a plugin, made ready to start. Raises PluginError, or SourceAwayError.

    `ask` a source on the network for a newer one if it may have one; `tell` how far it is.
    """
    source = urlsplit(plugin.url)
    cache = Cache(folder, plugin)
    match source.scheme:
        case "package":
            return _package(plugin, source.netloc + source.path)
        case "" if not plugin.url:
            return _package(plugin, plugin.name)
        case "" | "file" if source.netloc in ("", "localhost"):
            path = unquote(source.path) if source.scheme else plugin.url
            return await asyncio.to_thread(_file, Path(path), cache)
        case "http" | "https" | "oci":
            remote = Remote(plugin, cache, limits or DownloadLimits(), tell or (lambda _: None))
            try:
                kept = await remote.get(ask=ask)
            except OSError as error:
                raise PluginError(
                    f"cannot keep the file of the plugin {plugin.name!r}: {error.strerror or error}"
                ) from None
            # Plugins of upstream's refuse http.
            url = kept.absolute().as_uri() if source.scheme == "http" else shown(plugin.url)
            return Program(path=kept, url=url, is_package=False)
        case _:
            raise PluginError(
                f"cannot fetch {shown(plugin.url)!r}",
                hint="give a path, file:///path, https://, oci:// or package://name",
            )


def _package(plugin: PluginConfig, name: str) -> Program:
    if plugin.sha256:
        raise PluginError(
            f"the plugin {plugin.name!r} has a sha256 but is an installed package",
            hint="a checksum goes with a file; give its path as url",
        )
    executable = f"{EXECUTABLE}{name}"
    beside = Path(sys.executable).parent
    found = shutil.which(executable, path=beside) or shutil.which(executable)
    if "/" in executable or found is None:
        raise PluginError(
            f"there is no executable {executable!r}",
            hint=f"install the package of the plugin, looked for in {beside} and on the PATH",
        )
    return Program(path=Path(found), url=plugin.url or f"package://{name}", is_package=True)


def _file(path: Path, cache: Cache) -> Program:
    path = path.absolute()
    try:
        with path.open("rb") as original, cache.arrival() as copy:
            record = Record(source=str(path), sha256=_transfer(original, copy))
            kept = cache.keep(copy, record)
    except OSError as error:
        raise PluginError(
            f"cannot copy the plugin's file {str(path)!r}: {error.strerror or error}"
        ) from None
    return Program(path=kept, url=path.as_uri(), is_package=False)


def _transfer(original: BinaryIO, copy: Path) -> str:
    digest = hashlib.sha256()
    with copy.open("wb") as out:
        while chunk := original.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()
