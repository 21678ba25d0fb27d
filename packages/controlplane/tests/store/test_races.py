# SPDX-License-Identifier: Apache-2.0
"""Two processes change one thing at once: neither change is lost, and no rule is broken."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.leases import LeaseRecord
from pipecd_controlplane.store.open import DatabaseConfig
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import push_commands
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_test_support.chosen_store import choose_database
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.racing_database import RacingDatabase
from pipecd_wire.model import analysis_result_pb2, application_pb2, command_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipecd.push import push_pb2

LOG = LogKey(deployment_id="d1", stage_id="s1")


@pytest.fixture
def store_config(store_kind: str, tmp_path: Path) -> DatabaseConfig:
    """Not one that runs each unit twice: here runs are counted."""
    return choose_database(tmp_path / "data", repeat_units=False)


@pytest.fixture
def racing(database: Database) -> RacingDatabase:
    return RacingDatabase(database)


@pytest.fixture
def kept(racing: RacingDatabase) -> Stores:
    return stores(racing, lambda: MessageBuilder.NOON + 60)


def take(instance_id: str) -> Callable[[LeaseRecord], LeaseRecord]:
    """An edit that takes a lease which is free."""

    def edit(record: LeaseRecord) -> LeaseRecord:
        if record.instance_id:
            return record
        return replace(record, epoch=record.epoch + 1, instance_id=instance_id)

    return edit


@pytest.mark.parametrize("released_before", [False, True])
async def test_one_lease_is_never_given_to_two(
    racing: RacingDatabase, kept: Stores, released_before: bool
) -> None:
    if released_before:
        await kept.leases.change("ours", "piped", take("first"))
        await kept.leases.change("ours", "piped", lambda record: replace(record, instance_id=""))

    async def rival(theirs: Stores) -> None:
        await theirs.leases.change("ours", "piped", take("rival"))

    racing.rival = rival
    given = await kept.leases.change("ours", "piped", take("late"))

    assert given.instance_id == "rival"
    assert await kept.leases.get("ours", "piped") == given
    assert racing.runs == 2


async def test_a_renewal_that_overtakes_is_seen(racing: RacingDatabase, kept: Stores) -> None:
    """Who judges a holder silent must not take the lease when a renewal came in between."""
    held = await kept.leases.change("ours", "piped", take("holder"))

    async def rival(theirs: Stores) -> None:
        await theirs.leases.change(
            "ours", "piped", lambda record: replace(record, renewals=record.renewals + 1)
        )

    def take_over(record: LeaseRecord) -> LeaseRecord:
        if record.renewals != held.renewals:
            return record
        return replace(record, epoch=record.epoch + 1, instance_id="other")

    racing.rival = rival

    assert (await kept.leases.change("ours", "piped", take_over)).instance_id == "holder"


async def test_two_edits_of_a_project_are_both_kept(racing: RacingDatabase, kept: Stores) -> None:
    async def add(transaction: Transaction) -> None:
        await kept.projects.add_in(transaction, project_pb2.Project(id="ours"))

    def describe(project: project_pb2.Project) -> None:
        project.desc = "theirs"

    def disable(project: project_pb2.Project) -> None:
        project.static_admin_disabled = True

    async def rival(theirs: Stores) -> None:
        await theirs.projects.update("ours", describe)

    await racing.write(add)
    racing.rival = rival
    await kept.projects.update("ours", disable)

    project = await kept.projects.get("ours")
    assert (project.desc, project.static_admin_disabled) == ("theirs", True)


async def test_two_edits_of_an_entity_are_both_kept(
    racing: RacingDatabase, kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application())

    def rename(application: application_pb2.Application) -> None:
        application.name = "other"

    def disable(application: application_pb2.Application) -> None:
        application.disabled = True

    async def rival(theirs: Stores) -> None:
        await theirs.applications.update("ours", "app", rename)

    racing.rival = rival
    await kept.applications.update("ours", "app", disable)

    application = await kept.applications.get("ours", "app")
    assert (application.name, application.disabled) == ("other", True)


@pytest.mark.parametrize("known", [False, True])
async def test_a_record_is_made_of_the_newest_one(
    racing: RacingDatabase, kept: Stores, known: bool
) -> None:
    async def grow(target: Stores) -> None:
        def edit(
            record: ReportedMessage[analysis_result_pb2.AnalysisResult] | None,
        ) -> analysis_result_pb2.AnalysisResult:
            before = record.message.start_time if record else 0
            return analysis_result_pb2.AnalysisResult(start_time=before + 1)

        async def work(transaction: Transaction) -> None:
            await target.analysis_results.change_in(transaction, "ours", "app", edit)

        await target.database.write(work)

    if known:
        await grow(kept)
    racing.rival = grow
    await grow(kept)

    found = await kept.analysis_results.find("ours", "app")
    assert found is not None
    assert found.message.start_time == (3 if known else 2)


@pytest.mark.parametrize("known", [False, True])
async def test_blocks_of_two_appends_are_both_kept(
    racing: RacingDatabase, kept: Stores, build: MessageBuilder, known: bool
) -> None:
    if known:
        await kept.stage_logs.append("ours", LOG, build.blocks(0), completed=False)

    async def rival(theirs: Stores) -> None:
        await theirs.stage_logs.append("ours", LOG, build.blocks(1, 2), completed=False)

    racing.rival = rival
    await kept.stage_logs.append("ours", LOG, build.blocks(2, 3), completed=True)

    part = await kept.stage_logs.part("ours", LOG)
    assert [block.index for block in part.blocks] == ([0] if known else []) + [1, 2, 3]
    assert part.completed


async def test_the_first_outcome_of_a_push_command_stays(
    racing: RacingDatabase, kept: Stores
) -> None:
    await kept.push_commands.add("ours", "piped", push_pb2.Command(id="c1"))

    async def finish(target: Stores, reason: str) -> None:
        await push_commands.record_outcome(
            target,
            Agent(project_id="ours", piped_id="piped"),
            push_pb2.ReportCommandHandledRequest(command_id="c1", succeeded=True, reason=reason),
        )

    racing.rival = lambda theirs: finish(theirs, "first")
    await finish(kept, "second")

    assert await kept.push_commands.find_unhandled("ours", "piped", "c1") is None
    assert racing.runs == 1


async def test_the_first_outcome_of_a_command_stays_with_its_output(
    racing: RacingDatabase, kept: Stores, build: MessageBuilder
) -> None:
    await kept.commands.add(build.command())

    async def finish(target: Stores, output: bytes) -> None:
        outcome = command_pb2.Command(id="c1", status=command_pb2.COMMAND_SUCCEEDED)
        await target.commands.record_outcome("ours", "piped", outcome, output)

    racing.rival = lambda theirs: finish(theirs, b"first")
    await finish(kept, b"second")

    assert await kept.commands.output("ours", "c1") == b"first"


async def test_two_edits_of_a_session_are_both_kept(racing: RacingDatabase, kept: Stores) -> None:
    await kept.sessions.add(access_pb2.Session(id="s", project_id="ours"), "hash")

    async def edit(target: Stores, **fields: int | str) -> None:
        def change(session: access_pb2.Session) -> None:
            session.MergeFrom(access_pb2.Session(**fields))  # type: ignore[arg-type] # by name

        async def work(transaction: Transaction) -> None:
            await target.sessions.update_in(transaction, "ours", "s", change)

        await target.database.write(work)

    racing.rival = lambda theirs: edit(theirs, subject="theirs")
    await edit(kept, expires_at=9)

    found = await kept.sessions.find_by_id("s")
    assert found is not None
    assert (found[0].subject, found[0].expires_at) == ("theirs", 9)
