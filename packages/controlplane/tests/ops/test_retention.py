# SPDX-License-Identifier: Apache-2.0
"""What is old goes when the configuration says so; what is needed or young stays."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pipecd_controlplane.ops.objects import remove_orphans
from pipecd_controlplane.ops.retention import (
    DAY,
    Retention,
    list_retention_jobs,
    purge,
    time_out_commands,
)
from pipecd_controlplane.serve import config
from pipecd_controlplane.store import purge as steps
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.audit import AuditFilter
from pipecd_controlplane.store.auditing import auditing
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.events import EventFilter
from pipecd_controlplane.store.installation_values import choose_value
from pipecd_controlplane.store.kept_objects import KEEPS_OBJECTS, YES, take_over_objects
from pipecd_controlplane.store.log_sealing import DueLog
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import events
from pipecd_controlplane.usecases.audit_actors import SERVER, describe_act
from pipecd_controlplane.usecases.traces import NewTrace
from pipecd_model.audit import ChainVerifier
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import application_pb2, command_pb2, deployment_chain_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

FOREVER = Retention(deployments=0, events=0, commands=0, insights=0, audit=0)


async def ended(
    kept: Stores, build: MessageBuilder, deployment_id: str, at: int, **fields: Any
) -> None:
    await kept.deployments.add(
        build.deployment(
            id=deployment_id,
            status=pb.DEPLOYMENT_SUCCESS,
            completed_at=at,
            labels={"env": "dev"},
            **fields,
        )
    )
    key = LogKey(deployment_id=deployment_id, stage_id="s1")
    await kept.stage_logs.append("ours", key, build.blocks(1, 2), completed=True)


async def rows(kept: Stores, table: str) -> int:
    found = await kept.database.read(lambda view: view.all(select(schema.metadata.tables[table])))
    return len(found)


async def test_an_old_deployment_goes_with_its_logs_and_leaves_its_figures(
    kept: Stores, build: MessageBuilder
) -> None:
    now = build.NOON + 400 * DAY
    await ended(kept, build, "old", build.NOON)
    await ended(kept, build, "young", now - DAY)
    await kept.deployments.add(build.deployment(id="running"))

    await purge(kept, Retention(), lambda: now)

    assert await kept.deployments.find("ours", "old") is None
    assert await kept.deployments.find("ours", "young") is not None
    assert await kept.deployments.find("ours", "running") is not None
    logs = await kept.stage_logs.whole(
        "ours", [LogKey(deployment_id=each, stage_id="s1") for each in ("old", "young")]
    )
    assert [len(part.blocks) for part in logs.values()] == [0, 2]
    assert await rows(kept, "stage_log_chunk") == 1
    figures = await kept.outcomes.tally("ours", build.NOON, now, labels={"env": "dev"})
    assert sum(tally.count for tally in figures) == 2

    await purge(kept, Retention(deployments=1, insights=1), lambda: now + 2 * DAY)

    assert await rows(kept, "deployment_outcome") == 0
    assert await rows(kept, "deployment_label") == 0


async def test_a_deployment_that_was_forgotten_can_be_told_again(
    kept: Stores, build: MessageBuilder
) -> None:
    """By an agent that was away for longer than things are kept."""
    await ended(kept, build, "old", build.NOON)
    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    await ended(kept, build, "old", build.NOON)

    figures = await kept.outcomes.tally("ours", 0, 2 * build.NOON, labels={"env": "dev"})
    assert sum(tally.count for tally in figures) == 1


async def test_the_last_success_of_an_application_stays(
    kept: Stores, build: MessageBuilder
) -> None:
    last = application_pb2.ApplicationDeploymentReference(deployment_id="last")
    await kept.applications.add(build.application(most_recently_successful_deployment=last))
    for deployment_id in ("before", "last"):
        await ended(kept, build, deployment_id, build.NOON)

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    assert await kept.deployments.find("ours", "before") is None
    assert await kept.deployments.find("ours", "last") is not None


async def test_a_deployment_that_is_kept_longer_than_its_figures_is_found_by_its_labels(
    kept: Stores, build: MessageBuilder
) -> None:
    """The last one of an application. Who may only see what has a label must go on seeing it."""
    last = application_pb2.ApplicationDeploymentReference(deployment_id="last")
    await kept.applications.add(build.application(most_recently_successful_deployment=last))
    await ended(kept, build, "last", build.NOON)
    now = build.NOON + 4000 * DAY

    await purge(kept, Retention(), lambda: now)

    assert await rows(kept, "deployment_outcome") == 0
    labelled = DeploymentFilter(labels={"env": "dev"})
    page = await kept.deployments.page("ours", labelled, limit=0, cursor="")
    assert [each.id for each in page.items] == ["last"]

    def delete(application: application_pb2.Application) -> None:
        application.deleted = True

    await kept.applications.update("ours", "app", delete)
    await purge(kept, Retention(), lambda: now)

    assert await kept.deployments.find("ours", "last") is None
    assert await rows(kept, "deployment_label") == 0


async def test_what_was_told_of_a_deleted_application_goes(
    kept: Stores, build: MessageBuilder
) -> None:
    for application_id, deleted in (("gone", True), ("there", False)):
        await kept.applications.add(build.application(id=application_id, deleted=deleted))
        await kept.shared_objects.put("ours", application_id, "plugin", "key", b"x")

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    assert await kept.shared_objects.find("ours", "gone", "plugin", "key") is None
    assert await kept.shared_objects.find("ours", "there", "plugin", "key") == b"x"
    assert await kept.applications.find("ours", "gone") is not None


async def test_more_than_one_step_takes_goes_too(kept: Stores, build: MessageBuilder) -> None:
    for number in range(steps.STEP + 5):
        await kept.deployments.add(
            build.deployment(id=f"d{number}", status=pb.DEPLOYMENT_FAILURE, completed_at=build.NOON)
        )

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    assert await rows(kept, "deployment") == 0


async def test_old_events_traces_chains_and_commands_go(
    kept: Stores, build: MessageBuilder
) -> None:
    await events.register(
        kept,
        "ours",
        name="image",
        data="v1",
        labels={"a": "b"},
        contexts={},
        trace=NewTrace(commit_hash="feed", commit_url="https://x"),
        now=lambda: build.NOON,
    )
    for chain_id, status in (
        ("over", deployment_chain_pb2.DEPLOYMENT_CHAIN_SUCCESS),
        ("going on", deployment_chain_pb2.DEPLOYMENT_CHAIN_RUNNING),
    ):
        await kept.chains.add(
            deployment_chain_pb2.DeploymentChain(
                id=chain_id,
                project_id="ours",
                status=status,
                created_at=build.NOON,
                updated_at=build.NOON,
            )
        )
    await kept.commands.add(build.command(id="handled"))
    await kept.commands.record_outcome(
        "ours",
        "piped",
        command_pb2.Command(id="handled", status=command_pb2.COMMAND_SUCCEEDED, handled_at=5),
        b"output",
    )
    await kept.commands.add(build.command(id="waiting"))

    await purge(kept, FOREVER, lambda: build.NOON + 400 * DAY)
    assert await rows(kept, "event") == 1
    assert await rows(kept, "command") == 2
    assert await rows(kept, "command_output") == 0, "plan previews are asked for within a day"

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    page = await kept.events.page("ours", EventFilter(), limit=0, cursor="")
    assert page.items == []
    assert await rows(kept, "event_label") == 0
    assert await rows(kept, "deployment_trace") == 0
    assert [chain_id for _, chain_id in await kept.chains.list_unfinished()] == ["going on"]
    assert await rows(kept, "deployment_chain") == 1
    assert await kept.commands.find("ours", "handled") is None
    assert await kept.commands.find("ours", "waiting") is not None


async def test_nothing_goes_where_everything_is_kept_for_ever(
    kept: Stores, build: MessageBuilder
) -> None:
    await ended(kept, build, "old", build.NOON)

    await purge(kept, FOREVER, lambda: build.NOON + 4000 * DAY)

    assert await kept.deployments.find("ours", "old") is not None
    assert await rows(kept, "deployment_outcome") == 1


async def test_a_command_that_nobody_took_for_a_day_has_timed_out(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.commands.add(build.command(id="old"))
    await kept.commands.add(build.command(id="young", created_at=build.NOON + DAY))

    await time_out_commands(kept, lambda: build.NOON + DAY + 5)

    old = await kept.commands.get("ours", "old")
    assert (old.status, old.handled_at) == (command_pb2.COMMAND_TIMEOUT, build.NOON + DAY + 5)
    young = await kept.commands.get("ours", "young")
    assert young.status == command_pb2.COMMAND_NOT_HANDLED_YET


async def test_every_timed_job_runs(kept: Stores) -> None:
    jobs = list_retention_jobs(kept, Retention(), lambda: 5)

    for job in jobs:
        await job.run()

    assert {job.name for job in jobs} == {"chains", "unhandled-commands", "retention"}


def test_the_configuration_file_says_how_long(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\n"
        "spec: {retention: {deployments: 10, events: -1, insights: 20}}\n"
    )

    assert config.read(file).retention == Retention(deployments=10, events=0, insights=20)
    assert config.read(None).retention == Retention()

    file.write_text(file.read_text().replace("insights: 20", "insights: 5"))
    with pytest.raises(ConfigError, match="less than those of deployments"):
        config.read(file)


async def act(kept: Stores, build: MessageBuilder, number: int, at: int) -> None:
    with auditing(describe_act("ours", SERVER, "Act", at)):
        await kept.applications.add(build.application(id=f"a{number}", project_id="ours"))


async def read_audit(kept: Stores) -> list[AuditRecord]:
    """The chain, which must be whole."""
    page = await kept.audit.page("ours", AuditFilter(oldest_first=True), limit=1000, cursor="")
    verifier = ChainVerifier()
    for record in page.items:
        verifier.add(record)
    verifier.finish(page.head)
    assert verifier.broken is None
    return page.items


async def test_old_audit_records_are_cut_and_a_record_tells_of_it(
    kept: Stores, build: MessageBuilder
) -> None:
    for number in range(5):
        await act(kept, build, number, number * 10 * DAY)

    await purge(kept, Retention(audit=25), lambda: 41 * DAY)

    records = await read_audit(kept)
    assert [each.sequence for each in records] == [3, 4, 5, 6]
    assert records[-1].action == "CutAudit"
    assert records[-1].reason == "records are kept for 25 days"

    # Once a day is enough: each cut is a record itself.
    await purge(kept, Retention(audit=25), lambda: 45 * DAY + 1)
    assert len(await read_audit(kept)) == 4
    await purge(kept, Retention(audit=25), lambda: 46 * DAY + 1)
    assert [each.sequence for each in await read_audit(kept)] == [4, 5, 6, 7]


async def test_the_audit_is_kept_for_ever_when_the_configuration_says_so(
    kept: Stores, build: MessageBuilder
) -> None:
    await act(kept, build, 1, 1)

    await purge(kept, FOREVER, lambda: 10_000 * DAY)

    assert [each.action for each in await read_audit(kept)] == ["Act"]


async def test_an_old_deployment_goes_with_the_objects_of_its_logs(
    database: Database, build: MessageBuilder, tmp_path: Path
) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    kept = stores(database, lambda: build.NOON, blobs=blobs)
    now = build.NOON + 400 * DAY
    for name, at in (("old", build.NOON), ("young", now - DAY)):
        await ended(kept, build, name, at)
        key = LogKey(deployment_id=name, stage_id="s1")
        assert await kept.log_sealing.seal(blobs, DueLog(project_id="ours", key=key))

    await purge(kept, Retention(), lambda: now)

    assert await rows(kept, "stage_log_object") == 1
    [left] = [each.key async for each in blobs.iterate()]
    logs = await kept.stage_logs.whole(
        "ours", [LogKey(deployment_id=each, stage_id="s1") for each in ("old", "young")]
    )
    assert [len(part.blocks) for part in logs.values()] == [0, 2]
    assert await kept.log_sealing.find_unreferred([left, "other"]) == ["other"]


async def test_a_purge_goes_on_when_the_blob_store_does_not_answer(
    database: Database, build: MessageBuilder, tmp_path: Path
) -> None:
    """What it cannot delete has no row any more, so it is found as an orphan later."""
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    kept = stores(database, lambda: build.NOON, blobs=blobs)
    await ended(kept, build, "old", build.NOON)
    key = LogKey(deployment_id="old", stage_id="s1")
    await kept.log_sealing.seal(blobs, DueLog(project_id="ours", key=key))
    (tmp_path / "blobs").rename(tmp_path / "away")

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    assert await kept.deployments.find("ours", "old") is None
    (tmp_path / "away").rename(tmp_path / "blobs")
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 1
    assert [each async for each in blobs.iterate()] == []


async def test_a_purge_keeps_the_objects_of_a_copy_for_its_original(
    database: Database, build: MessageBuilder, tmp_path: Path
) -> None:
    """Which may keep its logs for longer."""
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    kept = stores(database, lambda: build.NOON, blobs=blobs)
    await ended(kept, build, "old", build.NOON)
    key = LogKey(deployment_id="old", stage_id="s1")
    await kept.log_sealing.seal(blobs, DueLog(project_id="ours", key=key))
    await choose_value(database, KEEPS_OBJECTS, YES)

    await purge(kept, Retention(), lambda: build.NOON + 400 * DAY)

    assert await kept.deployments.find("ours", "old") is None
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 0
    assert await take_over_objects(database)
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 1
