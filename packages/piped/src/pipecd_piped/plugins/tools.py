# SPDX-License-Identifier: Apache-2.0
"""Installs the tools that plugins need: kubectl, helm, terraform …

A plugin sends an install script; the file that the script leaves at its output path becomes
`<tools folder>/<name>-<version>`, once for all plugins, and is never replaced. A file that is
already there counts as installed. The script is trusted as much as the plugin that sends it; no
other user of the machine may be able to change what plugins run.
"""

import asyncio
import os
import re
import shutil
import signal
import stat
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipecd_model.errors import ConfigError, StateError
from pipecd_piped.programs.registry import this_platform
from pipecd_runtime import process as door

PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,99}")
FIELD: Final = re.compile(r"\{\{\s*\.(Name|Version|OutPath|TmpDir|Arch|Os)\s*\}\}")
LONGEST_OUTPUT: Final = 16 * 1024


class ToolsFolder:
    """The folder of installed tools."""

    def __init__(self, folder: Path, *, limit: float = 600) -> None:
        """`limit`: the timeout of one install script in seconds."""
        self._folder = folder
        self._limit = limit
        self._installing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def install(self, name: str, version: str, script: str) -> Path:
        """Install a tool unless it is there; returns its path. Raises ConfigError or StateError."""
        for what, value in (("name", name), ("version", version)):
            if not PLAIN_NAME.fullmatch(value):
                raise ConfigError(
                    f"a tool cannot have the {what} {value!r}",
                    hint="up to 100 letters, digits and ._+- make a file's name",
                )
        target = self._folder / f"{name}-{version}"
        # A second caller waits and finds the file, or installs it when the first was cancelled.
        async with self._installing[target.name]:
            if not target.is_file():
                await self._install(name, version, script, target)
            _require_safe(self._folder)
            _require_safe(target)
        return target

    async def _install(self, name: str, version: str, script: str, target: Path) -> None:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        _require_safe(self._folder)
        # In the tools folder, so that the last step is atomic and no partial tool is ever visible.
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".install-") as scratch:
            out = Path(scratch) / "out"
            work = Path(scratch) / "tmp"
            work.mkdir()
            command = render(
                script,
                {
                    "Name": name,
                    "Version": version,
                    "OutPath": str(out),
                    "TmpDir": str(work),
                    "Arch": this_platform().architecture,
                    "Os": this_platform().os,
                },
            )
            await self._run(f"{name} {version}", command, work)
            if not out.is_file():
                raise StateError(
                    f"the install script of {name} {version} left nothing",
                    hint="it must leave the tool at {{ .OutPath }}",
                )
            if out.is_symlink():  # its target may change, or be removed with the scratch folder
                out = Path(shutil.copyfile(out, out.with_name("copy")))
            out.chmod(0o755)
            _keep(out, target)

    async def _run(self, tool: str, command: str, work: Path) -> None:
        said = work.with_name("output")
        with said.open("wb") as output:
            process = await door.start(
                (*door.own("/bin/sh", "-c", "--"), door.word(command)),
                env=door.operator_environment(),
                cwd=work,
                stdout=output,
                stderr=output,
            )
        try:
            async with asyncio.timeout(self._limit):
                code = await process.wait()
        except TimeoutError:
            raise StateError(
                f"the install script of {tool} took longer than {self._limit:g}s: {_end_of(said)}"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code:
            raise StateError(
                f"the install script of {tool} exited with code {code}: {_end_of(said)}"
            )


def _keep(out: Path, target: Path) -> None:
    """Move a tool to its final path, unless another piped was faster: nothing is replaced."""
    try:
        target.hardlink_to(out)
    except FileExistsError:
        if not target.is_file():
            raise StateError(
                f"{str(target)!r} is in the way of a tool", hint="remove it; it is no file"
            ) from None
    except OSError:  # a file system without links
        out.rename(target)


def _require_safe(path: Path) -> None:
    """Raises StateError when another user can change the file or folder.

    The mode of our own files is corrected instead. A file of root may be writable by a group:
    container images are made so for users whose uid is not known beforehand.
    """
    about = path.stat()
    if about.st_uid == os.geteuid():
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            path.chmod(stat.S_IMODE(about.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    elif about.st_uid != 0 or about.st_mode & stat.S_IWOTH:
        raise StateError(
            f"another user can change {str(path)!r}",
            hint="give it to piped's user or to root, writable by nobody else",
        )


def _end_of(said: Path) -> str:
    with said.open("rb") as output:
        output.seek(-min(LONGEST_OUTPUT, said.stat().st_size), os.SEEK_END)
        return output.read().decode(errors="replace").strip()


def render(script: str, values: dict[str, str]) -> str:
    """Returns the script with `{{ .Name }}` and the other fields filled in.

    Raises ConfigError for anything else in double braces: it is never run as it is.
    """
    if left := re.search(r"\{\{.*?(\}\}|$)", FIELD.sub("_", script)):
        raise ConfigError(
            f"the install script uses {left.group()!r}",
            hint="only {{ .Name }} .Version .OutPath .TmpDir .Arch and .Os are filled in",
        )
    return FIELD.sub(lambda found: values[found.group(1)], script)
