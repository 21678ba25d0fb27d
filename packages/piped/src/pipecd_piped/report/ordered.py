# SPDX-License-Identifier: Apache-2.0
"""Saves metadata of a deployment only after all queued reports of that deployment.

A rollback depends on a script's mark that it has been started. If the mark were stored before the
start of its stage was reported, and piped died in between, the script would never be rolled back.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from pipecd_piped.controlplane.client import ControlPlane, Response_co, Rpc

if TYPE_CHECKING:
    from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceAsyncStub


class OfDeployment(Protocol):
    """A request about one deployment."""

    @property
    def deployment_id(self) -> str:
        """The id of the deployment that the request is about."""


Request = TypeVar("Request", bound=OfDeployment)


class OrderedClient:
    """Calls the control plane in the order of the outbox."""

    def __init__(
        self, control: ControlPlane, wait_delivered: Callable[[str], Awaitable[None]]
    ) -> None:
        """`wait_delivered` returns when all reports of a deployment so far are delivered."""
        self._control = control
        self._wait_delivered = wait_delivered

    @property
    def service(self) -> "PipedServiceAsyncStub":
        """The RPCs of the control plane."""
        return self._control.service

    async def call_until_accepted(
        self, method: Rpc[Request, Response_co], request: Request
    ) -> Response_co:
        """Wait until the deployment's reports are delivered, then retry the call until accepted."""
        await self._wait_delivered(request.deployment_id)
        return await self._control.call_until_accepted(method, request)
