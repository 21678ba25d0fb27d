# SPDX-License-Identifier: Apache-2.0
"""Services with AWS's own rolling updates: the controller `ECS`."""

from collections.abc import Mapping
from typing import Any

from pipecd_aws.account import SETTLE_TIME
from pipecd_plugin_ecs.definition import EXTERNAL, Definitions
from pipecd_plugin_ecs.stages.run import ServiceRun, find_primary_group
from pipecd_plugin_ecs.stages.steps import apply_service, describe_group
from pipecd_plugin_ecs.stages.waiting import wait_for
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.manifests import find_field


async def roll_out_service(
    run: ServiceRun,
    definitions: Definitions,
    *,
    task_definition: str,
    count: int | None,
    had: Mapping[str, Any] | None = None,
) -> None:
    """Brings a rolling service to a task definition and waits until AWS has replaced all tasks.

    `had` as in `apply_service`. Raises StageFailedError.
    """
    more: dict[str, Any] = {"taskDefinition": task_definition}
    group = find_primary_group(definitions)
    if group is not None and find_field(definitions.service or {}, "loadBalancers") is None:
        more["loadBalancers"] = [describe_group(run, group)]
    await apply_service(run, definitions, count=count, had=had, **more)
    await wait_rolled_out(run, definitions.service_name, task_definition)


async def wait_rolled_out(run: ServiceRun, service: str, task_definition: str) -> None:
    """Waits until AWS has replaced all tasks of a rolling service. Raises StageFailedError.

    Also when AWS's circuit breaker has ended the update.
    """
    is_told = False
    known_by = run.ctx.clock.now() + SETTLE_TIME

    async def look() -> tuple[bool, str]:
        nonlocal is_told
        found = await run.client.find_service(service)
        if found is None:
            return False, f"the service {service} is not there yet"
        current = found.current_deployment
        runs = str(current.get("taskDefinition") or found.task_definition)
        state = str(current.get("rolloutState") or "")
        is_new = _is_same(runs, task_definition)
        is_told = is_told or is_new
        if not is_told and run.ctx.clock.now() < known_by:
            return False, f"AWS does not tell of the update of {found.name} yet"
        if state == "FAILED" or not is_new:
            told = str(current.get("rolloutStateReason") or f"it is back at {runs}")
            raise StageFailedError(
                f"AWS has ended the update of {found.name}: {told}",
                hint="see the service's events, and the logs of its tasks",
            )
        text = f"the service {found.name} has {found.running} of {found.desired} tasks running"
        is_over = state in {"", "COMPLETED"} and len(found.deployments) <= 1
        return is_over and found.has_all_tasks, text

    await wait_for(run, "rolling", look)


def refuse_rolling(run: ServiceRun) -> None:
    """Raises StageFailedError for a stage that needs task sets."""
    if run.definitions.service is None:
        raise StageFailedError(
            f"{run.ctx.stage.name} needs a service",
            hint="name its definition with input.serviceDefinitionFile",
        )
    if run.definitions.controller != EXTERNAL:
        raise StageFailedError(
            f"{run.ctx.stage.name} needs a service with the deployment controller EXTERNAL",
            hint="write deploymentController: {type: EXTERNAL} into it, or use ECS_SYNC",
        )


def _is_same(first: str, second: str) -> bool:
    """Returns whether two names are of one task definition: an ARN, or family and revision."""
    return first.rpartition("/")[2] == second.rpartition("/")[2]
