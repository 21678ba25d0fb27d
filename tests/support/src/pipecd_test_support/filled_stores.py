# SPDX-License-Identifier: Apache-2.0
"""Fills every table of a control plane through its stores, with texts and bytes of every kind."""

from pipecd_controlplane.store.auditing import auditing
from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.hooks import StoredHook
from pipecd_controlplane.store.leases import LeaseRecord
from pipecd_controlplane.store.log_chunks import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.store.value_sealing import REST_SECONDS, ValueSealing
from pipecd_controlplane.usecases.audit_actors import (
    ADD_PROJECT,
    describe_act,
    describe_operator,
)
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import (
    analysis_result_pb2,
    apikey_pb2,
    application_live_state_pb2,
    command_pb2,
    deployment_chain_pb2,
    deployment_pb2,
    deployment_trace_pb2,
    event_pb2,
    logblock_pb2,
    project_pb2,
)
from pipecd_wire.pipecd.api import access_pb2, repositories_pb2
from pipecd_wire.pipecd.control import control_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice

PROJECT = "ours"
PIPED = "piped"
NOON = MessageBuilder.NOON

# In the order of their bytes as UTF-8, which is not that of other encodings.
ODD_TEXTS = (
    "",
    "\x01 control",
    '\' OR "1"="1" -- \\N \t\n',
    "Zürich",
    "e\u0301 combined",
    "\u202eright to left",
    "\ufffd\uffff no character",
    "\U0001f680 rocket",
    "x" * 5000,
)
SEALED_LOGS = 3
SEALED_BYTES = 70_000
"""Enough for an object."""
SEALED_VALUES = 2
SEALED_OBJECTS = SEALED_LOGS + SEALED_VALUES
ALL_BYTES = bytes(range(256))


async def fill_every_table(
    kept: Stores, blobs: BlobStore, *, log_chunks: int = 3, chunk_bytes: int = 1000
) -> None:
    """Writes rows into all tables, and objects, as a server does that has run for a while."""
    await _fill_project(kept)
    await _fill_people(kept)
    await _fill_agent(kept)
    for number, text in enumerate(ODD_TEXTS):
        await _fill_application(kept, f"app-{number}-{text[:20]}", text)
    await _fill_logs(kept, blobs, log_chunks, chunk_bytes)
    await _fill_values(kept, blobs)
    await _fill_commands(kept)


async def _fill_project(kept: Stores) -> None:
    for number, text in enumerate(ODD_TEXTS):
        await _add_project(kept, f"{PROJECT}-{number}" if number else PROJECT, text)
    for number in range(20):

        def describe(project: project_pb2.Project, number: int = number) -> None:
            project.desc = f"description {number}"

        with auditing(describe_act(PROJECT, describe_operator(), "UpdateProject", NOON + number)):
            await kept.projects.update(PROJECT, describe)


async def _add_project(kept: Stores, project_id: str, text: str) -> None:
    async def add(transaction: Transaction) -> None:
        await kept.projects.add_in(transaction, project_pb2.Project(id=project_id, desc=text))
        await kept.rules.change_in(
            transaction, project_id, project_id, lambda _stored: control_pb2.ProjectRules()
        )

    with auditing(describe_act(project_id, describe_operator(), ADD_PROJECT, NOON)):
        await kept.database.write(add)


async def _fill_people(kept: Stores) -> None:
    key = apikey_pb2.APIKey(id="key", name="key", key_hash="hash", project_id=PROJECT)
    await kept.api_keys.add(key)
    await kept.api_key_facts.record_uses({(PROJECT, "key"): NOON})
    session = access_pb2.Session(
        id="session", project_id=PROJECT, subject=ODD_TEXTS[3], expires_at=NOON * 2
    )
    await kept.sessions.add(session, "hash")
    hook = repositories_pb2.Hook(id="hook", project_id=PROJECT, name="hook")
    await kept.hooks.add(StoredHook(hook=hook, secret="closed"), most=10)  # noqa: S106 - none


async def _fill_agent(kept: Stores) -> None:
    build = MessageBuilder()
    await kept.pipeds.add(build.piped(id=PIPED, project_id=PROJECT))
    await kept.plugin_states.put(PROJECT, PIPED, push_pb2.ReportPluginsRequest())
    await kept.queues.put(PROJECT, PIPED, push_pb2.ReportQueueRequest())
    await kept.piped_stats.put(
        PROJECT, PIPED, pipedservice.ReportStatRequest(piped_stats=ALL_BYTES)
    )
    await kept.unregistered.put(
        PROJECT, PIPED, pipedservice.ReportUnregisteredApplicationConfigurationsRequest()
    )
    await kept.leases.change(PROJECT, PIPED, lambda _stored: LeaseRecord(epoch=2**40))
    await kept.alarms.raise_for(PROJECT, PIPED, "alarm", ODD_TEXTS[2])


