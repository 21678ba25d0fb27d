# SPDX-License-Identifier: Apache-2.0
"""Waits for a deployment, with its stream of changes rather than polling."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pipecd_model.deployment import COMPLETED
from pipecd_model.errors import TimedOutError
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, Retry, stream
from pipectl.client import Client

PREFIX: Final = "DEPLOYMENT_"

STATUSES: Final = [
    name.removeprefix(PREFIX)
    for name in deployment_pb2.DeploymentStatus.keys()  # noqa: SIM118 - an enum, not a dict
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The status that a deployment had when the wait ended."""

    status: int
    reason: str
    wanted: bool

    @property
    def name(self) -> str:
        return status_name(self.status)


def status_name(status: int) -> str:
    return deployment_pb2.DeploymentStatus.Name(
        deployment_pb2.DeploymentStatus.ValueType(status)
    ).removeprefix(PREFIX)


def status_numbers(names: Collection[str]) -> frozenset[int]:
    return frozenset(deployment_pb2.DeploymentStatus.Value(PREFIX + name) for name in names)


async def wait_for_status(
    client: Client, deployment_id: str, wanted: Collection[int], limit: timedelta
) -> Reached:
    """Waits until a deployment has one of the statuses, or is completed with another.

    Raises TimedOutError after the limit.
    """
    reached = Reached(status=0, reason="", wanted=False)

    def on_change(deployment: deployment_pb2.Deployment) -> bool:
        nonlocal reached
        reached = Reached(
            status=deployment.status,
            reason=deployment.status_reason,
            wanted=deployment.status in wanted,
        )
        return reached.wanted or deployment.status in COMPLETED

    try:
        async with asyncio.timeout(limit.total_seconds()):
            await follow_deployment(client, deployment_id, on_change)
    except TimeoutError:
        raise TimedOutError(f"still {reached.name} after {limit}") from None
    return reached


async def follow_deployment(
    client: Client, deployment_id: str, on_change: Callable[[deployment_pb2.Deployment], bool]
) -> None:
    """Calls `on_change` with the deployment now and at each change, until it returns True.

    Retries with backoff when the stream breaks. Raises CallError when retries do not help.
    """
    request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
    retry = Retry(attempts=None, cap=2)
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
        await asyncio.sleep(retry.pause(attempt))
