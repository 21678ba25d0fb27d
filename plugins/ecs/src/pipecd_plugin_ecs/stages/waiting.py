# SPDX-License-Identifier: Apache-2.0
"""Waits until tasks run: with a deadline that a continued stage keeps, and lines that tell why."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from pipecd_aws import wait_until
from pipecd_plugin_ecs.provider.model import TaskSet
from pipecd_plugin_ecs.stages.run import ServiceRun
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.text import make_printable_line

PAUSE: Final = timedelta(seconds=5)
MOST_REASONS: Final = 3
LONGEST_REASON: Final = 300

Look = Callable[[], Awaitable[tuple[bool, str]]]


async def wait_for(run: ServiceRun, what: str, look: Look) -> None:
    """Waits until `look` returns true; its text is logged when it changes.

    Raises StageFailedError after the time that the application gives, with what AWS says of it.
    """
    ctx = run.ctx
    key = f"waiting-{ctx.stage.name}-{ctx.stage.retried_count}-{run.target.name}-{what}"
    began = await ctx.metadata.get_or_set_time(key, ctx.clock.now)
    length = run.definitions.options.input.stable_timeout
    last = ""

    async def look_and_tell() -> bool:
        nonlocal last
        is_done, text = await look()
        if text != last and not is_done:
            run.log.info("%s", text)
        last = text
        return is_done

    if await wait_until(look_and_tell, clock=ctx.clock, deadline=began + length, pause=PAUSE):
        run.log.success("%s", last)
        return
    reasons = await _find_reasons(run)
    minutes = length.total_seconds() / 60
    raise StageFailedError(
        f"{last} after {minutes:g} minutes{': ' if reasons else ''}{'; '.join(reasons)}",
        hint="see the service's events and the logs of its tasks; input.stableTimeout is the limit",
    )


async def wait_task_set(run: ServiceRun, task_set: TaskSet) -> None:
    """Waits until all tasks of a task set run. Raises StageFailedError."""

    async def look() -> tuple[bool, str]:
        found = await run.client.list_task_sets(run.service_name)
        seen = next((each for each in found if each.arn == task_set.arn), None)
        if seen is None:
            return False, f"the task set {task_set.id} is not there yet"
        return seen.has_all_tasks, (
            f"the task set {seen.id} has {seen.running} of {seen.wanted} tasks running"
        )

    await wait_for(run, task_set.external_id or task_set.id, look)


async def wait_service(run: ServiceRun) -> None:
    """Waits until the service has all its tasks, and none is pending. Raises StageFailedError."""

    async def look() -> tuple[bool, str]:
        found = await run.client.find_service(run.service_name)
        if found is None:
            return False, f"the service {run.service_name} is not there yet"
        text = f"the service {found.name} has {found.running} of {found.desired} tasks running"
        return found.has_all_tasks, f"{text}, {found.pending} pending" if found.pending else text

    await wait_for(run, "service", look)


async def wait_stopped(run: ServiceRun) -> None:
    """Waits until no task of the service runs. Raises StageFailedError."""

    async def look() -> tuple[bool, str]:
        found = await run.client.find_service(run.service_name)
        left = found.running + found.pending if found else 0
        return left == 0, f"the service {run.service_name} has {left} tasks left"

    await wait_for(run, "stopped", look)


async def _find_reasons(run: ServiceRun) -> list[str]:
    """Returns why tasks do not run, as far as AWS says: why they stopped, and the last events."""
    found: dict[str, None] = {}
    try:
        for task in await run.client.list_tasks(service=run.service_name, stopped=True):
            if reason := str(task.get("stoppedReason") or ""):
                found[reason] = None
        service = await run.client.find_service(run.service_name)
        for _, message in (service.events if service else ())[:MOST_REASONS]:
            found[message] = None
    except StageFailedError as error:
        found[f"why is not known: {error}"] = None
    return [make_printable_line(each)[:LONGEST_REASON] for each in list(found)[:MOST_REASONS]]
