# SPDX-License-Identifier: Apache-2.0
"""ECS_CANARY_ROLLOUT, ECS_PRIMARY_ROLLOUT and ECS_CANARY_CLEAN."""

import json
from typing import Final

from pipecd_plugin_ecs.definition import EXTERNAL
from pipecd_plugin_ecs.stages.rolling import refuse_rolling, roll_out_service
from pipecd_plugin_ecs.stages.run import ServiceRun, record_before
from pipecd_plugin_ecs.stages.steps import (
    CANARY_VARIANT,
    apply_service,
    create_task_set,
    delete_task_sets,
    register_task,
    roll_out_primary_set,
)
from pipecd_plugin_ecs.stages.sync import run_standalone_task
from pipecd_plugin_ecs.stages.waiting import wait_service, wait_task_set
from pipecd_sdk import StageFailedError

CANARY_TASK_SET: Final = "canary-task-set"
CANARY_PERCENTAGE: Final = "canary-percentage"


async def roll_out_canary(run: ServiceRun, scale: float) -> None:
    """Adds a task set of the new commit beside the primary one. Raises StageFailedError."""
    refuse_rolling(run)
    definitions = run.definitions
    given = definitions.options.input
    group = given.target_groups.canary if given.access_type == "ELB" else None
    if given.access_type == "ELB" and group is None:
        raise StageFailedError(
            "a canary behind a load balancer needs input.targetGroups.canary",
            hint="or set input.accessType to SERVICE_DISCOVERY",
        )
    await record_before(run)
    task_definition = await register_task(run, definitions)
    await apply_service(run, definitions, count=definitions.desired_count)
    task_set = await create_task_set(
        run,
        definitions,
        variant=CANARY_VARIANT,
        task_definition=task_definition,
        scale=scale,
        group=group,
    )
    kept = {"taskSetArn": task_set.arn, "id": task_set.id, "externalId": task_set.external_id}
    await run.keep({CANARY_TASK_SET: json.dumps(kept)})
    await wait_task_set(run, task_set)


async def roll_out_primary(run: ServiceRun) -> None:
    """Replaces the primary task set by one of the new commit; a canary stays.

    Raises StageFailedError.
    """
    definitions = run.definitions
    if definitions.service is None:
        await run_standalone_task(run)
        return
    await record_before(run)
    task_definition = await register_task(run, definitions)
    if definitions.controller != EXTERNAL:
        await roll_out_service(
            run, definitions, task_definition=task_definition, count=definitions.desired_count
        )
        return
    service = await apply_service(run, definitions, count=definitions.desired_count)
    task_set = await roll_out_primary_set(run, definitions, service.name, task_definition)
    await delete_task_sets(
        run,
        service.name,
        but={task_set.arn, run.name_task_set(CANARY_VARIANT)},
        reason="it is replaced",
    )
    await wait_service(run)


async def clean_canary(run: ServiceRun) -> None:
    """Deletes the canary's task set; one that is gone already is fine. Raises StageFailedError."""
    if int(await run.recall(CANARY_PERCENTAGE) or 0) > 0:
        raise StageFailedError(
            "the canary still gets traffic, which would be lost",
            hint="put ECS_TRAFFIC_ROUTING with primary: 100 before ECS_CANARY_CLEAN",
        )
    found = await run.client.find_service(run.service_name) if run.service_name else None
    has_sets = found is not None and found.controller == EXTERNAL
    sets = await run.client.list_task_sets(run.service_name) if has_sets else []
    name = run.name_task_set(CANARY_VARIANT)
    mine = [each for each in sets if each.external_id == name]
    if not mine:
        run.log.success("there is no canary")
    for each in mine:
        await run.client.delete_task_set(run.service_name, each.arn)
        run.log.success("deleted the canary's task set %s", each.id)
