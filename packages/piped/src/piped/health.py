# SPDX-License-Identifier: Apache-2.0
"""Whether piped can do its work, for probes: what is not ready is named, with a sentence.

Looked at when somebody asks, so that it is never older than the question. That another instance
holds the lease does not make this one unready: it could never replace the other one otherwise.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


class PluginState(Protocol):
    """Where a plugin stands."""

    @property
    def phase(self) -> str:
        """`ready`, or another word."""

    @property
    def sentence(self) -> str:
        """Why."""


class Plugin(Protocol):
    """What is told of a plugin."""

    @property
    def state(self) -> PluginState:
        """Where it stands."""

    @property
    def version(self) -> str:
        """As it said itself."""

    @property
    def restarts(self) -> int:
        """How often it was started again."""


class RepositoryState(Protocol):
    """Whether a repository can be reached."""

    @property
    def reach(self) -> str:
        """`reachable`, or another word."""

    @property
    def reason(self) -> str:
        """Why not."""


class Repository(Protocol):
    """What is told of a repository."""

    @property
    def state(self) -> RepositoryState:
        """Where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How one part of piped is."""

    name: str
    ready: bool
    state: str
    sentence: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f", {self.sentence}" if self.sentence else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Looks at the parts."""

    plugins: Mapping[str, Plugin]
    repositories: Mapping[str, Repository]
    connected: Callable[[], bool]
    """Is there a connection to the control plane?"""
    fault: Callable[[], str]
    """Why nothing can be kept on disk, empty when it can."""
    holds_lease: Callable[[], bool]
    """May this instance work, or does another one?"""

    def readiness(self) -> tuple[bool, str]:
        """Is everything ready? And all of it as JSON."""
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

    def parts(self) -> Iterator[Part]:
        """All that has to be ready."""
        connected = self.connected()
        yield Part(
            name="control plane",
            ready=connected,
            state="connected" if connected else "away",
            sentence="" if connected else "it does not answer; reports wait, stages go on",
        )
        for name, plugin in sorted(self.plugins.items()):
            state = plugin.state
            yield Part(
                name=f"plugin {name}",
                ready=str(state.phase) == "ready",
                state=str(state.phase),
                sentence=state.sentence,
            )
        for name, repository in sorted(self.repositories.items()):
            reach = str(repository.state.reach)
            # Only the instance that works looks at repositories.
            waits = reach == "opening" and not self.holds_lease()
            yield Part(
                name=f"repository {name}",
                ready=waits or reach == "reachable",
                state=reach,
                sentence=repository.state.reason,
            )
        fault = self.fault()
        yield Part(name="disk", ready=not fault, state="failing" if fault else "ok", sentence=fault)
