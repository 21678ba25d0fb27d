# SPDX-License-Identifier: Apache-2.0
"""What a stage has on one deploy target: definitions, client, log, and what the deployment keeps.

What the deployment keeps is written before the first change, so that a stage that is continued
after a crash, and the rollback, know what ran before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipecd_plugin_ecs.config import TargetGroup
from pipecd_plugin_ecs.definition import EXTERNAL, Definitions
from pipecd_plugin_ecs.provider.ecs import (
    CLEARABLE,
    EXTERNAL_UPDATES,
    IN_DEPLOYMENTS,
    NOT_KEPT,
    NOT_UPDATED,
    TASK_SET_FIELDS,
    EcsClient,
)
from pipecd_plugin_ecs.provider.model import (
    APPLICATION,
    COMMIT,
    MANAGED_BY,
    OURS,
    PIPED,
    PRIMARY,
    Service,
    TaskSet,
)
from pipecd_sdk import DeployTarget, StageContext, StageFailedError, StageLog
from pipecd_sdk.kit.manifests import find_field

BEFORE: Final = "before"
DEFAULT_CLUSTER: Final = "default"
"""Where AWS looks without the name of a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """One stage on one deploy target."""

    ctx: StageContext
    target: DeployTarget
    log: StageLog
    client: EcsClient
    definitions: Definitions
    replaced: Definitions | None = None
    """Of the commit that these definitions replace; a rollback's: of the commit that failed."""

    @property
    def service_name(self) -> str:
        return self.definitions.service_name

    def name_task_set(self, variant: str) -> str:
        """Returns the external id of this deployment's task set: the same in every attempt."""
        return f"{variant}-{self.ctx.deployment.id}"

    def make_tags(self, definitions: Definitions) -> dict[str, str]:
        """Returns the tags of what a commit makes: the author's, and ours."""
        return {
            **_read_given_tags(definitions),
            MANAGED_BY: OURS,
            PIPED: self.ctx.deployment.piped_id,
            APPLICATION: self.ctx.deployment.application_id,
            COMMIT: definitions.commit,
        }

    async def recall(self, name: str) -> str | None:
        """Returns what the deployment keeps for this deploy target, None without it."""
        return await self.ctx.deployment_metadata.get(self._key(name))

    async def keep(self, values: Mapping[str, str]) -> None:
        """Keeps values with the deployment, for this deploy target."""
        await self.ctx.deployment_metadata.put_many(
            {self._key(name): value for name, value in values.items()}
        )

    def _key(self, name: str) -> str:
        # One deploy target, the usual case, has the keys that upstream's plugin has.
        return name if len(self.ctx.targets) == 1 else f"{name}/{self.target.name}"


def _read_given_tags(definitions: Definitions) -> dict[str, str]:
    """Returns the tags of the service definition, whose names may be written in any case."""
    given = find_field(definitions.service or {}, "tags")
    return {
        str(find_field(each, "key")): _write_value(find_field(each, "value"))
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, Mapping)
    }


def _write_value(value: object) -> str:
    return "" if value is None else str(value)


def list_named(definitions: Definitions) -> list[str]:
    """Returns which of the lists that AWS keeps unless they are cleared a commit gives."""
    service = definitions.service or {}
    named = [key for key in CLEARABLE if find_field(service, key) is not None]
    has_group = find_primary_group(definitions) is not None
    return ["loadBalancers", *named] if has_group and "loadBalancers" not in named else named


def list_cleared(run: ServiceRun, definitions: Definitions) -> list[str]:
    """Returns the lists of the service that only the replaced commit gives."""
    replaced = run.replaced
    if replaced is None or replaced.service_name != definitions.service_name:
        return []
    if not is_same_cluster(replaced.cluster, definitions.cluster):
        return []
    named = list_named(definitions)
    gone = [key for key in list_named(replaced) if key not in named]
    if definitions.controller == EXTERNAL:
        return [key for key in gone if key in EXTERNAL_UPDATES]
    return gone


