# SPDX-License-Identifier: Apache-2.0
"""Why a call to a plugin failed, split by what its caller does next.

PluginError                  it answered with an error, or not in time      the stage or plan fails
└── PluginLostError          its process or channel is gone, or not there   wait for `ready`, go on
    └── PluginStoppingError  it was told to stop                            leave the stage as it is

Why there is no process at all is in `piped.programs.errors`.
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
