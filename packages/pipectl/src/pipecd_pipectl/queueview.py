# SPDX-License-Identifier: Apache-2.0
"""What a deployment in the queue waits behind, shown while somebody waits for it.

A queued deployment does not change while the one ahead of it does, so that one is looked at.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pipecd_pipectl.client import Client
from pipecd_pipectl.deploymentview import describe_ahead, find_ahead
from pipecd_pipectl.lookup import list_open_deployments
from pipecd_pipectl.progress import Progress
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import CallError

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at the deployment that is ahead."""


class QueueWatch:
    """Says what a deployment waits behind, for as long as it is in the queue."""

    def __init__(self, client: Client, progress: Progress) -> None:
        self._client = client
        self._progress = progress
        self._queued: deployment_pb2.Deployment | None = None
        self._changed = asyncio.Event()

    def note(self, deployment: deployment_pb2.Deployment) -> None:
        """Takes the deployment as it is now."""
        in_queue = deployment.status == deployment_pb2.DEPLOYMENT_PENDING
        self._queued = deployment if in_queue else None
        self._changed.set()

    async def run(self) -> None:
        """Shows what is ahead, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (queued := self._queued) is not None:
                await self._look(queued)
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, queued: deployment_pb2.Deployment) -> None:
        try:
            others = await list_open_deployments(self._client, queued.application_id)
        except CallError:
            return  # the wait itself says what is wrong with the control plane
        ahead = find_ahead(queued, others)
        if ahead is not None and self._queued is queued:
            self._progress.update(
                f"{queued.application_name} PENDING: waits behind {describe_ahead(ahead)}"
            )


@asynccontextmanager
async def watching_queue(client: Client, progress: Progress) -> AsyncIterator[QueueWatch]:
    """Yields a watch that runs while the block does."""
    watch = QueueWatch(client, progress)
    async with UnwrappedTaskGroup() as tasks:
        running = tasks.create_task(watch.run())
        try:
            yield watch
        finally:
            running.cancel()
