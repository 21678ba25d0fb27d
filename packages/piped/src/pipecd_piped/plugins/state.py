# SPDX-License-Identifier: Apache-2.0
"""The state of a plugin: fetching → starting → ready → failed → stopping, each with a reason."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The phase of a plugin's life cycle."""

    FETCHING = "fetching"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginState:
    """A plugin's phase, the reason for it, and the last output of its process."""

    phase: Phase
    sentence: str
    last_output: tuple[str, ...] = ()
    crash_loop: bool = False
    """Whether it has failed `PluginLimits.crash_loop` times in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLimits:
    """Timeouts and failure counts for plugins."""

    ready_seconds: float = 30
    """From the start of the process until it serves."""
    planning_seconds: float = 30
    """One planning call."""
    handler_end_seconds: float = 30
    """After a cancelled ExecuteStage, until its handler has ended; then the plugin is restarted."""
    silent_end_seconds: float = 1
    """The same for a plugin that cannot report when its handler has ended."""
    ping_interval_seconds: float = 5
    missed_pings: int = 3
    """The number of missed pings in a row after which the plugin is restarted."""
    probe_interval_seconds: float = 10
    """The interval and the timeout of the calls that probe a plugin. After `missed_pings` timeouts
    in a row the plugin is restarted."""
    reconnect_seconds: float = 5
    """A channel that stays broken for this long is given up."""
    first_pause_seconds: float = 1
    """The backoff before the first restart; it doubles with each further one."""
    longest_pause_seconds: float = 60
    crash_loop: int = 5
    """The number of failures in a row that count as a crash loop."""
    steady_seconds: float = 60
    """After being ready for this long, a plugin has its count of failures reset."""
    hurry_seconds: float = 5
    """The time that a plugin has after the second signal to stop."""
