# SPDX-License-Identifier: Apache-2.0
"""Logs where the audit chains end, so that a chain whose end was cut off later can be told.

The log leaves the machine by other ways than the database, and whoever can write to the one seldom
can to the other. `pipectl audit verify --head` takes what is logged here.
"""

from typing import Final

from pipecd_controlplane.store.audit import Audit
from pipecd_controlplane.store.auditing import log_head
from pipecd_wire.pipecd.api.api_pb2 import AuditHead

HEADS_SECONDS: Final = 600.0


class AuditHeads:
    """Logs the heads that have moved since they were logged last; all of them at first."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._logged: dict[str, AuditHead] = {}

    async def log_moved(self) -> None:
        for project_id, head in (await self._audit.list_heads()).items():
            if self._logged.get(project_id) != head:
                log_head(project_id, head)
                self._logged[project_id] = head
