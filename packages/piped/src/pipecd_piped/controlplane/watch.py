# SPDX-License-Identifier: Apache-2.0
"""Keeps the state filled: follows the control plane's push, or polls it where there is none.

Every connection starts with a full snapshot, so nothing has to be replayed after a break. A control
plane without the push service (upstream's) is polled at the intervals of upstream's agents, and so
is one whose stream keeps breaking; the push stream is retried meanwhile.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError, UnavailableError
from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError
from pipecd_piped.controlplane.lease import Lease
from pipecd_piped.controlplane.state import ControlPlaneState, GitHint, StateChange
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pb

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """Intervals in seconds. Those of polling are upstream's; they apply only without push."""

    commands_seconds: float = 5
    deployments_seconds: float = 10
    applications_seconds: float = 60
    try_push_seconds: float = 60
    """How often the push stream is tried at a control plane without it."""
    silence_seconds: float = 60
    """A stream without a message for so long, not even a heartbeat, is dead."""
    pause_seconds: float = 0.1
    """Half of the first pause before a new connection; it doubles with each break."""
    longest_pause_seconds: float = 1
    """Short, because deployments wait for the reconnection. A refused connection is cheap."""
    refused_pause_seconds: float = 5
    """After the control plane has refused the piped key, which seldom changes within seconds."""
    polls_after: int = 3
    """Broken streams in a row after which the lists are polled as well."""


