# SPDX-License-Identifier: Apache-2.0
"""Plugin processes: fetches, starts, watches, restarts and calls them, and serves their calls."""

from piped.plugins.backend import PluginBackend, StageCommandSource
from piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from piped.plugins.host import PluginHost
from piped.plugins.plugin import Plugin
from piped.plugins.state import Phase, PluginLimits, PluginState
from piped.plugins.state_reporter import PluginStateReporter
from piped.plugins.tools import ToolsFolder

__all__ = [
    "Phase",
    "Plugin",
    "PluginBackend",
    "PluginError",
    "PluginHost",
    "PluginLimits",
    "PluginLostError",
    "PluginState",
    "PluginStateReporter",
    "PluginStoppingError",
    "StageCommandSource",
    "ToolsFolder",
]
