# SPDX-License-Identifier: Apache-2.0
"""What AWS says of services and task sets, as values. Missing fields read as empty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

MANAGED_BY: Final = "pipecd-dev-managed-by"
PIPED: Final = "pipecd-dev-piped"
APPLICATION: Final = "pipecd-dev-application"
COMMIT: Final = "pipecd-dev-commit-hash"
OURS: Final = "piped-ecs-plugin"
MANAGERS: Final = frozenset({OURS, "piped"})
"""Who else is us: `piped` is what upstream's older agent wrote."""

AWS_TAGS: Final = "aws:"
"""How the tags begin that nobody but AWS may set."""

ACTIVE: Final = "ACTIVE"
PRIMARY: Final = "PRIMARY"
DRAINING: Final = "DRAINING"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """One task set of a service."""

    arn: str
    id: str
    external_id: str
    status: str
    task_definition: str
    scale: float
    wanted: int
    running: int
    pending: int
    is_steady: bool
    tags: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def is_managed(self) -> bool:
        return self.tags.get(MANAGED_BY) in MANAGERS

    @property
    def has_all_tasks(self) -> bool:
        return self.is_steady and self.pending == 0 and self.running >= self.wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service."""

    arn: str
    name: str
    status: str
    controller: str
    desired: int
    running: int
    pending: int
    task_definition: str
    """Of a rolling service."""
    deployments: Sequence[Mapping[str, Any]]
    events: Sequence[tuple[datetime | None, str]]
    """The newest first."""
    tags: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def is_active(self) -> bool:
        return self.status == ACTIVE

    @property
    def has_count(self) -> bool:
        """Returns whether it has a number of tasks; others run one on each machine."""
        return str(self.body.get("schedulingStrategy") or "REPLICA") == "REPLICA"

    @property
    def has_all_tasks(self) -> bool:
        return self.pending == 0 and self.running >= self.desired

    @property
    def current_deployment(self) -> Mapping[str, Any]:
        """Returns the deployment of a rolling service that counts; empty without one."""
        return next((each for each in self.deployments if each.get("status") == PRIMARY), {})


def read_task_set(body: Mapping[str, Any]) -> TaskSet:
    """Returns a task set of an answer."""
    scale = body.get("scale")
    value = scale.get("value", 0.0) if isinstance(scale, Mapping) else 0.0
    return TaskSet(
        arn=_text(body, "taskSetArn"),
        id=_text(body, "id"),
        external_id=_text(body, "externalId"),
        status=_text(body, "status"),
        task_definition=_text(body, "taskDefinition"),
        scale=float(value),
        wanted=_count(body, "computedDesiredCount"),
        running=_count(body, "runningCount"),
        pending=_count(body, "pendingCount"),
        is_steady=_text(body, "stabilityStatus") == "STEADY_STATE",
        tags=read_tags(body.get("tags")),
        body=body,
    )


def read_service(body: Mapping[str, Any]) -> Service:
    """Returns a service of an answer."""
    controller = body.get("deploymentController")
    kind = controller.get("type") if isinstance(controller, Mapping) else None
    return Service(
        arn=_text(body, "serviceArn"),
        name=_text(body, "serviceName"),
        status=_text(body, "status"),
        controller=str(kind or "ECS"),
        desired=_count(body, "desiredCount"),
        running=_count(body, "runningCount"),
        pending=_count(body, "pendingCount"),
        task_definition=_text(body, "taskDefinition"),
        deployments=[each for each in body.get("deployments") or () if isinstance(each, Mapping)],
        events=[
            (each.get("createdAt"), str(each.get("message", "")))
            for each in body.get("events") or ()
            if isinstance(each, Mapping)
        ],
        tags=read_tags(body.get("tags")),
        body=body,
    )


def read_tags(given: object) -> dict[str, str]:
    """Returns the tags of an answer as a map, without those of AWS itself, which stay."""
    tags = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    found = {str(each.get("key", "")): str(each.get("value", "")) for each in tags}
    return {key: value for key, value in found.items() if not key.startswith(AWS_TAGS)}


def write_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns tags as ECS takes them."""
    return [{"key": key, "value": value} for key, value in tags.items()]


def _text(body: Mapping[str, Any], key: str) -> str:
    return str(body.get(key) or "")


def _count(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    return value if isinstance(value, int) else 0
