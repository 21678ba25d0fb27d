# SPDX-License-Identifier: Apache-2.0
"""Make wanted deployments real: known to the control plane, and handed to the scheduler at once."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from pipecd_model.errors import ConflictError, PipecdError, UnavailableError
from pipecd_runtime.logs import logger
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.git import Repository
from piped.report.commands import CommandOutcome
from piped.trigger.calls import deployment_outcome
from piped.trigger.deployment import Wanted, build_deployment
from piped.trigger.memory import Memory
from piped.trigger.protocols import Calls
from piped.trigger.standings import Standings

log = logger(__name__)

CALLS_AT_ONCE: Final = 16
"""Calls to the control plane at the same time: enough to be fast, few enough to be polite."""


class Creator:
    """Creates the deployments of one repository's applications."""

    def __init__(
        self,
        repository: Repository,
        *,
        calls: Calls,
        memory: Memory,
        standings: Standings,
        on_created: Callable[[Deployment], None],
        clock: Callable[[], float],
    ) -> None:
        self._repository = repository
        self._calls = calls
        self._memory = memory
        self._standings = standings
        self._on_created = on_created
        self._clock = clock
        self._calling = asyncio.Semaphore(CALLS_AT_ONCE)

    async def create(self, wanted: Iterable[Wanted]) -> bool:
        """Create them all; answers whether none has to be tried again."""
        async with asyncio.TaskGroup() as tasks:
            created = [tasks.create_task(self._create(each)) for each in wanted]
        return all(each.result() for each in created)

    def refuse(self, command: Command, reason: str) -> None:
        """A command becomes nothing: whoever asked is told why."""
        self._calls.finish(command, CommandOutcome.fail(reason))

    async def _create(self, wanted: Wanted) -> bool:
        deployment = build_deployment(wanted, self._repository, now=max(1, int(self._clock())))
        try:
            async with self._calling:
                await self._calls.create(deployment)
        except UnavailableError as error:
            log.warning("deployment.not_created", deployment=deployment.id, reason=str(error))
            return False
        except ConflictError:
            # An earlier try got through, perhaps that of a piped that died: the mirror has it, with
            # the status that it has reached by now.
            log.info("deployment.created_before", deployment=deployment.id)
        except PipecdError as error:
            self._refused(wanted, error.with_hint())
            return True
        else:
            self._on_created(deployment)
        self._created(wanted, deployment)
        return True

    def _created(self, wanted: Wanted, deployment: Deployment) -> None:
        self._memory.deployed(wanted.application, wanted.head, deployment.id)
        self._calls.triggered(deployment)
        if wanted.command is not None:
            self._calls.finish(wanted.command, deployment_outcome(deployment.id))
        log.info(
            "deployment.triggered",
            deployment=deployment.id,
            application=wanted.application.name,
            commit=wanted.head.hash,
            reason=wanted.reason,
        )

    def _refused(self, wanted: Wanted, reason: str) -> None:
        """The control plane does not want it; the next commit may be another matter."""
        log.error("deployment.refused", application=wanted.application.name, reason=reason)
        self._standings.refused(wanted.application, reason)
        if wanted.command is not None:
            self.refuse(wanted.command, reason)  # and the commit is still to be decided about
        else:
            self._memory.decide(wanted.application, wanted.head)
