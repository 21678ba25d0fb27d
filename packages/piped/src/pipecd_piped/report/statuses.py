# SPDX-License-Identifier: Apache-2.0
"""Reports facts about deployments, stages and applications to the control plane.

All reports of an application share a lane of the outbox, so that they are delivered in the order of
their facts. Only the plan bypasses the outbox: its delivery is awaited, after all of its lane.
"""

from google.protobuf.message import Message

from pipecd_piped.facts import (
    DeploymentCompleted,
    DeploymentNoted,
    DeploymentStarted,
    Facts,
    Planned,
    StageChanged,
    StatusChanged,
    SyncChanged,
    Triggered,
)
from pipecd_piped.report.outbox import Deliver, Outbox
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice import service_pb2 as pb


class StatusReporter:
    """Turns facts into reports."""

    def __init__(self, outbox: Outbox, deliver: Deliver) -> None:
        self._outbox = outbox
        self._deliver = deliver
        self._lanes: dict[str, str] = {}

    def subscribe_to(self, facts: Facts) -> None:
        """Report every fact from now on."""
        facts.subscribe(Triggered, self.report_triggered)
        facts.subscribe(DeploymentStarted, self.report_started)
        facts.subscribe_awaited(self.report_planned)
        facts.subscribe(StatusChanged, self.report_status)
        facts.subscribe(DeploymentNoted, self.report_note)
        facts.subscribe(StageChanged, self.report_stage)
        facts.subscribe(DeploymentCompleted, self.report_completed)
        facts.subscribe(SyncChanged, self.report_sync)

    def report_triggered(self, fact: Triggered) -> None:
        """Report a deployment as the most recently triggered one of its application."""
        deployment = fact.deployment
        self._outbox.put(
            deployment.application_id,
            "ReportApplicationMostRecentDeployment",
            pb.ReportApplicationMostRecentDeploymentRequest(
                application_id=deployment.application_id,
                status=deployment_pb2.DEPLOYMENT_PENDING,
                deployment=reference(deployment),
            ),
        )

    def report_started(self, fact: DeploymentStarted) -> None:
        """Report that the application is being deployed."""
        self._report_deploying(fact.deployment, now=True)

    async def report_planned(self, fact: Planned) -> None:
        """Deliver the plan, and wait for it: logs and metadata of a stage need the stage.

        Raises PipecdError when the control plane refuses it.
        """
        deployment = fact.deployment
        await self._outbox.wait_delivered(deployment.application_id)
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

    def report_status(self, fact: StatusChanged) -> None:
        """Report the new status of a deployment, such as running or rolling back."""
        deployment = fact.deployment
        self._put(
            deployment,
            "ReportDeploymentStatusChanged",
            pb.ReportDeploymentStatusChangedRequest(
                deployment_id=deployment.id,
                status=deployment.status,
                status_reason=deployment.status_reason,
                deployment_chain_id=deployment.deployment_chain_id,
                deployment_chain_block_index=deployment.deployment_chain_block_index,
            ),
        )

    def report_note(self, fact: DeploymentNoted) -> None:
        """Report what is to be known of a deployment beside its status."""
        self._put(
            fact.deployment,
            "SaveDeploymentSharedMetadata",
            pb.SaveDeploymentSharedMetadataRequest(
                deployment_id=fact.deployment.id, metadata=fact.notes
            ),
        )

    def report_stage(self, fact: StageChanged) -> None:
        """Report a stage's status. The RPC requires a time for every status, not only an end."""
        stage = fact.stage
        self._put(
            fact.deployment,
            "ReportStageStatusChanged",
            pb.ReportStageStatusChangedRequest(
                deployment_id=fact.deployment.id,
                stage_id=stage.id,
                status=stage.status,
                status_reason=stage.status_reason,
                requires=stage.requires,
                visible=True,
                retried_count=stage.retried_count,
                completed_at=stage.completed_at,
            ),
        )

    def report_completed(self, fact: DeploymentCompleted) -> None:
        """Report the end; a success also as the reference that the next deployment compares with.

        Reference and events are reported first: if piped dies in between, the end is reported
        again, while what was not reported before it would be lost.
        """
        deployment = fact.deployment
        for event in fact.events:
            self._put(deployment, "RegisterEvent", event)
        if deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS:
            self._put(
                deployment,
                "ReportApplicationMostRecentDeployment",
                pb.ReportApplicationMostRecentDeploymentRequest(
                    application_id=deployment.application_id,
                    status=deployment.status,
                    deployment=reference(deployment),
                ),
            )
        self._put(
            deployment,
            "ReportDeploymentCompleted",
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
        if fact.was_started:  # one that is cancelled in the queue leaves the running one alone
            self._report_deploying(deployment, now=False)

    def report_sync(self, fact: SyncChanged) -> None:
        """Report the sync state of an application."""
        self._outbox.put(
            fact.application_id,
            "ReportApplicationSyncState",
            pb.ReportApplicationSyncStateRequest(
                application_id=fact.application_id, state=fact.state
            ),
        )

    async def wait_durable(self, deployment: Deployment) -> None:
        """Wait until no report of a deployment so far can be lost any more."""
        await self._outbox.wait_durable(deployment.application_id)

    async def put_durably(self, application_id: str, method: str, request: Message) -> None:
        """Queue a report behind its lane; it cannot be lost any more when this returns."""
        self._outbox.put(application_id, method, request)
        await self._outbox.wait_durable(application_id)

    async def wait_delivered(self, deployment_id: str) -> None:
        """Wait until all reports of a deployment so far are delivered."""
        await self._outbox.wait_delivered(self._lanes.get(deployment_id, ""))

    async def wait_application_delivered(self, application_id: str) -> None:
        """Wait until all reports of an application and its deployments so far are delivered."""
        await self._outbox.wait_delivered(application_id)

    def has_backlog(self, application_id: str) -> bool:
        """Returns whether an application has undelivered reports of an earlier piped."""
        return self._outbox.has_backlog(application_id)

    async def wait_backlog_delivered(self, application_id: str) -> None:
        """Wait until it has no backlog: only then the control plane's data is up to date."""
        await self._outbox.wait_lane_backlog_delivered(application_id)

    def _report_deploying(self, deployment: Deployment, *, now: bool) -> None:
        self._outbox.put(
            deployment.application_id,
            "ReportApplicationDeployingStatus",
            pb.ReportApplicationDeployingStatusRequest(
                application_id=deployment.application_id, deploying=now
            ),
        )

    def _put(self, deployment: Deployment, method: str, request: Message) -> None:
        self._lanes[deployment.id] = deployment.application_id
        self._outbox.put(deployment.application_id, method, request)


def reference(deployment: Deployment) -> ApplicationDeploymentReference:
    """Returns the reference to a deployment that its application stores."""
    return ApplicationDeploymentReference(
        deployment_id=deployment.id,
        trigger=deployment.trigger,
        summary=deployment.summary,
        versions=deployment.versions,
        config_filename=deployment.git_path.config_filename,
        started_at=deployment.created_at,
        completed_at=deployment.completed_at,
    )
