# SPDX-License-Identifier: Apache-2.0
"""A piped file of an older agent, rewritten with plugins in place of providers."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import msgspec
import yaml

from pipecd_model.config import rules
from pipecd_model.config.document import Document, load_piped
from pipecd_model.config.fault import ConfigFaultsError, Fault, Loaded
from pipecd_model.config.locate import Positions
from pipecd_model.config.path import Path, format_path
from pipecd_model.config.piped import PipedConfig
from pipecd_model.config.schema import find_key, find_value
from pipecd_model.migrate.rewritten import Rewritten, not_the_same, refusal
from pipecd_model.migrate.splice import Splice

_PLATFORMS = {
    "KUBERNETES": "kubernetes",
    "TERRAFORM": "terraform",
    "CLOUDRUN": "cloudrun",
    "LAMBDA": "lambda",
    "ECS": "ecs",
}
_PROVIDERS = ("platformProviders", "cloudProviders")
_CHARTS = ("chartRepositories", "chartRegistries")
_ANALYSIS = "analysisProviders"
_ALWAYS = ("wait", "waitapproval", "scriptrun")
"""Their stages were part of every older agent."""


def migrate_piped(text: str, *, file: str) -> Rewritten:
    """Rewrite a file; raises `ConfigFaultsError` if it is wrong or cannot be rewritten."""
    document = Document(text, file)
    document.expect(("Piped",))
    spec = document.spec if isinstance(document.spec, dict) else {}
    older = [key for key in (*_PROVIDERS, *_CHARTS, _ANALYSIS) if find_key(spec, key)]
    if not older:
        load_piped(text, file=file)
        raise refusal(file, "nothing to migrate: there are no providers", "it is written as today")
    providers = [
        (key, index, item)
        for key in _PROVIDERS
        for index, item in enumerate(find_value(spec, key) or ())
    ]
    _check_types(text, file, providers)
    before = load_piped(text, file=file)
    try:
        rewritten = _rewrite(text, spec, providers)
        after = load_piped(rewritten, file=file, strict=True)
    except (ConfigFaultsError, yaml.YAMLError, StopIteration, AssertionError):
        raise not_the_same(file) from None
    _check_same(file, before, after, providers)
    return Rewritten(text=rewritten, hazards=tuple(_hazards(file, spec)))


def _check_types(text: str, file: str, providers: list[tuple[str, int, Any]]) -> None:
    faults = []
    places = Positions(text)
    for key, index, item in providers:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind not in _PLATFORMS:
            near = rules.nearest(str(kind).upper().replace("K8S", "KUBERNETES"), _PLATFORMS)
            path: Path = ("spec", key, index, "type")
            line, column = places.value(path)
            faults.append(
                Fault(
                    file=file,
                    line=line,
                    column=column,
                    path=format_path(path),
                    message=f"unknown value {kind!r}",
                    hint=f"{near} one of {', '.join(_PLATFORMS)}".strip(),
                )
            )
    if faults:
        raise ConfigFaultsError(faults)


def _rewrite(text: str, spec: dict[str, Any], providers: list[tuple[str, int, Any]]) -> str:
    splice = Splice(text)
    targets: dict[str, list[str]] = {}
    for key, index, item in providers:
        at: Path = ("spec", key, index)
        pieces = [
            splice.copy((*at, name)).rstrip("\n")
            for name in ("name", "labels", "config")
            if splice.has((*at, name))
        ]
        entry = splice.comments_above(at) + "\n".join(pieces)
        targets.setdefault(_PLATFORMS[item["type"]], []).append(_item(entry))
    charts = [splice.copy(("spec", key)) for key in _CHARTS if splice.has(("spec", key))]
    analysis = [splice.copy(("spec", _ANALYSIS))] if splice.has(("spec", _ANALYSIS)) else []
    if charts:
        targets.setdefault("kubernetes", [])
    entries = [
        _plugin(name, targets=found, config=charts if name == "kubernetes" else [])
        for name, found in targets.items()
    ]
    if analysis:
        entries.append(_plugin("analysis", targets=[], config=analysis))
    entries += [_plugin(name, targets=[], config=[]) for name in _ALWAYS]
    for key in (*_PROVIDERS, *_CHARTS, _ANALYSIS):
        if splice.has(("spec", key)):
            splice.cut(("spec", key))
    if splice.has(("spec", "plugins")) and find_value(spec, "plugins"):
        raise yaml.YAMLError("there are plugins already")
    if splice.has(("spec", "plugins")):
        splice.cut(("spec", "plugins"))
    splice.put(("spec",), "plugins:\n" + indent("".join(entries), "  "))
    return splice.text


def _plugin(name: str, *, targets: list[str], config: list[str]) -> str:
    text = f"name: {name}\n"
    if config:
        text += "config:\n" + indent("".join(f"{piece.rstrip()}\n" for piece in config), "  ")
    if targets:
        text += "deployTargets:\n" + indent("".join(targets), "  ")
    return _item(text.rstrip("\n"))


def _item(text: str) -> str:
    """Write a mapping as an item of a list; comments above it stay above it."""
    lines = text.split("\n")
    start = _first_setting(lines)
    comments, (first, *rest) = lines[:start], lines[start:]
    body = indent("\n".join(rest), "  ")
    head = "".join(f"{line}\n" for line in comments)
    return f"{head}- {first}\n" + (f"{body}\n" if rest else "")


def _first_setting(lines: list[str]) -> int:
    return next(index for index, line in enumerate(lines) if not line.startswith("#"))


def _check_same(
    file: str,
    before: Loaded[PipedConfig],
    after: Loaded[PipedConfig],
    providers: list[tuple[str, int, Any]],
) -> None:
    """Everything else must be as it was, and every provider must have become a deploy target."""
    config = msgspec.structs.replace(after.config, plugins=before.config.plugins)
    wanted = {(_PLATFORMS[item["type"]], item.get("name")) for _, _, item in providers}
    found = {
        (plugin.name, target.name)
        for plugin in after.config.plugins
        for target in plugin.deploy_targets
    }
    settings = {
        (plugin.name, target.name): target.config or {}
        for plugin in after.config.plugins
        for target in plugin.deploy_targets
    }
    same = all(
        settings.get((_PLATFORMS[item["type"]], item["name"])) == (item.get("config") or {})
        for _, _, item in providers
    )
    if config != before.config or wanted != found or not same:
        raise not_the_same(file)


def _hazards(file: str, spec: dict[str, Any]) -> list[Fault]:
    found = [
        Fault(
            file=file,
            message="the plugins are those installed beside the piped",
            hint="give url and port to run others",
        )
    ]
    for index, chart in enumerate(find_value(spec, "chartRepositories") or ()):
        if isinstance(chart, dict) and chart.get("type") == "GIT":
            message = f"chartRepositories[{index}]: charts from git repositories are not supported"
            found.append(Fault(file=file, message=message, hint="copy the chart"))
    return found
