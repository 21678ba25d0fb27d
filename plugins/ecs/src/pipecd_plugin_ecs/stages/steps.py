# SPDX-License-Identifier: Apache-2.0
"""The steps that stages are made of. Each may be repeated, and makes nothing twice."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from pipecd_plugin_ecs.config import TargetGroup
from pipecd_plugin_ecs.definition import EXTERNAL, Definitions
from pipecd_plugin_ecs.provider.ecs import (
    EXTERNAL_UPDATES,
    NOT_UPDATED,
    TASK_SET_FIELDS,
    EcsClient,
)
from pipecd_plugin_ecs.provider.model import APPLICATION, PRIMARY, Service, TaskSet, write_tags
from pipecd_plugin_ecs.stages.run import (
    Before,
    ServiceRun,
    find_primary_group,
    list_cleared,
    recall_before,
)
from pipecd_plugin_ecs.stages.waiting import wait_service, wait_task_set
from pipecd_sdk import StageFailedError

CANARY_VARIANT: Final = "canary"
PRIMARY_VARIANT: Final = "primary"
ROLLBACK_VARIANT: Final = "rollback"
STRATEGY: Final = "capacityProviderStrategy"


async def register_task(run: ServiceRun, definitions: Definitions) -> str:
    """Registers the task definition of a commit, once in a deployment; returns its ARN."""
    key = f"task-definition-{definitions.commit}"
    if (kept := await run.recall(key)) is not None:
        return kept
    fitted, unknown = await run.client.fit("RegisterTaskDefinition", definitions.task)
    _tell_unknown(run, "task", unknown)
    arn = await run.client.register_task(fitted)
    await run.keep({key: arn})
    run.log.info("registered the task definition %s", _shorten(arn))
    return arn


async def apply_service(
    run: ServiceRun,
    definitions: Definitions,
    *,
    count: int | None,
    had: Mapping[str, Any] | None = None,
    **more: Any,
) -> Service:
    """Makes or changes the service of a commit; `count` None leaves the number of its tasks.

    `more` are further fields, e.g. the task definition of a rolling service. `had` are those that
    a service of before gets back unless the definition names them.
    """
    tags = run.make_tags(definitions)
    there = await run.client.find_service(definitions.service_name)
    if there is None:
        service = await run.client.create_service(
            await _make_creation(run, definitions, tags, count, more),
            token=f"{run.ctx.deployment.id}/{definitions.service_name}/{definitions.commit}",
        )
        run.log.info("made the service %s", service.name)
        return service
    _check_owner(run, there)
    changes = await _make_changes(run, definitions, count, had or {}, more)
    changes = force_where_needed(there, changes)
    service = await run.client.update_service(there.name, changes) if changes else there
    await run.client.set_tags(service.arn or there.arn, tags)
    run.log.info("the service %s is as the definition says", there.name)
    return service


async def _make_creation(
    run: ServiceRun,
    definitions: Definitions,
    tags: Mapping[str, str],
    count: int | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    given = {**(definitions.service or {}), **more}
    fitted, unknown = await run.client.fit("CreateService", given)
    _tell_unknown(run, "service", unknown)
    if definitions.controller == EXTERNAL:
        fitted = {
            key: value
            for key, value in fitted.items()
            if key not in TASK_SET_FIELDS and key != "taskDefinition"
        }
    fitted.pop("clientToken", None)
    if fitted.get("schedulingStrategy", "REPLICA") == "REPLICA":
        fitted["desiredCount"] = count if count is not None else fitted.get("desiredCount", 0)
    return {**fitted, "tags": write_tags(tags)}


def force_where_needed(service: Service, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns changes that AWS takes: another capacity provider strategy needs a new deployment."""
    wanted = changes.get(STRATEGY)
    if wanted is None or _read_strategy(wanted) == _read_strategy(service.body.get(STRATEGY)):
        return {**changes}
    return {**changes, "forceNewDeployment": True}


def _read_strategy(given: Any) -> set[tuple[str, int, int]]:
    """Returns a capacity provider strategy whose order and defaults do not count."""
    return {
        (str(each.get("capacityProvider")), each.get("weight") or 0, each.get("base") or 0)
        for each in given or ()
    }


