# SPDX-License-Identifier: Apache-2.0
"""One repository's part of the trigger: its head, its state, and the commands for its applications.

Every change wakes one worker, which handles everything that is due at once: git is queried once per
commit, not once per application.
"""

import asyncio
from collections.abc import Container, Iterable, Mapping
from contextlib import aclosing
from typing import Final

from pipecd_model.errors import PipecdError
from pipecd_piped.git import Commit, GitError, Reachability, Repository
from pipecd_piped.trigger.asked import AskedCommits
from pipecd_piped.trigger.create import Creator
from pipecd_piped.trigger.decide import Decider
from pipecd_piped.trigger.deployment import sync_target
from pipecd_piped.trigger.history import TriggerHistory
from pipecd_piped.trigger.repair import Repairer
from pipecd_piped.trigger.services import TriggerLimits, TriggerServices
from pipecd_piped.trigger.sync_trouble import TroubleReporter
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application, ApplicationSyncState
from pipecd_wire.model.command_pb2 import Command

log = logger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""The backoff before a failed pass is retried."""

FAILURES_BEFORE_REPORT: Final = 2
"""Passes in a row that may fail before it is reported on the applications' pages."""


class RepositoryTrigger:
    """Creates the deployments of one repository's applications."""

    def __init__(
        self,
        repository: Repository,
        services: TriggerServices,
        trouble: TroubleReporter,
        limits: TriggerLimits,
    ) -> None:
        self._repository = repository
        self._services = services
        self._state = services.state
        self._trouble = trouble
        self._limits = limits
        self._history = TriggerHistory(services.calls)
        self._creator = Creator(repository, services, self._history, trouble)
        self._asked = AskedCommits(repository, services)
        self._decider = Decider(repository, services, self._history, trouble)
        self._repairer = Repairer(repository, services, self._history)
        self._repair_at: float | None = None
        """When to look again at what is out of sync."""
        self._head: Commit | None = None
        self._away: tuple[Reachability, str] | None = None
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Follow the repository and create deployments until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_head(), name=f"head of {self._repository.id}")
            tasks.create_task(self._follow_state(), name=f"state of {self._repository.id}")
            tasks.create_task(self._work(), name=f"trigger of {self._repository.id}")

    def look(self) -> None:
        """Wake the worker, because applications or commands changed."""
        self._wake.set()

    def take_sync_state(self, application: Application, state: ApplicationSyncState) -> None:
        """Take what was found out about an application of this repository."""
        if self._is_ours(application) and self._repairer.take(application, state):
            self._wake.set()

    def reconsider(self, application_ids: Iterable[str]) -> None:
        """Decide again about applications whose hold or pin changed."""
        for application_id in application_ids:
            self._history.forget_decision(application_id)
        self._wake.set()

    def has_rejected(self, application_id: str) -> bool:
        """Returns whether the head waits for the end of an open deployment of an application."""
        return self._history.is_rejected(application_id)

    def concerns(self, application: Application) -> bool:
        """Returns whether an application of this repository has no decision at its git path."""
        return self._is_ours(application) and not self._history.knows(application)

    async def _follow_head(self) -> None:
        async with aclosing(self._repository.watch()) as heads:
            async for head in heads:
                self._head = head
                self._wake.set()

    async def _follow_state(self) -> None:
        async with aclosing(self._repository.states()) as states:
            async for state in states:
                if state.reach is Reachability.REACHABLE:
                    self._away = None
                    self._history.forget_decisions()  # some were made without the remote
                    self._wake.set()
                elif state.reach is not Reachability.OPENING:
                    self._wake.set()  # commands that wait for a first head are refused
                    await asyncio.sleep(self._limits.unreachable_seconds)
                    self._note_unreachable()

    def _note_unreachable(self) -> None:
        state = self._repository.state
        if state.reach in {Reachability.REACHABLE, Reachability.OPENING}:
            return
        # One reason for the whole outage: each try may fail with another message.
        if self._away is None or self._away[0] is not state.reach:
            self._away = (state.reach, f"{self._repository.remote} is {state}")
            self._wake.set()

    async def _work(self) -> None:
        backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        pause_seconds: float | None = None
        while True:
            await self._wait_for_work(pause_seconds)
            self._wake.clear()
            try:
                settled = await self._pass()
            except (PipecdError, OSError) as error:
                log.warning("trigger.failed", repository=self._repository.id, reason=str(error))
                settled = False
                if backoff.failures >= FAILURES_BEFORE_REPORT:
                    self._report_unreadable(str(error))
            if settled:
                backoff.reset()
                pause_seconds = self._seconds_to_repair()
            else:
                pause_seconds = backoff.next_pause_seconds()

    def _seconds_to_repair(self) -> float | None:
        if self._repair_at is None:
            return None
        return max(0.1, self._repair_at - self._services.clock())

    def _report_unreadable(self, reason: str) -> None:
        """Report the reason on every undecided application, after several failed passes."""
        for application in self._state.applications.values():
            if self._is_ours(application) and (
                self._head is None or not self._history.is_decided(application, self._head)
            ):
                self._trouble.report_unreadable(application, reason)

    async def _wait_for_work(self, pause_seconds: float | None) -> None:
        """Wait until the worker is woken, or until a failed pass is to be retried."""
        try:
            async with asyncio.timeout(pause_seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _pass(self) -> bool:
        """Handle everything that is due; returns False when something has to be retried."""
        applications = {
            application.id: application
            for application in self._state.applications.values()
            if self._is_ours(application)
        }
        for gone in self._history.keep_only(applications):
            self._trouble.forget(gone)
            self._repairer.forget(gone)
            self._services.calls.forget(gone)
        named, settled_named = await self._asked.find_requests(
            self._asked.list_open(applications), applications
        )
        settled_named = await self._creator.create(named) and settled_named
        commands = self._commands(applications)
        note = await self._refresh() if commands else ""
        head = self._head
        if head is None:
            self._refuse_without_head(commands)
            settled = True
        else:
            due = [
                application
                for application in applications.values()
                if application.id in commands
                or not self._history.is_decided(application, head)
                or self._may_be_deployed_now(application)
            ]
            wanted = await self._decider.decide(head, due, commands, note=note) if due else []
            settled = await self._creator.create(wanted)
            settled = settled and all(self._history.is_decided(each, head) for each in due)
            settled = await self._repair(head, applications) and settled
        if self._away is not None:
            for application in applications.values():
                self._trouble.report_unreachable(application, self._away[1])
        if settled and self._commands(applications):
            self._wake.set()  # one command of an application after the other
        return settled and settled_named

    async def _repair(self, head: Commit, applications: Mapping[str, Application]) -> bool:
        """Deploy again what is out of sync; returns False when that has to be retried."""
        self._repair_at = None
        due = self._repairer.list_due(applications)
        if not due:
            return True
        repairs = await self._repairer.decide(head, due)
        self._repair_at = repairs.retry_at
        return await self._creator.create(repairs.wanted)

    def _may_be_deployed_now(self, application: Application) -> bool:
        """Returns whether its head waited for an open deployment that is completed now."""
        is_rejected = self._history.is_rejected(application.id)
        return is_rejected and not self._services.find_open(application.id)

    def _commands(self, applications: Container[str]) -> dict[str, Command]:
        """Returns the oldest open command of each application that wants it deployed."""
        oldest: dict[str, Command] = {}
        for command in self._state.commands.values():
            application_id = sync_target(command)
            if application_id is None or application_id not in applications:
                continue
            if application_id not in oldest or _age(command) < _age(oldest[application_id]):
                oldest[application_id] = command
        return oldest

    async def _refresh(self) -> str:
        """Fetch, because a command means the current head of the remote.

        Returns a note for the deployment's reason when the fetch fails, empty otherwise.
        """
        try:
            async with asyncio.timeout(self._limits.fetch_seconds):
                await self._repository.fetch()
            self._head = await self._repository.head()
        except TimeoutError:
            reason = f"{self._repository.remote} did not answer in time"
        except (GitError, OSError) as error:
            reason = str(error)
        else:
            return ""
        return f"; this is the last commit that was seen, because {reason}"

    def _refuse_without_head(self, commands: dict[str, Command]) -> None:
        state = self._repository.state
        if state.reach in {Reachability.UNREACHABLE, Reachability.NO_BRANCH}:
            for command in commands.values():
                self._services.refuse(command, f"{self._repository.remote} is {state}")

    def _is_ours(self, application: Application) -> bool:
        return application.git_path.repo.id == self._repository.id


def _age(command: Command) -> tuple[int, str]:
    return (command.created_at, command.id)
