# SPDX-License-Identifier: Apache-2.0
"""The shared state of a control plane that is one process: in its memory, lost when it ends.

No method but `flush` and `ask` suspends, so no other task runs in the middle of a call.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.attempts import Clock, InProcessAttemptLimiter
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.familiar import InProcessFamiliarNetworks
from pipecd_controlplane.usecases.git_hints import InProcessGitHints
from pipecd_controlplane.usecases.login_requests import InProcessLoginRequests
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.questions import InProcessQuestions
from pipecd_controlplane.usecases.shared_state import (
    AttemptLimiter,
    ChangeBus,
    Measurement,
    Sighting,
)
from pipecd_controlplane.usecases.vault import read_keys


class InProcessPresence:
    """Which pipeds are connected to this process right now."""

    def __init__(self, bus: ChangeBus, clock: Clock = time.monotonic) -> None:
        self._bus = bus
        self._clock = clock
        self._connections: Counter[str] = Counter()
        self._ended: dict[str, float] = {}

    @asynccontextmanager
    async def connection(self, agent: Agent) -> AsyncIterator[None]:
        # Published to people, not to the piped, which knows it (no `piped_id`).
        change = Change(kind=ChangeKind.PIPED, id=agent.piped_id, project_id=agent.project_id)
        self._connections[agent.piped_id] += 1
        self._bus.publish([change])
        try:
            yield
        finally:
            self._connections[agent.piped_id] -= 1
            if not self._connections[agent.piped_id]:
                del self._connections[agent.piped_id]
                self._ended[agent.piped_id] = self._clock()
            self._bus.publish([change])

    async def find_connected(self, piped_ids: Iterable[str]) -> set[str]:
        return {piped_id for piped_id in piped_ids if self._connections[piped_id] > 0}

    async def find_seconds_since_connected(self, piped_ids: Iterable[str]) -> dict[str, float]:
        now = self._clock()
        return {
            piped_id: now - self._ended[piped_id]
            for piped_id in piped_ids
            if piped_id in self._ended and not self._connections[piped_id]
        }


class InProcessSightings:
    """The agents that have reported to this process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        # By piped and RPC, in the order of each agent's last report: each RPC identifies its sender
        # differently.
        self._heard: dict[tuple[str, str], dict[str, tuple[float, Sighting]]] = {}

    async def record(
        self, piped_id: str, method: str, sighting: Sighting, *, window_seconds: float
    ) -> list[Sighting]:
        now = self._clock()
        heard = {
            mark: (at, known)
            for mark, (at, known) in self._heard.get((piped_id, method), {}).items()
            if now - at < window_seconds
        }
        since: list[Sighting] = []
        if sighting.mark in heard:
            later = list(heard.values())[list(heard).index(sighting.mark) + 1 :]
            since = [known for _, known in later]
        heard.pop(sighting.mark, None)
        heard[sighting.mark] = (now, sighting)
        self._heard[piped_id, method] = heard
        return since


class InProcessKeyUses:
    """When API keys were last used: noted in memory by calls, written to the store by `flush`."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], int] = {}

    async def note(self, project_id: str, key_id: str, at: int) -> None:
        self._uses[project_id, key_id] = at

    async def find_last(self, project_id: str, key_id: str) -> int:
        return self._uses.get((project_id, key_id), 0)

    async def flush(self, stores: Stores) -> None:
        if self._uses:
            uses = dict(self._uses)
            await stores.api_key_facts.record_uses(uses)
            for key, at in uses.items():
                if self._uses.get(key) == at:
                    del self._uses[key]


class InProcessJobLeader:
    """Grants every claim: there is no other process."""

    @asynccontextmanager
    async def claim(self, job: str) -> AsyncIterator[bool]:
        yield True


class InProcessState:
    """The shared state of the one process that owns a data folder; implements `SharedState`."""

    def __init__(self, folder: Path, clock: Clock = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._limiters: dict[str, AttemptLimiter] = {}
        self.bus = Bus()
        self.presence = InProcessPresence(self.bus, clock)
        self.sightings = InProcessSightings(clock)
        self.familiar_networks = InProcessFamiliarNetworks()
        self.login_requests = InProcessLoginRequests(clock)
        self.questions = InProcessQuestions(self.bus)
        self.git_hints = InProcessGitHints(self.bus)
        self.key_uses = InProcessKeyUses()
        self.job_leader = InProcessJobLeader()

    def limit_attempts(self, name: str, *, burst: int, seconds: float) -> AttemptLimiter:
        new = InProcessAttemptLimiter(burst, seconds, self._clock)
        return self._limiters.setdefault(name, new)

    def measure(self) -> list[Measurement]:
        return []

    async def read_encryption_keys(self, files: Sequence[Path]) -> list[bytes]:
        return read_keys(files, self._folder)
