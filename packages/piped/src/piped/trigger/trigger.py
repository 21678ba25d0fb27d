# SPDX-License-Identifier: Apache-2.0
"""What needs a deployment, and why: a commit, or somebody who asks.

The third step of the flow, between the heads of repositories and the scheduler. Each repository has
a worker of its own, so that a slow one delays no other; commands that no worker can take are
refused here, with a reason.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from pipecd_model.ids import ApplicationId
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.controlplane.state import Change, Changes, ControlPlaneState
from piped.git import Repository
from piped.report.commands import CommandOutcome
from piped.trigger.follow import AWAY_GRACE, REFRESH_LIMIT, RepositoryTrigger
from piped.trigger.protocols import Calls, Configs
from piped.trigger.standings import Standings

UNKNOWN_GRACE: Final = 70.0
"""Seconds that a command may be ahead of its application: a polled list is a minute old."""

_UNSUPPORTED: Final = {
    Command.UPDATE_APPLICATION_CONFIG: (
        "this piped does not edit application files; commit the change to git"
    ),
    Command.CHAIN_SYNC_APPLICATION: "this piped does not run deployment chains",
}


class Trigger:
    """Turns commits and commands into deployments."""

    def __init__(
        self,
        *,
        repositories: Mapping[str, Repository],
        mirror: ControlPlaneState,
        configs: Configs,
        calls: Calls,
        on_created: Callable[[Deployment], None],
        clock: Callable[[], float] = time.time,
        unknown_grace: float = UNKNOWN_GRACE,
        away_grace: float = AWAY_GRACE,
        refresh_limit: float = REFRESH_LIMIT,
    ) -> None:
        self._mirror = mirror
        self._calls = calls
        self._clock = clock
        self._unknown_grace = unknown_grace
        self._repositories = repositories
        self._standings = Standings(calls, clock)
        self._workers = {
            repository_id: RepositoryTrigger(
                repository,
                mirror=mirror,
                configs=configs,
                calls=calls,
                standings=self._standings,
                on_created=on_created,
                clock=clock,
                away_grace=away_grace,
                refresh_limit=refresh_limit,
            )
            for repository_id, repository in repositories.items()
        }

    def is_in_trouble(self, application_id: str) -> bool:
        """Are people told that an application's file or repository cannot be used?"""
        application = self._mirror.applications.get(ApplicationId(application_id))
        return application is not None and self._standings.is_in_trouble(application)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for repository_id, worker in self._workers.items():
                tasks.create_task(worker.run(), name=f"trigger {repository_id}")
            tasks.create_task(self._follow_mirror(), name="trigger commands")

    async def _follow_mirror(self) -> None:
        changes = self._mirror.changes()
        await self._mirror.wait_filled()
        while True:
            self._take(await self._next(changes))
            self._tell_homeless()

    async def _next(self, changes: Changes) -> Change:
        """The next change, or an empty one when a command has waited long enough."""
        pause = self._refuse_hopeless()
        try:
            async with asyncio.timeout(pause):
                return await anext(changes)
        except TimeoutError:
            return Change()

    def _take(self, change: Change) -> None:
        for hint in change.git_hints:
            for repository in self._repositories.values():
                if hint.repository_id in {"", repository.id} and (
                    hint.branch in {"", repository.branch}
                ):
                    repository.hint()
        for worker in self._workers.values():
            news = change.commands or change.removed_applications
            if news or any(worker.concerns(each) for each in change.applications):
                worker.look()

    def _refuse_hopeless(self) -> float | None:
        """Refuse commands that nobody can follow; answers when to look at the waiting ones."""
        pause = None
        for command in list(self._mirror.commands.values()):
            if command.type in _UNSUPPORTED:
                self._refuse(command, _UNSUPPORTED[command.type])
            elif command.type == Command.SYNC_APPLICATION:
                left = self._unless_hopeless(command)
                if left is not None:
                    pause = left if pause is None else min(left, pause)
        return pause

    def _unless_hopeless(self, command: Command) -> float | None:
        """Seconds that the command may still wait for its application; None if it need not."""
        application_id = command.sync_application.application_id
        application = self._mirror.applications.get(ApplicationId(application_id))
        if application is None:
            left = command.created_at + self._unknown_grace - self._clock()
            if left > 0:
                return left
            self._refuse(
                command,
                f"this piped has no application {application_id!r}: it is disabled, deleted, or"
                " another piped's",
            )
        elif application.git_path.repo.id not in self._repositories:
            self._refuse(command, _homeless(application.git_path.repo.id))
        return None

    def _tell_homeless(self) -> None:
        for application in self._mirror.applications.values():
            repository_id = application.git_path.repo.id
            if repository_id not in self._repositories:
                self._standings.broken(application, _homeless(repository_id))

    def _refuse(self, command: Command, reason: str) -> None:
        self._calls.finish(command, CommandOutcome.fail(reason))


def _homeless(repository_id: str) -> str:
    return (
        f"there is no repository {repository_id!r} in the piped config (add it under repositories,"
        " or register the application with another one)"
    )
