# SPDX-License-Identifier: Apache-2.0
"""Plugin processes: fetch, start, watch, restart, call, and answer their calls."""

from piped.plugins.backend import PluginBackend, StageCommands
from piped.plugins.errors import PluginError, PluginLostError, PluginStoppingError
from piped.plugins.host import PluginHost
from piped.plugins.plugin import Plugin
from piped.plugins.state import Limits, Phase, PluginState
from piped.plugins.state_reporter import PluginStateReporter
from piped.plugins.tools import Tools

__all__ = [
    "Limits",
    "Phase",
    "Plugin",
    "PluginBackend",
    "PluginError",
    "PluginHost",
    "PluginLostError",
    "PluginState",
    "PluginStateReporter",
    "PluginStoppingError",
    "StageCommands",
    "Tools",
]
