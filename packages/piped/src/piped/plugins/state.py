# SPDX-License-Identifier: Apache-2.0
"""Where a plugin stands: fetching → starting → ready → failed → stopping, each with a sentence."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """A step in the life of a plugin."""

    FETCHING = "fetching"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginState:
    """A phase, why it is in it, and what its process last said."""

    phase: Phase
    sentence: str
    last_output: tuple[str, ...] = ()
    crash_loop: bool = False
    """Has it failed so often in a row that the next try will hardly go better?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLimits:
    """Seconds that piped waits for a plugin, and what makes it lose patience."""

    ready_seconds: float = 30
    """From the start of the process until it answers."""
    planning_seconds: float = 30
    """One planning call."""
    handler_end_seconds: float = 30
    """After a cancelled ExecuteStage, until its handler has ended; then the plugin is restarted."""
    silent_end_seconds: float = 1
    """The same for a plugin that cannot tell when its handler has ended."""
    ping_interval_seconds: float = 5
    missed_pings: int = 3
    """So many in a row, and the plugin is restarted."""
    probe_interval_seconds: float = 10
    """Seconds between two questions that every plugin can answer, and for an answer. As many in a
    row without one as pings may be missed, and the plugin is restarted."""
    reconnect_seconds: float = 5
    """A channel that stays broken for so long is given up."""
    first_pause_seconds: float = 1
    """Before the first restart; it doubles with each that follows."""
    longest_pause_seconds: float = 60
    crash_loop: int = 5
    """So many failures in a row are a crash loop."""
    steady_seconds: float = 60
    """A plugin that was ready for so long starts again with the first pause."""
    hurry_seconds: float = 5
    """What is left to a plugin that was told to stop a second time."""
