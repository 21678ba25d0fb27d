# SPDX-License-Identifier: Apache-2.0
"""What runs: the service, its task sets and tasks, and whether they are healthy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pipecd_plugin_ecs.definition import Definitions
from pipecd_plugin_ecs.provider.ecs import EcsClient
from pipecd_plugin_ecs.provider.model import (
    APPLICATION,
    COMMIT,
    PRIMARY,
    Service,
    TaskSet,
    read_tags,
)
from pipecd_sdk import Health, Resource
from pipecd_sdk.kit.manifests import find_field

SERVICE: Final = "ECS:Service"
TASK_SET: Final = "ECS:TaskSet"
TASK: Final = "ECS:Task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen at one moment."""

    service: Service | None
    task_sets: Sequence[TaskSet] = ()
    tasks: Sequence[Mapping[str, Any]] = ()

    @property
    def primary(self) -> TaskSet | None:
        return next((each for each in self.task_sets if each.status == PRIMARY), None)

    @property
    def task_definition(self) -> str:
        """Returns the ARN of what runs; empty when nothing does."""
        if self.primary is not None:
            return self.primary.task_definition
        return self.service.task_definition if self.service else ""


async def look_at_tasks(client: EcsClient, definitions: Definitions, application_id: str) -> Seen:
    """Returns what runs of an application without a service. Raises AwsError."""
    family = str(find_field(definitions.task, "family") or "")
    tasks = await client.list_tasks(family=family) if client.cluster else []
    ours = [
        each for each in tasks if read_tags(each.get("tags")).get(APPLICATION) == application_id
    ]
    return Seen(service=None, tasks=ours)


async def look_at_service(client: EcsClient, service: Service) -> Seen:
    """Returns what runs of a service. Raises AwsError."""
    sets: Sequence[TaskSet] = ()
    if service.controller == "EXTERNAL":
        sets = await client.list_task_sets(service.name)
    return Seen(
        service=service, task_sets=sets, tasks=await client.list_tasks(service=service.name)
    )


def list_resources(seen: Seen) -> Iterator[Resource]:
    """Yields what runs as resources, parents first."""
    service = seen.service
    if service is not None:
        yield Resource(
            id=service.arn,
            name=service.name,
            kind=SERVICE,
            health=judge_service(service),
            description=f"{service.status}, {service.running} of {service.desired} tasks run",
            metadata={
                "status": service.status,
                "runningCount": str(service.running),
                "desiredCount": str(service.desired),
                "pendingCount": str(service.pending),
            },
            created_at=_moment(service.body.get("createdAt")),
        )
    for each in seen.task_sets:
        yield Resource(
            id=each.arn,
            name=each.id,
            kind=TASK_SET,
            parents=[service.arn] if service else [],
            health=Health.HEALTHY if each.is_steady else Health.UNHEALTHY,
            description=f"{each.status}, {each.running} of {each.wanted} tasks run",
            metadata={
                "status": each.status,
                "taskDefinition": each.task_definition.rpartition("/")[2],
                "scale": f"{each.scale:g}",
                "commit": each.tags.get(COMMIT, ""),
            },
            created_at=_moment(each.body.get("createdAt")),
        )
    by_id = {each.id: each.arn for each in seen.task_sets}
    for task in seen.tasks:
        yield _describe_task(task, by_id, service)


def _describe_task(
    task: Mapping[str, Any], task_sets: Mapping[str, str], service: Service | None
) -> Resource:
    arn = str(task.get("taskArn", ""))
    status = str(task.get("lastStatus") or "")
    started = _moment(task.get("startedAt"))
    parent = task_sets.get(str(task.get("startedBy", "")), service.arn if service else "")
    return Resource(
        id=arn,
        name=arn.rpartition("/")[2],
        kind=TASK,
        parents=[parent] if parent else [],
        health=judge_task(task),
        description=str(task.get("stoppedReason") or status),
        metadata={
            "lastStatus": status,
            "taskDefinition": str(task.get("taskDefinitionArn", "")).rpartition("/")[2],
            **({"startedAt": f"{started:%Y-%m-%dT%H:%M:%SZ}"} if started else {}),
        },
        created_at=_moment(task.get("createdAt")),
    )


def judge_service(service: Service) -> Health:
    """Returns the health of a service."""
    if not service.is_active:
        return Health.UNKNOWN
    return Health.HEALTHY if service.has_all_tasks else Health.UNHEALTHY


def judge_task(task: Mapping[str, Any]) -> Health:
    """Returns the health of a task."""
    match task.get("lastStatus"):
        case "RUNNING":
            is_ill = task.get("healthStatus") == "UNHEALTHY"
            return Health.UNHEALTHY if is_ill else Health.HEALTHY
        case "PENDING" | "STOPPED" | "PROVISIONING" | "ACTIVATING":
            return Health.UNHEALTHY
        case _:
            return Health.UNKNOWN


def _moment(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
