# SPDX-License-Identifier: Apache-2.0
"""Watch everything that changes in a project, and read who did what."""

from collections.abc import AsyncIterator
from typing import Final

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.audit import Audit, AuditFilter
from pipecd_controlplane.store.changes import ChangeKind, project_topic
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import rpc

# Our own commands and API keys have no kind on the wire; the state of plugins is the piped's.
KINDS: Final = {
    ChangeKind.APPLICATION: pb.Change.APPLICATION,
    ChangeKind.DEPLOYMENT: pb.Change.DEPLOYMENT,
    ChangeKind.COMMAND: pb.Change.COMMAND,
    ChangeKind.PIPED: pb.Change.PIPED,
    ChangeKind.PLUGINS: pb.Change.PIPED,
    ChangeKind.STAGE_LOG: pb.Change.STAGE_LOG,
    ChangeKind.EVENT: pb.Change.EVENT,
    ChangeKind.CHAIN: pb.Change.DEPLOYMENT_CHAIN,
    ChangeKind.TRACE: pb.Change.DEPLOYMENT_TRACE,
    ChangeKind.LIVE_STATE: pb.Change.LIVE_STATE,
    ChangeKind.CONTROL: pb.Change.CONTROL,
    ChangeKind.RECORD: pb.Change.RECORD,
    ChangeKind.RULES: pb.Change.RULES,
    ChangeKind.QUEUE: pb.Change.QUEUE,
}


class V1ProjectApi:
    """The stream of changes, and the audit."""

    def __init__(self, bus: ChangeBus, audit: Audit) -> None:
        self._bus = bus
        self._audit = audit

    @rpc("ListAudit")
    async def list_audit(self, caller: User, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        wanted = AuditFilter(
            since=request.since.seconds,
            before=request.before.seconds,
            actor=request.actor,
            action=request.action,
            subject=request.subject,
            oldest_first=request.oldest_first,
        )
        page = await self._audit.page(
            caller.project_id, wanted, limit=request.page_size, cursor=request.cursor
        )
        return pb.ListAuditResponse(records=page.items, cursor=page.cursor, head=page.head)

    @rpc("WatchChanges")
    async def watch_changes(
        self, caller: User, request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        with self._bus.listen(project_topic(caller.project_id)) as listener:
            # An empty response first: the client reads after it, and misses no later change.
            yield pb.WatchChangesResponse()
            while True:
                heard = await listener.wait_changes()
                changes = [
                    pb.Change(kind=KINDS[change.kind], id=change.id)
                    for change in heard
                    if change.kind in KINDS
                ]
                if changes:
                    yield pb.WatchChangesResponse(changes=changes)
