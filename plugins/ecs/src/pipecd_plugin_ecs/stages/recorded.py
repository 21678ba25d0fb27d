# SPDX-License-Identifier: Apache-2.0
"""The way back without the definitions of the commit that ran: by what was kept of the service."""

from typing import Any, Final

from pipecd_plugin_ecs.definition import EXTERNAL
from pipecd_plugin_ecs.provider.ecs import EXTERNAL_UPDATES
from pipecd_plugin_ecs.provider.model import (
    ACTIVE,
    MANAGED_BY,
    OURS,
    Service,
    TaskSet,
    read_tags,
    write_tags,
)
from pipecd_plugin_ecs.stages.rolling import wait_rolled_out
from pipecd_plugin_ecs.stages.run import Before, ServiceRun
from pipecd_plugin_ecs.stages.steps import (
    CANARY_VARIANT,
    PRIMARY_VARIANT,
    ROLLBACK_VARIANT,
    delete_variants,
    find_original,
    force_where_needed,
    make_task_set,
    return_primary,
)
from pipecd_plugin_ecs.stages.waiting import wait_task_set
from pipecd_sdk import StageFailedError

RESTORED: Final = "task-definition-restored"
"""The revision that was registered anew, once in a deployment."""


async def restore_recorded(run: ServiceRun, before: Before, keep: set[str]) -> None:
    """Brings the service back to what it was before the deployment, as far as it was kept.

    Raises StageFailedError when that is not all, after the rest is done.
    """
    service = await run.client.find_service(before.service)
    if service is None:
        raise StageFailedError(
            f"the service {before.service} is gone", hint="deploy a commit that can be read"
        )
    if service.controller == EXTERNAL:
        await _restore_fields(run, before, service)
        await _restore_primary(run, before, keep)
    else:
        revision = await _find_revision(run, before)
        await _restore_fields(run, before, service, taskDefinition=revision)
        await wait_rolled_out(run, before.service, revision)
    missing = _list_missing(before)
    if missing:
        raise StageFailedError(
            f"the service {before.service} runs what ran before the deployment, but"
            f" {', '.join(missing)} stay as the failed commit has them",
            hint="the definitions of the commit that ran cannot be read, and what it had there was"
            " not kept; deploy a commit that can be read",
        )


async def _restore_fields(
    run: ServiceRun, before: Before, service: Service, **changes: Any
) -> None:
    is_rolling = service.controller != EXTERNAL
    had = {**before.lists, **before.cleared}
    lists = {k: v for k, v in had.items() if is_rolling or k in EXTERNAL_UPDATES}
    # A revision that was registered anew counts before the one that the service had.
    changes = {**lists, **before.known_fields, **changes}
    if service.has_count:
        changes["desiredCount"] = before.desired
    await run.client.update_service(service.name, force_where_needed(service, changes))
    if before.fields is not None:
        await run.client.set_tags(service.arn, before.tags)
    run.log.info("the service %s has the fields that it had", service.name)


def _list_missing(before: Before) -> list[str]:
    """Returns what the deployment may have changed and nobody has kept."""
    if before.fields is None:
        return ["its other fields and its tags"]
    return sorted(key for key, value in before.fields.items() if value is None)


async def _restore_primary(run: ServiceRun, before: Before, keep: set[str]) -> None:
    primary = await find_original(run, before)
    if primary is None and before.primary:
        primary = await _make_primary(run, before)
    if primary is not None:
        await return_primary(run, before.service, primary, keep=keep)
        return
    # Nothing to wait for: without a primary task set there are no tasks, whatever the number.
    variants = (CANARY_VARIANT, PRIMARY_VARIANT, ROLLBACK_VARIANT)
    await delete_variants(run, run.client, before.service, *variants, but=keep)
    run.log.success(
        "the service %s had no primary task set before the deployment: none comes back",
        before.service,
    )


async def _make_primary(run: ServiceRun, before: Before) -> TaskSet:
    if not before.task_set:
        raise StageFailedError(
            f"the task set that ran is gone, and how the service {before.service} had it was not"
            " kept",
            hint="deploy a commit whose definitions can be read",
        )
    tags = {**read_tags(before.task_set.get("tags")), MANAGED_BY: OURS}
    primary = await make_task_set(
        run,
        before.service,
        {**before.task_set, "tags": write_tags(tags)},
        variant=ROLLBACK_VARIANT,
        task_definition=await _find_revision(run, before),
        scale=before.scale,
    )
    await wait_task_set(run, primary)
    return primary


async def _find_revision(run: ServiceRun, before: Before) -> str:
    """Returns the revision that ran; one that was deregistered is registered anew as it was."""
    found = await run.client.find_task_definition(before.task_definition)
    if found is None:
        raise StageFailedError(
            f"{before.task_definition}, which ran, was deleted",
            hint="deploy a commit whose definitions can be read",
        )
    if found.get("status") == ACTIVE:
        return before.task_definition
    if (kept := await run.recall(RESTORED)) is not None:
        return kept
    fitted, _ = await run.client.fit("RegisterTaskDefinition", found)
    arn = await run.client.register_task(fitted)
    await run.keep({RESTORED: arn})
    run.log.info("%s was deregistered; it is registered anew as %s", before.task_definition, arn)
    return arn