async def _fill_application(kept: Stores, application_id: str, text: str) -> None:
    build = MessageBuilder()
    labels = {"team": text, text[:50] or "none": "value"}
    application = build.application(
        id=application_id, name=text, project_id=PROJECT, piped_id=PIPED, labels=labels
    )
    await kept.applications.add(application)
    deployment = build.deployment(
        id=f"deployment of {application_id}",
        application_id=application_id,
        application_name=text,
        project_id=PROJECT,
        piped_id=PIPED,
        labels=labels,
        status=deployment_pb2.DEPLOYMENT_SUCCESS,
        completed_at=NOON + 60,
        deployment_chain_id=f"chain of {application_id}",
        deployment_trace_commit_hash="c0ffee",
    )
    await kept.deployments.add(deployment)
    await kept.events.add(
        event_pb2.Event(
            id=f"event of {application_id}",
            name=text,
            data=text,
            project_id=PROJECT,
            event_key=text,
            labels=labels,
            created_at=NOON,
            updated_at=NOON,
        )
    )
    await kept.chains.add(
        deployment_chain_pb2.DeploymentChain(
            id=f"chain of {application_id}", project_id=PROJECT, created_at=NOON, updated_at=NOON
        )
    )
    await kept.traces.add(
        deployment_trace_pb2.DeploymentTrace(
            id=f"trace of {application_id}",
            project_id=PROJECT,
            commit_hash="c0ffee",
            created_at=NOON,
            updated_at=NOON,
        )
    )
    await kept.shared_objects.put(PROJECT, application_id, "plugin", "key", ALL_BYTES)
    await kept.database.write(lambda transaction: _add_records(kept, transaction, application_id))


async def _add_records(kept: Stores, transaction: Transaction, application_id: str) -> None:
    live = application_live_state_pb2.ApplicationLiveStateSnapshot(application_id=application_id)
    await kept.live_states.change_in(transaction, PROJECT, application_id, lambda _stored: live)
    result = analysis_result_pb2.AnalysisResult(start_time=NOON)
    await kept.analysis_results.change_in(
        transaction, PROJECT, application_id, lambda _stored: result
    )
    control = control_pb2.ApplicationControl(application_id=application_id)
    await kept.controls.change_in(transaction, PROJECT, application_id, lambda _stored: control)
    record = control_pb2.DeploymentRecord(deployment_id=f"deployment of {application_id}")
    await kept.records.change_in(transaction, PROJECT, record.deployment_id, lambda _stored: record)


async def _fill_logs(kept: Stores, blobs: BlobStore, chunks: int, chunk_bytes: int) -> None:
    """One log that is being written, and one that is an object."""
    running = LogKey(deployment_id="deployment of app-0-", stage_id="s1", retried_count=0)
    for number in range(chunks):
        await _append(kept, running, number, chunk_bytes, completed=False)
    for number in range(SEALED_LOGS):
        sealed = LogKey(deployment_id="deployment of app-0-", stage_id="s2", retried_count=number)
        await _append(kept, sealed, 0, SEALED_BYTES, completed=True)
        await _append(kept, sealed, 1, SEALED_BYTES, completed=True, reopen=True)
    for due in await kept.log_sealing.list_due():
        assert await kept.log_sealing.seal(blobs, due)


async def _fill_values(kept: Stores, blobs: BlobStore) -> None:
    """A live state and a shared object that are objects."""
    large = ALL_BYTES * 1024

    async def add(transaction: Transaction) -> None:
        live = application_live_state_pb2.ApplicationLiveStateSnapshot(application_id="large")
        live.application_live_state.resources.add(id="large", name="x" * len(large))
        await kept.live_states.change_in(transaction, PROJECT, "large", lambda _stored: live)

    await kept.database.write(add)
    await kept.shared_objects.put(PROJECT, "large", "plugin", "key", large)
    sealing = ValueSealing(kept.database, lambda: NOON + 60 + REST_SECONDS)
    due = [each async for each in sealing.iterate_due()]
    assert [await sealing.seal(blobs, each) for each in due] == [True] * SEALED_VALUES


async def _append(
    kept: Stores, key: LogKey, number: int, size: int, *, completed: bool, reopen: bool = False
) -> None:
    text = f"{number} ".ljust(size, "=")
    block = logblock_pb2.LogBlock(index=number, log=text, created_at=NOON)
    await kept.stage_logs.append(PROJECT, key, [block], completed=completed, reopen=reopen)


async def _fill_commands(kept: Stores) -> None:
    build = MessageBuilder()
    command = build.command(id="c1", piped_id=PIPED, project_id=PROJECT)
    await kept.commands.add(command)
    outcome = command_pb2.Command(id="c1", status=command_pb2.COMMAND_SUCCEEDED, handled_at=NOON)
    await kept.commands.record_outcome(PROJECT, PIPED, outcome, ALL_BYTES)
    await kept.push_commands.add(PROJECT, PIPED, push_pb2.Command(id="own"))
