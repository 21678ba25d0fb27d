# SPDX-License-Identifier: Apache-2.0
"""Plugin processes: fetches, starts, watches, restarts and calls them, and serves their calls."""

from pipecd_piped.plugins.backend import PluginBackend, StageCommandSource
from pipecd_piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from pipecd_piped.plugins.host import PluginHost
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import Phase, PluginLimits, PluginState
from pipecd_piped.plugins.state_reporter import PluginStateReporter
from pipecd_piped.plugins.tools import ToolsFolder

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
