# SPDX-License-Identifier: Apache-2.0
"""The audit in the store: with the change or not at all, one chain, and never a secret."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from pipecd_controlplane.store import audit as audit_store
from pipecd_controlplane.store.audit import AuditFilter, append_in
from pipecd_controlplane.store.audit_diff import (
    ALL,
    HIDDEN,
    LONGEST_JSON,
    SHOWN,
    NotedChange,
    describe_changes,
)
from pipecd_controlplane.store.audit_statements import COLUMNS, build_audit_page
from pipecd_controlplane.store.auditing import AuditActor, AuditedCall, AuditSubject, auditing
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_model.audit import CUT, ChainVerifier
from pipecd_model.errors import ConfigError, ConflictError, StateError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.racing_database import RacingDatabase
from pipecd_wire.model import apikey_pb2, application_pb2, piped_pb2, project_pb2
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

ADA = AuditActor(kind=AuditRecord.PERSON, name="ada", id="GITHUB", address="192.0.2.7")
SECRET = "hush-do-not-tell"  # noqa: S105 - what must not be found


def make_call(**fields: object) -> AuditedCall:
    given = {"project_id": "ours", "actor": ADA, "action": "Act", "at": 1000, **fields}
    return AuditedCall(**given)  # type: ignore[arg-type] # of as many types as there are fields


async def read_all(kept: Stores, project_id: str = "ours") -> list[AuditRecord]:
    page = await kept.audit.page(project_id, AuditFilter(oldest_first=True), limit=1000, cursor="")
    assert not page.cursor
    return page.items


async def check_whole(kept: Stores, project_id: str = "ours") -> list[AuditRecord]:
    records = await read_all(kept, project_id)
    verifier = ChainVerifier()
    for record in records:
        verifier.add(record)
    verifier.finish()
    assert verifier.broken is None
    return records


def disable(application: application_pb2.Application) -> None:
    application.disabled = True


async def test_a_change_of_an_audited_call_is_recorded_with_it(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application(id="a1", project_id="ours", name="hello"))
    call = make_call(service="s", request_id="r1", reason="it is broken")

    with auditing(call):
        await kept.applications.update("ours", "a1", disable)

    [record] = await check_whole(kept)
    assert call.records == 1
    assert (record.actor, record.actor_id, record.address) == ("ada", "GITHUB", "192.0.2.7")
    assert (record.action, record.service, record.request_id) == ("Act", "s", "r1")
    assert (record.subject_kind, record.subject, record.subject_name) == (
        "application",
        "a1",
        "hello",
    )
    assert json.loads(record.before) == {"disabled": False}
    assert json.loads(record.after) == {"disabled": True}
    assert (record.reason, record.outcome, record.at.seconds) == ("it is broken", "OK", 1000)


async def test_what_an_audited_call_adds_is_recorded_with_its_name(
    kept: Stores, build: MessageBuilder
) -> None:
    with auditing(make_call()):
        await kept.applications.add(build.application(id="a1", project_id="ours", name="hello"))

    [record] = await check_whole(kept)
    assert (record.subject_kind, record.subject, record.subject_name) == (
        "application",
        "a1",
        "hello",
    )
    assert not record.before
    assert json.loads(record.after)["name"] == "hello"


async def test_what_nobody_does_is_not_recorded(kept: Stores, build: MessageBuilder) -> None:
    """Reports of agents and timed jobs pay nothing."""
    await kept.applications.add(build.application(id="a1", project_id="ours"))

    assert await read_all(kept) == []


async def test_a_change_that_is_refused_leaves_no_record(
    kept: Stores, build: MessageBuilder
) -> None:
    application = build.application(id="a1", project_id="ours")
    await kept.applications.add(application)

    def refuse(_application: application_pb2.Application) -> None:
        raise StateError("no")

    call = make_call()
    with auditing(call):
        with pytest.raises(StateError):
            await kept.applications.update("ours", "a1", refuse)
        with pytest.raises(ConflictError):
            await kept.applications.add(application)
        await kept.applications.update("ours", "a1", lambda _same: None)

    assert await read_all(kept) == []
    assert call.records == 0


async def test_a_record_that_cannot_be_written_takes_its_change_with_it(
    kept: Stores, build: MessageBuilder
) -> None:
    """No change without a record: here its chain is at the last number that there is."""
    await kept.applications.add(build.application(id="a1", project_id="ours"))
    full = AuditRecord(project_id="ours", sequence=2**63 - 1)

    async def fill(transaction: Transaction) -> None:
        await transaction.insert_if_absent(
            audit_store.T,
            project_id="ours",
            sequence=full.sequence,
            at=0,
            actor="",
            actor_id="",
            action="",
            subject="",
            subject_name="",
            data=full.SerializeToString(),
        )

    await kept.database.write(fill)
    with auditing(make_call()), pytest.raises(ValueError, match="range"):
        await kept.applications.update("ours", "a1", disable)

    assert not (await kept.applications.get("ours", "a1")).disabled


async def test_all_records_of_many_at_once_are_one_chain(
    kept: Stores, build: MessageBuilder
) -> None:
    async def add(number: int) -> None:
        with auditing(make_call(project_id="ours" if number % 2 else "theirs")):
            await kept.applications.add(build.application(id=f"a{number}", project_id="x"))

    async with asyncio.TaskGroup() as tasks:
        for number in range(60):
            tasks.create_task(add(number))

    for project_id in ("ours", "theirs"):
        records = await check_whole(kept, project_id)
        assert [each.sequence for each in records] == list(range(1, 31))


async def test_a_chain_never_forks_when_two_processes_append(database: Database) -> None:
    racing = RacingDatabase(database)
    kept = stores(racing, lambda: 0)

    def append(action: str) -> AuditRecord:
        return make_call(action=action).make_record("OK")

    first, late, rivals = append("first"), append("late"), append("rival")
    await racing.write(lambda transaction: append_in(transaction, first))

    async def rival(theirs: Stores) -> None:
        await theirs.database.write(lambda transaction: append_in(transaction, rivals))

    racing.rival = rival
    await racing.write(lambda transaction: append_in(transaction, late))

    assert [each.action for each in await check_whole(kept)] == ["first", "rival", "late"]
    assert racing.runs >= 2  # where each unit is run twice, one more


async def append(kept: Stores, call: AuditedCall) -> None:
    made = call.make_record("OK")
    await kept.database.write(lambda transaction: append_in(transaction, made))


async def fill(kept: Stores, count: int) -> None:
    for number in range(1, count + 1):
        call = make_call(
            action="Sync" if number % 2 else "Cancel",
            at=number * 100,
            actor=ADA if number % 3 else AuditActor(kind=AuditRecord.API_KEY, name="ci", id="k1"),
            subject=AuditSubject(kind="application", id=f"a{number % 4}", name=f"app-{number % 4}"),
        )
        await append(kept, call)


async def list_sequences(kept: Stores, wanted: AuditFilter, *, limit: int = 3) -> list[int]:
    found: list[int] = []
    cursor = ""
    while True:
        page = await kept.audit.page("ours", wanted, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found.extend(each.sequence for each in page.items)
        cursor = page.cursor
        if not cursor:
            return found


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (AuditFilter(), lambda _: True),
        (AuditFilter(actor="ada"), lambda n: n % 3),
        (AuditFilter(actor="ci"), lambda n: n % 3 == 0),
        (AuditFilter(actor="k1"), lambda n: n % 3 == 0),
        (AuditFilter(actor="nobody"), lambda _: False),
        (AuditFilter(action="Sync"), lambda n: n % 2),
        (AuditFilter(subject="a1"), lambda n: n % 4 == 1),
        (AuditFilter(subject="app-1"), lambda n: n % 4 == 1),
        (AuditFilter(since=500), lambda n: n >= 5),
        (AuditFilter(before=500), lambda n: n < 5),
        (AuditFilter(since=300, before=900, action="Sync"), lambda n: 3 <= n < 9 and n % 2),
        (AuditFilter(actor="ada", action="Cancel", subject="a2"), lambda n: n % 3 and n % 4 == 2),
    ],
)
async def test_lists_are_filtered_and_paged_in_both_orders(
    kept: Stores, wanted: AuditFilter, chosen: Callable[[int], object]
) -> None:
    await fill(kept, 12)
    expected = [number for number in range(1, 13) if chosen(number)]

    assert await list_sequences(kept, wanted) == expected[::-1]
    oldest_first = AuditFilter(
        since=wanted.since,
        before=wanted.before,
        actor=wanted.actor,
        action=wanted.action,
        subject=wanted.subject,
        oldest_first=True,
    )
    assert await list_sequences(kept, oldest_first) == expected


async def test_a_record_is_listed_once_whose_name_and_id_are_alike(kept: Stores) -> None:
    alike = AuditActor(kind=AuditRecord.API_KEY, name="ci", id="ci")
    for number in range(2):
        await append(kept, make_call(actor=alike, at=number))

    assert await list_sequences(kept, AuditFilter(actor="ci"), limit=1) == [2, 1]


async def test_the_rarest_value_drives_a_list(kept: Stores) -> None:
    await fill(kept, 12)
    wanted = AuditFilter(actor="k1", action="Sync", subject="app-1")  # 4, 6 and 3 of them

    async def find(view: View) -> object:
        return await audit_store._find_statement(view, "ours", wanted)

    found = await kept.database.read(find)

    names = ("subject", "actor", "action")
    assert found is build_audit_page(names, "subject", oldest_first=False)
    await fill(kept, 12)
    wanted = AuditFilter(actor="nobody", action="Sync")
    found = await kept.database.read(find)
    assert found is build_audit_page(("actor", "action"), "actor", oldest_first=False)


@pytest.mark.sqlite
@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("driving", ["", *COLUMNS])
async def test_each_value_finds_its_records_along_an_index(
    kept: Stores, driving: str, *, oldest_first: bool, is_analyzed: bool
) -> None:
    """Also where SQLite knows how many records there are of each value, and chooses by that."""
    statement = build_audit_page(
        tuple(COLUMNS) if driving else (), driving, oldest_first=oldest_first
    )
    path = kept.database._inline.execute("PRAGMA database_list").fetchone()[2]  # type: ignore[attr-defined]
    compiled = kept.database._statements[statement]  # type: ignore[attr-defined]
    wanted = AuditFilter(actor="a", action="b", subject="c").parameters()
    arguments = compiled.arguments({"project_id": "ours", "after": 9, "batch": 2, **wanted})

    await fill(kept, 60)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if is_analyzed:
            connection.execute("ANALYZE")
        rows = connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", arguments).fetchall()

    plan = [row[3] for row in rows]
    columns = COLUMNS.get(driving, ())
    for column in columns:
        name = column.name
        step = next(each for each in plan if f"INDEX audit_record_by_{name} (" in each)
        assert f"({name},sequence)" in step  # from the place of the page on
        assert f"{name}>? AND" in step or f"AND {name}<?" in step  # to the end of the value
    if not columns:
        assert "(project_id=? AND sequence" in plan[0]
    # Walks that are merged are sorted once more, each of them a page long.
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert len(sorts) == (len(columns) if len(columns) > 1 else 0), plan


async def test_a_page_is_stable_while_records_are_appended(kept: Stores) -> None:
    await fill(kept, 4)
    first = await kept.audit.page("ours", AuditFilter(), limit=2, cursor="")
    await fill(kept, 3)
    second = await kept.audit.page("ours", AuditFilter(), limit=2, cursor=first.cursor)

    assert [each.sequence for each in first.items + second.items] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    "cursor", ["x", "after-1", "before-", "before-x", "before--1", "before-" + "9" * 30, "before-²"]
)
async def test_a_cursor_that_is_none_gets_a_sentence(kept: Stores, cursor: str) -> None:
    with pytest.raises(ConfigError, match="is not one of this list"):
        await kept.audit.page("ours", AuditFilter(), limit=2, cursor=cursor)


async def cut(kept: Stores, before: int) -> int:
    act = make_call(action=CUT, actor=AuditActor(kind=AuditRecord.SYSTEM, name="server"), at=5000)
    removed = await kept.audit.cut(act.make_record("OK"), before=before)
    return removed.sequence if removed is not None else 0


async def test_a_cut_chain_is_whole_and_tells_what_was_removed(kept: Stores) -> None:
    await fill(kept, 10)

    assert await cut(kept, 450) == 4
    assert [each.sequence for each in await check_whole(kept)] == [5, 6, 7, 8, 9, 10, 11]
    assert await cut(kept, 450) == 0

    assert await cut(kept, 2000) == 10
    assert [each.sequence for each in await check_whole(kept)] == [11, 12]
    assert await cut(kept, 10_000) == 12
    assert [each.action for each in await check_whole(kept)] == [CUT]


async def test_a_cut_stops_at_the_first_record_that_is_kept(kept: Stores) -> None:
    """Clocks go back: an old time after a newer one does not make a hole."""
    for at in (100, 900, 200, 950):
        await append(kept, make_call(at=at))

    assert await cut(kept, 500) == 1
    assert [each.sequence for each in await check_whole(kept)] == [2, 3, 4, 5]


async def test_an_empty_chain_is_not_cut(kept: Stores) -> None:
    assert await cut(kept, 500) == 0
    assert await read_all(kept) == []


def plant(message: Message) -> None:
    """Puts the secret into every text of a message that may not be shown."""
    for described in message.DESCRIPTOR.fields:
        shown = SHOWN.get(message.DESCRIPTOR.full_name, frozenset())
        is_hidden = described.name not in shown and shown is not ALL
        if described.message_type is not None:
            if described.message_type.GetOptions().map_entry:
                if is_hidden and described.message_type.fields_by_name["value"].type == 9:
                    getattr(message, described.name)["key"] = SECRET
            elif described.is_repeated:
                plant(getattr(message, described.name).add())
            else:
                below = getattr(message, described.name)
                below.SetInParent()
                plant(below)
        elif described.type == described.TYPE_STRING and is_hidden:
            if described.is_repeated:
                getattr(message, described.name).append(SECRET)
            else:
                setattr(message, described.name, SECRET)


ENTITIES = [
    project_pb2.Project,
    piped_pb2.Piped,
    apikey_pb2.APIKey,
    application_pb2.Application,
]


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda each: each.__name__)
def test_what_may_not_be_shown_is_told_by_its_name_alone(entity: type[Message]) -> None:
    secret = entity()
    plant(secret)
    assert SECRET.encode() in secret.SerializeToString()

    for before, after in ((None, secret), (secret, None), (secret, entity())):
        noted = NotedChange(noun="thing", id="t1", before=before, after=after)
        shown = "".join(describe_changes([noted, noted])) + "".join(describe_changes([noted]))
        assert SECRET not in shown
        assert HIDDEN in shown


SUSPICIOUS = ("secret", "password", "hash", "token", "private", "credential", "key_hash", "remote")


def test_no_field_with_the_name_of_a_secret_is_shown() -> None:
    for name, fields in SHOWN.items():
        for each in fields:
            is_told = any(word in each for word in SUSPICIOUS) and each != "commit_hash"
            assert not is_told, f"{name}.{each}"


def test_a_password_in_a_url_is_left_out() -> None:
    before = application_pb2.Application(description=f"see https://ada:{SECRET}@git.example.com/x")
    noted = NotedChange(noun="application", id="a1", before=before, after=None)

    was, _ = describe_changes([noted])

    assert json.loads(was) == {"description": "see https://git.example.com/x"}


def test_a_change_of_a_secret_alone_is_told_without_it() -> None:
    def make(secret: str) -> project_pb2.Project:
        project = project_pb2.Project(id="p")
        project.static_admin.username = "admin"
        project.static_admin.password_hash = secret
        return project

    before, after = describe_changes(
        [NotedChange(noun="project", id="p", before=make("a-hash"), after=make("another-hash"))]
    )

    told = {"static_admin": {"password_hash": HIDDEN, "username": "admin"}}
    assert json.loads(before) == json.loads(after) == told


def test_of_a_list_only_what_is_gone_and_new_is_told() -> None:
    def make(*groups: str) -> project_pb2.Project:
        return project_pb2.Project(
            user_groups=[
                project_pb2.ProjectUserGroup(sso_group=each, role="Viewer") for each in groups
            ]
        )

    before, after = describe_changes(
        [NotedChange(noun="project", id="p", before=make("a", "b"), after=make("b", "c"))]
    )

    assert json.loads(before) == {"user_groups": [{"sso_group": "a", "role": "Viewer"}]}
    assert json.loads(after) == {"user_groups": [{"sso_group": "c", "role": "Viewer"}]}


def test_a_change_is_never_longer_than_a_record_may_hold() -> None:
    labels = {f"{n}" + "k" * 300: "v" * 10_000 for n in range(500)}
    noted = [
        NotedChange(
            noun="application",
            id=f"a{n}",
            before=None,
            after=application_pb2.Application(labels=labels, description="d" * 100_000),
        )
        for n in range(3)
    ]

    for changes in (noted, noted[:1]):
        _, after = describe_changes(changes)
        assert len(after) <= LONGEST_JSON
        assert "characters" in json.loads(after)["…"]
