# SPDX-License-Identifier: Apache-2.0
"""What piped says about deployments and stages: one method per fact, sent through the outbox.

All reports of an application share a lane, so that the control plane hears them in the order in
which they became true.
"""

import time
from collections.abc import Callable

from google.protobuf.message import Message

from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED, Command
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.report.outbox import Deliver, Outbox


class Statuses:
    """The voice of the scheduler."""

    def __init__(
        self, outbox: Outbox, deliver: Deliver, clock: Callable[[], float] = time.time
    ) -> None:
        self._outbox = outbox
        self._deliver = deliver
        self._clock = clock
        self._lanes: dict[str, str] = {}

    async def planned(self, deployment: Deployment) -> None:
        """Tell the plan, and wait until it is known: logs and metadata of a stage need the stage.

        Raises PipecdError when the control plane refuses it.
        """
        await self._outbox.taken(deployment.application_id)
        await self._deliver(
            "ReportDeploymentPlanned",
            pb.ReportDeploymentPlannedRequest(
                deployment_id=deployment.id,
                summary=deployment.summary,
                status_reason=deployment.status_reason,
                running_commit_hash=deployment.running_commit_hash,
                running_config_filename=deployment.running_config_filename,
                sync_strategy=deployment.trigger.sync_strategy,
                versions=deployment.versions,
                stages=deployment.stages,
                deployment_chain_id=deployment.deployment_chain_id,
                deployment_chain_block_index=deployment.deployment_chain_block_index,
            ),
        )

    def changed(self, deployment: Deployment) -> None:
        """Tell that a deployment runs, or rolls back."""
        self._put(
            deployment,
            pb.ReportDeploymentStatusChangedRequest(
                deployment_id=deployment.id,
                status=deployment.status,
                status_reason=deployment.status_reason,
                deployment_chain_id=deployment.deployment_chain_id,
                deployment_chain_block_index=deployment.deployment_chain_block_index,
            ),
        )

    def stage(self, deployment: Deployment, stage: PipelineStage) -> None:
        """Tell where a stage stands. The wire wants a time with every status, not only an end."""
        self._put(
            deployment,
            pb.ReportStageStatusChangedRequest(
                deployment_id=deployment.id,
                stage_id=stage.id,
                status=stage.status,
                status_reason=stage.status_reason,
                requires=stage.requires,
                visible=True,
                retried_count=stage.retried_count,
                completed_at=stage.completed_at,
            ),
        )

    def completed(self, deployment: Deployment) -> None:
        """Tell the end. A success becomes what the next deployment compares with and goes back to.

        That is told first: were piped to die in between, the end would be told again, while a
        reference that was never told would be lost.
        """
        if deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS:
            self._put(
                deployment,
                pb.ReportApplicationMostRecentDeploymentRequest(
                    application_id=deployment.application_id,
                    status=deployment.status,
                    deployment=reference(deployment),
                ),
            )
        self._put(
            deployment,
            pb.ReportDeploymentCompletedRequest(
                deployment_id=deployment.id,
                status=deployment.status,
                status_reason=deployment.status_reason,
                stage_statuses={stage.id: stage.status for stage in deployment.stages},
                deployment_chain_id=deployment.deployment_chain_id,
                deployment_chain_block_index=deployment.deployment_chain_block_index,
                completed_at=deployment.completed_at,
            ),
        )
        del self._lanes[deployment.id]

    def deploying(self, deployment: Deployment, *, now: bool) -> None:
        """Tell whether the application is being deployed."""
        self._outbox.put(
            deployment.application_id,
            "ReportApplicationDeployingStatus",
            pb.ReportApplicationDeployingStatusRequest(
                application_id=deployment.application_id, deploying=now
            ),
        )

    def handled(self, command: Command, *, failure: str = "") -> None:
        """Tell what came of a command; a failure says why in `metadata["reason"]`."""
        self._outbox.put(
            command.application_id or command.id,
            "ReportCommandHandled",
            pb.ReportCommandHandledRequest(
                command_id=command.id,
                status=COMMAND_FAILED if failure else COMMAND_SUCCEEDED,
                metadata={"reason": failure} if failure else {},
                handled_at=int(self._clock()),
            ),
        )

    async def kept(self, deployment: Deployment) -> None:
        """Wait until nothing that was told of a deployment can be lost any more."""
        await self._outbox.kept(deployment.application_id)

    async def keep(self, application_id: str, request: Message) -> None:
        """Tell something in its turn; it cannot be lost any more when this returns."""
        method = request.DESCRIPTOR.name.removesuffix("Request")
        self._outbox.put(application_id, method, request)
        await self._outbox.kept(application_id)

    async def heard(self, deployment_id: str) -> None:
        """Wait until everything that was told of a deployment so far is known."""
        await self._outbox.taken(self._lanes.get(deployment_id, ""))

    def is_behind(self, application_id: str) -> bool:
        """Does the control plane lack something that an earlier piped said of an application?"""
        return self._outbox.is_behind(application_id)

    async def caught_up(self, application_id: str) -> None:
        """Wait until it does not: what it has stored of a deployment is true only then."""
        await self._outbox.caught_up(application_id)

    def _put(self, deployment: Deployment, request: "Request") -> None:
        method = request.DESCRIPTOR.name.removesuffix("Request")
        self._lanes[deployment.id] = deployment.application_id
        self._outbox.put(deployment.application_id, method, request)


Request = (
    pb.ReportDeploymentStatusChangedRequest
    | pb.ReportStageStatusChangedRequest
    | pb.ReportApplicationMostRecentDeploymentRequest
    | pb.ReportDeploymentCompletedRequest
)


def reference(deployment: Deployment) -> ApplicationDeploymentReference:
    """A deployment as its application remembers it."""
    return ApplicationDeploymentReference(
        deployment_id=deployment.id,
        trigger=deployment.trigger,
        summary=deployment.summary,
        versions=deployment.versions,
        config_filename=deployment.git_path.config_filename,
        started_at=deployment.created_at,
        completed_at=deployment.completed_at,
    )
