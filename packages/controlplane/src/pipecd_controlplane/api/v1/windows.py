# SPDX-License-Identifier: Apache-2.0
"""Calls on windows, the emergency stop and overrides."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import rules
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_wire.pipecd.api import windows_pb2 as pb
from pipecd_wire.rpc import rpc


class V1WindowsApi:
    """When deployments may begin."""

    def __init__(self, stores: Stores, presence: Presence, now: Now) -> None:
        self._stores = stores
        self._presence = presence
        self._now = now

    @rpc("GetRules")
    async def get_rules(self, caller: User, request: pb.GetRulesRequest) -> pb.GetRulesResponse:
        found = await rules.get_rules(self._stores, caller.project_id)
        return pb.GetRulesResponse(rules=found)

    @rpc("SetWindow")
    async def set_window(self, caller: User, request: pb.SetWindowRequest) -> pb.SetWindowResponse:
        kept = await rules.set_window(self._stores, caller, request.window, self._now)
        return pb.SetWindowResponse(window=kept)

    @rpc("DeleteWindow")
    async def delete_window(
        self, caller: User, request: pb.DeleteWindowRequest
    ) -> pb.DeleteWindowResponse:
        await rules.delete_window(self._stores, caller, request.name)
        return pb.DeleteWindowResponse()

    @rpc("PreviewWindows")
    async def preview_windows(
        self, caller: User, request: pb.PreviewWindowsRequest
    ) -> pb.PreviewWindowsResponse:
        spans = await rules.preview(self._stores, caller, request, self._now)
        return pb.PreviewWindowsResponse(
            spans=[
                pb.Span(
                    start=Timestamp(seconds=int(span.start.timestamp())),
                    end=Timestamp(seconds=int(span.end.timestamp())),
                    reason=span.reason,
                )
                for span in spans
            ]
        )

    @rpc("StopDeployments")
    async def stop_deployments(
        self, caller: User, request: pb.StopDeploymentsRequest
    ) -> pb.StopDeploymentsResponse:
        stop = await rules.stop_deployments(self._stores, caller, request.reason, self._now)
        return pb.StopDeploymentsResponse(emergency_stop=stop)

    @rpc("ResumeDeployments")
    async def resume_deployments(
        self, caller: User, request: pb.ResumeDeploymentsRequest
    ) -> pb.ResumeDeploymentsResponse:
        await rules.resume_deployments(self._stores, caller)
        return pb.ResumeDeploymentsResponse()

    @rpc("OverrideRules")
    async def override_rules(
        self, caller: User, request: pb.OverrideRulesRequest
    ) -> pb.OverrideRulesResponse:
        record = await rules.override(self._stores, self._presence, caller, request, self._now)
        return pb.OverrideRulesResponse(record=record)
