# SPDX-License-Identifier: Apache-2.0
"""A plugin as the piped configuration names it, and the JSON it is started with."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipecd_model.errors import ConfigError

PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEntry:
    """One of `deployTargets`."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    config: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """One of `spec.plugins`."""

    name: str
    url: str = ""
    """Empty: the installed package of the plugin's name."""
    port: int = 0
    """Where it shall serve; 0 when piped may pick."""
    config: Any = None
    deploy_targets: tuple[TargetEntry, ...] = ()
    sha256: str = ""
    """What the file must hash to; empty when any will do."""

    def as_json(self, *, url: str, port: int) -> str:
        """The entry as a plugin gets it, with upstream's keys and omissions."""
        document: dict[str, Any] = {"name": self.name, "url": url, "port": port}
        if self.config is not None:
            document["config"] = self.config
        if self.deploy_targets:
            document["deployTargets"] = [_target(target) for target in self.deploy_targets]
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _target(target: TargetEntry) -> dict[str, Any]:
    labels = {"labels": dict(target.labels)} if target.labels else {}
    return {"name": target.name, **labels, "config": target.config}


def check(entries: Iterable[PluginEntry]) -> list[PluginEntry]:
    """The entries, if they can stand beside each other."""
    checked: dict[str, PluginEntry] = {}
    ports: dict[int, str] = {}
    for entry in entries:
        if not PLAIN_NAME.fullmatch(entry.name):
            raise ConfigError(
                f"a plugin cannot be named {entry.name!r}",
                hint="letters, digits and ._- make a name",
            )
        if entry.name in checked:
            raise ConfigError(
                f"two plugins are named {entry.name!r}", hint="give each a name of its own"
            )
        if entry.port in ports:
            raise ConfigError(
                f"the plugins {ports[entry.port]!r} and {entry.name!r} have the port {entry.port}",
                hint="leave `port` out and piped picks one",
            )
        checked[entry.name] = entry
        if entry.port:
            ports[entry.port] = entry.name
    return list(checked.values())
