# SPDX-License-Identifier: Apache-2.0
"""Create deployments at the control plane, and hand them to the scheduler at once."""

import asyncio
from collections.abc import Iterable
from typing import Final

from pipecd_model.errors import ConflictError, PipecdError, UnavailableError
from pipecd_piped.controlplane.state import StateChange
from pipecd_piped.git import Repository
from pipecd_piped.trigger.asked import describe_record
from pipecd_piped.trigger.calls import deployment_outcome
from pipecd_piped.trigger.deployment import DeploymentRequest, build_deployment, list_matchers
from pipecd_piped.trigger.history import TriggerHistory
from pipecd_piped.trigger.services import TriggerServices
from pipecd_piped.trigger.sync_trouble import TroubleReporter
from pipecd_runtime.logs import logger
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)

CALLS_AT_ONCE: Final = 16
"""Concurrent calls to the control plane: enough to be fast without a burst of load."""


class Creator:
    """Creates the deployments of one repository's applications."""

    def __init__(
        self,
        repository: Repository,
        services: TriggerServices,
        history: TriggerHistory,
        trouble: TroubleReporter,
    ) -> None:
        self._repository = repository
        self._services = services
        self._calls = services.calls
        self._history = history
        self._trouble = trouble
        self._calling = asyncio.Semaphore(CALLS_AT_ONCE)

    async def create(self, wanted: Iterable[DeploymentRequest]) -> bool:
        """Create all requested deployments; returns False when one has to be retried."""
        async with asyncio.TaskGroup() as tasks:
            created = [tasks.create_task(self._create(each)) for each in wanted]
        return all(each.result() for each in created)

    async def _create(self, wanted: DeploymentRequest) -> bool:
        deployment = build_deployment(
            wanted,
            self._repository,
            now=self._history.find_time(wanted.application, self._services.clock()),
        )
        try:
            async with self._calling:
                if wanted.starts_chain:
                    await self._calls.create_chain(deployment, list_matchers(wanted.config))
                else:
                    await self._calls.create(deployment)
        except UnavailableError as error:
            log.warning("deployment.not_created", deployment=deployment.id, reason=str(error))
            self._history.doubt_last(wanted.application.id)
            return False
        except ConflictError:
            # An earlier try was accepted, perhaps that of a piped that died: the state has the
            # deployment, with its current status.
            log.info("deployment.created_before", deployment=deployment.id)
        except PipecdError as error:
            self._record_refused(wanted, error.with_hint())
            return True
        else:
            if isinstance(wanted.command, push.Command):
                # Before its turn is decided about: a roll-back does not wait for what others do.
                record = describe_record(wanted.command)
                self._services.state.merge(StateChange(records=(record,)))
            self._services.on_created(deployment)
        self._record_created(wanted, deployment)
        return True

    def _record_created(self, wanted: DeploymentRequest, deployment: Deployment) -> None:
        self._history.record_deployed(wanted.application, wanted.head, deployment)
        self._calls.report_triggered(deployment)
        if wanted.command is not None:
            self._calls.finish_command(wanted.command, deployment_outcome(deployment.id))
        log.info(
            "deployment.triggered",
            deployment=deployment.id,
            application=wanted.application.name,
            commit=wanted.head.hash,
            reason=wanted.reason,
        )

    def _record_refused(self, wanted: DeploymentRequest, reason: str) -> None:
        """Report a deployment that the control plane refuses; it is not retried for this head."""
        log.error("deployment.refused", application=wanted.application.name, reason=reason)
        self._trouble.report_refused(wanted.application, reason)
        if wanted.command is not None:
            self._services.refuse(
                wanted.command, reason
            )  # and the commit is still to be decided about
        else:
            self._history.mark_decided(wanted.application, wanted.head)