def find_primary_group(definitions: Definitions) -> TargetGroup | None:
    """Returns the primary's target group, None where the service has none."""
    given = definitions.options.input
    return given.target_groups.primary if given.access_type == "ELB" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What ran before the deployment changed anything."""

    service: str
    exists: bool
    desired: int = 0
    task_definition: str = ""
    """Of the primary task set, or of the rolling service."""
    primary: str = ""
    """The ARN of the primary task set; empty for a rolling service."""
    scale: float = 100.0
    cluster: str | None = None
    """Of the commit that is deployed; None in what an earlier release has kept."""
    lists: Mapping[str, Any] = field(default_factory=dict)
    """The lists that the service had of those that the commit names."""
    cleared: Mapping[str, Any] = field(default_factory=dict)
    """The lists that the service had of those that the commit clears."""
    fields: Mapping[str, Any] | None = None
    """Of the other fields that the commit names, what the service had; None in what an earlier
    release has kept."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Of the service."""
    task_set: Mapping[str, Any] = field(default_factory=dict)
    """How the primary task set was made: its fields and tags."""

    @property
    def known_fields(self) -> dict[str, Any]:
        """Those of the other fields that the service had."""
        return {key: value for key, value in (self.fields or {}).items() if value is not None}

    def is_of(self, run: ServiceRun) -> bool:
        """Returns whether this is the service of a run, which may be of an earlier commit."""
        if self.service != run.service_name:
            return False
        return self.cluster is None or is_same_cluster(self.cluster, run.client.cluster)


def is_same_cluster(first: str, second: str) -> bool:
    """Returns whether two names are of one cluster: an ARN, a short name, or none at all."""
    return (first.rpartition("/")[2] or DEFAULT_CLUSTER) == (
        second.rpartition("/")[2] or DEFAULT_CLUSTER
    )


async def record_before(run: ServiceRun) -> Before:
    """Returns what ran before the deployment, which is looked up and kept by its first stage."""
    kept = await recall_before(run)
    if kept is not None:
        return kept
    found = await _look(run)
    await run.keep({BEFORE: json.dumps({each: getattr(found, each) for each in Before.__slots__})})
    return found


async def recall_before(run: ServiceRun) -> Before | None:
    """Returns what was kept, None when no stage has changed anything yet."""
    text = await run.recall(BEFORE)
    if text is None:
        return None
    try:
        value: Any = json.loads(text)
        return Before(**value)
    except (ValueError, TypeError):
        raise StageFailedError(
            "what ran before the deployment cannot be read from its metadata",
            hint="bring the service back by hand, or deploy the earlier commit",
        ) from None


async def _look(run: ServiceRun) -> Before:
    service = await run.client.find_service(run.service_name)
    if service is None:
        return Before(service=run.service_name, exists=False, cluster=run.client.cluster)
    if not service.is_active:
        raise StageFailedError(
            f"the service {service.name} is {service.status}",
            hint="wait until it is gone, or choose another serviceName",
        )
    if service.controller != run.definitions.controller:
        raise StageFailedError(
            f"the service {service.name} has the deployment controller {service.controller},"
            f" the definition wants {run.definitions.controller}",
            hint="AWS cannot change it: delete the service first, or choose another serviceName",
        )
    before = Before(
        service=service.name,
        exists=True,
        desired=service.desired,
        task_definition=service.task_definition,
        cluster=run.client.cluster,
        lists={key: service.body.get(key) or [] for key in list_named(run.definitions)},
        cleared={key: service.body.get(key) or [] for key in list_cleared(run, run.definitions)},
        fields={key: read_service_field(service, key) for key in await _list_changed(run)},
        tags=service.tags,
    )
    if service.controller != EXTERNAL:
        return before
    sets = await run.client.list_task_sets(service.name)
    primary = next((each for each in sets if each.status == PRIMARY), None)
    return replace(
        before,
        task_definition=primary.task_definition if primary else "",
        primary=primary.arn if primary else "",
        scale=primary.scale if primary else 100.0,
        task_set=_describe_task_set(primary) if primary else {},
    )


async def _list_changed(run: ServiceRun) -> list[str]:
    """Returns which fields of the service, beside lists, the commit changes."""
    fitted, _ = await run.client.fit("UpdateService", run.definitions.service or {})
    passed = {*NOT_UPDATED, NOT_KEPT}
    named = [key for key in fitted if key not in CLEARABLE and key.lower() not in passed]
    if run.definitions.controller != EXTERNAL:
        return named
    return [key for key in named if key in EXTERNAL_UPDATES]


def read_service_field(service: Service, key: str) -> Any:
    """Returns what a service has there, None where AWS does not tell of any."""
    return (service.current_deployment if key in IN_DEPLOYMENTS else service.body).get(key)


def _describe_task_set(task_set: TaskSet) -> dict[str, Any]:
    body = task_set.body
    return {key: body[key] for key in (*sorted(TASK_SET_FIELDS), "tags") if body.get(key)}
