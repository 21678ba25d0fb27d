# SPDX-License-Identifier: Apache-2.0
"""Calls to the control plane: the piped's token, deadlines, retries, and errors of the model.

The one place of piped that talks to the control plane; callers pick between `call` (the response is
needed now) and `call_until_accepted` (the request must arrive, however long that takes).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from google.protobuf.message import Message

from pipecd_model import errors
from pipecd_piped.controlplane.contact import Contact
from pipecd_wire.headers import AUTHORIZATION, format_piped_token
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push.push_pb2 import WatchRequest, WatchResponse
from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceStub
from pipecd_wire.pipedservice.service_pb2 import (
    GetDeploymentRequest,
    InChainDeploymentPlannableRequest,
    InChainDeploymentPlannableResponse,
    ReportApplicationLiveStateRequest,
)
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import CallError, Channel, ClientTls, Retry, connect, stream
from pipecd_wire.rpc import call as call_rpc

if TYPE_CHECKING:
    from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceAsyncStub
    from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceAsyncStub

Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)


class Rpc(Protocol[Request_contra, Response_co]):
    """One RPC of a stub."""

    def __call__(
        self, request: Request_contra, *, timeout: float | None = None
    ) -> Awaitable[Response_co]:
        """Call the RPC and return its response; `timeout` is in seconds."""


OWN_COMMAND_HANDLED: Final = "pipecd.push.v1/ReportCommandHandled"
"""The name in the outbox of the report on one of our own commands: upstream has one named alike."""

JOINED: Final = "pipecd.push.v1/ReportProgress"
"""The name of the call that delivers several reports; the journal has each by its own name."""

QUESTION: Final = Retry(attempts=4, base_seconds=0.2, cap_seconds=5)
"""For calls whose response is needed now: give up after a few attempts."""

REPORT: Final = Retry(
    attempts=None,
    base_seconds=0.2,
    cap_seconds=1,
    also=frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"}),
)
"""For reports, which must arrive: retry until accepted, also after internal errors."""

KNOWN_SECONDS: Final = 2.0
"""How long a refused call waits to learn who has the lease."""

_ERRORS: Final[dict[str, type[errors.PipecdError]]] = {
    "INVALID_ARGUMENT": errors.ConfigError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.ConflictError,
    "UNAUTHENTICATED": errors.UnauthenticatedError,
    "PERMISSION_DENIED": errors.DeniedError,
    "FAILED_PRECONDITION": errors.StateError,
}


class KnownEpoch(Protocol):
    """The lease, as far as a refused call needs it."""

    def epoch_now(self) -> int:
        """Returns the epoch that a call is sent with now."""

    async def wait_known(self) -> None:
        """Wait until the control plane has told who has the lease."""


class UnknownRpcError(errors.PipecdError):
    """The control plane does not serve this RPC: it is an older or another one."""

    status = "UNIMPLEMENTED"


class ControlPlane:
    """The control plane as piped calls it.

    `await control.call(control.service.GetDeployment, request)`; the errors are those of
    `pipecd_model.errors`, so that callers need to know nothing of gRPC.
    """

    def __init__(
        self,
        channel: Channel,
        contact: Contact | None = None,
        lease: KnownEpoch | None = None,
    ) -> None:
        """`contact` is told how every call fares. `lease`: whose epoch the calls carry."""
        self._channel = channel
        self._lease = lease
        self._contact = contact or Contact("the control plane", tls=False)
        self.service: PipedServiceAsyncStub = PipedServiceStub(channel)
        self.push: PushServiceAsyncStub = PushServiceStub(channel)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now. Calls connect, and reconnect when it is lost."""
        return bool(self._channel.get_state().name == "READY") and not self.trouble

    @property
    def trouble(self) -> str:
        """Why the control plane cannot be reached, as a sentence; empty when it can."""
        return self._contact.trouble

    async def call(
        self,
        method: Rpc[Request_contra, Response_co],
        request: Request_contra,
        *,
        deadline: float = 15,
    ) -> Response_co:
        """Call and return the response; retries a few times while the control plane is away."""
        return await self._call(method, request, deadline, QUESTION)

    async def call_until_accepted(
        self, method: Rpc[Request_contra, Response_co], request: Request_contra
    ) -> Response_co:
        """Retry with backoff until it is accepted; raises only when it is refused for good."""
        return await self._call(method, request, 15, REPORT)

    async def _call(
        self,
        method: Rpc[Request_contra, Response_co],
        request: Request_contra,
        deadline: float,
        retry: Retry,
    ) -> Response_co:
        callable_: Any = method
        while True:
            epoch = self._lease.epoch_now() if self._lease is not None else 0
            try:
                response: Response_co = await call_rpc(
                    callable_,
                    request,
                    deadline=deadline,
                    retry=retry,
                    on_failed=self._contact.on_failed,
                )
            except CallError as error:
                if error.status == "FAILED_PRECONDITION" and await self._was_early(epoch, retry):
                    continue
                raise own_error(error) from None
            self._contact.on_answered()
            return response

    async def _was_early(self, epoch: int, retry: Retry) -> bool:
        """Returns whether a call with this epoch was refused while a newer one was on the way.

        The control plane may have given the lease to this very instance, which does not know that
        yet and still sends the epoch of the piped before it: such a refusal is not for good.
        Raises UnavailableError when that is not known in time, and the call is not to wait.
        """
        if self._lease is None or not epoch:
            return False
        try:
            async with asyncio.timeout(KNOWN_SECONDS):
                await self._lease.wait_known()
        except TimeoutError:
            if retry.attempts is None:
                return True
            raise errors.UnavailableError("it is not known yet who has the lease") from None
        return self._lease.epoch_now() != epoch

    async def deliver_named(self, method: str, request: Message) -> None:
        """Call an RPC by its name until it is accepted: how the outbox delivers.

        Raises UnknownRpcError for a name that is not in `deliverable_rpcs`.
        """
        rpc = deliverable_rpcs(self.service, self.push).get(method)
        if rpc is None:
            raise UnknownRpcError(f"no report is delivered by {method}")
        await self.call_until_accepted(rpc, request)

    async def read_deployment(self, deployment_id: str) -> Deployment:
        """Returns a deployment as the control plane has it now; raises PipecdError."""
        request = GetDeploymentRequest(id=deployment_id)
        return (await self.call(self.service.GetDeployment, request)).deployment

    async def ask_plannable(
        self, request: InChainDeploymentPlannableRequest
    ) -> InChainDeploymentPlannableResponse:
        """Returns whether a deployment of a chain may be planned now; raises PipecdError."""
        return await self.call(self.service.InChainDeploymentPlannable, request)

    async def report_live_state(self, snapshot: ApplicationLiveStateSnapshot) -> None:
        """Report a live state once; raises PipecdError when it was not accepted.

        It is not queued in the outbox: while the control plane is away a live state gets old, and
        the next read brings a newer one.
        """
        request = ReportApplicationLiveStateRequest(snapshot=snapshot)
        await self.call(self.service.ReportApplicationLiveState, request)

    async def watch(self, request: WatchRequest) -> AsyncGenerator[WatchResponse, None]:
        """Yields the messages of the push stream until it ends; raises PipecdError."""
        try:
            async with aclosing(stream(self.push.Watch, request)) as messages:
                async for message in messages:
                    self._contact.on_answered()
                    yield message
        except CallError as error:
            self._contact.on_failed(error)
            raise own_error(error) from None


