# SPDX-License-Identifier: Apache-2.0
"""Saves what plugins keep with a deployment only after everything that was reported of it.

A script's mark that it has been started counts for its rollback. Were the mark known and the start
of its stage not, a piped that dies in that moment would leave a script that nobody rolls back.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from piped.controlplane.client import ControlPlane, Response_co, Rpc

if TYPE_CHECKING:
    from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceAsyncStub


class OfDeployment(Protocol):
    """A request about one deployment."""

    @property
    def deployment_id(self) -> str:
        """Which one."""


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
        """The RPCs to choose from."""
        return self._control.service

    async def call_until_accepted(
        self, method: Rpc[Request, Response_co], request: Request
    ) -> Response_co:
        """Wait for the reports of the request's deployment, then call until it is accepted."""
        await self._wait_delivered(request.deployment_id)
        return await self._control.call_until_accepted(method, request)
