# SPDX-License-Identifier: Apache-2.0
"""The state of a control plane that is not in its tables, and that all its replicas share.

A process that owns its database keeps all of this in its memory (`usecases.in_process`); those
that share one keep it there (`usecases.replicated`). Callers use `await`, and rely only on the
contracts in this module.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipecd_controlplane.store.changes import Change, Topic
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.bus import Listener, Subscriber
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import UnavailableError
from pipecd_wire.pipecd.push import push_pb2


class ChangeBus(Protocol):
    """Delivers changes to listeners, whichever replica has committed them.

    A change is delivered to each listener at least once, after it can be read. A bus that may have
    missed changes stops its listeners, whose clients then reconnect and read everything.
    """

    def publish(self, changes: Sequence[Change]) -> None:
        """Notifies listeners in this process before it returns, those in other replicas soon."""

    async def catch_up(self) -> None:
        """Waits until listeners here are notified of all that any replica had committed before.

        When that takes too long it returns all the same, and logs it.
        """

    def listen(self, *topics: Topic) -> AbstractContextManager[Listener]:
        """Yields a listener that is subscribed while the block runs.

        A change that a read inside the block does not see yet reaches the listener.
        """

    def subscription(
        self, subscriber: Subscriber, *topics: Topic
    ) -> AbstractContextManager[None]: ...

    def stop(self) -> None:
        """Stop every listener of this process."""


class Presence(Protocol):
    """Which pipeds are connected, to any replica. Connections of a dead replica expire soon."""

    def connection(self, agent: Agent) -> AbstractAsyncContextManager[None]:
        """Marks the piped as connected while the block runs; publishes its beginning and end."""

    async def find_connected(self, piped_ids: Iterable[str]) -> set[str]:
        """Returns the ids of those pipeds that are connected now."""

    async def find_seconds_since_connected(self, piped_ids: Iterable[str]) -> dict[str, float]:
        """Returns how many seconds ago the last connection of each piped ended.

        Without those that are connected, and those whose last connection is not known any more.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A report of an agent, with a mark that distinguishes its process from others."""

    mark: str
    peer: str
    under_lease: bool


class Sightings(Protocol):
    """The order in which agents have reported under one piped id, over all replicas."""

    async def record(
        self, piped_id: str, method: str, sighting: Sighting, *, window_seconds: float
    ) -> list[Sighting]:
        """Records the latest report for this piped and RPC. Atomic with respect to other callers.

        Returns the sightings recorded since the last one with the same mark, oldest first; an empty
        list for a new mark. Those older than the window are dropped.
        """


class AttemptLimiter(Protocol):
    """A rate limit of attempts per key, counted over all replicas."""

    async def take(self, key: str) -> float:
        """Takes one attempt. Returns 0, or the seconds to wait until one is available."""

    async def give_back(self, key: str) -> None:
        """Undoes one `take`, because the attempt succeeded."""

    async def forget(self, key: str) -> None:
        """Resets the key: undoes every `take` for it."""


class FamiliarNetworks(Protocol):
    """The networks that an account has signed in from recently.

    An implementation may forget networks, but never reports one without a successful sign-in.
    """

    async def has(self, account: str, network: str) -> bool: ...

    async def add(self, account: str, network: str) -> None:
        """Records a successful sign-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """A program in a terminal that asks for a session, until a person with one has answered."""

    user_code: str
    """What the person types: short, and good for nothing without a session."""
    device_hash: str
    """The hash of the secret that the program polls with."""
    client: str
    """What the program calls itself: a claim, and no more."""
    address: str
    """Where it asks from."""
    session_id: str = ""
    """The session of the person who has confirmed it."""
    is_refused: bool = False

    @property
    def is_answered(self) -> bool:
        return bool(self.session_id) or self.is_refused


class LoginRequests(Protocol):
    """The programs in terminals that wait for a person to confirm their sign-in.

    An implementation forgets a request after its time, and when there are very many of them the
    ones of the network that has most.
    """

    async def add(self, request: LoginRequest, *, network: str, seconds: float) -> None:
        """Keeps a request for some time. Raises ConflictError when its code is taken."""

    async def find_open(self, user_code: str) -> LoginRequest | None:
        """Returns the request with a code that nobody has answered yet."""

    async def answer(self, user_code: str, *, session_id: str, is_refused: bool) -> bool:
        """Answers a request. Returns False when it is gone, or somebody has answered it before."""

    async def take(self, device_hash: str) -> LoginRequest | None:
        """Returns a request; one that is answered is returned once and never again."""


