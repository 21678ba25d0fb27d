# SPDX-License-Identifier: Apache-2.0
"""What every noun promises: one project cannot see another's, and a write is whole."""

import asyncio
from functools import partial

import pytest

from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConflictError, NotFoundError, StateError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import application_pb2, deployment_pb2, piped_pb2


async def test_what_was_added_is_found(kept: Stores, build: MessageBuilder) -> None:
    await kept.deployments.add(build.deployment())

    assert await kept.deployments.get("ours", "d1") == build.deployment()


async def test_a_unit_of_work_finds_what_is_there_and_only_of_its_project(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.deployments.add(build.deployment())

    async def work(transaction: Transaction) -> list[deployment_pb2.Deployment | None]:
        wanted = (("ours", "d1"), ("ours", "d2"), ("theirs", "d1"))
        return [await kept.deployments.find_in(transaction, *each) for each in wanted]

    assert await kept.database.write(work) == [build.deployment(), None, None]


async def test_another_projects_deployment_is_not_found(
    kept: Stores, build: MessageBuilder
) -> None:
    """Not 'forbidden': an answer that confirms it exists is already a leak."""
    await kept.deployments.add(build.deployment())

    with pytest.raises(NotFoundError, match="there is no deployment 'd1'"):
        await kept.deployments.get("theirs", "d1")


async def test_another_projects_deployment_cannot_be_changed(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.deployments.add(build.deployment())

    with pytest.raises(NotFoundError):
        await kept.deployments.update("theirs", "d1", lambda kept: kept.Clear())

    assert await kept.deployments.get("ours", "d1") == build.deployment()


async def test_an_id_is_taken_once(kept: Stores, build: MessageBuilder) -> None:
    await kept.deployments.add(build.deployment())

    with pytest.raises(ConflictError, match="the deployment 'd1' exists already"):
        await kept.deployments.add(build.deployment(summary="another"))

    assert (await kept.deployments.get("ours", "d1")).summary == ""


async def test_a_change_is_kept_and_dated(kept: Stores, build: MessageBuilder) -> None:
    await kept.applications.add(build.application())

    def rename(application: application_pb2.Application) -> None:
        application.name = "renamed"

    changed = await kept.applications.update("ours", "app", rename)

    application = await kept.applications.get("ours", "app")
    assert (application.name, application.updated_at) == ("renamed", build.NOON + 60)
    assert changed == application


async def test_a_change_without_a_difference_is_not_written(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    """A repeated report must not wake everybody who watches."""
    await kept.applications.add(build.application())
    told.clear()

    def same(application: application_pb2.Application) -> None:
        application.name = "hello"

    assert await kept.applications.update("ours", "app", same) == build.application()

    assert told == []
    assert (await kept.applications.get("ours", "app")).updated_at == build.NOON


async def test_a_refused_change_leaves_everything_as_it_was(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    await kept.applications.add(build.application())
    told.clear()

    def refuse(application: application_pb2.Application) -> None:
        application.name = "half done"
        raise StateError("no")

    with pytest.raises(StateError):
        await kept.applications.update("ours", "app", refuse)

    assert (await kept.applications.get("ours", "app")).name == "hello"
    assert told == []


async def test_changes_made_at_once_are_all_kept(kept: Stores, build: MessageBuilder) -> None:
    """Upstream loses some: it reads without a lock."""
    await kept.deployments.add(build.deployment())

    def note(number: int, deployment: deployment_pb2.Deployment) -> None:
        deployment.metadata[f"k{number}"] = "v"

    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(kept.deployments.update("ours", "d1", partial(note, number)))

    assert len((await kept.deployments.get("ours", "d1")).metadata) == 200


async def test_a_committed_write_is_told_with_its_piped(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    await kept.applications.add(build.application())

    assert told == [
        Change(kind=ChangeKind.APPLICATION, id="app", project_id="ours", piped_id="piped")
    ]


async def test_a_moved_application_is_told_to_both_pipeds(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    await kept.applications.add(build.application())
    told.clear()

    def move(application: application_pb2.Application) -> None:
        application.piped_id = "another"

    await kept.applications.update("ours", "app", move)

    assert {change.piped_id for change in told} == {"piped", "another"}


async def ids_of(kept: Stores, wanted: ApplicationFilter) -> list[str]:
    page = await kept.applications.page("ours", wanted, limit=0, cursor="")
    return [each.id for each in page.items]


async def test_it_is_found_by_what_it_is_now(kept: Stores, build: MessageBuilder) -> None:
    await kept.applications.add(build.application(labels={"team": "a"}))
    await kept.applications.add(build.application(id="other", labels={"team": "b"}))

    def edit(application: application_pb2.Application) -> None:
        application.disabled = True
        application.labels["team"] = "c"

    await kept.applications.update("ours", "app", edit)

    assert await ids_of(kept, ApplicationFilter(disabled=True)) == ["app"]
    assert await ids_of(kept, ApplicationFilter(disabled=False)) == ["other"]
    assert await ids_of(kept, ApplicationFilter(labels={"team": "a"})) == []
    assert await ids_of(kept, ApplicationFilter(labels={"team": "b"})) == ["other"]
    assert await ids_of(kept, ApplicationFilter(labels={"team": "c"})) == ["app"]


async def test_new_labels_are_told_by_a_kind_of_their_own(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    """Who listens because labels decide about rights is not woken by anything else."""
    await kept.applications.add(build.application(labels={"team": "a"}))
    told.clear()

    def rename(application: application_pb2.Application) -> None:
        application.name = "renamed"

    await kept.applications.update("ours", "app", rename)
    assert {change.kind for change in told} == {ChangeKind.APPLICATION}

    def relabel(application: application_pb2.Application) -> None:
        application.labels["team"] = "b"

    await kept.applications.update("ours", "app", relabel)
    labels = Change(kind=ChangeKind.LABELS, id="app", project_id="ours")
    assert told.count(labels) == 1


async def test_what_has_no_labels_can_be_changed(kept: Stores, build: MessageBuilder) -> None:
    await kept.pipeds.add(build.piped())

    def rename(piped: piped_pb2.Piped) -> None:
        piped.name = "renamed"

    assert (await kept.pipeds.update("ours", "piped", rename)).name == "renamed"


async def test_several_writes_of_one_transaction_are_kept_or_not_together(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    async def work(transaction: Transaction) -> None:
        await kept.applications.add_in(transaction, build.application(id="one"))
        await kept.applications.add_in(transaction, build.application(id="two"))
        raise StateError("the second thoughts")

    with pytest.raises(StateError):
        await kept.database.write(work)

    assert await kept.applications.find("ours", "one") is None
    assert told == []


async def test_unknown_fields_of_an_entity_survive(kept: Stores, build: MessageBuilder) -> None:
    """A newer piped may send what this version does not know."""
    unknown = b"\xfa\x3f\x03new"  # field 1023, three bytes
    deployment = build.deployment()
    deployment.MergeFromString(unknown)
    await kept.deployments.add(deployment)

    await kept.deployments.update("ours", "d1", lambda kept: kept.metadata.update({"a": "b"}))

    assert unknown in (await kept.deployments.get("ours", "d1")).SerializeToString()
