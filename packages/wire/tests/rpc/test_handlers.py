# SPDX-License-Identifier: Apache-2.0
"""A server does not start with an RPC that has no handler, two, a wrong one, or no right."""

from collections.abc import AsyncIterator

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from pipecd_wire.model import project_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import (
    HandlerTypeError,
    NoHandlerError,
    NoRightError,
    TwoHandlersError,
    rpc,
)
from pipecd_wire.rpc.handlers import describe, gather

APPLICATIONS = pb.DESCRIPTOR.services_by_name["ApplicationService"]
OTHERS = sorted(set(APPLICATIONS.methods_by_name) - {"ReleaseHold", "SetFreeze"})
PROJECTS = pb.DESCRIPTOR.services_by_name["ProjectService"]


class Hold:
    @rpc("ReleaseHold")
    async def release_hold(
        self, caller: object, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        return pb.ReleaseHoldResponse()


class Freeze:
    @rpc("SetFreeze")
    async def set_freeze(
        self, caller: object, request: pb.SetFreezeRequest
    ) -> pb.SetFreezeResponse:
        return pb.SetFreezeResponse()


def service_without_rights(
    *callers: "rights_pb2.Caller.ValueType",
    without_lease: bool = False,
    checks_labels: bool = False,
    own_right: "rights_pb2.OwnRight.ValueType" = rights_pb2.OWN_RIGHT_UNSPECIFIED,
) -> ServiceDescriptor:
    """A service with one RPC that says nothing about who may call it."""
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="s", syntax="proto3")
    file.message_type.add(name="Empty")
    service = file.service.add(name="Service")
    service.options.Extensions[rights_pb2.callers].extend(callers)
    method = service.method.add(name="Do", input_type=".s.Empty", output_type=".s.Empty")
    method.options.Extensions[rights_pb2.without_lease] = without_lease
    method.options.Extensions[rights_pb2.checks_labels] = checks_labels
    method.options.Extensions[rights_pb2.own_right] = own_right
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("s.Service")


def test_a_service_is_served_by_several_small_objects() -> None:
    found = gather(APPLICATIONS, [Hold(), Freeze()], OTHERS)

    served = [method.name for method, handler in found if handler is not None]
    assert served == ["ReleaseHold", "SetFreeze"]


def test_an_rpc_without_a_handler_is_refused_and_named() -> None:
    with pytest.raises(NoHandlerError, match=r"ApplicationService has no handler for SetFreeze"):
        gather(APPLICATIONS, [Hold()], OTHERS)


def test_an_unimplemented_rpc_may_be_without_a_handler() -> None:
    found = gather(APPLICATIONS, [Hold()], ["SetFreeze", *OTHERS])

    unimplemented = [method.name for method, handler in found if handler is None]
    assert sorted(unimplemented) == sorted(["SetFreeze", *OTHERS])


def test_an_rpc_with_two_handlers_is_refused() -> None:
    with pytest.raises(TwoHandlersError, match="ReleaseHold has two handlers"):
        gather(APPLICATIONS, [Hold(), Freeze(), Hold()])


def test_an_unimplemented_rpc_that_got_a_handler_must_leave_the_list() -> None:
    with pytest.raises(TwoHandlersError, match=r"no longer unimplemented.*SetFreeze"):
        gather(APPLICATIONS, [Hold(), Freeze()], ["SetFreeze"])


def test_the_list_of_unimplemented_rpcs_names_only_rpcs() -> None:
    with pytest.raises(TwoHandlersError, match="Nonsense"):
        gather(APPLICATIONS, [Hold(), Freeze()], ["Nonsense"])


def test_a_handler_of_an_rpc_that_the_service_lacks_is_refused() -> None:
    with pytest.raises(NoHandlerError, match="no RPC 'ReleaseHold'"):
        gather(PROJECTS, [Hold()], ["WatchChanges", "ListAudit"])


def test_a_handler_with_another_request_type_is_refused() -> None:
    class Wrong:
        @rpc("ReleaseHold")
        async def release_hold(
            self, caller: object, request: pb.SetFreezeRequest
        ) -> pb.ReleaseHoldResponse:
            return pb.ReleaseHoldResponse()

    with pytest.raises(HandlerTypeError, match="ReleaseHold"):
        gather(APPLICATIONS, [Wrong()], ["SetFreeze"])


def test_a_coroutine_for_a_stream_is_refused() -> None:
    class Wrong:
        @rpc("WatchChanges")
        async def watch(
            self, caller: object, request: pb.WatchChangesRequest
        ) -> pb.WatchChangesResponse:
            return pb.WatchChangesResponse()

    with pytest.raises(HandlerTypeError, match="must be an async generator"):
        gather(PROJECTS, [Wrong()], ["ListAudit"])


def test_a_generator_for_a_unary_rpc_is_refused() -> None:
    class Wrong:
        @rpc("ReleaseHold")
        async def release_hold(
            self, caller: object, request: pb.ReleaseHoldRequest
        ) -> AsyncIterator[pb.ReleaseHoldResponse]:
            yield pb.ReleaseHoldResponse()

    with pytest.raises(HandlerTypeError, match="must be a coroutine function"):
        gather(APPLICATIONS, [Wrong()], ["SetFreeze"])


def test_a_service_that_names_no_callers_is_refused() -> None:
    with pytest.raises(NoRightError, match=r"s\.Service\.Do has no right: .*no callers"):
        gather(service_without_rights(), [])


def test_an_rpc_for_api_keys_must_name_a_role() -> None:
    with pytest.raises(NoRightError, match="names no role"):
        gather(service_without_rights(rights_pb2.API_KEY), [])


def test_an_rpc_for_sessions_must_name_a_right() -> None:
    with pytest.raises(NoRightError, match="takes sessions but names no right"):
        gather(service_without_rights(rights_pb2.SESSION), [])


def test_an_rpc_that_needs_no_lease_must_be_for_pipeds() -> None:
    with pytest.raises(NoRightError, match="needs no lease but no piped may call it"):
        gather(service_without_rights(rights_pb2.PLUGIN, without_lease=True), [])


def test_an_rpc_that_checks_labels_must_be_for_sessions() -> None:
    with pytest.raises(NoRightError, match="checks labels but takes no sessions"):
        gather(service_without_rights(rights_pb2.PIPED, checks_labels=True), [])


def test_an_rpc_with_a_right_of_ours_must_say_on_what() -> None:
    with pytest.raises(NoRightError, match="not on what"):
        gather(service_without_rights(rights_pb2.PIPED, own_right=rights_pb2.OPEN_RESOURCES), [])


def test_a_right_of_ours_is_read() -> None:
    method = describe(APPLICATIONS.methods_by_name["OpenResource"])

    assert method.own_right == rights_pb2.OPEN_RESOURCES
    assert describe(APPLICATIONS.methods_by_name["SetFreeze"]).own_right == 0


def test_the_declared_rights_are_read() -> None:
    method = describe(APPLICATIONS.methods_by_name["SetFreeze"])

    assert method.path == "/pipecd.api.v1.ApplicationService/SetFreeze"
    assert method.callers == {rights_pb2.API_KEY, rights_pb2.SESSION}
    assert method.role == rights_pb2.READ_WRITE
    assert method.rbac is not None
    assert method.rbac.resource == project_pb2.ProjectRBACResource.APPLICATION
    assert method.rbac.action == project_pb2.ProjectRBACPolicy.UPDATE
