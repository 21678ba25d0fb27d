# SPDX-License-Identifier: Apache-2.0
"""The readiness of piped for probes: which parts are not ready, and why.

Computed for each request, so that it is never out of date. An instance is ready also while another
one holds the lease; otherwise a rolling update could never replace the other one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipecd_piped.git.state import Reachability, RepositoryState
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHealth:
    """The state of one part of piped, such as a plugin, and whether it is ready."""

    name: str
    ready: bool
    state: str
    sentence: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f", {self.sentence}" if self.sentence else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedHealth:
    """Reads the current states of all parts."""

    plugins: Mapping[str, Plugin]
    repositories: Callable[[], Mapping[str, RepositoryState]]
    connected: Callable[[], bool]
    """Returns whether piped is connected to the control plane."""
    trouble: Callable[[], str]
    """Returns why the control plane cannot be reached, empty when it can."""
    fault: Callable[[], str]
    """Returns why reports cannot be written to disk, empty when they can."""
    holds_lease: Callable[[], bool]
    """Returns whether this instance holds the lease."""

    def readiness(self) -> tuple[bool, str]:
        """Returns whether everything is ready, and all of it as JSON."""
        parts = list(self.parts())
        ready = all(part.ready for part in parts)
        answer = {
            "ready": ready,
            "notReady": [str(part) for part in parts if not part.ready],
            "lease": "held" if self.holds_lease() else "with another instance; this one waits",
            "parts": [
                {
                    "name": part.name,
                    "ready": part.ready,
                    "state": part.state,
                    "sentence": part.sentence,
                }
                for part in parts
            ],
        }
        return ready, json.dumps(answer, indent=2) + "\n"

    def parts(self) -> Iterator[PartHealth]:
        """Yields every part that has to be ready."""
        connected = self.connected()
        away = f"{self.trouble() or 'it has not answered yet'}; reports wait, stages go on"
        yield PartHealth(
            name="control plane",
            ready=connected,
            state="connected" if connected else "away",
            sentence="" if connected else away,
        )
        for name, plugin in sorted(self.plugins.items()):
            state = plugin.state
            yield PartHealth(
                name=f"plugin {name}",
                ready=state.phase is Phase.READY,
                state=str(state.phase),
                sentence=state.sentence,
            )
        for name, repository in sorted(self.repositories().items()):
            # Only the instance that holds the lease reads repositories.
            waits = repository.reach is Reachability.OPENING and not self.holds_lease()
            yield PartHealth(
                name=f"repository {name}",
                ready=waits or repository.reach is Reachability.REACHABLE,
                state=str(repository.reach),
                sentence=repository.reason,
            )
        fault = self.fault()
        yield PartHealth(
            name="disk", ready=not fault, state="failing" if fault else "ok", sentence=fault
        )
