# SPDX-License-Identifier: Apache-2.0
"""Reports on one deployment go in one call where they may, and always in their order."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pipecd_model.errors import PipecdError, StateError, UnauthenticatedError
from pipecd_piped.controlplane.client import JOINED, ControlPlane, UnknownRpcError
from pipecd_piped.controlplane.epoch import current_lease_epoch
from pipecd_piped.report.joined import JoinedReports
from pipecd_piped.report.journal import Journal
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.push.push_pb2 import ReportProgressRequest
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import connect

LIMIT = 20
RUNNING, SUCCESS = deployment_pb2.STAGE_RUNNING, deployment_pb2.STAGE_SUCCESS

Call = list[str]


class Receiver:
    """A control plane: notes its calls, each with the stages that it reports on."""

    def __init__(self, *refusals: PipecdError) -> None:
        self.calls: list[Call] = []
        self.epochs: list[int | None] = []
        self._refusals = list(refusals)

    async def __call__(self, method: str, request: Message) -> None:
        if self._refusals:
            raise self._refusals.pop(0)
        self.epochs.append(current_lease_epoch())
        self.calls.append(list(_names(method, request)))


def _names(method: str, request: Message) -> Iterator[str]:
    match request:
        case ReportProgressRequest():
            assert method == JOINED
            for each in request.reports:
                yield from _names("", each.stage_status)
        case pb.ReportStageStatusChangedRequest():
            verb = "ends" if request.status == SUCCESS else "begins"
            yield f"{request.stage_id} {verb}"
        case _:
            yield method


def stage(
    name: str, status: deployment_pb2.StageStatus.ValueType, deployment_id: str = "d1"
) -> pb.ReportStageStatusChangedRequest:
    return pb.ReportStageStatusChangedRequest(
        deployment_id=deployment_id, stage_id=name, status=status, completed_at=1
    )


async def deliver(
    folder: Path,
    receiver: Receiver,
    reports: Iterable[Message],
    *,
    epochs: Sequence[int] = (),
    retry_seconds: float = 0.01,
) -> None:
    """Queue all reports at once, each under the next epoch, and wait until all are delivered."""
    left = list(epochs)
    async with connect("unix:nowhere") as channel:
        outbox = Outbox(
            receiver,
            Journal(folder),
            lambda: left.pop(0) if left else 0,
            joined=JoinedReports(receiver, SpooledStageLogs(ControlPlane(channel))),
            retry_seconds=retry_seconds,
        )
        async with asyncio.timeout(LIMIT), outbox.open():
            for each in reports:
                outbox.put("a", each.DESCRIPTOR.name.removesuffix("Request"), each)
            await outbox.wait_delivered("a")
    assert Journal(folder).open() == [], "what is delivered is not delivered again"


async def test_the_end_of_a_stage_and_the_start_of_the_next_go_in_one_call(tmp_path: Path) -> None:
    receiver = Receiver()

    await deliver(tmp_path, receiver, [stage("s1", SUCCESS), stage("s2", RUNNING)])

    assert receiver.calls == [["s1 ends", "s2 begins"]]


@pytest.mark.parametrize(
    ("reports", "epochs", "calls"),
    [
        pytest.param(
            [stage("s1", SUCCESS), stage("s2", RUNNING), stage("s2", SUCCESS)],
            (),
            [["s1 ends", "s2 begins"], ["s2 ends"]],
            id="an end waits for its log, so it begins a call",
        ),
        pytest.param(
            [stage("s1", SUCCESS), stage("t1", RUNNING, "d2")],
            (),
            [["s1 ends"], ["t1 begins"]],
            id="of two deployments",
        ),
        pytest.param(
            [stage("s1", SUCCESS), stage("s2", RUNNING)],
            (1, 2),
            [["s1 ends"], ["s2 begins"]],
            id="of two leases",
        ),
        pytest.param(
            [stage("s1", SUCCESS), pb.ReportDeploymentCompletedRequest(deployment_id="d1")],
            (),
            [["s1 ends"], ["ReportDeploymentCompleted"]],
            id="of another kind",
        ),
    ],
)
async def test_other_reports_go_by_themselves_and_in_their_order(
    tmp_path: Path, reports: list[Message], epochs: Sequence[int], calls: list[Call]
) -> None:
    receiver = Receiver()

    await deliver(tmp_path, receiver, reports, epochs=epochs)

    assert receiver.calls == calls
    if epochs:
        assert receiver.epochs == list(epochs)


async def test_a_control_plane_that_knows_no_joined_reports_is_asked_once(tmp_path: Path) -> None:
    receiver = Receiver(UnknownRpcError("no such call"))
    reports = [stage("s1", SUCCESS), stage("s2", RUNNING)] * 2

    await deliver(tmp_path, receiver, reports)

    assert receiver.calls == [["s1 ends"], ["s2 begins"]] * 2


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param([StateError("no")], id="refused"),
        pytest.param([UnauthenticatedError("who?")] * 2, id="key refused"),
    ],
)
async def test_of_refused_reports_each_is_tried_by_itself(
    tmp_path: Path, refusals: list[PipecdError]
) -> None:
    receiver = Receiver(*refusals)

    await deliver(tmp_path, receiver, [stage("s1", SUCCESS), stage("s2", RUNNING)])

    assert [each for call in receiver.calls for each in call] == ["s1 ends", "s2 begins"]
