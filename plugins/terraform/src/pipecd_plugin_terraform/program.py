# SPDX-License-Identifier: Apache-2.0
"""The program that plans and applies: found on PATH, or installed by piped; and its version."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final

from pipecd_sdk import StageFailedError, Tools
from pipecd_sdk.kit import shell
from pipecd_sdk.kit.tools import define_tool, find_on_path, find_tool
from pipecd_sdk.tools import Tool

OLDEST: Final = (1, 1)
"""Older ones do not stream their plans as JSON."""
_TOFU: Final = "https://github.com/opentofu/opentofu/releases/download/v{version}/tofu_{version}"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class TerraformPrograms:
    """Finds programs, and remembers whose version is new enough."""

    def __init__(self) -> None:
        self._checked: dict[tuple[Path, int], str] = {}

    async def find(self, name: str, version: str, tools: Tools) -> Path:
        """Returns the path of a program. Raises StageFailedError, ToolError."""
        if version:
            path = await tools.install(_define(name, version))
        else:
            found = find_on_path(name)
            if found is None:
                raise StageFailedError(
                    f"there is no {name} on PATH",
                    hint="install it beside piped, or set terraformVersion",
                )
            path = found
        await self._check(name, path)
        return path

    async def _check(self, name: str, path: Path) -> None:
        key = (path, (await asyncio.to_thread(path.stat)).st_mtime_ns)
        if key not in self._checked:
            self._checked[key] = await _ask_version(name, path)
        version = self._checked[key]
        match = _VERSION.match(version)
        if match is None or (int(match[1]), int(match[2])) < OLDEST:
            raise StageFailedError(
                f"{name} {version or '(of an unknown version)'} is too old",
                hint=f"this plugin needs {OLDEST[0]}.{OLDEST[1]} or newer: set terraformVersion",
            )

    def version_of(self, path: Path) -> str:
        """Returns the version of a program that was found."""
        return next((each for (known, _), each in self._checked.items() if known == path), "")


def _define(name: str, version: str) -> Tool:
    if name == "terraform":
        return find_tool("terraform", version)
    return define_tool(
        name, version, f"{_TOFU}_{{os}}_{{arch}}.zip", member=name, sums=f"{_TOFU}_SHA256SUMS"
    )


async def _ask_version(name: str, path: Path) -> str:
    env = {"CHECKPOINT_DISABLE": "1"}
    done = await shell.run([path, "version", "-json"], env=env, check=False)
    try:
        return str(json.loads(done.output)["terraform_version"])
    except (ValueError, KeyError, TypeError):
        # Before they knew -json, its first line was `Terraform v0.12.31`.
        match = re.search(r"v(\d+\.\d+\.\d+)", done.output)
        if match is None:
            raise StageFailedError(
                f"{str(path)!r} does not say its version", hint=f"is it {name}?"
            ) from None
        return match[1]
