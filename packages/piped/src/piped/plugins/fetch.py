# SPDX-License-Identifier: Apache-2.0
"""Get a plugin's executable: a copy of a file under its checksum, or an installed package.

A file is copied to `<folder>/<name>/<sha256>/<name>`, so that another content is another version
and a file that is replaced while it runs does no harm. The bytes are checked before they have a
name under which anybody could run them.
"""

import asyncio
import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from pipecd_model.config import PluginConfig
from piped.plugins.errors import PluginError

EXECUTABLE: Final = "pipecd-plugin-"
CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start."""

    path: Path
    url: str
    """Its source in a form that every plugin accepts in its configuration."""
    is_package: bool


async def fetch(plugin: PluginConfig, folder: Path) -> Program:
    """The program of a plugin, made ready to start. Raises PluginError."""
    source = urlsplit(plugin.url)
    match source.scheme:
        case "package":
            return _package(plugin, source.netloc + source.path)
        case "" if not plugin.url:
            return _package(plugin, plugin.name)
        case "" | "file" if source.netloc in ("", "localhost"):
            path = unquote(source.path) if source.scheme else plugin.url
            return await asyncio.to_thread(_file, plugin, Path(path), folder / plugin.name)
        case "http" | "https" | "oci":
            raise PluginError(
                f"cannot fetch {plugin.url!r}: {source.scheme} is not supported yet",
                hint="download it and give the path of the file",
            )
        case _:
            raise PluginError(
                f"cannot fetch {plugin.url!r}",
                hint="give a path, file:///path or package://name",
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


def _file(plugin: PluginConfig, path: Path, folder: Path) -> Program:
    path = path.absolute()
    try:
        with path.open("rb") as original:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
                copy = Path(scratch) / plugin.name
                digest = _transfer(original, copy)
                _check(plugin, digest)
                _check_program(path, copy)
                kept = folder / digest / plugin.name
                kept.parent.mkdir(exist_ok=True)
                copy.chmod(0o755)
                copy.replace(kept)
    except OSError as error:
        raise PluginError(
            f"cannot copy the plugin's file {str(path)!r}: {error.strerror or error}"
        ) from None
    for other in folder.iterdir():
        if other.name != digest:
            shutil.rmtree(other, ignore_errors=True)
    return Program(path=kept, url=path.as_uri(), is_package=False)


def _transfer(original: BinaryIO, copy: Path) -> str:
    digest = hashlib.sha256()
    with copy.open("wb") as out:
        while chunk := original.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _check_program(path: Path, copy: Path) -> None:
    """Refuse what the kernel would: the wrapper it is started with would have a shell run it."""
    with copy.open("rb") as file:
        if not file.read(4).startswith((b"\x7fELF", b"#!")):
            raise PluginError(
                f"{str(path)!r} is not a program",
                hint="a plugin is one executable file, or a script that begins with #!",
            )


def _check(plugin: PluginConfig, digest: str) -> None:
    if plugin.sha256 and plugin.sha256.lower() != digest:
        raise PluginError(
            f"the file of the plugin {plugin.name!r} has the sha256 {digest}, "
            f"not {plugin.sha256.lower()}",
            hint="it was not started; correct the sha256 if the new file is wanted",
        )
