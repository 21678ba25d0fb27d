# SPDX-License-Identifier: Apache-2.0
"""Decides which of the applications that are out of sync are deployed again.

What is known about a repair is with the last deployment at the control plane, so that a restarted
piped counts on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipecd_model import trigger
from pipecd_model.config import ApplicationConfig
from pipecd_model.deployment import is_completed
from pipecd_model.errors import PipecdError
from pipecd_model.ids import id_of_repair
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import Commit, Repository
from pipecd_piped.trigger.deployment import REPAIRS, DeploymentRequest
from pipecd_piped.trigger.history import TriggerHistory
from pipecd_piped.trigger.services import TriggerServices
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import OUT_OF_SYNC, Application, ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_SUCCESS, Deployment

log = logger(__name__)

RETRY_SECONDS = 30.0
"""Until something is asked again that could not be read."""


@dataclass(slots=True)
class Repairs:
    """The deployments to create, and when to look again."""

    wanted: list[DeploymentRequest] = field(default_factory=list)
    retry_at: float | None = None

    def look_again(self, at: float | None) -> None:
        if at is not None:
            self.retry_at = at if self.retry_at is None else min(at, self.retry_at)


class Repairer:
    """Decides about the applications of one repository that are out of sync."""

    def __init__(
        self, repository: Repository, services: TriggerServices, history: TriggerHistory
    ) -> None:
        self._repository = repository
        self._services = services
        self._state = services.state
        self._history = history
        self._since: dict[str, float] = {}
        self._completed: dict[str, Deployment] = {}
        """By application: its last deployment, once that is over."""

    def take(self, application: Application, state: ApplicationSyncState) -> bool:
        """Take a sync state; returns whether the application is out of sync."""
        if state.status != OUT_OF_SYNC:
            self.forget(application.id)
            return False
        if application.id not in self._since:
            # Only changes are reported: the time of the state is that of the change.
            known = application.sync_state
            self._since[application.id] = float(
                known.timestamp if known.status == OUT_OF_SYNC else state.timestamp
            )
        return True

    def forget(self, application_id: str) -> None:
        """Forget an application that is in sync, or that this piped no longer has."""
        self._since.pop(application_id, None)
        self._completed.pop(application_id, None)
        self._services.calls.set_note(application_id, "")

    def list_due(self, applications: Mapping[str, Application]) -> list[Application]:
        """Returns the applications that are out of sync, and that nothing forbids to deploy."""
        return [
            applications[application_id]
            for application_id in self._since
            if application_id in applications and not is_forbidden(self._state, application_id)
        ]

    async def decide(self, head: Commit, due: Sequence[Application]) -> Repairs:
        """Returns what is to be deployed at this head."""
        repairs = Repairs()
        outcomes = await self._services.configs.load_all(
            self._repository, head.hash, [application.git_path for application in due]
        )
        await self._history.recall(due)
        for application, config in zip(due, outcomes, strict=True):
            if isinstance(config, PipecdError) or config.trigger.on_out_of_sync.disabled:
                continue
            if not self._history.has_last(application.id):
                repairs.look_again(self._services.clock() + RETRY_SECONDS)
            else:
                await self._decide_one(application, config, head, repairs)
        return repairs

    async def _decide_one(
        self, application: Application, config: ApplicationConfig, head: Commit, repairs: Repairs
    ) -> None:
        last = self._history.last(application.id)
        if last is None:
            return  # the commit deploys it
        now = self._services.clock()
        try:
            deployment = await self._read(application.id, last.deployment_id)
        except PipecdError as error:
            log.info("trigger.unknown_past", application=application.id, reason=str(error))
            repairs.look_again(now + RETRY_SECONDS)
            return
        decision = trigger.on_out_of_sync(
            config, now=now, since=self._since[application.id], last=_describe(deployment)
        )
        repairs.look_again(decision.retry_at)
        self._services.calls.set_note(application.id, decision.reason if decision.gave_up else "")
        if decision.deploy:
            repairs.wanted.append(
                DeploymentRequest(
                    deployment_id=id_of_repair(application.id, deployment.id, head.hash),
                    application=application,
                    config=config,
                    head=head,
                    reason=decision.reason,
                    repairs=decision.repairs,
                )
            )
            # Whether it helped is seen when it is over.
            repairs.look_again(
                now + max(1.0, config.trigger.on_out_of_sync.min_window.total_seconds())
            )

    async def _read(self, application_id: str, deployment_id: str) -> Deployment:
        known = self._completed.get(application_id)
        if known is not None and known.id == deployment_id:
            return known
        deployment = await self._services.calls.read_deployment(deployment_id)
        if is_completed(deployment.status):
            self._completed[application_id] = deployment
        return deployment


def is_forbidden(state: ControlPlaneState, application_id: str) -> bool:
    """Returns whether an application must not be deployed by itself now."""
    control = state.control(application_id)
    return (
        state.is_deploying(application_id)
        or control.HasField("hold")
        or control.HasField("pin")
        or control.HasField("freeze")
        or state.rules.HasField("emergency_stop")
    )


def _describe(deployment: Deployment) -> trigger.LastDeployment:
    text = deployment.metadata_v2.shared.keyValues.get(REPAIRS, "")
    return trigger.LastDeployment(
        completed_at=float(deployment.completed_at) if is_completed(deployment.status) else None,
        succeeded=deployment.status == DEPLOYMENT_SUCCESS,
        repairs=int(text) if text.isascii() and text.isdecimal() else 0,
    )
