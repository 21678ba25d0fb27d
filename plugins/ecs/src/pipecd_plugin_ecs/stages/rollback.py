# SPDX-License-Identifier: Apache-2.0
"""ECS_ROLLBACK: bring back what ran before the deployment: weights, primary task set, counts."""

from pipecd_plugin_ecs.definition import EXTERNAL, Definitions
from pipecd_plugin_ecs.provider.model import PRIMARY, TaskSet
from pipecd_plugin_ecs.stages.rolling import roll_out_service
from pipecd_plugin_ecs.stages.rollout import CANARY_VARIANT
from pipecd_plugin_ecs.stages.run import Before, ServiceRun, recall_before
from pipecd_plugin_ecs.stages.steps import (
    apply_service,
    delete_task_sets,
    find_primary_group,
    register_task,
    roll_out_task_set,
)
from pipecd_plugin_ecs.stages.sync import PRIMARY_VARIANT
from pipecd_plugin_ecs.stages.traffic import restore_traffic
from pipecd_plugin_ecs.stages.waiting import wait_service
from pipecd_sdk import StageFailedError

ROLLBACK_VARIANT = "rollback"


async def roll_back(run: ServiceRun, running: Definitions | None) -> None:
    """Brings one deploy target back; may be repeated. Raises StageFailedError.

    `running` are the definitions of the commit that ran before, None on a first deployment. The
    run's own definitions are the same then, or those of the commit that failed.
    """
    if run.definitions.service is None:
        run.log.success("a task without a service cannot be undone; nothing is done")
        return
    before = await recall_before(run)
    if before is None:
        run.log.success("the deployment has changed nothing")
        return
    traffic: StageFailedError | None = None
    try:
        await restore_traffic(run)
    except StageFailedError as error:
        traffic = error
    if traffic is not None:
        run.log.error("%s; the canary is kept: it may still get traffic", traffic.reason())
    keep = {run.name_task_set(CANARY_VARIANT)} if traffic is not None else set()
    if running is None and not before.exists:
        raise StageFailedError(
            "there is no earlier commit to go back to",
            hint=f"the service {before.service} of the failed commit is left as it is: push a fix,"
            " or delete it",
        )
    if before.service != run.service_name:
        await _leave_renamed(run, before, keep)
    if run.definitions.controller != EXTERNAL:
        await _restore_rolling(run, running, before)
    else:
        await _restore_task_sets(run, running, before, keep)
    if traffic is not None:
        raise traffic


async def _restore_rolling(run: ServiceRun, running: Definitions | None, before: Before) -> None:
    definitions = running or run.definitions
    is_same = before.exists and before.service == run.service_name
    task_definition = before.task_definition if is_same else ""
    await roll_out_service(
        run,
        definitions,
        task_definition=task_definition or await register_task(run, definitions),
        count=before.desired if is_same else definitions.desired_count,
    )


async def _restore_task_sets(
    run: ServiceRun, running: Definitions | None, before: Before, keep: set[str]
) -> None:
    definitions = running or run.definitions
    is_same = before.exists and before.service == run.service_name
    service = await apply_service(
        run, definitions, count=before.desired if is_same else definitions.desired_count
    )
    primary = await _find_original(run, before) if is_same else None
    if primary is not None:
        if primary.scale != before.scale:
            await run.client.set_scale(service.name, primary, before.scale)
        run.log.info("the task set %s is still there", primary.id)
    else:
        task_definition = await _find_task_definition(run, definitions, before if is_same else None)
        primary = await roll_out_task_set(
            run,
            definitions,
            variant=ROLLBACK_VARIANT,
            task_definition=task_definition,
            scale=100,
            group=find_primary_group(definitions),
        )
    if primary.status != PRIMARY:
        await run.client.promote(service.name, primary)
    await delete_task_sets(
        run, service.name, but={primary.arn, *keep}, reason="it is of the deployment that failed"
    )
    await wait_service(run)
    run.log.success(
        "the service %s is back at %s", service.name, primary.task_definition.rpartition("/")[2]
    )


async def _find_original(run: ServiceRun, before: Before) -> TaskSet | None:
    sets = await run.client.list_task_sets(before.service)
    return next((each for each in sets if before.primary and each.arn == before.primary), None)


async def _find_task_definition(
    run: ServiceRun, definitions: Definitions, before: Before | None
) -> str:
    """Returns the revision that ran, or registers it anew where somebody has deregistered it."""
    if before is not None and before.task_definition:
        found = await run.client.describe_task_definition(before.task_definition)
        if found.get("status") == "ACTIVE":
            return before.task_definition
        run.log.info("%s is not active any more", before.task_definition)
    return await register_task(run, definitions)


async def _leave_renamed(run: ServiceRun, before: Before, keep: set[str]) -> None:
    """Removes what the deployment made of a service that the earlier commit does not have."""
    service = await run.client.find_service(before.service)
    if service is None:
        return
    for variant in (CANARY_VARIANT, PRIMARY_VARIANT):
        name = run.name_task_set(variant)
        found = await run.client.find_task_set(service.name, name)
        if found is not None and name not in keep:
            await run.client.delete_task_set(service.name, found.arn)
            run.log.info("deleted the task set %s of %s", found.id, service.name)
    run.log.info("the service %s of the failed commit is left; delete it by hand", service.name)
