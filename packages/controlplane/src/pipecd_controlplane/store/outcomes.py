# SPDX-License-Identifier: Apache-2.0
"""How deployments ended: a small row each, written in the transaction that completes a deployment.

It stays after the deployment itself is purged.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, or_, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.labels import Labels
from pipecd_controlplane.store.listing import MOST_LABELS
from pipecd_model.errors import ConfigError
from pipecd_wire.model import deployment_pb2 as pb

T: Final = schema.deployment_outcome
LABELS: Final = Labels(schema.deployment_label)
DAY: Final = 86_400

OLDEST: Final = select(T.c.deployment_id).where(T.c.completed_at < bindparam("before")).limit(500)
DELETE: Final = delete(T).where(T.c.deployment_id == bindparam("this_deployment"))
DEPLOYMENT: Final = select(schema.deployment.c.id).where(
    schema.deployment.c.id == bindparam("this_deployment")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentOutcome:
    """The end of one deployment."""

    application_id: str
    status: int
    completed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The deployments that ended in one way on one day (UTC)."""

    day: int
    """Days since the Unix epoch."""
    status: int
    count: int
    lead_seconds: int
    """The sum over these deployments of the seconds from commit to end."""


async def add_in(transaction: Transaction, deployment: pb.Deployment) -> None:
    """Stores how a deployment ended.

    A deployment that was purged and is reported again counts once: the first row stays.
    """
    await transaction.insert_if_absent(
        T,
        deployment_id=deployment.id,
        project_id=deployment.project_id,
        application_id=deployment.application_id,
        status=deployment.status,
        committed_at=deployment.trigger.commit.created_at,
        created_at=deployment.created_at,
        completed_at=deployment.completed_at,
    )


class Outcomes:
    """The ends of all deployments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def restores(
        self,
        project_id: str,
        start: int,
        end: int,
        *,
        application_id: str = "",
        labels: dict[str, str] | None = None,
    ) -> list[DeploymentOutcome]:
        """Returns the failures in [start, end) and the first success after each, oldest first."""
        statement = _select_restores(
            by_application=bool(application_id), label_count=len(labels or {})
        )
        parameters = _parameters(project_id, start, end, application_id, labels or {})

        async def work(view: View) -> list[DeploymentOutcome]:
            return [
                DeploymentOutcome(application_id=application, status=status, completed_at=at)
                for application, status, at in await view.all(statement, **parameters)
            ]

        return await self._database.read(work)

    async def tally(
        self,
        project_id: str,
        start: int,
        end: int,
        *,
        application_id: str = "",
        labels: dict[str, str] | None = None,
    ) -> list[Tally]:
        """Returns the deployments that ended in [start, end), counted by day and status."""
        statement = _select_by_day(
            by_application=bool(application_id), label_count=len(labels or {})
        )
        parameters = _parameters(project_id, start, end, application_id, labels or {})

        async def work(view: View) -> list[Tally]:
            return [
                Tally(day=day, status=status, count=count, lead_seconds=int(seconds))
                for day, status, count, seconds in await view.all(statement, **parameters)
            ]

        return await self._database.read(work)

    async def purge_in(self, transaction: Transaction, *, before: int) -> int:
        """Deletes a batch of outcomes from before a time. Returns how many.

        The labels of a deployment that is kept longer stay: it is listed by them.
        """
        rows = await transaction.all(OLDEST, before=before)
        for (deployment_id,) in rows:
            await transaction.run(DELETE, this_deployment=deployment_id)
            if await transaction.one(DEPLOYMENT, this_deployment=deployment_id) is None:
                await LABELS.remove(transaction, deployment_id)
        return len(rows)


@cache
def _select_restores(*, by_application: bool, label_count: int) -> "Select[Any]":
    before = func.lag(T.c.status).over(
        partition_by=T.c.application_id, order_by=(T.c.completed_at, T.c.deployment_id)
    )
    ended = (
        select(
            T.c.application_id,
            T.c.status,
            T.c.completed_at,
            T.c.deployment_id,
            before.label("before"),
        )
        .where(
            *_conditions(by_application=by_application, label_count=label_count),
            T.c.status != pb.DEPLOYMENT_CANCELLED,
        )
        .subquery()
    )
    return (
        select(ended.c.application_id, ended.c.status, ended.c.completed_at)
        .where(
            or_(
                ended.c.status == pb.DEPLOYMENT_FAILURE,
                ended.c.before == pb.DEPLOYMENT_FAILURE,
            )
        )
        .order_by(ended.c.completed_at, ended.c.deployment_id)
    )


@cache
def _select_by_day(*, by_application: bool, label_count: int) -> "Select[Any]":
    day = T.c.completed_at // DAY
    return (
        select(day, T.c.status, func.count(), func.sum(T.c.completed_at - T.c.committed_at))
        .where(*_conditions(by_application=by_application, label_count=label_count))
        .group_by(day, T.c.status)
    )


def _conditions(*, by_application: bool, label_count: int) -> "list[ColumnElement[bool]]":
    if label_count > MOST_LABELS:
        raise ConfigError(
            f"invalid request: labels: {label_count} in one filter, at most {MOST_LABELS}"
        )
    held = [LABELS.table.alias(f"label_{number}") for number in range(label_count)]
    return [
        T.c.project_id == bindparam("project_id"),
        T.c.completed_at >= bindparam("start"),
        T.c.completed_at < bindparam("end"),
        *([T.c.application_id == bindparam("application_id")] if by_application else []),
        *(
            select(label.c.key)
            .where(
                label.c.entity_id == T.c.deployment_id,
                label.c.key == bindparam(f"key_{number}"),
                label.c.value == bindparam(f"value_{number}"),
            )
            .exists()
            for number, label in enumerate(held)
        ),
    ]


def _parameters(
    project_id: str, start: int, end: int, application_id: str, labels: dict[str, str]
) -> dict[str, str | int]:
    found: dict[str, str | int] = {"project_id": project_id, "start": start, "end": end}
    if application_id:
        found["application_id"] = application_id
    for number, (key, value) in enumerate(sorted(labels.items())):
        found |= {f"key_{number}": key, f"value_{number}": value}
    return found
