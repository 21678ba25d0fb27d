# SPDX-License-Identifier: Apache-2.0
"""The errors of calls to plugins, by what the caller does next.

PluginError                  it returned an error, or timed out          fail the stage or the plan
└── PluginLostError          its process or channel is gone              wait until ready, and retry
    └── PluginStoppingError  it got the signal to stop                   leave the stage as it is

The errors of fetching and starting a process are in `pipecd_piped.programs.errors`.
"""

from pipecd_model.errors import PluginError

__all__ = [
    "PluginError",
    "PluginLostError",
    "PluginStoppingError",
]


class PluginLostError(PluginError):
    """The plugin's process is gone; it is being restarted, and its stages are continued."""

    status = "UNAVAILABLE"


class PluginStoppingError(PluginLostError):
    """The plugin got the signal to stop: nothing has failed, and the next process continues."""
