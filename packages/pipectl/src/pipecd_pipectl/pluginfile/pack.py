# SPDX-License-Identifier: Apache-2.0
"""Make the file: a zip archive that a shell can run, with everything a plugin needs in it."""

import hashlib
import os
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_pipectl.pluginfile import boot
from pipecd_pipectl.pluginfile.closure import BuildError, closure, read_project
from pipecd_pipectl.pluginfile.collect import collect

SHEBANG: Final = b"#!/usr/bin/env python3\n"
_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The same input makes the same bytes, and so the same checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFile:
    """A plugin file that was built."""

    path: Path
    size: int
    sha256: str
    python: str
    machine: str
    """Where its compiled parts run; empty when it has none."""


def build(
    folder: Path, output: Path, extras: Iterable[str] = (), *, command: str = ""
) -> PluginFile:
    """Builds one executable file of the plugin in a folder. Raises BuildError.

    `command` is the one to run, where the folder has several.
    """
    project = read_project(folder, extras, command=command)
    needed = closure(project.requirements)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    module, _, function = project.entry.partition(":")
    with tempfile.TemporaryDirectory(prefix="pipecd-plugin-build-") as gathered:
        tree = Path(gathered)
        collect(project, needed, tree)
        files = sorted(path for path in tree.rglob("*") if path.is_file() and _belongs(path))
        digest = _digest(files, tree)
        start = Path(boot.__file__).read_text()
        start += f"\n\nmain({python!r}, {digest!r}, {module!r}, {function!r})\n"
        _write(output, files, tree, start)
        compiled = any(path.suffix == ".so" for path in files)
    content = output.read_bytes()
    return PluginFile(
        path=output,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        python=python,
        machine=sysconfig.get_platform() if compiled else "",
    )


def _belongs(path: Path) -> bool:
    return "__pycache__" not in path.parts and path.parent.name != "bin"


def _digest(files: list[Path], tree: Path) -> str:
    summed = hashlib.sha256()
    for path in files:
        summed.update(str(path.relative_to(tree)).encode() + b"\0")
        summed.update(hashlib.sha256(path.read_bytes()).digest())
    return summed.hexdigest()[:16]


def _write(output: Path, files: list[Path], tree: Path, start: str) -> None:
    beside = output.with_name(f".{output.name}.new")
    try:
        with beside.open("wb") as opened:
            opened.write(SHEBANG)
            with zipfile.ZipFile(opened, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(_entry("__main__.py"), start)
                for path in files:
                    name = str(path.relative_to(tree))
                    archive.writestr(_entry(name), path.read_bytes())
        beside.chmod(0o755)
        os.replace(beside, output)  # noqa: PTH105 - the same thing, and says what it is
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BuildError(f"cannot write {str(output)!r}: {error.strerror}") from None


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _FIXED_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
