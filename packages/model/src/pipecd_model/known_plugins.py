# SPDX-License-Identifier: Apache-2.0
"""The descriptions of plugins, for programs that check a file without running the plugins.

A plugin's package holds its description as `schemas.json`. `known_plugins.json` beside this module
has those of all plugins of this project, for a machine where they are not installed;
`tools/gen_schemas.py` writes it. piped asks the plugins it runs for their schemas, and reads only
names from it: of the schemas, which are most of the file, nothing stays in its memory.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

Schema = Mapping[str, Any]

FILE: Final = "known_plugins.json"

_ANY_ROLLBACK: Final = "ROLLBACK"
"""Older files name it; no plugin offers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDescription:
    """What a plugin offers, and the schemas of what people write for it; None: they write nothing.

    `stages` are those that a pipeline may name, each with the schema of its options.
    """

    name: str
    stages: Mapping[str, Schema] = field(default_factory=dict)
    rollback_stages: tuple[str, ...] = ()
    """Planned by the plugin itself; a pipeline cannot name them."""
    quick_sync_stages: tuple[str, ...] = ()
    """What a deployment without a pipeline runs."""
    needs_targets: bool = False
    """Does it deploy to somewhere, so that it needs a deploy target?"""
    plugin_config: Schema | None = None
    deploy_target_config: Schema | None = None
    application_config: Schema | None = None

    @property
    def platform_rollback(self) -> str:
        """The stage that brings its platform back, whichever of its stages ran; empty if none."""
        return next(iter(self.rollback_stages), "") if self.quick_sync_stages else ""


def parse_description(name: str, text: str) -> PluginDescription:
    """Read the file `schemas.json` of a plugin's package; raises ValueError."""
    return _description(name, json.loads(text))


class _PluginNames(msgspec.Struct, frozen=True):
    """The names in a plugin's description, read without its schemas."""

    stages: dict[str, msgspec.Raw] = {}
    rollback: tuple[str, ...] = ()


@cache
def load_known_plugins() -> Mapping[str, PluginDescription]:
    """Return the plugins of this project by their usual names."""
    return {name: _description(name, each) for name, each in json.loads(_read_file()).items()}


@cache
def _load_stages() -> Mapping[str, frozenset[str]]:
    """Return the stages that pipelines may name, by the usual name of their plugin."""
    return {name: frozenset(plugin.stages) for name, plugin in _load_names().items()}


def _load_names() -> Mapping[str, _PluginNames]:
    return msgspec.json.decode(_read_file(), type=dict[str, _PluginNames])


def _read_file() -> bytes:
    data = pkgutil.get_data("pipecd_model", FILE)  # also in a program of one file
    if data is None:
        raise FileNotFoundError(FILE)
    return data


def find_by_stage(
    stage: str, plugins: Mapping[str, PluginDescription] | None = None
) -> PluginDescription | None:
    """Returns the known plugin that offers a stage; None for a stage of an unknown plugin."""
    known = load_known_plugins() if plugins is None else plugins
    return next((plugin for plugin in known.values() if stage in plugin.stages), None)


@cache
def _rollback_stages() -> frozenset[str]:
    names = (name for plugin in _load_names().values() for name in plugin.rollback)
    return frozenset({_ANY_ROLLBACK, *names})


def is_planned_automatically(stage: str) -> bool:
    """Returns whether it is a rollback stage; in a pipeline it would run without a failure."""
    return stage in _rollback_stages()


def find_configured_names(offered: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Returns how a piped names known plugins: usual name to configured one, where they differ.

    `offered` has the stages of each of its plugins. A plugin that several could be meant by, or
    that has its usual name, is not in the result.
    """
    names: dict[str, str] = {}
    for plugin, known in _load_stages().items():
        if plugin in offered:
            continue
        meant = [name for name, stages in offered.items() if known.intersection(stages)]
        if len(meant) == 1:
            names[plugin] = meant[0]
    return names


def _description(name: str, raw: Any) -> PluginDescription:
    if not isinstance(raw, dict) or not isinstance(raw.get("stages") or {}, dict):
        raise ValueError("not the description of a plugin")  # noqa: TRY004 - a value in a file
    return PluginDescription(
        name=name,
        stages=raw.get("stages") or {},
        rollback_stages=tuple(raw.get("rollback") or ()),
        quick_sync_stages=tuple(raw.get("quickSync") or ()),
        needs_targets=bool(raw.get("needsTargets")),
        plugin_config=raw.get("pluginConfig"),
        deploy_target_config=raw.get("deployTargetConfig"),
        application_config=raw.get("applicationConfig"),
    )
