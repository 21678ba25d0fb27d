# SPDX-License-Identifier: Apache-2.0
"""ECS_ROLLBACK: bring back what ran before the deployment: weights, primary task set, counts."""

from dataclasses import dataclass, replace

from pipecd_aws import AwsError
from pipecd_plugin_ecs.definition import EXTERNAL, Definitions
from pipecd_plugin_ecs.provider.ecs import EcsClient
from pipecd_plugin_ecs.provider.model import ACTIVE, Service
from pipecd_plugin_ecs.stages.recorded import restore_recorded
from pipecd_plugin_ecs.stages.rolling import roll_out_service
from pipecd_plugin_ecs.stages.run import (
    Before,
    ServiceRun,
    find_primary_group,
    read_service_field,
    recall_before,
)
from pipecd_plugin_ecs.stages.steps import (
    CANARY_VARIANT,
    PRIMARY_VARIANT,
    ROLLBACK_VARIANT,
    apply_service,
    delete_variants,
    find_original,
    register_task,
    return_primary,
    roll_out_task_set,
)
from pipecd_plugin_ecs.stages.traffic import restore_traffic
from pipecd_sdk import StageFailedError

NO_CLUSTER = "ClusterNotFoundException"


async def roll_back(run: ServiceRun, running: Definitions | None, *, unreadable: str = "") -> None:
    """Brings one deploy target back; may be repeated. Raises StageFailedError.

    `running` are the definitions of the commit that ran before, which are those of the run, too.
    None on a first deployment, and where they are `unreadable`, which tells why: then the run's
    are those of the commit that failed.
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
    if running is None and not unreadable and not before.exists:
        raise StageFailedError(
            "there is no earlier commit to go back to",
            hint=f"the service {before.service} of the failed commit is left as it is: push a fix,"
            " or delete it",
        )
    if unreadable:
        await _restore_unread(run, before, keep, unreadable)
    else:
        await _restore_read(run, running, before, keep)
    if traffic is not None:
        raise traffic


async def _restore_read(
    run: ServiceRun, running: Definitions | None, before: Before, keep: set[str]
) -> None:
    """Ends what the deployment runs elsewhere, and brings the service back to its definitions."""
    moved = None if before.is_of(run) else await _find_moved(run, before)
    if moved is not None:
        await _leave_moved(run, before, moved, keep)
    if run.definitions.controller != EXTERNAL:
        await _restore_rolling(run, running, before)
    else:
        await _restore_task_sets(run, running, before, keep)
    if moved is not None and moved.service.controller != EXTERNAL:
        await _stop_moved(run, before, moved)
    if moved is None and before.exists:
        await _refuse_lasting(run, running or run.definitions, before)


async def _refuse_lasting(run: ServiceRun, definitions: Definitions, before: Before) -> None:
    """Raises StageFailedError for fields that have come with the failed commit, and stay."""
    service = await run.client.find_service(before.service)
    named = (await run.client.fit("UpdateService", definitions.service or {}))[0]
    lasting = sorted(
        key
        for key, value in (before.fields or {}).items()
        if value is None and key not in named and service is not None
        if read_service_field(service, key) is not None
    )
    if lasting:
        raise StageFailedError(
            f"the service {before.service} runs what ran before the deployment, but"
            f" {', '.join(lasting)} stay as the failed commit has them",
            hint="AWS has no way back to none: name them in the service definition",
        )


async def _restore_unread(run: ServiceRun, before: Before, keep: set[str], unreadable: str) -> None:
    """Brings back what was kept, or ends what the deployment has made where nothing was."""
    run.log.info("the definitions of the commit that ran cannot be read: %s", unreadable)
    if before.exists:
        await restore_recorded(run, before, keep)
        return
    made = await _find_moved(run, before)
    if made is not None:
        await _leave_moved(run, before, made, keep)
        if made.service.controller != EXTERNAL:
            await _stop_moved(run, before, made)
    raise StageFailedError(
        f"the service {before.service} was not there before the deployment, and the definitions of"
        f" the commit that ran, which may name another one, cannot be read: {unreadable}",
        hint="the deployment has changed no other service",
    )


async def _restore_rolling(run: ServiceRun, running: Definitions | None, before: Before) -> None:
    definitions = running or run.definitions
    is_same = before.exists and before.is_of(run)
    await roll_out_service(
        run,
        definitions,
        task_definition=await _find_task_definition(run, definitions, before if is_same else None),
        count=before.desired if is_same else definitions.desired_count,
        had=before.known_fields if is_same else None,
    )


async def _restore_task_sets(
    run: ServiceRun, running: Definitions | None, before: Before, keep: set[str]
) -> None:
    definitions = running or run.definitions
    is_same = before.exists and before.is_of(run)
    service = await apply_service(
        run,
        definitions,
        count=before.desired if is_same else definitions.desired_count,
        had=before.known_fields if is_same else None,
    )
    primary = await find_original(run, before) if is_same else None
    if primary is None:
        task_definition = await _find_task_definition(run, definitions, before if is_same else None)
        primary = await roll_out_task_set(
            run,
            definitions,
            variant=ROLLBACK_VARIANT,
            task_definition=task_definition,
            scale=100,
            group=find_primary_group(definitions),
        )
    await return_primary(run, service.name, primary, keep=keep)


async def _find_task_definition(
    run: ServiceRun, definitions: Definitions, before: Before | None
) -> str:
    """Returns the revision that ran, or registers it anew where somebody has deregistered it."""
    if before is not None and before.task_definition:
        found = await run.client.find_task_definition(before.task_definition)
        if found is not None and found.get("status") == ACTIVE:
            return before.task_definition
        run.log.info("%s is not active any more", before.task_definition)
    return await register_task(run, definitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MovedService:
    """A service that the deployment made or changed, and that the earlier commit does not have."""

    client: EcsClient
    """Of its cluster."""
    service: Service

    def __str__(self) -> str:
        return f"{self.service.name} in {self.client.cluster or 'the default cluster'}"


async def _find_moved(run: ServiceRun, before: Before) -> _MovedService | None:
    """Returns the service of the failed commit: it has another name, or is in another cluster."""
    client = run.client
    if before.cluster is not None:
        client = replace(client, cluster=before.cluster)
    try:
        service = await client.find_service(before.service)
    except AwsError as error:
        if error.code != NO_CLUSTER:
            raise
        service = None
    return None if service is None else _MovedService(client=client, service=service)


async def _leave_moved(
    run: ServiceRun, before: Before, moved: _MovedService, keep: set[str]
) -> None:
    """Removes the task sets that the deployment made of a service; the service itself is left."""
    if moved.service.controller == EXTERNAL:
        variants = (CANARY_VARIANT, PRIMARY_VARIANT)
        await delete_variants(run, moved.client, moved.service.name, *variants, but=keep)
    if before.exists:
        run.log.info("the service %s, which was there before the deployment, is left", moved)
    else:
        run.log.info("the service %s of the failed commit is left; delete it by hand", moved)


async def _stop_moved(run: ServiceRun, before: Before, moved: _MovedService) -> None:
    """Ends what a rolling service runs of the failed commit, now that the earlier one is back."""
    changes: dict[str, object] = {}
    if moved.service.has_count:
        changes["desiredCount"] = before.desired if before.exists else 0
    if before.exists and before.task_definition:
        changes["taskDefinition"] = before.task_definition
    if not changes:
        run.log.info(
            "the service %s still runs the failed commit: it has no number of tasks", moved
        )
        return
    await moved.client.update_service(moved.service.name, changes)
    run.log.info(
        "the service %s %s",
        moved,
        "gets back what it ran" if before.exists else "runs no tasks now",
    )
