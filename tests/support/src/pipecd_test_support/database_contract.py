# SPDX-License-Identifier: Apache-2.0
"""What every database promises: the tests of a driver inherit these, and give a `database`."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import bindparam, insert, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.audit import Audit, AuditFilter
from pipecd_controlplane.store.auditing import AuditActor, AuditedCall, auditing
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import (
    ContentionError,
    Database,
    DuplicateError,
    StaleReadError,
    Transaction,
    View,
)
from pipecd_model.audit import ChainVerifier
from pipecd_model.errors import StateError
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

WAIT_SECONDS = 20

INSERT = insert(schema.project)
ALL = select(schema.project.c.id).order_by(schema.project.c.id)
DATA = select(schema.project.c.id, schema.project.c.data).where(
    schema.project.c.id == bindparam("id")
)
ALARMS = select(
    schema.piped_alarm.c.sentence, schema.piped_alarm.c.raised_at, schema.piped_alarm.c.seen_at
)


def add_project(project_id: str, data: bytes = b"") -> Callable[[Transaction], Awaitable[str]]:
    """A unit that adds a project and tells of it."""

    async def work(transaction: Transaction) -> str:
        await transaction.run(INSERT, id=project_id, version=1, data=data)
        transaction.publish(Change(kind=ChangeKind.PIPED, id=project_id, project_id=project_id))
        return project_id

    return work


async def list_ids(database: Database) -> list[str]:
    async def work(view: View) -> list[str]:
        return [row[0] for row in await view.all(ALL)]

    return await database.read(work)


async def put_alarm(
    transaction: Transaction, sentence: str, at: int, *, project_id: str = "ours"
) -> None:
    await transaction.upsert(
        schema.piped_alarm,
        ("sentence", "seen_at"),
        piped_id="piped",
        name="two-agents",
        project_id=project_id,
        sentence=sentence,
        raised_at=at,
        seen_at=at,
    )


def audit_call(action: str) -> AuditedCall:
    actor = AuditActor(kind=AuditRecord.PERSON, name="ada")
    return AuditedCall(project_id="ours", actor=actor, action=action, at=1)


async def list_audit(database: Database) -> list[str]:
    """Returns the actions of the chain, the oldest first; the chain must be whole."""
    page = await Audit(database).page("ours", AuditFilter(oldest_first=True), limit=1000, cursor="")
    verifier = ChainVerifier()
    for record in page.items:
        verifier.add(record)
    verifier.finish(page.head)
    assert verifier.broken is None
    return [record.action for record in page.items]


HOSTILE_TEXTS = (
    "a\0b",
    "\0",
    "\ufdd0",
    "\ufdd00",
    "\ufdd01\0",
    "\x1b[2J",
    "'; --",
    "\U0001f600",
    " ",
)


class DatabaseContract:
    """Inherited by the test class of each driver, which overrides the fixture `database`."""

    async def test_a_unit_that_fails_takes_nobody_with_it(
        self, database: Database, told: list[Change]
    ) -> None:
        async def failing(transaction: Transaction) -> str:
            await add_project("bad")(transaction)
            raise StateError("changed my mind")

        async def refuse() -> str:
            with pytest.raises(StateError) as caught:
                await database.write(failing)
            return str(caught.value)

        async with asyncio.TaskGroup() as tasks:
            good = [tasks.create_task(database.write(add_project(f"p{n:03}"))) for n in range(50)]
            bad = [tasks.create_task(refuse()) for _ in range(20)]

        assert [task.result() for task in good] == await list_ids(database)
        assert {task.result() for task in bad} == {"changed my mind"}
        assert sorted(change.id for change in told) == await list_ids(database)

    @pytest.mark.parametrize(
        "text",
        ["a\0b", "\0", "\ufdd0", "\ufdd00", "\ufdd01\0", "\x1b[2J", "'; --", "\U0001f600", " "],
    )
    async def test_any_text_is_found_as_it_was_written(self, database: Database, text: str) -> None:
        """A text of protobuf may hold whatever is Unicode, a NUL too."""
        await database.write(add_project(text, text.encode()))
        await database.write(add_project(f"{text}x"))

        assert await database.one(DATA, id=text) == (text, text.encode())
        assert sorted(await list_ids(database)) == sorted([text, f"{text}x"])

    async def test_a_row_is_added_once_and_the_unit_goes_on(self, database: Database) -> None:
        async def work(transaction: Transaction) -> list[bool]:
            first = await transaction.insert_if_absent(schema.project, id="p", version=1, data=b"1")
            again = await transaction.insert_if_absent(schema.project, id="p", version=1, data=b"2")
            other = await transaction.insert_if_absent(schema.project, id="q", version=1, data=b"")
            return [first, again, other]

        assert await database.write(work) == [True, False, True]
        row = await database.one(select(schema.project.c.data).where(schema.project.c.id == "p"))
        assert row == (b"1",)

    async def test_what_an_audited_call_writes_is_committed_with_its_record(
        self, database: Database
    ) -> None:
        async def failing(transaction: Transaction) -> None:
            await add_project("bad")(transaction)
            raise StateError("changed my mind")

        async def write(name: str) -> None:
            with auditing(audit_call(name)):
                await database.write(add_project(name))
                with pytest.raises(StateError):
                    await database.write(failing)

        names = [f"p{n:02}" for n in range(20)]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(write(name))
        await database.write(add_project("unaudited"))

        assert sorted(await list_audit(database)) == names
        assert await list_ids(database) == [*names, "unaudited"]

    async def test_an_upsert_replaces_the_named_columns_only(self, database: Database) -> None:
        await database.write(lambda transaction: put_alarm(transaction, "once", 1))
        await database.write(lambda transaction: put_alarm(transaction, "again", 2))

        assert await database.read(lambda view: view.all(ALARMS)) == [("again", 1, 2)]

    async def test_an_upsert_leaves_the_row_of_another_project_alone(
        self, database: Database
    ) -> None:
        await database.write(lambda transaction: put_alarm(transaction, "ours", 1))

        with pytest.raises(DuplicateError):
            await database.write(
                lambda transaction: put_alarm(transaction, "theirs", 2, project_id="theirs")
            )

        assert await database.read(lambda view: view.all(ALARMS)) == [("ours", 1, 1)]

    async def test_a_unit_cannot_go_on_after_a_duplicate(
        self, database: Database, told: list[Change]
    ) -> None:
        async def work(transaction: Transaction) -> None:
            await add_project("p")(transaction)
            with pytest.raises(DuplicateError):
                await transaction.run(INSERT, id="p", version=1, data=b"")

        with pytest.raises(DuplicateError):
            await database.write(work)

        assert await list_ids(database) == []
        assert told == []

    async def test_a_unit_that_read_stale_rows_is_run_again_as_a_whole(
        self, database: Database, told: list[Change]
    ) -> None:
        runs: list[str] = []

        async def work(transaction: Transaction) -> None:
            runs.append("run")
            await add_project("p")(transaction)
            if len(runs) == 1:
                raise StaleReadError

        await database.write(work)

        assert len(runs) > 1
        assert await list_ids(database) == ["p"]
        assert [change.id for change in told] == ["p"]

    async def test_a_unit_that_never_reads_current_rows_is_given_up(
        self, database: Database, told: list[Change]
    ) -> None:
        async def work(transaction: Transaction) -> None:
            await add_project("p")(transaction)
            raise StaleReadError

        with pytest.raises(ContentionError, match="others changed the same thing"):
            await database.write(work)

        assert await list_ids(database) == []
        assert told == []
        assert await database.write(add_project("q")) == "q"

    async def test_a_caller_that_went_away_harms_nobody(self, database: Database) -> None:
        impatient = asyncio.ensure_future(database.write(add_project("p1")))
        await asyncio.sleep(0)  # it has handed over its work
        impatient.cancel()

        await database.write(add_project("p2"))

        assert "p2" in await list_ids(database)

    async def test_a_unit_may_wait_for_nothing_but_its_database(self, database: Database) -> None:
        async def work(_transaction: Transaction) -> None:
            await asyncio.sleep(0)

        with pytest.raises(RuntimeError, match="awaited something other"):
            await database.write(work)
        assert await database.write(add_project("p")) == "p"

    async def test_a_reader_sees_one_moment(self, database: Database) -> None:
        """A snapshot for an agent is read in several statements; all are of one time."""
        await database.write(add_project("p1"))
        loop = asyncio.get_running_loop()
        runs = 0

        async def work(view: View) -> tuple[int, int]:
            nonlocal runs
            runs += 1  # a driver may run it again when it learns that it reads twice
            before = len(await view.all(ALL))
            another = add_project(f"other {runs}")
            written = asyncio.run_coroutine_threadsafe(database.write(another), loop)
            written.result(timeout=WAIT_SECONDS)
            return before, len(await view.all(ALL))

        before, after = await database.read(work)

        assert before == after == runs
        assert len(await list_ids(database)) == 1 + runs

    async def test_units_run_off_the_event_loop(self, database: Database) -> None:
        """They parse what they read: the event loop answers others meanwhile."""

        async def work(_view: View) -> int:
            return threading.get_ident()

        assert await database.read(work) != threading.get_ident()
        assert await database.write(work) != threading.get_ident()
