# SPDX-License-Identifier: Apache-2.0
"""Runs the handlers of audited RPCs so that what they change is recorded as their caller's."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from pipecd_controlplane.auth import calls
from pipecd_controlplane.auth.caller import Agent, ApiKeyCaller, Person
from pipecd_controlplane.store import auditing
from pipecd_controlplane.store.auditing import AuditActor, AuditedCall, AuditSubject
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.usecases.audit_actors import describe_person
from pipecd_controlplane.usecases.gathered_audit import UNCHANGED, GatheredAudit
from pipecd_model.errors import DeniedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord
from pipecd_wire.rpc import Method

Caller = Agent | ApiKeyCaller | Person
Resource = project_pb2.ProjectRBACResource

SUBJECTS: Final = {
    "deployment_id": auditing.DEPLOYMENT,
    "application_id": auditing.APPLICATION,
    "session_id": auditing.SESSION,
    "hook_id": auditing.HOOK,
    "piped_id": auditing.PIPED,
}
"""Fields of a request that name what a call is about, the narrowest first."""
OWN_FIELDS: Final = {
    Resource.DEPLOYMENT: "deployment_id",
    Resource.APPLICATION: "application_id",
    Resource.PIPED: "piped_id",
}
"""The field that names it by the resource of the right, if the request has it: a roll-back of an
application names a deployment as well."""
BY_RESOURCE: Final = {Resource.PIPED: auditing.PIPED, Resource.API_KEY: auditing.API_KEY}
"""What the field `id` of a request names, by the resource of its right."""
REASONS: Final = ("reason", "comment")
"""Fields of a request in which people say why."""


class CallAudit:
    """Between the endpoints and their handlers; see `pipecd_wire.rpc.RunAudited`."""

    def __init__(self, gathered: GatheredAudit, now: Now) -> None:
        self._gathered = gathered
        self._now = now

    async def run(
        self,
        method: Method,
        caller: Caller,
        request: Message,
        handler: Callable[[Any, Any], Awaitable[Message]],
    ) -> Message:
        """Returns the handler's response, or raises its error."""
        call = self._describe(method, caller, request)
        try:
            with auditing.auditing(call):
                response = await handler(caller, request)
        except DeniedError as error:
            self._gathered.note(call, error.status)
            raise
        if not call.records and not isinstance(caller, Agent):  # agents repeat themselves
            self._gathered.note(call, UNCHANGED)
        return response

    def note_refusal(self, method: Method, caller: Caller) -> None:
        """Records that a known caller asked for what it has no right to."""
        self._gathered.note(self._describe(method, caller, None), DeniedError.status)

    def _describe(self, method: Method, caller: Caller, request: Message | None) -> AuditedCall:
        call = calls.current()
        return AuditedCall(
            project_id=caller.project_id,
            actor=describe_actor(caller, call.peer if call is not None else ""),
            action=method.name,
            service=method.service,
            at=self._now(),
            request_id=call.id if call is not None else "",
            reason=_find_reason(request),
            subject=find_subject(method, request),
        )


def describe_actor(caller: Caller, address: str) -> AuditActor:
    """Returns a caller as the audit shows it."""
    if isinstance(caller, Agent):
        return AuditActor(
            kind=AuditRecord.PIPED, name=caller.piped_id, id=caller.piped_id, address=address
        )
    if isinstance(caller, ApiKeyCaller):
        return AuditActor(
            kind=AuditRecord.API_KEY, name=caller.name, id=caller.key_id, address=address
        )
    return describe_person(caller.name, caller.via, address)


def find_subject(method: Method, request: Message | None) -> AuditSubject:
    """Returns what a request names; empty for one that makes something, or names nothing."""
    rbac = method.rbac
    if request is None or (
        rbac is not None and rbac.action == project_pb2.ProjectRBACPolicy.CREATE
    ):
        return AuditSubject()
    fields = request.DESCRIPTOR.fields_by_name
    own = OWN_FIELDS.get(rbac.resource, "") if rbac is not None and not rbac.ignored else ""
    for name in (own, *SUBJECTS):
        if name in fields and (found := getattr(request, name)):
            return AuditSubject(kind=SUBJECTS[name], id=str(found))
    if "id" in fields and rbac is not None and (kind := BY_RESOURCE.get(rbac.resource, "")):
        return AuditSubject(kind=kind, id=str(getattr(request, "id", "")))
    return AuditSubject()


def _find_reason(request: Message | None) -> str:
    for name in REASONS:
        if request is not None and name in request.DESCRIPTOR.fields_by_name:
            return str(getattr(request, name))
    return ""
