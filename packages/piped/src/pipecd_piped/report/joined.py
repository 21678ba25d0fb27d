# SPDX-License-Identifier: Apache-2.0
"""Joins consecutive reports on one deployment into one call, where the control plane knows that.

The end of a stage and the start of the next one are queued together: in one call they take half the
time, and the next stage's first save of metadata, which has to wait for both, goes on sooner.

A stage that is shown as finished has its last line: its end is delivered after that of its log.
"""

from collections.abc import Sequence

from google.protobuf.message import Message

from pipecd_model.errors import PipecdError
from pipecd_model.stage import is_completed
from pipecd_piped.controlplane.client import JOINED, UnknownRpcError
from pipecd_piped.report.logs import SpooledStageLogs, StageKey
from pipecd_piped.report.outbox import Deliver
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push.push_pb2 import ProgressReport, ReportProgressRequest
from pipecd_wire.pipedservice import service_pb2 as pb

log = logger(__name__)


class JoinedReports:
    """Says when a report may be delivered, and delivers several in one call."""

    def __init__(self, deliver: Deliver, logs: SpooledStageLogs) -> None:
        self._deliver = deliver
        self._logs = logs
        self._is_known = True

    def can_begin(self, request: Message) -> bool:
        """Returns whether others may be delivered together with this report, behind it."""
        return self._is_known and _to_progress(request) is not None

    def can_follow(self, first: Message, request: Message) -> bool:
        """Returns whether a report may be delivered in the call of an earlier one.

        The end of a stage may not: the end of its log may be on its way.
        """
        return (
            _to_progress(request) is not None
            and _deployment_of(first) == _deployment_of(request)
            and not _is_end(request)
        )

    async def wait_ready(self, request: Message) -> None:
        """Waits until the report may be delivered: the end of a stage after that of its log."""
        if isinstance(request, pb.ReportStageStatusChangedRequest) and _is_end(request):
            await self._logs.wait_delivered(
                StageKey(request.deployment_id, request.stage_id, request.retried_count)
            )

    async def deliver(self, requests: Sequence[Message]) -> bool:
        """Delivers all or none; returns False when each has to be delivered by itself."""
        reports = [report for each in requests if (report := _to_progress(each)) is not None]
        request = ReportProgressRequest(deployment_id=_deployment_of(requests[0]), reports=reports)
        try:
            await self._deliver(JOINED, request)
        except UnknownRpcError:
            self._is_known = False  # an older control plane, or another one
            return False
        except PipecdError as refused:
            log.info("report.not_joined", reports=len(reports), reason=str(refused))
            return False
        return True


def _to_progress(request: Message) -> ProgressReport | None:
    match request:
        case pb.ReportStageStatusChangedRequest():
            return ProgressReport(stage_status=request)
        case pb.ReportDeploymentStatusChangedRequest():
            return ProgressReport(deployment_status=request)
    return None


def _deployment_of(request: Message) -> str:
    return str(getattr(request, "deployment_id", ""))


def _is_end(request: Message) -> bool:
    return isinstance(request, pb.ReportStageStatusChangedRequest) and is_completed(request.status)
