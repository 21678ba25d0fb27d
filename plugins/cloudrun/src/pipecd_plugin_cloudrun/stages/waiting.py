# SPDX-License-Identifier: Apache-2.0
"""Waits until what was deployed is ready, for a limited time, with lines about what is missing.

The time counts from the first look, also when a later process goes on. A cancelled stage ends at
the next pause.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from pipecd_google.errors import clean_message
from pipecd_plugin_cloudrun.readiness import Judgement, ReadyVerdict, judge_revision, judge_settled
from pipecd_plugin_cloudrun.stages.run import TargetWork
from pipecd_sdk import StageFailedError

PAUSE: Final = timedelta(seconds=3)
REMIND: Final = timedelta(seconds=30)

Body = dict[str, Any]
Look = Callable[[], Awaitable[Judgement]]


async def wait_service(
    run: TargetWork, service: str, revisions: dict[str, bool], operation: Body | None
) -> None:
    """Waits until a service and these revisions are ready.

    The truth value says whether a revision is used. Raises StageFailedError.
    """

    async def look() -> Judgement:
        for name, is_used in revisions.items():
            found = await run.cloud.get_revision(service, name)
            judged = judge_revision(found, is_used=is_used)
            if judged.verdict is not ReadyVerdict.READY:
                return Judgement(verdict=judged.verdict, reason=f"revision {name}: {judged.reason}")
        judged = judge_settled(await run.cloud.get_service(service))
        return Judgement(verdict=judged.verdict, reason=f"service {service}: {judged.reason}")

    what = f"revision {', '.join(revisions)}" if revisions else f"service {service}"
    await _wait(run, what, look, operation)


async def wait_job(run: TargetWork, job: str, operation: Body | None) -> None:
    """Waits until a job is what was asked for. Raises StageFailedError."""

    async def look() -> Judgement:
        return judge_settled(await run.cloud.get_job(job))

    await _wait(run, f"job {job}", look, operation)


async def _wait(run: TargetWork, what: str, look: Look, operation: Body | None) -> None:
    clock, limit = run.ctx.clock, run.options.readiness.timeout
    attempt = run.ctx.stage.retried_count
    key = f"wait-start-{run.target.name}" + (f"-{attempt}" if attempt else "")
    begun = await run.ctx.metadata.get_or_set_time(key, clock.now)
    told, told_at = "", clock.now()
    while True:
        operation = await _follow(run, operation)
        judged = await look()
        if judged.verdict is ReadyVerdict.READY:
            run.log.success("%s is ready", what.capitalize())
            return
        if judged.verdict is ReadyVerdict.FAILED:
            raise StageFailedError(f"{what} failed: {judged.reason}")
        now = clock.now()
        if now - begun >= limit:
            raise StageFailedError(
                f"{what} is not ready after {int(limit.total_seconds())} seconds: {judged.reason}",
                hint="readiness.timeout of the application's options is the limit",
            )
        if judged.reason != told or now - told_at >= REMIND:
            seconds = int((now - begun).total_seconds())
            run.log.info("Waiting for %s (%d s): %s", what, seconds, judged.reason)
            told, told_at = judged.reason, now
        await clock.sleep(min(PAUSE, limit - (now - begun)))


async def _follow(run: TargetWork, operation: Body | None) -> Body | None:
    """Returns the operation while it runs, None when it has ended. Raises StageFailedError."""
    if operation is None:
        return None
    found: Body | None = operation
    if not operation.get("done"):
        name = operation.get("name")
        found = await run.cloud.get_operation(name) if isinstance(name, str) and name else None
    if found is None or not found.get("done"):
        return found
    error = found.get("error")
    if isinstance(error, dict):
        said = clean_message(str(error.get("message") or error.get("code") or "no reason given"))
        raise StageFailedError(f"Cloud Run refused the change: {said}")
    return None
