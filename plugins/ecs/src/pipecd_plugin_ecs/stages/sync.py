# SPDX-License-Identifier: Apache-2.0
"""ECS_SYNC: bring the service to the commit at once. A task without a service is run."""

from pipecd_plugin_ecs.definition import EXTERNAL
from pipecd_plugin_ecs.provider.model import write_tags
from pipecd_plugin_ecs.stages.rolling import roll_out_service
from pipecd_plugin_ecs.stages.run import ServiceRun, record_before
from pipecd_plugin_ecs.stages.steps import (
    apply_service,
    delete_task_sets,
    register_task,
    roll_out_primary_set,
)
from pipecd_plugin_ecs.stages.waiting import wait_service, wait_stopped

RECREATED = "recreated"


async def sync(run: ServiceRun, *, recreate: bool) -> None:
    """Brings one deploy target to the commit. Raises StageFailedError."""
    definitions = run.definitions
    if definitions.service is None:
        await run_standalone_task(run)
        return
    before = await record_before(run)
    task_definition = await register_task(run, definitions)
    wanted = definitions.desired_count
    if definitions.controller != EXTERNAL:
        if recreate and before.exists:
            await _stop_all(run)
            wanted = wanted if wanted is not None else before.desired
        await roll_out_service(run, definitions, task_definition=task_definition, count=wanted)
        return
    service = await apply_service(run, definitions, count=None if recreate else wanted)
    if recreate and before.exists:
        await _stop_all(run)
    task_set = await roll_out_primary_set(run, definitions, service.name, task_definition)
    await delete_task_sets(run, service.name, but={task_set.arn}, reason="it is replaced")
    if recreate:
        count = wanted if wanted is not None else before.desired
        await run.client.update_service(service.name, {"desiredCount": count})
    await wait_service(run)


async def _stop_all(run: ServiceRun) -> None:
    """Stops all tasks, once in a deployment: a continued stage must not stop the new ones."""
    if await run.recall(RECREATED) is not None:
        return
    run.log.info("all tasks are stopped before the new ones start")
    await run.client.update_service(run.service_name, {"desiredCount": 0})
    await wait_stopped(run)
    await run.keep({RECREATED: "true"})


async def run_standalone_task(run: ServiceRun) -> None:
    """Registers the task definition, and runs it unless the application says not to."""
    given = run.definitions.options.input
    task_definition = await register_task(run, run.definitions)
    if not given.run_standalone_task:
        run.log.success("registered; runStandaloneTask is false, so nothing is run")
        return
    network = given.awsvpc_configuration
    parameters: dict[str, object] = {
        "taskDefinition": task_definition,
        "launchType": given.launch_type,
        "startedBy": f"pipecd-{run.ctx.deployment.id}"[:36],
        "tags": write_tags(run.make_tags(run.definitions)),
    }
    if network.subnets:
        described = {
            "subnets": list(network.subnets),
            "securityGroups": list(network.security_groups),
            "assignPublicIp": network.assign_public_ip,
        }
        parameters["networkConfiguration"] = {
            "awsvpcConfiguration": {key: value for key, value in described.items() if value}
        }
    tasks = await run.client.run_task(
        parameters, token=f"{run.ctx.deployment.id}/{run.ctx.stage.id}/{run.target.name}"
    )
    run.log.success("started %s", ", ".join(each.rpartition("/")[2] for each in tasks))
