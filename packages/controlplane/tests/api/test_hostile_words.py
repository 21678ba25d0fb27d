# SPDX-License-Identifier: Apache-2.0
"""Whatever words a call is made of, it is answered or refused, and touches nobody else's things."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.apiservice import service_pb2_grpc as apiservice_grpc
from pipecd_wire.model import application_pb2
from pipecd_wire.pipecd.api import api_pb2, api_pb2_grpc
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import CallError, call

WORDS = {
    "line breaks": "a\nb\r\nc",
    "NUL": "a\0b",
    "long": "x" * 200_000,
    "option": "--help",
    "path": "../../../etc/passwd",
    "page": "<script>alert(1)</script>",
    "terminal": "\x1b[2J\x1b]0;title\x07",
    "SQL": "'; DROP TABLE application; --",
    "pattern": "%s%n{0}{{.}}*?[",
    "direction": "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\N{COMBINING ACUTE ACCENT}",
}

BUGS = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED"})


def fill(message: Message, word: str, known: dict[str, str], depth: int = 0) -> Message:
    """Put the word into every text of a message; `known` are fields with a real value."""
    if depth <= 4:
        descriptor: Any = message.DESCRIPTOR  # of Python or of C: mypy knows both
        for field in descriptor.fields:
            _fill_field(message, field, word, known, depth)
    return message


def _fill_field(
    message: Message, field: FieldDescriptor, word: str, known: dict[str, str], depth: int
) -> None:
    value = known.get(field.name, word)
    held = field.message_type
    if held is not None and held.GetOptions().map_entry:
        entry = held.fields_by_name["value"]
        if entry.type == FieldDescriptor.TYPE_STRING:
            getattr(message, field.name)[word] = word
        elif entry.message_type is not None:
            fill(getattr(message, field.name)[word], word, known, depth + 1)
    elif held is not None:
        if field.is_repeated:
            fill(getattr(message, field.name).add(), word, known, depth + 1)
        elif not field.containing_oneof:
            fill(getattr(message, field.name), word, known, depth + 1)
    elif field.type == FieldDescriptor.TYPE_STRING:
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    elif field.type == FieldDescriptor.TYPE_BYTES and not field.is_repeated:
        setattr(message, field.name, word.encode())


def unary(descriptor: FileDescriptor) -> Iterator[MethodDescriptor]:
    for service in descriptor.services_by_name.values():
        yield from (each for each in service.methods if not each.server_streaming)


@pytest.mark.parametrize("word", WORDS)
async def test_no_word_in_a_call_is_a_bug_of_ours_or_reaches_another_project(
    plane: ServedControlPlane, word: str
) -> None:
    theirs = await plane.other_project("theirs")
    their_agent = await plane.agent(theirs, name="theirs")
    made = await call(
        theirs.api.AddApplication,
        apiservice.AddApplicationRequest(
            name="theirs", piped_id=their_agent.id, git_path=plane.build.git_path()
        ),
    )
    their_application = made.application_id
    agent = await plane.agent()
    application_id = await plane.application(agent)
    before = await plane.stores.applications.get("theirs", their_application)
    own = {"piped_id": agent.id, "application_id": application_id}
    bugs = []
    for descriptor, stubs, channel in (
        (apiservice.DESCRIPTOR, apiservice_grpc, plane.admin.channel),
        (api_pb2.DESCRIPTOR, api_pb2_grpc, plane.admin.channel),
        (pipedservice.DESCRIPTOR, pipedservice_grpc, agent.channel),
    ):
        for method in unary(descriptor):
            stub = getattr(stubs, f"{method.containing_service.name}Stub")(channel)
            # A piped that disables itself, or forgets its repositories, would end the test.
            if method.name in {"DisablePiped", "ReportPipedMeta", "DisableApplication"}:
                continue
            for known in ({}, own):
                request = fill(GetMessageClass(method.input_type)(), WORDS[word], known)
                try:
                    await call(getattr(stub, method.name), request)
                except CallError as error:
                    if error.status in BUGS or len(error.message) > 10_000:
                        bugs.append((method.full_name, sorted(known), str(error)[:300]))

    assert not bugs
    assert await plane.stores.applications.get("theirs", their_application) == before
    assert len(await plane.stores.pipeds.list_by_project("theirs")) == 1
    listed = await call(
        their_agent.service.ListApplications, pipedservice.ListApplicationsRequest()
    )
    assert [each.id for each in listed.applications] == [their_application]
    shown = await call(theirs.api.ListApplications, apiservice.ListApplicationsRequest())
    assert [each.id for each in shown.applications] == [their_application]
    kept = await plane.stores.applications.get("default", application_id)
    assert isinstance(kept, application_pb2.Application)