async def _make_changes(
    run: ServiceRun,
    definitions: Definitions,
    count: int | None,
    had: Mapping[str, Any],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    given = {
        key: value
        for key, value in {**(definitions.service or {}), **more}.items()
        if str(key).lower() not in NOT_UPDATED
    }
    fitted, _ = await run.client.fit("UpdateService", given)
    others = {**had, **await _find_cleared(run, definitions)}
    fitted = {**(await run.client.fit("UpdateService", others))[0], **fitted}
    if definitions.controller == EXTERNAL:
        fitted = {key: value for key, value in fitted.items() if key in EXTERNAL_UPDATES}
    if count is not None:
        fitted["desiredCount"] = count
    return fitted


async def _find_cleared(run: ServiceRun, definitions: Definitions) -> dict[str, Any]:
    """Returns the lists that only the replaced commit names: empty, or as they were before it."""
    gone = list_cleared(run, definitions)
    before = await recall_before(run) if gone else None
    cleared = {key: before.lists.get(key, []) if before is not None else [] for key in gone}
    for key, value in cleared.items():
        run.log.info("%s: %s", key, "as before the deployment" if value else "none any more")
    return cleared


async def roll_out_task_set(
    run: ServiceRun,
    definitions: Definitions,
    *,
    variant: str,
    task_definition: str,
    scale: float,
    group: TargetGroup | None,
) -> TaskSet:
    """Makes the task set of a variant and waits until all its tasks run."""
    task_set = await create_task_set(
        run,
        definitions,
        variant=variant,
        task_definition=task_definition,
        scale=scale,
        group=group,
    )
    await wait_task_set(run, task_set)
    return task_set


async def roll_out_primary_set(
    run: ServiceRun, definitions: Definitions, service: str, task_definition: str
) -> TaskSet:
    """Makes the task set of the commit, waits until all its tasks run, and makes it primary."""
    task_set = await roll_out_task_set(
        run,
        definitions,
        variant=PRIMARY_VARIANT,
        task_definition=task_definition,
        scale=100,
        group=find_primary_group(definitions),
    )
    await run.client.promote(service, task_set)
    run.log.info("the task set %s is the primary one", task_set.id)
    return task_set


async def create_task_set(
    run: ServiceRun,
    definitions: Definitions,
    *,
    variant: str,
    task_definition: str,
    scale: float,
    group: TargetGroup | None,
) -> TaskSet:
    """Makes the task set of a variant, or gives the one that is there its share of the tasks."""
    fitted, _ = await run.client.fit("CreateTaskSet", definitions.service or {})
    fields = {key: value for key, value in fitted.items() if key in TASK_SET_FIELDS}
    if group is not None:
        fields["loadBalancers"] = [describe_group(run, group)]
    elif definitions.options.input.access_type != "ELB":
        fields.pop("loadBalancers", None)
    return await make_task_set(
        run,
        definitions.service_name,
        {**fields, "tags": write_tags(run.make_tags(definitions))},
        variant=variant,
        task_definition=task_definition,
        scale=float(scale),
    )


async def make_task_set(
    run: ServiceRun,
    service: str,
    fields: Mapping[str, Any],
    *,
    variant: str,
    task_definition: str,
    scale: float,
) -> TaskSet:
    """Makes a task set of these fields and tags, or gives the one that is there its share."""
    task_set = await run.client.create_task_set(
        service,
        {
            **fields,
            "externalId": run.name_task_set(variant),
            "taskDefinition": task_definition,
            "scale": {"value": scale, "unit": "PERCENT"},
        },
        token=run.ctx.stage.id,
    )
    if task_set.scale != scale:  # made by an earlier stage, with another share
        await run.client.set_scale(service, task_set, scale)
    run.log.info(
        "the task set %s runs %s at %g %%",
        task_set.id,
        _shorten(task_definition),
        scale,
    )
    return task_set


def describe_group(run: ServiceRun, group: TargetGroup) -> dict[str, Any]:
    """Returns a target group as a task set and a service have it."""
    if group.load_balancer_name:
        run.log.info(
            "loadBalancerName %s of a target group has no effect; a Classic Load Balancer is named"
            " under loadBalancers of the service definition",
            group.load_balancer_name,
        )
    if not group.container_name or not group.container_port:
        raise StageFailedError(
            f"the target group {group.target_group_arn} needs containerName and containerPort",
            hint="under input.targetGroups",
        )
    return {
        "targetGroupArn": group.target_group_arn,
        "containerName": group.container_name,
        "containerPort": group.container_port,
    }


async def delete_task_sets(
    run: ServiceRun, service: str, *, but: Collection[str], reason: str
) -> None:
    """Deletes the task sets that piped has made, but those with these ARNs or external ids."""
    for each in await run.client.list_task_sets(service):
        if each.arn in but or each.external_id in but:
            continue
        if not each.is_managed:
            run.log.info("the task set %s is left alone: piped has not made it", each.id)
            continue
        await run.client.delete_task_set(service, each.arn)
        run.log.info("deleted the task set %s: %s", each.id, reason)


async def delete_variants(
    run: ServiceRun,
    client: EcsClient,
    service: str,
    *variants: str,
    but: Collection[str],
) -> None:
    """Deletes the task sets that this deployment has made, but those with these external ids."""
    for variant in variants:
        name = run.name_task_set(variant)
        found = await client.find_task_set(service, name)
        if found is not None and name not in but:
            await client.delete_task_set(service, found.arn)
            run.log.info("deleted the task set %s of %s", found.id, service)


async def find_original(run: ServiceRun, before: Before) -> TaskSet | None:
    """Returns the primary task set that ran before, with the share that it had; None if gone."""
    sets = await run.client.list_task_sets(before.service)
    found = next((each for each in sets if before.primary and each.arn == before.primary), None)
    if found is not None:
        if found.scale != before.scale:
            await run.client.set_scale(before.service, found, before.scale)
        run.log.info("the task set %s is still there", found.id)
    return found


async def return_primary(
    run: ServiceRun, service: str, primary: TaskSet, *, keep: Collection[str]
) -> None:
    """Makes what ran before primary again, deletes what the deployment made, and waits."""
    if primary.status != PRIMARY:
        await run.client.promote(service, primary)
    await delete_task_sets(
        run, service, but={primary.arn, *keep}, reason="it is of the deployment that failed"
    )
    await wait_service(run)
    run.log.success("the service %s is back at %s", service, _shorten(primary.task_definition))


def _shorten(task_definition: str) -> str:
    """Returns family and revision."""
    return task_definition.rpartition("/")[2]


def _check_owner(run: ServiceRun, service: Service) -> None:
    owner = service.tags.get(APPLICATION)
    if owner and owner != run.ctx.deployment.application_id:
        run.log.info("the service %s was of the application %s before", service.name, owner)


def _tell_unknown(run: ServiceRun, kind: str, unknown: Collection[str]) -> None:
    for path in unknown:
        run.log.info(
            "the %s definition has %s, which AWS does not know; it is left out", kind, path
        )
