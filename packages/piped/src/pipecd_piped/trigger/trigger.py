# SPDX-License-Identifier: Apache-2.0
"""The trigger: creates a deployment because of a commit, or because a command asks for it.

The third step of the flow, between the heads of repositories and the scheduler. Each repository has
a worker of its own, so that a slow one delays no other; commands that no worker can handle
are refused here, with a reason.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from pipecd_piped.controlplane.state import StateChange, StateChanges
from pipecd_piped.git import Repository
from pipecd_piped.report.commands import AnyCommand
from pipecd_piped.trigger.asked import is_about_commit
from pipecd_piped.trigger.deployment import sync_target
from pipecd_piped.trigger.repository_trigger import RepositoryTrigger
from pipecd_piped.trigger.services import TriggerLimits, TriggerServices
from pipecd_piped.trigger.sync_trouble import TroubleReporter
from pipecd_wire.model.application_pb2 import ApplicationSyncState
from pipecd_wire.model.command_pb2 import Command

_UNSUPPORTED: Final = {
    Command.UPDATE_APPLICATION_CONFIG: (
        "this piped does not edit application files; commit the change to git"
    ),
}


class Trigger:
    """Turns commits and commands into deployments."""

    def __init__(
        self,
        repositories: Mapping[str, Repository],
        services: TriggerServices,
        limits: TriggerLimits | None = None,
    ) -> None:
        self._services = services
        self._state = services.state
        self._limits = limits or TriggerLimits()
        self._repositories = repositories
        self._trouble = TroubleReporter(services.calls, services.clock)
        self._workers = {
            repository_id: RepositoryTrigger(repository, services, self._trouble, self._limits)
            for repository_id, repository in repositories.items()
        }

    def is_in_trouble(self, application_id: str) -> bool:
        """Returns whether an application is reported as having an unusable file or repository."""
        application = self._state.applications.get(application_id)
        return application is not None and self._trouble.is_in_trouble(application)

    def take_sync_state(self, application_id: str, state: ApplicationSyncState) -> None:
        """Take whether what runs of an application is what git says."""
        application = self._state.applications.get(application_id)
        if application is not None:
            for worker in self._workers.values():
                worker.take_sync_state(application, state)

    def on_closed(self, application_id: str) -> None:
        """Decide again about a commit that waited for the end of an open deployment."""
        application = self._state.applications.get(application_id)
        worker = self._workers.get(application.git_path.repo.id) if application else None
        if worker is not None and worker.has_rejected(application_id):
            worker.look()

    async def run(self) -> None:
        """Run the workers of all repositories, and handle commands, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for repository_id, worker in self._workers.items():
                tasks.create_task(worker.run(), name=f"trigger {repository_id}")
            tasks.create_task(self._follow_state(), name="trigger commands")

    async def _follow_state(self) -> None:
        changes = self._state.changes()
        await self._state.wait_filled()
        while True:
            self._apply(await self._next(changes))
            self._report_missing_repositories()

    async def _next(self, changes: StateChanges) -> StateChange:
        """Returns the next change, or an empty one when a waiting command is due."""
        pause = self._refuse_impossible()
        try:
            async with asyncio.timeout(pause):
                return await anext(changes)
        except TimeoutError:
            return StateChange()

    def _apply(self, change: StateChange) -> None:
        for hint in change.git_hints:
            for repository in self._repositories.values():
                if hint.repository_id in {"", repository.id} and (
                    hint.branch in {"", repository.branch}
                ):
                    repository.hint(hint.commit_hash)
        for worker in self._workers.values():
            if change.controls:
                worker.reconsider(each.application_id for each in change.controls)
            news = (
                change.commands
                or change.own_commands
                or change.removed_applications
                or change.rules is not None
            )
            if news or any(worker.concerns(each) for each in change.applications):
                worker.look()

    def _refuse_impossible(self) -> float | None:
        """Refuse commands that cannot be handled; returns seconds until a waiting one is due."""
        waiting: list[tuple[AnyCommand, str, int]] = []
        for command in list(self._state.commands.values()):
            if command.type in _UNSUPPORTED:
                self._services.refuse(command, _UNSUPPORTED[command.type])
            elif (application_id := sync_target(command)) is not None:
                waiting.append((command, application_id, command.created_at))
        waiting += [
            (own, own.application_id, own.created_at.seconds)
            for own in list(self._state.own_commands.values())
            if is_about_commit(own)
        ]
        for own in list(self._state.own_commands.values()):
            if own.deployment_id and own.deployment_id not in self._state.deployments:
                self._services.refuse(own, "the deployment is over")
        left = [self._seconds_left(*each) for each in waiting]
        return min((each for each in left if each is not None), default=None)

    def _seconds_left(
        self, command: AnyCommand, application_id: str, created_at: int
    ) -> float | None:
        """Returns the seconds that a command may still wait for its application.

        None when it need not wait: it can be handled, or was refused here.
        """
        application = self._state.applications.get(application_id)
        if application is None:
            deadline = created_at + self._limits.unknown_application_seconds
            left = deadline - self._services.clock()
            if left > 0:
                return left
            self._services.refuse(
                command,
                f"this piped has no application {application_id!r}: it is disabled, deleted, or"
                " another piped's",
            )
        elif application.git_path.repo.id not in self._repositories:
            self._services.refuse(command, _missing_repository(application.git_path.repo.id))
        return None

    def _report_missing_repositories(self) -> None:
        for application in self._state.applications.values():
            repository_id = application.git_path.repo.id
            if repository_id not in self._repositories:
                self._trouble.report_broken_file(application, _missing_repository(repository_id))


def _missing_repository(repository_id: str) -> str:
    return (
        f"there is no repository {repository_id!r} in the piped config (add it under repositories,"
        " or register the application with another one)"
    )
