# SPDX-License-Identifier: Apache-2.0
"""Watch everything that changes in a project, and read who did what."""

import math
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.auth.rights import Action, CallerRights, Resource
from pipecd_controlplane.store.audit import AuditFilter
from pipecd_controlplane.store.changes import Change, ChangeKind, project_topic
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.change_history import ChangeHistories
from pipecd_controlplane.usecases.followed_logs import FollowedLogs
from pipecd_controlplane.usecases.roles import Grant
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
    ChangeKind.PROJECT: pb.Change.PROJECT,
}


class V1ProjectApi:
    """The stream of changes, and the audit."""

    def __init__(
        self, stores: Stores, bus: ChangeBus, histories: ChangeHistories, rights: CallerRights
    ) -> None:
        self._stores = stores
        self._bus = bus
        self._rights = rights
        self._audit = stores.audit
        self._histories = histories

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
        async def find_grant() -> Grant | None:
            return await self._rights.find_grant(caller, Resource.DEPLOYMENT, Action.GET)

        history = self._histories.find(caller.project_id)
        logs = FollowedLogs(self._stores, caller.project_id, request.logs, find_grant)
        with self._bus.listen(project_topic(caller.project_id)) as listener:
            known = history.parse_cursor(request.cursor) if request.cursor else history.position
            position = history.position if known is None else known
            read_again = known is None
            keep_alive_seconds = request.keep_alive_seconds or math.inf
            answer_by = -math.inf  # the client reads after the first, and misses no later change
            while True:
                missed = history.read_since(position)
                position, read_again = missed.position, read_again or not missed.is_whole
                response = pb.WatchChangesResponse(
                    changes=_describe_changes(missed.changes, request.kinds),
                    cursor=history.format_cursor(position),
                    read_again=read_again,
                    new_lines=await logs.read_new(),
                )
                # Since the last answer: a log that is tried again, or changes that are not told,
                # end a wait early, and would keep the stream silent for ever.
                must_answer = time.monotonic() >= answer_by
                if must_answer or read_again or response.changes or response.new_lines:
                    yield response
                    answer_by = time.monotonic() + keep_alive_seconds
                read_again = False
                if not logs.has_more():
                    seconds = _find_wait(answer_by - time.monotonic(), logs.find_seconds_left())
                    logs.notice(await listener.wait_changes(seconds=seconds))


def _find_wait(*seconds: float | None) -> float | None:
    """Returns the shortest of some waits; None when there is no end to any of them."""
    shortest = min((each for each in seconds if each is not None), default=math.inf)
    return None if shortest == math.inf else max(shortest, 0.0)


def _describe_changes(
    changes: Iterable[Change], wanted: Iterable[pb.Change.Kind.ValueType]
) -> list[pb.Change]:
    """Returns the changes of the wanted kinds, each thing once; of all kinds if none is named."""
    kinds = set(wanted)
    found = {
        (KINDS[change.kind], change.id): None
        for change in changes
        if change.kind in KINDS and (not kinds or KINDS[change.kind] in kinds)
    }
    return [pb.Change(kind=kind, id=thing_id) for kind, thing_id in found]
