# SPDX-License-Identifier: Apache-2.0
"""Waits for a deployment, with its stream of changes rather than polling."""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from pipecd_model.deployment import COMPLETED
from pipecd_model.errors import PipecdError, TimedOutError
from pipecd_pipectl.client import Client
from pipecd_pipectl.lookup import list_recent_deployments
from pipecd_pipectl.output import echo
from pipecd_pipectl.progress import Progress
from pipecd_pipectl.queueview import watching_queue
from pipecd_pipectl.statuses import PREFIX, describe_running, status_name
from pipecd_pipectl.times import format_duration
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, Retry, call, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The status that a deployment had when the wait ended."""

    status: int
    reason: str
    wanted: bool

    @property
    def name(self) -> str:
        return status_name(self.status)


def status_numbers(names: Collection[str]) -> frozenset[int]:
    return frozenset(deployment_pb2.DeploymentStatus.Value(PREFIX + name) for name in names)


async def wait_for_status(
    client: Client,
    deployment_id: str,
    wanted: Collection[int],
    limit: timedelta,
    progress: Progress,
) -> Reached:
    """Waits until a deployment has one of the statuses, or is completed with another.

    Shows meanwhile which stage runs. Raises TimedOutError after the limit.
    """
    last = deployment_pb2.Deployment()

    def is_over() -> bool:
        return last.status in wanted or last.status in COMPLETED

    def on_lost(lost: CallError) -> None:
        progress.update(f"the control plane cannot be reached, trying again: {lost}")

    try:
        async with (
            asyncio.timeout(limit.total_seconds()),
            watching_queue(client, progress) as queue,
        ):

            def on_change(deployment: deployment_pb2.Deployment) -> bool:
                last.CopyFrom(deployment)
                if not is_over():
                    progress.update(describe_progress(last))
                    queue.note(last)
                return is_over()

            await follow_deployment(client, deployment_id, on_change, on_lost)
    except TimeoutError:
        passed = format_duration(limit.total_seconds())
        doing = describe_running(last)
        raise TimedOutError(
            f"still {status_name(last.status)} after {passed}" + (f": {doing}" if doing else ""),
            hint=f"`pipectl why {deployment_id[:8]}` says what it waits for",
        ) from None
    return Reached(status=last.status, reason=last.status_reason, wanted=last.status in wanted)


async def wait_deployed(
    client: Client,
    deployment_id: str,
    statuses: Collection[str],
    limit: timedelta,
    progress: Progress,
) -> None:
    """Waits for a deployment that a command has started; raises PipecdError unless it succeeds.

    With `statuses`, until it has one of them.
    """
    wanted = status_numbers(statuses) or COMPLETED
    reached = await wait_for_status(client, deployment_id, wanted, limit, progress)
    failed = not statuses and reached.status != deployment_pb2.DEPLOYMENT_SUCCESS
    reason = f": {reached.reason}" if reached.reason else ""
    if failed or not reached.wanted:
        raise PipecdError(f"the deployment ended as {reached.name}{reason}")
    progress.clear()
    echo(f"{reached.name}{reason}", err=True)


async def wait_command(client: Client, command_id: str, limit: timedelta, what: str) -> None:
    """Waits until a piped has taken one of our own commands; raises PipecdError if it refuses."""
    request = api_pb2.GetCommandOutcomeRequest(command_id=command_id)
    try:
        async with asyncio.timeout(limit.total_seconds()):
            pause = 0.05
            while True:
                outcome = await call(client.applications.GetCommandOutcome, request)
                if outcome.handled:
                    break
                await asyncio.sleep(pause)  # a command has no stream of its own
                pause = min(1.0, pause * 1.5)
    except TimeoutError:
        passed = format_duration(limit.total_seconds())
        raise TimedOutError(
            f"the piped has not taken the command within {passed}; it will when it is back",
            hint="is it running? see `pipectl piped list`",
        ) from None
    if not outcome.succeeded:
        raise PipecdError(f"the piped refused {what}: {outcome.reason or 'it did not say why'}")


def describe_progress(deployment: deployment_pb2.Deployment) -> str:
    """Returns what a deployment that is not completed does, for people who wait for it."""
    doing = describe_running(deployment)
    status = f"{deployment.application_name} {status_name(deployment.status)}"
    return f"{status}: {doing}" if doing else status


async def follow_deployment(
    client: Client,
    deployment_id: str,
    on_change: Callable[[deployment_pb2.Deployment], bool],
    on_lost: Callable[[CallError], None] | None = None,
) -> None:
    """Calls `on_change` with the deployment now and at each change, until it returns True.

    Retries with backoff when the stream breaks. Raises CallError when retries do not help.
    """
    request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
    retry = Retry(attempts=None, cap_seconds=2)
    attempt = 0
    while True:
        try:
            async with aclosing(stream(client.deployments.WatchDeployment, request)) as changes:
                async for change in changes:
                    attempt = 0
                    if on_change(change.deployment):
                        return
        except CallError as lost:
            # Retried while a control plane restarts; an error when it does not come back.
            attempt += 1
            if attempt > 20 or not retry.again(lost, attempt):
                raise
            if on_lost is not None:
                on_lost(lost)
        await asyncio.sleep(retry.pause(attempt))


async def wait_for_commit(
    client: Client,
    application: application_pb2.Application,
    commit: str,
    limit: timedelta,
    progress: Progress,
) -> tuple[deployment_pb2.Deployment, timedelta]:
    """Waits until an application has a deployment of a commit, given by the start of its hash.

    Returns the newest such deployment, and what is left of the limit. Raises TimedOutError.
    """
    began = time.monotonic()
    pause = 0.1
    progress.update(f"{application.name}: no deployment of {commit[:7]} yet")
    while True:
        for each in await list_recent_deployments(client, application.id):
            if each.trigger.commit.hash.startswith(commit.lower()):
                return each, limit - timedelta(seconds=time.monotonic() - began)
        if time.monotonic() - began + pause > limit.total_seconds():
            passed = format_duration(limit.total_seconds())
            raise TimedOutError(
                f"{application.name!r} has no deployment of the commit {commit} after {passed}",
                hint=f"is it pushed? `pipectl why {application.name}` says what is waited for",
            )
        await asyncio.sleep(pause)  # an application has no stream of its deployments
        pause = min(1.0, pause * 1.5)
