# SPDX-License-Identifier: Apache-2.0
"""Authenticates open streams again when the rights of their callers may have changed.

A unary call is authenticated once and is over soon; a stream stays open. The bus publishes when
something is written that its rights depend on: the session, the project with its roles and groups,
the key, the piped, the labels of what the stream is about. Only then the stream is authenticated
again, and it sends nothing until that is done. A right that expires has a timer.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from google.protobuf.message import Message

from pipecd_controlplane.auth.caller import Agent, ApiKeyCaller, Person
from pipecd_controlplane.auth.tenure import CallLater, Tenure
from pipecd_controlplane.store.changes import ChangeKind, Topic, topic
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_model.errors import DeniedError, NotFoundError, UnauthenticatedError
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.rpc import Metadata, Method

Caller = Agent | ApiKeyCaller | Person

Readmit = Callable[[Method, Metadata], Awaitable[Caller]]
"""Authenticates the caller again; raises as `CallAuthenticator.admit` does."""

SUBJECTS: Final[Mapping[str, Literal["deployment", "application"]]] = {
    "deployment_id": "deployment",
    "application_id": "application",
}
"""Fields of a request that name the one thing with labels that a stream is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A thing with labels."""

    noun: Literal["deployment", "application"]
    id: str


class CredentialRecheck:
    """Ends the streams whose callers lose their rights; works inside of `running`."""

    def __init__(
        self,
        stores: Stores,
        bus: ChangeBus,
        readmit: Readmit,
        now: Now,
        call_later: CallLater | None = None,
    ) -> None:
        self._stores = stores
        self._bus = bus
        self._readmit = readmit
        self._now = now
        self._call_later = call_later or asyncio.get_running_loop().call_later
        self._tasks = UnwrappedTaskGroup()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Rechecks while the block runs, which must outlive all streams. Raises its errors."""
        async with self._tasks:
            yield

    async def guard_stream(
        self,
        method: Method,
        metadata: Metadata,
        caller: Caller,
        request: Message,
        answers: AsyncGenerator[Message, None],
    ) -> AsyncGenerator[Message, None]:
        """Yields the responses of a stream while its caller keeps the right to them.

        Raises UnauthenticatedError or DeniedError when the right is lost.
        """
        subject = subject_of(request)
        is_open = False

        async def ask() -> int:
            fresh = await self._readmit_caller(method, metadata, caller)
            if isinstance(fresh, Person) and fresh.grant.is_limited:
                await self._check_labels(fresh, subject, is_open=is_open)
            return fresh.expires_at if isinstance(fresh, Person | ApiKeyCaller) else 0

        tenure = Tenure(ask, self._tasks.create_task, self._now, self._call_later)
        try:
            with self._bus.subscription(tenure, *_topics(caller, subject)):
                # Once more: something may have been written between `admit` and the subscription.
                await tenure.begin()
                is_open = True
                async with aclosing(tenure.pass_on(answers)) as passed:
                    async for answer in passed:
                        yield answer
        finally:
            tenure.end()
            await answers.aclose()

    async def _readmit_caller(self, method: Method, metadata: Metadata, caller: Caller) -> Caller:
        try:
            return await self._readmit(method, metadata)
        except UnauthenticatedError:
            if isinstance(caller, Person):
                raise UnauthenticatedError("the session is over", hint="sign in again") from None
            raise
        except DeniedError:
            if isinstance(caller, Person):
                raise DeniedError(f"your roles do not allow {method.name} any more") from None
            raise

    async def _check_labels(
        self, person: Person, subject: Subject | None, *, is_open: bool
    ) -> None:
        """Raises DeniedError or NotFoundError when a right limited to labels does not reach it."""
        if subject is None:
            raise DeniedError("your roles reach only what has certain labels")
        labels = await self._labels_of(person.project_id, subject)
        if labels is None:
            return  # it is not there, and the handler says so
        try:
            person.check(subject.noun, subject.id, labels)
        except NotFoundError:
            if not is_open:
                raise
            raise DeniedError(
                f"your roles do not reach the {subject.noun} {subject.id!r} any more"
            ) from None

    async def _labels_of(self, project_id: str, subject: Subject) -> Mapping[str, str] | None:
        if subject.noun == "deployment":
            deployment = await self._stores.deployments.find(project_id, subject.id)
            return deployment.labels if deployment is not None else None
        application = await self._stores.applications.find(project_id, subject.id)
        return application.labels if application is not None else None


def subject_of(request: Message) -> Subject | None:
    """Returns the thing with labels that a request names; None when it names none."""
    for field, noun in SUBJECTS.items():
        if field in request.DESCRIPTOR.fields_by_name:
            return Subject(noun=noun, id=getattr(request, field))
    return None


def _topics(caller: Caller, subject: Subject | None) -> Iterator[Topic]:
    """Yields the topics of everything that the right of a stream depends on."""
    if isinstance(caller, Agent):
        yield topic(ChangeKind.PIPED, caller.piped_id)
    elif isinstance(caller, ApiKeyCaller):
        yield topic(ChangeKind.API_KEY, caller.key_id)
    else:
        yield topic(ChangeKind.SESSION, caller.session_id)
        yield topic(ChangeKind.PROJECT, caller.project_id)
        if subject is not None:
            yield topic(ChangeKind.LABELS, subject.id)
