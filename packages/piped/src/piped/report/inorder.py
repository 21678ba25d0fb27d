# SPDX-License-Identifier: Apache-2.0
"""The control plane for what plugins keep: told only after all that was said of the deployment.

A script's mark that it has been started counts for its rollback. Were the mark known and the start
of its stage not, a piped that dies in that moment would leave a script that nobody rolls back.
"""

from collections.abc import Awaitable, Callable

from piped.controlplane.client import ControlPlane, Request_contra, Response_co, Rpc


class InOrder(ControlPlane):
    """The same control plane, in the order of the outbox."""

    def __init__(self, control: ControlPlane, heard: Callable[[str], Awaitable[None]]) -> None:
        """`heard` waits until what was told of a deployment is known."""
        self.service = control.service
        self.push = control.push
        self._heard = heard

    async def tell(
        self, method: Rpc[Request_contra, Response_co], request: Request_contra
    ) -> Response_co:
        """Call until it is taken, after everything that was told of its deployment."""
        await self._heard(getattr(request, "deployment_id", ""))
        return await super().tell(method, request)
