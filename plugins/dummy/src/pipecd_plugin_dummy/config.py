# SPDX-License-Identifier: Apache-2.0
"""The options that people write for this plugin: how its stages behave, and misbehave."""

import re
from typing import Any, Final, Literal, Self

from pipecd_sdk import ApplicationConfig, BadValueError, Duration, StageConfig, field

_SIZE: Final = re.compile(r"(\d{1,12})\s*(|B|kB|KB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_UNITS: Final = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}


class Failure(str):
    """The reason to fail with: `true`, or a sentence; empty means not to fail."""

    __slots__ = ()

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, bool):
            return cls("failed as told" if value else "")
        if isinstance(value, str):
            return cls(value)
        raise BadValueError(f"not a reason to fail: {value!r}", hint="true, or a sentence")


class Size(int):
    """A number of bytes: `4096`, `100MB`, `64KiB`."""

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
            return cls(int(found[1]) * _UNITS[found[2]])
        raise BadValueError(f"not a size: {value!r}", hint="e.g. 4096, 100MB or 64KiB")


class Flood(StageConfig):
    """More than anybody wants to read."""

    stdout: Size = Size()
    """Bytes for the standard output of the process, in lines."""
    stderr: Size = Size()
    """Bytes for its standard error, in lines."""
    log_lines: int = 0
    """Lines for the stage log."""
    line: Size = Size(100)
    """Bytes of each of those lines."""
    answer: Size = Size()
    """Bytes of the reason that the stage then fails with."""


class Behaviour(StageConfig):
    """What a stage does, in this order."""

    log: tuple[str, ...] = ()
    """Lines for the stage log."""
    flood: Flood = field(default_factory=Flood)
    sleep: Duration = Duration()
    """How long it takes."""
    ignore_cancel: Duration = Duration()
    """How long it goes on after it was cancelled."""
    hang: Duration = Duration()
    """How long the whole process does nothing at all: no answer, no ping, no end when told."""
    garbage: Size = Size()
    """Bytes of noise for everybody who is connected to the process."""
    exit: int | None = None
    """End the whole process with this code."""
    signal: int = 0
    """End the whole process with this signal, 9 or 11 for example."""
    exit_times: int = 1
    """How often to do these two; after it the stage goes on."""
    fail: Failure = Failure()
    """Why it fails."""


class DummyConfig(Behaviour):
    """The options of all stages."""

    record: str = ""
    """A file to add a line `<stage> <commit>` to, at the beginning."""
    rollback: Behaviour = field(default_factory=Behaviour)
    """What the rollback stage does, when it has the place of this one."""


class Planning(ApplicationConfig):
    """How it behaves when a deployment is planned."""

    sleep: Duration = Duration()
    fail: Failure = Failure()
    strategy: Literal["", "QUICK_SYNC", "PIPELINE"] = ""


class Running(ApplicationConfig):
    """What it says of what runs."""

    resources: int = 1
    health: Literal["UNKNOWN", "HEALTHY", "UNHEALTHY"] = "HEALTHY"
    sync: Literal["UNKNOWN", "SYNCED", "OUT_OF_SYNC", "INVALID_CONFIG"] = "SYNCED"
    reason: str = ""
    sleep: Duration = Duration()
    fail: Failure = Failure()


class Previewing(ApplicationConfig):
    """What it says would change."""

    summary: str = "nothing would be done"
    no_change: bool = False
    details: str = ""
    sleep: Duration = Duration()
    fail: Failure = Failure()


class Opening(ApplicationConfig):
    """What it shows of a resource that somebody opens."""

    manifest: str = "kind: Nothing\n"
    difference: str = ""
    events: tuple[str, ...] = ()
    log: str = ""
    """What each container wrote last, the previous one included."""
    containers: tuple[str, ...] = ()
    sleep: Duration = Duration()
    fail: Failure = Failure()
    gone: bool = False
    """Say that the resource is not there any more."""


class DummyOptions(ApplicationConfig):
    """The options in an application file, under `spec.plugins.dummy`."""

    planning: Planning = field(default_factory=Planning)
    live: Running = field(default_factory=Running)
    preview: Previewing = field(default_factory=Previewing)
    details: Opening = field(default_factory=Opening)