class Watch:
    """The component that keeps the state up to date."""

    def __init__(
        self,
        control: ControlPlane,
        state: ControlPlaneState,
        lease: Lease,
        *,
        data_folder_id: str,
        on_own: Callable[[Iterable[push.Command]], None] = lambda _: None,
        on_question: Callable[[push.Question], None] = lambda _: None,
        pace: WatchPace | None = None,
    ) -> None:
        """`on_own` is given the commands that only our control plane has, maybe repeatedly.

        `on_question` is given what somebody waits for an answer to, each question once.
        """
        self._control = control
        self._state = state
        self._lease = lease
        self._on_own = on_own
        self._on_question = on_question
        self._request = push.WatchRequest(
            instance_id=lease.instance_id, data_folder_id=data_folder_id, answers_questions=True
        )
        lease.on_refused = self._ask_again
        self._asked = 0.0
        self._refused = False
        self._listening: asyncio.Timeout | None = None
        self._pace = pace or WatchPace()
        self._backoff = Backoff(
            first_seconds=2 * self._pace.pause_seconds,
            longest_seconds=self._pace.longest_pause_seconds,
        )
        self._poll_seconds = {
            "commands": self._pace.commands_seconds,
            "deployments": self._pace.deployments_seconds,
            "applications": self._pace.applications_seconds,
        }
        self._due = dict.fromkeys(self._poll_seconds, 0.0)

    async def run(self) -> None:
        """Follow the push stream, and reconnect or poll after each break, until cancelled."""
        while True:
            try:
                await self._follow()
            except UnknownRpcError:
                self._lease.apply(None, asked=self._asked)
                log.info("controlplane.polled", reason="it has no push service")
                await self._poll_until(time.monotonic() + self._pace.try_push_seconds)
            except PipecdError as error:
                await self._wait_to_reconnect(error)

    async def _follow(self) -> None:
        self._asked, self._refused = self._lease.now(), False
        async with aclosing(self._messages()) as messages:
            async for message in messages:
                self._backoff.reset()
                if message.lease.held:
                    # The lease is ours now. Only a new snapshot has all that the last holder did.
                    return
                self._take(message)
            raise UnavailableError("the control plane ended the stream")

    def _ask_again(self) -> None:
        """Reopen the push stream now."""
        self._refused = True
        if self._listening is not None and not self._listening.expired():
            self._listening.reschedule(asyncio.get_running_loop().time())

    async def _messages(self) -> AsyncGenerator[push.WatchResponse, None]:
        """Yields the messages of the stream; raises UnavailableError when it is silent too long."""
        async with aclosing(self._control.watch(self._request)) as messages:
            while True:
                try:
                    async with asyncio.timeout(self._pace.silence_seconds) as self._listening:
                        message = await anext(messages)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    why = "has given the lease to another" if self._refused else "is silent"
                    raise UnavailableError(f"the control plane {why}") from None
                finally:
                    self._listening = None
                yield message

    def _take(self, message: push.WatchResponse) -> None:
        match message.WhichOneof("body"):
            case "snapshot":
                listed = message.snapshot
                self._state.replace(
                    applications=listed.applications,
                    deployments=listed.deployments,
                    commands=listed.commands,
                    own_commands=listed.own_commands,
                    controls=listed.controls,
                    records=listed.records,
                    rules=listed.rules,
                )
                self._lease.apply(
                    listed.lease if listed.HasField("lease") else None, asked=self._asked
                )
                self._on_own(listed.own_commands)
            case "lease":
                self._lease.apply(message.lease, asked=self._asked)
            case "change":
                self._on_own(message.change.own_commands)
                self._state.merge(
                    StateChange(
                        applications=tuple(message.change.applications),
                        removed_applications=frozenset(message.change.removed_application_ids),
                        deployments=tuple(message.change.deployments),
                        commands=tuple(message.change.commands),
                        own_commands=tuple(message.change.own_commands),
                        controls=tuple(message.change.controls),
                        records=tuple(message.change.records),
                        rules=message.change.rules if message.change.HasField("rules") else None,
                    )
                )
            case "git_hint":
                hint = GitHint(
                    repository_id=message.git_hint.repository_id,
                    branch=message.git_hint.branch,
                    commit_hash=message.git_hint.commit_hash,
                )
                self._state.merge(StateChange(git_hints=(hint,)))
            case "question":
                self._on_question(message.question)
            case _:
                pass  # a heartbeat, or what a newer control plane says

    async def _wait_to_reconnect(self, error: PipecdError) -> None:
        pause = self._backoff.next_pause_seconds()
        if self._backoff.failures == 1 and not self._control.trouble:  # else that was logged
            log.info("controlplane.stream_ended", reason=str(error))
        if isinstance(error, UnauthenticatedError | DeniedError):
            pause = self._pace.refused_pause_seconds
        until = time.monotonic() + pause
        if self._backoff.failures >= self._pace.polls_after:
            await self._poll_until(until)
        else:
            await asyncio.sleep(max(0.0, until - time.monotonic()))

    async def _poll_until(self, end: float) -> None:
        """Poll the lists as they fall due until `end`; at least one poll is made."""
        while True:
            try:
                await self._poll_due()
            except PipecdError as error:
                log.debug("controlplane.poll_failed", reason=str(error))
                later = time.monotonic() + self._pace.refused_pause_seconds
                self._due = {kind: max(at, later) for kind, at in self._due.items()}
            now = time.monotonic()
            if now >= end:
                return
            await asyncio.sleep(max(0.0, min(end, *self._due.values()) - now))

    async def _poll_due(self) -> None:
        due = {kind for kind, at in self._due.items() if at <= time.monotonic()}
        if not due:
            return
        service = self._control.service
        call = self._control.call
        applications = deployments = commands = None
        if "applications" in due:
            applications = (
                await call(service.ListApplications, pb.ListApplicationsRequest())
            ).applications
        if "deployments" in due:
            deployments = await self._list_deployments()
        if "commands" in due:
            commands = (
                await call(service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())
            ).commands
        for kind in due:
            self._due[kind] = time.monotonic() + self._poll_seconds[kind]
        self._state.replace(applications=applications, deployments=deployments, commands=commands)

    async def _list_deployments(self) -> list[Deployment]:
        listed: list[Deployment] = []
        cursor = ""
        while True:
            page = await self._control.call(
                self._control.service.ListNotCompletedDeployments,
                pb.ListNotCompletedDeploymentsRequest(cursor=cursor),
            )
            listed.extend(page.deployments)
            cursor = page.cursor
            if not cursor:
                return listed
