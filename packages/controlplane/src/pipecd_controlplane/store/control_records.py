# SPDX-License-Identifier: Apache-2.0
"""What people and rules decide about applications and deployments, for agents that watch."""

from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Transaction, View
from pipecd_controlplane.store.versioned_records import VersionedRecords
from pipecd_wire.pipecd.control import control_pb2 as pb

CONTROLS_OF_PIPED: Final = (
    select(schema.application_control.c.data)
    .join(
        schema.application,
        schema.application.c.id == schema.application_control.c.application_id,
    )
    .where(
        schema.application.c.piped_id == bindparam("piped_id"),
        schema.application.c.disabled == 0,
        schema.application_control.c.project_id == bindparam("project_id"),
    )
    .order_by(schema.application_control.c.application_id)
)
CONTROLS_OF_PROJECT: Final = (
    select(schema.application_control.c.data)
    .where(schema.application_control.c.project_id == bindparam("project_id"))
    .order_by(schema.application_control.c.application_id)
)
RECORDS_OF_PIPED: Final = (
    select(schema.deployment_record.c.data)
    .join(schema.deployment, schema.deployment.c.id == schema.deployment_record.c.deployment_id)
    .where(
        schema.deployment.c.piped_id == bindparam("piped_id"),
        schema.deployment.c.completed == 0,
        schema.deployment_record.c.project_id == bindparam("project_id"),
    )
    .order_by(schema.deployment_record.c.deployment_id)
)


class ApplicationControls(VersionedRecords[pb.ApplicationControl]):
    """Hold, pin and freeze of each application that has or had one."""

    table = schema.application_control
    key = "application_id"
    message = pb.ApplicationControl
    kind = ChangeKind.CONTROL

    async def list_of_piped_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[pb.ApplicationControl]:
        """Returns those of a piped's enabled applications."""
        rows = await view.all(CONTROLS_OF_PIPED, project_id=project_id, piped_id=piped_id)
        return [pb.ApplicationControl.FromString(row[0]) for row in rows]

    async def list_by_project_in(self, view: View, project_id: str) -> list[pb.ApplicationControl]:
        """Returns those of all applications of the project that have or had one."""
        rows = await view.all(CONTROLS_OF_PROJECT, project_id=project_id)
        return [pb.ApplicationControl.FromString(row[0]) for row in rows]


class DeploymentRecords(VersionedRecords[pb.DeploymentRecord]):
    """What is known of a deployment beside upstream's entity.

    The record of a deployment that a person asks for is there before its piped has made the
    deployment, under the id that the deployment will have.
    """

    table = schema.deployment_record
    key = "deployment_id"
    message = pb.DeploymentRecord
    kind = ChangeKind.RECORD

    async def list_of_piped_in(
        self, view: View, project_id: str, piped_id: str
    ) -> list[pb.DeploymentRecord]:
        """Returns those of a piped's deployments that are not completed."""
        rows = await view.all(RECORDS_OF_PIPED, project_id=project_id, piped_id=piped_id)
        return [pb.DeploymentRecord.FromString(row[0]) for row in rows]

    async def announce_in(
        self, transaction: Transaction, project_id: str, deployment_id: str, *, piped_id: str
    ) -> None:
        """Deliver the record of a new deployment to its piped, if there is one already."""
        if await self.find_in(transaction, project_id, deployment_id) is not None:
            transaction.publish(
                Change(kind=self.kind, id=deployment_id, project_id=project_id, piped_id=piped_id)
            )


class ProjectRulesRecords(VersionedRecords[pb.ProjectRules]):
    """Windows and emergency stop of each project, under the project's id."""

    table = schema.project_rules
    key = "project_id"
    message = pb.ProjectRules
    kind = ChangeKind.RULES
