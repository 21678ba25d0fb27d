# SPDX-License-Identifier: Apache-2.0
"""What a stage has on one deploy target: definitions, client, log, and what the deployment keeps.

What the deployment keeps is written before the first change, so that a stage that is continued
after a crash, and the rollback, know what ran before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_ecs.definition import Definitions
from pipecd_plugin_ecs.provider.ecs import EcsClient
from pipecd_plugin_ecs.provider.model import (
    APPLICATION,
    COMMIT,
    MANAGED_BY,
    OURS,
    PIPED,
    PRIMARY,
    read_tags,
)
from pipecd_sdk import DeployTarget, StageContext, StageFailedError, StageLog

BEFORE: Final = "before"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """One stage on one deploy target."""

    ctx: StageContext
    target: DeployTarget
    log: StageLog
    client: EcsClient
    definitions: Definitions

    @property
    def service_name(self) -> str:
        return self.definitions.service_name

    def name_task_set(self, variant: str) -> str:
        """Returns the external id of this deployment's task set: the same in every attempt."""
        return f"{variant}-{self.ctx.deployment.id}"

    def make_tags(self, definitions: Definitions) -> dict[str, str]:
        """Returns the tags of what a commit makes: the author's, and ours."""
        given = (definitions.service or {}).get("tags") if definitions.service else None
        return {
            **read_tags(given),
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
        return Before(service=run.service_name, exists=False)
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
    if service.controller != "EXTERNAL":
        return Before(
            service=service.name,
            exists=True,
            desired=service.desired,
            task_definition=service.task_definition,
        )
    sets = await run.client.list_task_sets(service.name)
    primary = next((each for each in sets if each.status == PRIMARY), None)
    return Before(
        service=service.name,
        exists=True,
        desired=service.desired,
        task_definition=primary.task_definition if primary else "",
        primary=primary.arn if primary else "",
        scale=primary.scale if primary else 100.0,
    )
