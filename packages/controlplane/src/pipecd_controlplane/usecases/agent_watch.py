# SPDX-License-Identifier: Apache-2.0
"""The watch of an agent: a snapshot when it connects, then each change as it is committed.

It subscribes to changes before it reads the snapshot, so each change is in the snapshot, in the
stream, or in both.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Final

from pipecd_controlplane.store.changes import Change, ChangeKind, piped_topic, topic
from pipecd_controlplane.store.database import View
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.leases import Instance, Leases
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import (
    ChangeBus,
    GitHints,
    Presence,
    Questions,
    TakeQuestions,
)
from pipecd_wire.pipecd.push import push_pb2

HEARTBEAT_SECONDS: Final = 15.0
"""How long nothing is sent before a heartbeat shows the agent that the connection lives."""

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""What is sent at once; an agent accepts 10 MiB. What does not fit follows in the next message."""

ENTITIES: Final = (
    "controls",
    "records",
    "commands",
    "own_commands",
    "applications",
    "deployments",
)
"""The fields of a change that may be divided, what decides about the later ones first."""


class AgentWatch:
    """The stream of one kind of message to each connected agent."""

    def __init__(
        self,
        stores: Stores,
        bus: ChangeBus,
        presence: Presence,
        leases: Leases,
        questions: Questions,
        git_hints: GitHints,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        max_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._stores = stores
        self._bus = bus
        self._presence = presence
        self._leases = leases
        self._questions = questions
        self._git_hints = git_hints
        self._heartbeat = heartbeat

    async def watch(
        self, instance: Instance, *, answers_questions: bool = False
    ) -> AsyncGenerator[push_pb2.WatchResponse, None]:
        """Yields a snapshot of everything, then each change, until the caller closes the stream."""
        agent = instance.agent
        async with AsyncExitStack() as opened:
            listener = opened.enter_context(
                self._bus.listen(
                    piped_topic(agent.piped_id), topic(ChangeKind.RULES, agent.project_id)
                )
            )
            await opened.enter_async_context(self._presence.connection(agent))
            # Before the snapshot: the holder must know everything reported before its lease began.
            lease = await self._leases.acquire(instance)
            take: TakeQuestions = _take_nothing
            if answers_questions and lease.held:
                take = await opened.enter_async_context(self._questions.channel(agent))
            take_hints = await opened.enter_async_context(self._git_hints.channel(agent))
            first, *rest = split_into_messages(await self._read_all(agent), self._max_bytes)
            yield push_pb2.WatchResponse(
                snapshot=push_pb2.Snapshot(
                    applications=first.applications,
                    deployments=first.deployments,
                    commands=first.commands,
                    own_commands=first.own_commands,
                    lease=lease,
                    controls=first.controls,
                    records=first.records,
                    rules=first.rules,
                )
            )
            for change in rest:
                yield push_pb2.WatchResponse(change=change)
            while True:
                for question in await take() if lease.held else ():
                    yield push_pb2.WatchResponse(question=question)
                for hint in await take_hints():
                    yield push_pb2.WatchResponse(git_hint=hint)
                changes = await listener.wait_changes(seconds=self._limit(agent, lease))
                now = await self._lease_now(instance, lease, changes)
                if (now.epoch, now.held) != (lease.epoch, lease.held):
                    yield push_pb2.WatchResponse(lease=now)
                elif not changes:
                    yield push_pb2.WatchResponse(heartbeat=push_pb2.Heartbeat())
                lease = now
                for change in split_into_messages(
                    await self._read_changes(agent, changes), self._max_bytes
                ):
                    if change.ByteSize():
                        yield push_pb2.WatchResponse(change=change)

    def _limit(self, agent: Agent, lease: push_pb2.Lease) -> float:
        """Returns how long to wait for changes.

        An instance that waits for the lease also wakes when the lease may have become free.
        """
        if lease.held:
            return self._heartbeat
        return min(self._heartbeat, self._leases.retry_after_seconds(agent))

    async def _lease_now(
        self, instance: Instance, lease: push_pb2.Lease, changes: Iterable[Change]
    ) -> push_pb2.Lease:
        news = any(change.kind is ChangeKind.LEASE for change in changes)
        if lease.held:
            return await self._leases.current(instance) if news else lease
        if news or not self._leases.retry_after_seconds(instance.agent):
            return await self._leases.acquire_after_wait(instance)
        return lease

    async def _read_all(self, agent: Agent) -> push_pb2.Change:
        who = (agent.project_id, agent.piped_id)

        async def work(view: View) -> push_pb2.Change:
            return push_pb2.Change(
                applications=await self._stores.applications.list_enabled_in(view, *who),
                deployments=await self._stores.deployments.all_not_completed_in(view, *who),
                commands=await self._stores.commands.list_unhandled_in(view, *who),
                own_commands=await self._stores.push_commands.list_unhandled_in(view, *who),
                controls=await self._stores.controls.list_of_piped_in(view, *who),
                records=await self._stores.records.list_of_piped_in(view, *who),
                rules=await self._stores.rules.find_in(view, agent.project_id, agent.project_id),
            )

        return await self._stores.database.read(work)

    async def _read_changes(self, agent: Agent, changes: Iterable[Change]) -> push_pb2.Change:
        """Reads what changed. Each entity is sent whole, in its current state."""
        answer = push_pb2.Change()
        for change in changes:
            match change.kind:
                case ChangeKind.APPLICATION:
                    await self._read_application(agent, change.id, answer)
                case ChangeKind.DEPLOYMENT:
                    deployment = await self._stores.deployments.find(agent.project_id, change.id)
                    if deployment is not None:
                        answer.deployments.append(deployment)
                case ChangeKind.COMMAND:
                    command = await self._stores.commands.find(agent.project_id, change.id)
                    if command is not None:
                        answer.commands.append(command)
                case ChangeKind.PUSH_COMMAND:
                    own = await self._stores.push_commands.find_unhandled(
                        agent.project_id, agent.piped_id, change.id
                    )
                    if own is not None:
                        answer.own_commands.append(own)
                case ChangeKind.CONTROL:
                    control = await self._stores.controls.find(agent.project_id, change.id)
                    if control is not None:
                        answer.controls.append(control.message)
                case ChangeKind.RECORD:
                    record = await self._stores.records.find(agent.project_id, change.id)
                    if record is not None:
                        answer.records.append(record.message)
                case ChangeKind.RULES:
                    rules = await self._stores.rules.find(agent.project_id, change.id)
                    if rules is not None:
                        answer.rules.CopyFrom(rules.message)
                case _:
                    pass  # nothing an agent needs to know
        return answer

    async def _read_application(
        self, agent: Agent, application_id: str, answer: push_pb2.Change
    ) -> None:
        application = await self._stores.applications.find(agent.project_id, application_id)
        if application is None or application.disabled or application.piped_id != agent.piped_id:
            answer.removed_application_ids.append(application_id)
        else:
            answer.applications.append(application)


async def _take_nothing() -> list[push_pb2.Question]:
    return []


def split_into_messages(change: push_pb2.Change, max_bytes: int) -> Iterator[push_pb2.Change]:
    """Yields the change in messages that are small enough for an agent; at least one."""
    if change.ByteSize() <= max_bytes:
        yield change
        return
    part, size = push_pb2.Change(), 0
    part.removed_application_ids.extend(change.removed_application_ids)
    if change.HasField("rules"):
        part.rules.CopyFrom(change.rules)
        size = change.rules.ByteSize()
    for name in ENTITIES:
        for entity in getattr(change, name):
            if size and size + entity.ByteSize() > max_bytes:
                yield part
                part, size = push_pb2.Change(), 0
            getattr(part, name).append(entity)
            size += entity.ByteSize()
    yield part
