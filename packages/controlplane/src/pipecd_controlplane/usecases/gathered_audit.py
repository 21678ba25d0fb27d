# SPDX-License-Identifier: Apache-2.0
"""Audit records of what changed nothing: refused calls and sign-ins, gathered for a minute.

A change is recorded in its own transaction. An attempt that was refused has none, and whoever can
be refused once can be refused a million times: attempts of one kind become one record with their
number, and of many kinds at once most become one.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from pipecd_controlplane.store.audit import append_in
from pipecd_controlplane.store.auditing import (
    AuditActor,
    AuditedCall,
    AuditSubject,
    find_name,
)
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

FLUSH_SECONDS: Final = 60.0
MOST_KINDS: Final = 50
"""Kinds of attempts that are told apart in one project, until they are written."""
VARIOUS: Final = "various"
"""The actor and action of all others."""

UNCHANGED: Final = "UNCHANGED"
"""The outcome of a call that found everything as it asked for, or that changes nothing stored."""

Kind = tuple[AuditActor, str, str, AuditSubject, str]


@dataclass(slots=True)
class _Attempts:
    call: AuditedCall
    outcome: str
    count: int = 1


class GatheredAudit:
    """Counts attempts in memory; a timed job writes them. A server that is killed loses them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._by_project: dict[str, dict[Kind, _Attempts]] = {}
        self._flushing = asyncio.Lock()

    def note(self, call: AuditedCall, outcome: str) -> None:
        """Counts one attempt of a project that exists."""
        kinds = self._by_project.setdefault(call.project_id, {})
        kind = _find_kind(call, outcome)
        if kind not in kinds and len(kinds) >= MOST_KINDS:
            actor = AuditActor(kind=AuditRecord.ACTOR_KIND_UNSPECIFIED, name=VARIOUS)
            call = replace(
                call, actor=actor, action=VARIOUS, service="", reason="", subject=AuditSubject()
            )
            kind = _find_kind(call, outcome)
        if kind in kinds:
            kinds[kind].count += 1
        else:
            kinds[kind] = _Attempts(call, outcome)

    async def flush(self) -> None:
        """Writes what was counted, one unit of work for each project. Raises as the store does."""
        async with self._flushing:
            while self._by_project:
                project_id, kinds = next(iter(self._by_project.items()))
                del self._by_project[project_id]
                try:
                    await self._write(list(kinds.values()))
                except Exception:
                    self._put_back(project_id, kinds)
                    raise

    async def _write(self, attempts: list[_Attempts]) -> None:
        records = [each.call.make_record(each.outcome, count=each.count) for each in attempts]

        async def work(transaction: Transaction) -> None:
            for made in records:
                record = AuditRecord()
                record.CopyFrom(made)
                if not record.subject_name:
                    record.subject_name = await find_name(
                        transaction, record.subject_kind, record.subject
                    )
                await append_in(transaction, record)

        await self._stores.database.write(work)

    def _put_back(self, project_id: str, kinds: dict[Kind, _Attempts]) -> None:
        newer = self._by_project.get(project_id, {})
        for kind, attempts in newer.items():
            if kind in kinds:
                kinds[kind].count += attempts.count
            else:
                kinds[kind] = attempts
        self._by_project[project_id] = kinds


def _find_kind(call: AuditedCall, outcome: str) -> Kind:
    # Addresses do not tell attempts apart: guesses at one account come from thousands of them.
    return replace(call.actor, address=""), call.service, call.action, call.subject, outcome
