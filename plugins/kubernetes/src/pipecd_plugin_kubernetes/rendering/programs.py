# SPDX-License-Identifier: Apache-2.0
"""Finds and runs the programs that render: helm, kustomize, kubectl, git.

They get an environment that is closed: no variable of the operator but the few that a network
needs, no configuration of a home folder, no cluster, no password in an argument.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.config import KubernetesPluginConfig
from pipecd_sdk import StageFailedError, Tools
from pipecd_sdk.kit import process, shell, text, tools

LIMIT: Final = timedelta(minutes=5)
"""How long a program may render."""
_VERSION: Final = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?)")
_ASK_VERSION: Final[Mapping[str, tuple[str, ...]]] = {
    "helm": ("version", "--short"),
    "kustomize": ("version",),
    "kubectl": ("version", "--client"),
}
_OPTION: Final[Mapping[str, str]] = {"helm": "helmVersion", "kustomize": "kustomizeVersion"}
_NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_LONGEST_REASON: Final = 2_000


class Programs:
    """The programs of this machine, of the piped file and of the registry of tools."""

    def __init__(self, config: KubernetesPluginConfig, tools: Tools, home: Path) -> None:
        self._configured = config.programs
        self._tools = tools
        self._home = home

    async def find(self, name: str, version: str = "") -> Path:
        """Returns the path of a program. Raises StageFailedError when there is none.

        That of the piped file comes first, then the version that the application asks for, then
        whatever is on PATH.
        """
        if path := await self.look_for(name, version):
            return path
        raise explain_missing(name)

    async def look_for(self, name: str, version: str = "") -> Path | None:
        """Returns the path of a program, None when there is none. Raises StageFailedError."""
        if configured := self._configured.get(name):
            path = Path(configured)
            if not os.access(path, os.X_OK):
                raise StageFailedError(
                    f"programs.{name} of the piped file is {configured!r}, which cannot be run"
                )
            return path
        found = tools.find_on_path(name)
        if not version:
            return found
        wanted = version.removeprefix("v")
        if found and await self._read_version(name, found) == wanted:
            return found
        return await self._tools.install(tools.find_tool(name, wanted))

    async def _read_version(self, name: str, path: Path) -> str:
        done = await shell.run(
            [path, *_ASK_VERSION[name]],
            env=make_environment(self._home),
            inherit_env=False,
            limit=timedelta(seconds=30),
            check=False,
        )
        found = _VERSION.search(done.output)
        return found[1].partition("+")[0] if found else ""


def explain_missing(name: str) -> StageFailedError:
    """Returns the error for a program that is nowhere, with all the ways to have it."""
    option = f", or name a version as input.{_OPTION[name]}" if name in _OPTION else ""
    return StageFailedError(
        f"{name} is not installed where the plugin runs",
        hint=f"install it on PATH, or name its path under programs in the piped file{option}",
    )


def make_environment(home: Path, **more: str) -> dict[str, str]:
    """Returns the variables that a program gets: `home` is the only folder that it may write to."""
    network = {
        name: value
        for each in _NETWORK
        for name in (each, each.lower())
        if (value := os.environ.get(name))
    }
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "LANG": "C.UTF-8",
        "KUBECONFIG": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": "https:http",
        **network,
        **more,
    }


async def run_program(
    arguments: Sequence[process.Argument],
    what: str,
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit: timedelta = LIMIT,
) -> str:
    """Returns what a program prints. Raises StageFailedError with what it complains about."""
    try:
        done = await shell.run(arguments, cwd=cwd, env=env, inherit_env=False, limit=limit)
    except shell.CommandFailedError as error:
        raise RenderError(f"{what} failed: {_explain(error)}") from None
    if done.is_cut:
        raise RenderError(f"{what} printed more than {shell.MOST_KEPT} bytes")
    return done.output


class RenderError(StageFailedError):
    """A program that renders has failed; the message has what it complained about."""


def _explain(error: shell.CommandFailedError) -> str:
    said = error.completed.errors.strip()
    return text.make_printable_line(said[-_LONGEST_REASON:]) if said else str(error)
