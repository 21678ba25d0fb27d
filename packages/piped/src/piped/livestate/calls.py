# SPDX-License-Identifier: Apache-2.0
"""Live states on their way to the control plane.

They do not wait in the outbox: while the control plane is away they get old, and the next look
brings a newer one.
"""

from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot
from pipecd_wire.pipedservice.service_pb2 import ReportApplicationLiveStateRequest
from piped.controlplane.client import ControlPlane


class LiveStateCalls:
    """Tells what runs."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def tell(self, snapshot: ApplicationLiveStateSnapshot) -> None:
        """Tell it once; raises PipecdError when it was not taken."""
        request = ReportApplicationLiveStateRequest(snapshot=snapshot)
        await self._control.call(self._control.service.ReportApplicationLiveState, request)
