# SPDX-License-Identifier: Apache-2.0
"""Programs that a plugin needs: installed by piped, once for all plugins, checked before use."""

import asyncio
import os
import platform
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pipecd_sdk.results import StageFailedError

_PLAIN: Final = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")
"""What a name and a version are made of: agents put them into the text of a shell script."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class ToolError(StageFailedError):
    """A program cannot be installed, or its checksum is wrong; it was not started.

    Example:
        raise ToolError("kubectl 1.33.0 is not the file it should be")
    """


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A program and how to install it.

    The script is a Go template that may use `.Name`, `.Version`, `.Os`, `.Arch`, `.TmpDir`, and
    leaves the program at `.OutPath`. `kit.tools` makes them from addresses.

    Example:
        Tool(name="hello", version="1", script="cp /opt/hello {{ .OutPath }}")
    """

    name: str
    version: str
    script: str
    sha256: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the installed file, in hex, by platform (`linux/amd64`); checked before every use."""


class Tools(ABC):
    """Installs programs.

    Example:
        kubectl = await ctx.tools.install(kit.tools.find_tool("kubectl", "1.33.0"))
    """

    def __init__(self) -> None:
        self._checked: set[tuple[str, int, int, int]] = set()

    async def install(self, tool: Tool) -> Path:
        """Returns the path of a program, which is installed first if need be. Raises ToolError.

        A file that is not the one that it should be is never handed out.
        """
        for what, value in (("name", tool.name), ("version", tool.version)):
            if not _PLAIN.fullmatch(value):
                raise ToolError(
                    f"a tool cannot have the {what} {value!r}", hint="letters, digits and ._+-"
                )
        path = await self.get(tool)
        if tool.sha256:
            expected = tool.sha256.get(this_platform())
            if expected is None:
                raise ToolError(
                    f"{tool.name} {tool.version} has no checksum for {this_platform()}",
                    hint="add one to the tool's sha256",
                )
            await asyncio.to_thread(self._check, tool, path, expected)
        return path

    @abstractmethod
    async def get(self, tool: Tool) -> Path:
        """Installs the program and returns its path, unchecked; callers use `install`."""

    def _check(self, tool: Tool, path: Path, expected: str) -> None:
        import hashlib  # noqa: PLC0415 - only plugins that install programs need OpenSSL

        try:
            seen = path.stat()
            key = (expected, seen.st_ino, seen.st_ctime_ns, seen.st_size)
            if key in self._checked:
                return
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ToolError(
                f"{tool.name} {tool.version} cannot be read: {error.strerror}"
            ) from error
        if found != expected.lower():
            raise ToolError(
                f"{tool.name} {tool.version} is not the file it should be: "
                f"sha256 {found}, expected {expected}",
                hint=f"remove {os.fspath(path)!r} or correct the checksum",
            )
        self._checked.add(key)


def this_platform() -> str:
    """This machine as Go names it, e.g. `linux/amd64`."""
    machine = platform.machine()
    return f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}"
