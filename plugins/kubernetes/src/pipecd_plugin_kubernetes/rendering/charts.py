# SPDX-License-Identifier: Apache-2.0
"""Finds the chart that an application names, and checks what it would read and fetch.

A chart is a folder of the repository, a folder of another git repository, or has a name in a chart
repository or registry of the piped file.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_kubernetes.config import ChartRepository, HelmChart, KubernetesPluginConfig
from pipecd_plugin_kubernetes.rendering.git_remote import fetch_commit
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit import yaml
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.repository import (
    Folder,
    check_links,
    read_text,
    resolve_within,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_VERSION: Final = re.compile(r"[A-Za-z0-9^~<>=*|, .+-]*")
_FETCHED: Final = ("https", "http", "oci")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart as helm is told of it."""

    reference: str
    """A path, `repository/name`, or an `oci://` address."""
    shown: str
    """What people call it."""
    version: str = ""
    repository: ChartRepository | None = None
    has_dependencies: bool = False
    is_folder: bool = False
    """Whether its files come from git, so that whoever writes there decides what they name."""


async def find_chart(
    folder: Folder, given: HelmChart, *, config: KubernetesPluginConfig, hosts: Hosts, work: Path
) -> Chart:
    """Returns the chart of an application; `work` is a folder for what is fetched.

    Raises StageFailedError.
    """
    if given.git_remote:
        await hosts.check(given.git_remote, "gitRemote", schemes=("https", "http", "ssh"))
        clone = await fetch_commit(given.git_remote, given.ref, into=work / "chart")
        return await _open_folder(clone, clone, given.path or ".", config, hosts)
    if given.repository:
        return await _name_chart(given, config, hosts)
    return await _open_folder(folder.root, folder.path, given.path, config, hosts)


async def _name_chart(given: HelmChart, config: KubernetesPluginConfig, hosts: Hosts) -> Chart:
    for what, value, grammar in (
        ("name", given.name, _NAME),
        ("version", given.version, _VERSION),
    ):
        if not grammar.fullmatch(value):
            raise StageFailedError(f"helmChart.{what} cannot be {value[:100]!r}")
    shown = f"{given.repository}/{given.name}"
    if given.repository.startswith("oci://"):
        await hosts.check(given.repository, "helmChart.repository", schemes=("oci",))
        reference = f"{given.repository.rstrip('/')}/{given.name}"
        return Chart(reference=reference, shown=shown, version=given.version)
    known = find_repository(config, given.repository)
    if known is None:
        names = ", ".join(each.name for each in config.chart_repositories if each.name)
        raise StageFailedError(
            f"the piped file has no chart repository {given.repository!r}",
            hint=f"it has {names}" if names else "add it to chartRepositories of the plugin",
        )
    return Chart(
        reference=f"{known.name}/{given.name}",
        shown=shown,
        version=given.version,
        repository=known,
    )


def find_repository(config: KubernetesPluginConfig, named: str) -> ChartRepository | None:
    """Returns the chart repository with a name, or with an address; None when there is none."""
    plain = named.rstrip("/")
    for each in config.chart_repositories:
        if each.type == "HTTP" and plain in {each.name, each.address.rstrip("/")}:
            return each
    return None


async def _open_folder(
    root: Path, start: Path, given: str, config: KubernetesPluginConfig, hosts: Hosts
) -> Chart:
    path = resolve_within(root, start, given, "helmChart.path", "the repository")
    if not (path / "Chart.yaml").is_file():
        raise StageFailedError(
            f"helmChart.path {given!r} is not the folder of a chart",
            hint="it has no Chart.yaml; paths are read from the application's folder",
        )
    await asyncio.to_thread(check_links, path, root, f"the chart {given!r}")
    dependencies = await asyncio.to_thread(_read_dependencies, path, given)
    for each in dependencies:
        await _check_dependency(each, path, root, given, config, hosts)
    return Chart(
        reference=str(path), shown=given, has_dependencies=bool(dependencies), is_folder=True
    )


def _read_dependencies(path: Path, shown: str) -> list[str]:
    """Returns where a chart has its dependencies from. Raises StageFailedError."""
    found = []
    for name in ("Chart.yaml", "requirements.yaml"):
        if not (path / name).is_file():
            continue
        what = f"{shown}/{name}"
        try:
            content: Any = yaml.load(read_text(path / name, what))
        except yaml.YamlError as error:
            raise StageFailedError(f"{what}: {error}") from None
        # Keys are matched without case, as helm does.
        known = (
            {str(key).lower(): value for key, value in content.items()}
            if isinstance(content, dict)
            else {}
        )
        listed = known.get("dependencies")
        for each in listed if isinstance(listed, list) else []:
            if isinstance(each, dict):
                keys = {str(key).lower(): value for key, value in each.items()}
                found.append(str(keys.get("repository") or ""))
    return found


async def _check_dependency(
    repository: str,
    path: Path,
    root: Path,
    shown: str,
    config: KubernetesPluginConfig,
    hosts: Hosts,
) -> None:
    what = f"a dependency of the chart {shown!r}:"
    if not repository:
        return  # it is in the chart's own folder
    if repository.startswith("file://"):
        given = repository.removeprefix("file://")
        local = resolve_within(root, path, given, what, "the repository")
        await asyncio.to_thread(check_links, local, root, what)
    elif repository.startswith(("@", "alias:")):
        name = repository.removeprefix("@").removeprefix("alias:")
        if find_repository(config, name) is None:
            raise StageFailedError(f"{what} the piped file has no chart repository {name!r}")
    else:
        await hosts.check(repository, what, schemes=_FETCHED)
