# SPDX-License-Identifier: Apache-2.0
"""Settings that are read and checked, and then have no effect: their author is told so.

The one list of them. Whoever makes a setting work strikes its line; a test holds that every field
of every kind is either read by something or stands here.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_model.config.decoder import Finding
from pipecd_model.config.path import Path, format_path
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import shape

_NO_EVENTS: Final = "events change no files yet"
_NOBODY_TOLD: Final = "nobody is notified of anything yet"

UNSERVED: Final[Mapping[str, str]] = {
    "ApplicationConfig.notification": _NOBODY_TOLD,
    "ApplicationConfig.event_watcher": _NO_EVENTS,
    "ApplicationConfig.drift_detection": "no field is left out of the comparison yet",
    "StageConfig.id": "stages are known by their names and places",
    "PipedConfig.name": "the control plane knows the name",
    "PipedConfig.web_address": "nothing makes links of it yet",
    "PipedConfig.app_config_sync_interval": "application files are read at every commit",
    "PipedConfig.notifications": _NOBODY_TOLD,
    "PipedConfig.event_watcher": _NO_EVENTS,
    "PipedConfig.plan_preview": "previews are worked on as they are asked for",
    "ControlPlaneConfig.cache": "nothing is cached",
    "ControlPlaneConfig.insight_collector": "figures are counted when they are asked for",
    "EventWatcherDocument.events": _NO_EVENTS,
}
"""By struct and field: why it has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One field of a struct as the search needs it: made once, because every file is searched."""

    name: str
    key: str
    why: str | None
    """Why it has no effect; None when it has one, or when only a part of it has none."""
    required: bool
    default: Any


def find_unserved(config: ConfigModel, path: Path = ("spec",)) -> list[Finding]:
    """Returns the settings of a file that have no effect; a default value is none."""
    found: list[Finding] = []
    _search_model(config, path, found)
    return found


def describe_unserved(config: ConfigModel) -> tuple[str, ...]:
    """Returns the same as sentences, for people who do not have the file before them."""
    return tuple(
        f"{format_path(finding.path)} {finding.message}" for finding in find_unserved(config)
    )


def _search_model(config: ConfigModel, path: Path, found: list[Finding]) -> None:
    for setting in _settings(type(config)):
        value = getattr(config, setting.name)
        if setting.why is None:
            if isinstance(value, (ConfigModel, tuple, dict)):
                _search(value, (*path, setting.key), found)
        elif setting.required or value != setting.default:
            message = f"has no effect: {setting.why}"
            found.append(Finding(path=(*path, setting.key), message=message, on_key=True))


def _search(value: Any, path: Path, found: list[Finding]) -> None:
    if isinstance(value, ConfigModel):
        _search_model(value, path, found)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            _search(each, (*path, index), found)
    elif isinstance(value, dict):
        for key, each in value.items():
            _search(each, (*path, key), found)


@functools.cache
def _settings(cls: type[ConfigModel]) -> tuple[_Setting, ...]:
    """Returns the settings that are looked at: those without effect, and those that hold some."""
    made = []
    for field in shape(cls).fields:
        why = UNSERVED.get(f"{cls.__name__}.{field.name}")
        if why is None and not any(_leads_on(kind) for kind in _find_structs(field.type)):
            continue
        default = None if why is None or field.required else field.default()
        made.append(
            _Setting(
                name=field.name, key=field.key, why=why, required=field.required, default=default
            )
        )
    return tuple(made)


@functools.cache
def _leads_on(cls: type[ConfigModel]) -> bool:
    """Whether a struct, or one that it may hold, has a setting without effect."""
    reached: set[type[ConfigModel]] = set()
    waiting = [cls]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting += each.variants.values()
            for field in shape(each).fields:
                waiting += _find_structs(field.type)
    names = {each.__name__ for each in reached}
    return any(key.partition(".")[0] in names for key in UNSERVED)


def _find_structs(kind: Any) -> list[type[ConfigModel]]:
    """Returns the structs that a type names, inside of tuples, dicts and unions too."""
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        return [kind]
    return [found for each in typing.get_args(kind) for found in _find_structs(each)]