class NobodyAnswersError(UnavailableError):
    """No connection of the piped, to any replica, answers questions."""


TakeQuestions = Callable[[], Awaitable[list[push_pb2.Question]]]
"""Returns the questions that were not taken before; the caller sends them to the agent."""


class Questions(Protocol):
    """Questions to agents whose answers somebody waits for.

    Neither questions nor answers can be read on a disk or in a database, by no implementation:
    they go from the memory of the replica that was asked to that of the one that has the agent's
    watch, and back; on the way they are encrypted for the memory of the receiver.
    """

    def channel(self, agent: Agent) -> AbstractAsyncContextManager[TakeQuestions]:
        """Sends the questions for the agent through this connection while the block runs.

        A change of kind QUESTION is published to the piped when there are some to take. Those that
        were taken and not answered when the block ends raise UnavailableError for their askers.
        """

    async def ask(
        self, agent: Agent, question: push_pb2.Question, *, seconds: float
    ) -> push_pb2.AnswerQuestionRequest:
        """Returns the answer of the agent.

        Raises NobodyAnswersError at once when there is no connection to ask through;
        UnavailableError when it is lost, or too many wait; TimedOutError after `seconds`.
        """

    async def answer(self, agent: Agent, answer: push_pb2.AnswerQuestionRequest) -> None:
        """Hands an answer to the one who waits for it.

        Raises NotFoundError when nobody does, or the question was for another agent.
        """


TakeGitHints = Callable[[], Awaitable[list[push_pb2.GitHint]]]
"""Returns the hints that were not taken before; the caller sends them to the agent."""


class GitHints(Protocol):
    """Hints to agents that a branch may have moved. They are stored nowhere.

    Hints for one branch that were not sent yet become one. An agent that is not connected needs
    none: it asks git when it connects, and at each interval.
    """

    def channel(self, agent: Agent) -> AbstractAsyncContextManager[TakeGitHints]:
        """Sends the hints for the agent through this connection while the block runs.

        A change of kind GIT_HINT is published to the piped when there are some to take.
        """

    async def send(self, agent: Agent, hint: push_pb2.GitHint) -> bool:
        """Sends a hint through every connection of the agent. Returns whether there is one."""


class KeyUses(Protocol):
    """When API keys were used last; a call must not wait for the disk to note it.

    This process knows its own uses at once; the others know them from the store after a `flush`.
    """

    async def note(self, project_id: str, key_id: str, at: int) -> None: ...

    async def find_last(self, project_id: str, key_id: str) -> int:
        """Returns the time of a last use that `flush` has not written yet; else 0."""

    async def flush(self, stores: Stores) -> None:
        """Writes the noted uses to the store. A time in the store never moves backwards."""


class JobLeader(Protocol):
    """Chooses the replica that runs a timed job."""

    def claim(self, job: str) -> AbstractAsyncContextManager[bool]:
        """Yields whether this process may run the job now; no other one may until the block ends.

        While replicas keep claiming, one of them is granted it, even after the previous one died.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A number for the page of metrics."""

    name: str
    description: str
    value: float


class SharedState(Protocol):
    """The whole shared state; one implementation for each way to run a control plane."""

    @property
    def bus(self) -> ChangeBus: ...

    @property
    def presence(self) -> Presence: ...

    @property
    def sightings(self) -> Sightings: ...

    @property
    def familiar_networks(self) -> FamiliarNetworks: ...

    @property
    def login_requests(self) -> LoginRequests: ...

    @property
    def questions(self) -> Questions: ...

    @property
    def git_hints(self) -> GitHints: ...

    @property
    def key_uses(self) -> KeyUses: ...

    @property
    def job_leader(self) -> JobLeader: ...

    def limit_attempts(self, name: str, *, burst: int, seconds: float) -> AttemptLimiter:
        """Returns the limiter with this name: `burst` attempts at once, one more each `seconds`.

        Every call with one name returns the same limiter; limiters of different names share
        nothing.
        """

    def measure(self) -> list[Measurement]:
        """Returns how it is doing: names without labels, always the same ones."""

    async def read_encryption_keys(self, files: Sequence[Path]) -> list[bytes]:
        """Returns the keys in the files; without files, the key in the data folder.

        All replicas must have the same. Raises ConfigError for a file that cannot be used.
        """
