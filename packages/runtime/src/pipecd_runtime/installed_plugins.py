# SPDX-License-Identifier: Apache-2.0
"""The plugins that are installed beside this program, found by their entry points.

A distribution names each of its plugins in the group `pipecd.plugins`, with the function that also
a command of its own runs. Neither the name of the distribution nor that of the command matters.
"""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "pipecd.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """A plugin, as its distribution describes it."""

    name: str
    distribution: str
    package: str
    """The import package of its function."""
    command: str
    """The command that runs the same function; empty when the distribution has none."""


def list_installed_plugins() -> list[InstalledPlugin]:
    """Returns the plugins of all installed distributions, by name; one name may occur twice."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow; few programs ask

    found = []
    for entry in entry_points(group=GROUP):
        if (distribution := entry.dist) is None:
            continue
        commands = distribution.entry_points.select(group="console_scripts")
        found.append(
            InstalledPlugin(
                name=entry.name,
                distribution=distribution.name,
                package=entry.module.partition(".")[0],
                command=next((each.name for each in commands if each.value == entry.value), ""),
            )
        )
    return sorted(found, key=lambda plugin: (plugin.name, plugin.distribution))
