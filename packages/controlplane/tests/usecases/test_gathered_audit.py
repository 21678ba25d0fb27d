# SPDX-License-Identifier: Apache-2.0
"""What changed nothing is gathered: nothing is lost when the database is away for a while."""

import pytest

from pipecd_controlplane.store.audit import AuditFilter
from pipecd_controlplane.store.auditing import AuditedCall
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases.audit_actors import describe_act, describe_person
from pipecd_controlplane.usecases.gathered_audit import GatheredAudit
from pipecd_model.errors import UnavailableError
from pipecd_test_support.racing_database import RacingDatabase


def make_try(name: str, address: str = "192.0.2.1") -> AuditedCall:
    return describe_act("ours", describe_person(name, 2, address), "Try", 1)


async def count_attempts(kept: Stores) -> dict[str, int]:
    page = await kept.audit.page("ours", AuditFilter(oldest_first=True), limit=100, cursor="")
    return {record.actor: record.count for record in page.items}


async def test_attempts_of_one_kind_are_one_record_whatever_the_address(kept: Stores) -> None:
    gathered = GatheredAudit(kept)
    for number in range(5):
        gathered.note(make_try("ada", f"192.0.2.{number}"), "PERMISSION_DENIED")
    gathered.note(make_try("bob"), "PERMISSION_DENIED")

    await gathered.flush()

    assert await count_attempts(kept) == {"ada": 5, "bob": 1}


async def test_what_could_not_be_written_is_written_later_with_what_came_since(
    database: Database,
) -> None:
    away = RacingDatabase(database)
    kept = stores(away, lambda: 0)
    gathered = GatheredAudit(kept)

    async def fail(_theirs: Stores) -> None:
        raise UnavailableError("the disk is full")

    gathered.note(make_try("ada"), "PERMISSION_DENIED")
    away.rival = fail
    with pytest.raises(UnavailableError):
        await gathered.flush()
    gathered.note(make_try("ada"), "PERMISSION_DENIED")
    gathered.note(make_try("bob"), "PERMISSION_DENIED")

    await gathered.flush()
    await gathered.flush()

    assert await count_attempts(kept) == {"ada": 2, "bob": 1}
