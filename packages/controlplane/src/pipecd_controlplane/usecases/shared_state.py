# SPDX-License-Identifier: Apache-2.0
"""The knowledge of a control plane that is not in its tables, and that all its replicas need.

Today one process serves, and `usecases.in_process` keeps all of this in its memory. Several
replicas over one database need another `SharedState`, and nothing else: whoever uses a part asks
with `await`, and relies only on what the part says here.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipecd_controlplane.store.changes import Change, Topic
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.bus import Listener, Subscriber
from pipecd_controlplane.usecases.ownership import Agent


class ChangeBus(Protocol):
    """Tells listeners of changes, whichever replica has made them.

    A change reaches each listener at least once, after it can be read. A bus that may have missed
    some stops its listeners, whose clients then connect again and read everything.
    """

    def publish(self, changes: Sequence[Change]) -> None:
        """Listeners in this process are told before it returns, those elsewhere soon."""

    def listen(self, *topics: Topic) -> AbstractContextManager[Listener]:
        """Listen while the block runs; what is read inside it is not older than the listening."""

    def subscription(
        self, subscriber: Subscriber, *topics: Topic
    ) -> AbstractContextManager[None]: ...

    def stop(self) -> None:
        """Stop every listener of this process."""


class Presence(Protocol):
    """Which pipeds are connected, to whichever replica. One that has died counts for none soon."""

    def connection(self, agent: Agent) -> AbstractAsyncContextManager[None]:
        """The piped is connected while the block runs; beginning and end are published."""

    async def find_connected(self, piped_ids: Iterable[str]) -> set[str]:
        """Returns those of the pipeds that are connected now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A report of an agent, with the mark by which its process is told from others."""

    mark: str
    peer: str
    under_lease: bool


class Sightings(Protocol):
    """The order in which agents have reported under one piped id, over all replicas."""

    async def record(
        self, piped_id: str, method: str, sighting: Sighting, *, window_seconds: float
    ) -> list[Sighting]:
        """Make it the latest for this piped and RPC; one step, whoever else records.

        Returns those recorded since its mark was last, the oldest first; none for a new mark. What
        is older than the window is forgotten.
        """


class AttemptLimiter(Protocol):
    """A limit of attempts per key; all replicas count together."""

    async def take(self, key: str) -> float:
        """Use one attempt: 0, or the seconds to wait until there is one."""

    async def give_back(self, key: str) -> None:
        """Undo one `take`: the attempt was a good one."""

    async def forget(self, key: str) -> None:
        """Give back everything that was taken for the key."""


class FamiliarNetworks(Protocol):
    """The networks that an account was signed in from lately. May forget; never makes one up."""

    async def has(self, account: str, network: str) -> bool: ...

    async def add(self, account: str, network: str) -> None:
        """Remember a sign-in that succeeded."""


class KeyUses(Protocol):
    """When API keys were used last; a call must not wait for the disk to note it.

    This process knows its own uses at once; the others know them from the store after a `flush`.
    """

    async def note(self, project_id: str, key_id: str, at: int) -> None: ...

    async def find_last(self, project_id: str, key_id: str) -> int:
        """Returns when it was used last, as far as `flush` has not written it yet; else 0."""

    async def flush(self, stores: Stores) -> None:
        """Write what was noted here. A time in the store never goes back."""


class JobLeader(Protocol):
    """Chooses the replica that runs a timed job."""

    def claim(self, job: str) -> AbstractAsyncContextManager[bool]:
        """Yields whether this process may run the job now; no other one may until the block ends.

        One of those that go on asking is granted it, also after the one before has died.
        """


class SharedState(Protocol):
    """All of it; one for each way to run a control plane."""

    @property
    def bus(self) -> ChangeBus: ...

    @property
    def presence(self) -> Presence: ...

    @property
    def sightings(self) -> Sightings: ...

    @property
    def familiar_networks(self) -> FamiliarNetworks: ...

    @property
    def key_uses(self) -> KeyUses: ...

    @property
    def job_leader(self) -> JobLeader: ...

    def limit_attempts(self, name: str, *, burst: int, seconds: float) -> AttemptLimiter:
        """Returns the limit of this name: `burst` attempts at once, one more each `seconds`.

        Whoever asks for one name gets the same limit; different names have nothing in common.
        """

    async def read_encryption_keys(self, files: Sequence[Path]) -> list[bytes]:
        """Returns the keys of the files, or without any a key that all replicas have.

        Raises ConfigError for a file that cannot be used.
        """
