# SPDX-License-Identifier: Apache-2.0
"""An agent that has nothing to do, with the calls that a piped makes then.

It watches, renews its lease at a third of the lease's time, and reports its metrics each minute.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pipecd_piped.health import PipedHealth
from pipecd_piped.metrics import Numbers, PipedMetrics
from pipecd_piped.report.agent import STAT_INTERVAL_SECONDS
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceStub
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import call, stream

MINUTE = 60.0
"""As long as idle agents are looked at: each renews three times in it and reports once."""

DEADLINE_SECONDS = 60.0


async def live(
    channel: Any, piped_id: str, phase: float, note_snapshot: Callable[[], None]
) -> None:
    """Runs until cancelled. `phase`: when of its intervals it calls, from 0 to 1.

    Agents that come one after the other do not call at the same moment.
    """
    request = push.WatchRequest(instance_id=piped_id, data_folder_id=piped_id)
    async with asyncio.TaskGroup() as tasks:
        async for message in stream(PushServiceStub(channel).Watch, request):
            if message.HasField("snapshot"):
                tasks.create_task(_renew(channel, piped_id, message.snapshot.lease, phase))
                tasks.create_task(_report_stat(channel, piped_id, phase))
                note_snapshot()


async def _renew(channel: Any, piped_id: str, lease: push.Lease, phase: float) -> None:
    stub = PushServiceStub(channel)
    pause = lease.time.ToTimedelta().total_seconds() / 3
    await asyncio.sleep(pause * phase)
    while True:
        request = push.RenewLeaseRequest(instance_id=piped_id, epoch=lease.epoch)
        await call(stub.RenewLease, request, deadline=DEADLINE_SECONDS)
        await asyncio.sleep(pause)


async def _report_stat(channel: Any, piped_id: str, phase: float) -> None:
    stub = PipedServiceStub(channel)
    # It tells about this process; it is made once, so that what is measured is the server's work.
    request = pb.ReportStatRequest(piped_stats=_make_metrics(piped_id).text().encode())
    await asyncio.sleep(STAT_INTERVAL_SECONDS * phase)
    while True:
        await call(stub.ReportStat, request, deadline=DEADLINE_SECONDS)
        await asyncio.sleep(STAT_INTERVAL_SECONDS)


def _make_metrics(piped_id: str) -> PipedMetrics:
    return PipedMetrics(
        health=PipedHealth(
            plugins={},
            repositories=dict,
            connected=lambda: True,
            trouble=str,
            fault=str,
            holds_lease=lambda: True,
        ),
        numbers=Numbers(running=int, waiting=int, reports=int, deployments=list),
        labels={"pipecd_component": "piped", "piped": piped_id, "piped_version": "bench"},
    )