def deliverable_rpcs(
    service: "PipedServiceAsyncStub", push: "PushServiceAsyncStub"
) -> dict[str, Rpc[Any, object]]:
    """Returns the RPCs that the outbox delivers, by the names that its journal has on disk."""
    return {
        "RegisterEvent": push.RegisterEvent,
        "ReportApplicationDeployingStatus": service.ReportApplicationDeployingStatus,
        "ReportApplicationMostRecentDeployment": service.ReportApplicationMostRecentDeployment,
        "ReportApplicationSyncState": service.ReportApplicationSyncState,
        "ReportCommandHandled": service.ReportCommandHandled,
        OWN_COMMAND_HANDLED: push.ReportCommandHandled,
        JOINED: push.ReportProgress,
        "ReportDeploymentCompleted": service.ReportDeploymentCompleted,
        "ReportDeploymentPlanned": service.ReportDeploymentPlanned,
        "ReportDeploymentStatusChanged": service.ReportDeploymentStatusChanged,
        "ReportStageStatusChanged": service.ReportStageStatusChanged,
        "ReportUnregisteredApplicationConfigurations": (
            service.ReportUnregisteredApplicationConfigurations
        ),
        "SaveDeploymentPluginMetadata": service.SaveDeploymentPluginMetadata,
        "SaveDeploymentSharedMetadata": service.SaveDeploymentSharedMetadata,
        "SaveStageMetadata": service.SaveStageMetadata,
        "UpdateApplicationConfigurations": service.UpdateApplicationConfigurations,
    }


def own_error(error: CallError) -> errors.PipecdError:
    """Returns the error of the model for a failed call."""
    if error.status == "UNIMPLEMENTED":
        return UnknownRpcError(f"the control plane does not know {error.method}")
    kind = _ERRORS.get(error.status, errors.UnavailableError)
    message = error.message or error.status
    if kind is errors.UnavailableError:
        message = f"the control plane does not answer: {message}"
    return kind(message, method=error.method)


@asynccontextmanager
async def connected(
    address: str,
    *,
    project_id: str,
    piped_id: str,
    key: str,
    tls: ClientTls | None,
    also: Callable[[], list[tuple[str, str]]] = list,
    lease: KnownEpoch | None = None,
) -> AsyncIterator[ControlPlane]:
    """Yields a client of the control plane while the block runs; the first call connects.

    `also` is called before each call, and returns more metadata for it: `lease` is the one whose
    epoch is in it.
    """
    token = format_piped_token(project_id, piped_id, key.strip())

    def metadata() -> list[tuple[str, str]]:
        return [(AUTHORIZATION, token), *also()]

    async with connect(address, tls=tls, metadata=metadata) as channel:
        yield ControlPlane(channel, Contact(address, tls=tls is not None), lease)
