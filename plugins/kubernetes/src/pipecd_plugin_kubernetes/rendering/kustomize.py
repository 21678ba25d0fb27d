# SPDX-License-Identifier: Apache-2.0
"""Manifests that kustomize makes: `kustomize build`, or `kubectl kustomize` where there is none."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.config import Input
from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_plugin_kubernetes.rendering.gate import run_gated
from pipecd_plugin_kubernetes.rendering.kustomization import (
    NAMES,
    find_kustomization,
    inspect_kustomization,
)
from pipecd_plugin_kubernetes.rendering.programs import (
    Programs,
    explain_missing,
    make_environment,
)
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.process import Argument, join_option, own, word
from pipecd_sdk.repository import Folder

_ANY: Final = frozenset[str]()
_SWITCH: Final = frozenset({"", "true", "false"})
_NO_LIMITS: Final = "LoadRestrictionsNone"
_OPTIONS: Final[Mapping[str, tuple[frozenset[str], Callable[[str], Argument]]]] = {
    "load-restrictor": (
        frozenset({"LoadRestrictionsRootOnly", "rootOnly", _NO_LIMITS, "none"}),
        lambda value: join_option("--load-restrictor=", value),
    ),
    "reorder": (
        frozenset({"legacy", "none"}),
        lambda value: join_option("--reorder=", value),
    ),
    "enable-helm": (_SWITCH, lambda value: join_option("--enable-helm=", value or "true")),
    "enable-managedby-label": (
        _SWITCH,
        lambda value: join_option("--enable-managedby-label=", value or "true"),
    ),
    "helm-api-versions": (_ANY, lambda value: join_option("--helm-api-versions=", value)),
    "helm-kube-version": (_ANY, lambda value: join_option("--helm-kube-version=", value)),
}
"""The options that an application may give, and their values; none of them runs anything."""


def find_folder(folder: Folder, given: Input) -> Path | None:
    """Returns the folder with the application's kustomization, None when it has none.

    Raises StageFailedError when the one that is named has none.
    """
    if not given.kustomize_dir:
        return folder.path if find_kustomization(folder.path) else None
    path = folder.resolve(given.kustomize_dir, "kustomizeDir")
    if find_kustomization(path) is None:
        raise StageFailedError(
            f"kustomizeDir {given.kustomize_dir!r} has no kustomization",
            hint=f"one of {', '.join(NAMES)}",
        )
    return path


async def render_kustomization(
    folder: Folder, start: Path, given: Input, *, programs: Programs, hosts: Hosts, home: Path
) -> list[Manifest]:
    """Returns the manifests of the kustomization in a folder. Raises StageFailedError."""
    options = check_options(given.kustomize_options)
    fetches = await inspect_kustomization(folder, start, hosts)
    if fetches and options.get("load-restrictor") in {_NO_LIMITS, "none"}:
        raise StageFailedError(
            "a kustomization that fetches something cannot be read without restrictions",
            hint=f"leave out load-restrictor: {_NO_LIMITS}, or what is fetched",
        )
    arguments = await _find_program(programs, given.kustomize_version)
    if "enable-helm" in options and options["enable-helm"] != "false":
        helm = await programs.find("helm", given.helm_version)
        arguments += (join_option("--helm-command=", helm),)
    arguments += tuple(_OPTIONS[name][1](value) for name, value in options.items())
    env = make_environment(home, KUSTOMIZE_PLUGIN_HOME=str(home / "no-plugins"))
    output = await run_gated((*arguments, *own("--", ".")), "kustomize", start, env, hosts)
    shown = f"kustomize ({folder.show(start)})"
    return await asyncio.to_thread(parse_manifests, output, origin=shown)


def check_options(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that kustomize gets. Raises StageFailedError for any other."""
    checked = {}
    for name, value in given.items():
        plain = name.removeprefix("--")
        if plain not in _OPTIONS:
            raise StageFailedError(
                f"kustomizeOptions: {name[:100]!r} is not allowed",
                hint=f"allowed are {', '.join(sorted(_OPTIONS))}",
            )
        allowed = _OPTIONS[plain][0]
        if allowed and value not in allowed:
            raise StageFailedError(
                f"kustomizeOptions: {plain} cannot be {value[:100]!r}",
                hint=f"one of {', '.join(sorted(each for each in allowed if each))}",
            )
        checked[plain] = value
    return checked


async def _find_program(programs: Programs, version: str) -> tuple[Argument, ...]:
    if path := await programs.look_for("kustomize", version):
        return (word(path), *own("build"))
    if path := await programs.look_for("kubectl"):
        return (word(path), *own("kustomize"))
    raise explain_missing("kustomize")
