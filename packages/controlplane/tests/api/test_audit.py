# SPDX-License-Identifier: Apache-2.0
"""The audit over the real wire: what is recorded of calls, how much it holds, and no secret."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.auth.call_audit import find_subject
from pipecd_controlplane.store.audit import AuditFilter
from pipecd_controlplane.store.auditing import AuditSubject
from pipecd_controlplane.usecases.audit_actors import describe_act, describe_person
from pipecd_controlplane.usecases.gathered_audit import MOST_KINDS, VARIOUS
from pipecd_model.audit import ChainVerifier, format_head, parse_head
from pipecd_test_support.controlplane_server import ProgramClient, Serve, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import apikey_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import call
from pipecd_wire.rpc.handlers import describe

PLANTED = "planted-secret-value"


async def read_audit(plane: ServedControlPlane, **wanted: Any) -> list[pb.AuditRecord]:
    await plane.running.gathered_audit.flush()
    request = pb.ListAuditRequest(oldest_first=True, **wanted)
    return list((await call(plane.admin.project.ListAudit, request)).records)


def read(text: str) -> Any:
    return json.loads(text) if text else {}


async def test_an_approval_says_who_what_and_to_which_deployment(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    stage = plane.build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=deployment_pb2.STAGE_RUNNING,
        available_operation=deployment_pb2.MANUAL_OPERATION_APPROVE,
    )
    await plane.deployment(agent, application_id, "d1", stage)
    ci = await plane.user(await plane.new_key("ci"), extra=[("x-request-id", "build-7")])

    answer = await call(
        ci.deployments.ApproveStage, pb.ApproveStageRequest(deployment_id="d1", stage_id="s1")
    )

    [record] = await read_audit(plane, action="ApproveStage")
    assert (record.actor_kind, record.actor) == (pb.AuditRecord.API_KEY, "ci")
    assert record.actor_id == ci.key.partition(".")[0]
    assert (record.subject_kind, record.subject, record.subject_name) == (
        "deployment",
        "d1",
        "hello",
    )
    assert record.request_id == "build-7"
    assert read(record.after)[f"command {answer.command_id}"]["stage_id"] == "s1"


async def test_the_comment_of_a_call_is_its_reason(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1", plane.build.stage("s1"))
    await call(
        plane.admin.deployments.CancelDeployment,
        pb.CancelDeploymentRequest(deployment_id="d1", comment="black friday"),
    )

    [record] = await read_audit(plane, action="CancelDeployment")

    assert record.reason == "black friday"


def test_a_roll_back_is_about_the_application() -> None:
    """Although it names a deployment as well."""
    [method] = [
        describe(each)
        for each in pb.DESCRIPTOR.services_by_name["ApplicationService"].methods
        if each.name == "RollBackApplication"
    ]
    request = pb.RollBackApplicationRequest(application_id="a1", deployment_id="d1")

    assert find_subject(method, request) == AuditSubject(kind="application", id="a1")


async def test_reports_of_an_agent_are_not_audited(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    end = len(await read_audit(plane))

    await plane.deployment(agent, application_id, "d1", plane.build.stage("s1"))

    assert len(await read_audit(plane)) == end


async def test_a_repeated_call_is_one_change(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    request = api.SyncApplicationRequest(application_id=application_id)
    key = (("pipecd-idempotency-key", "once"),)
    for _ in range(3):
        await call(plane.admin.api.SyncApplication, request, metadata=key)

    changed, *repeated = await read_audit(plane, action="SyncApplication")

    assert (changed.outcome, changed.count) == ("OK", 0)
    assert {(each.outcome, each.after) for each in repeated} == {("UNCHANGED", "")}
    assert sum(each.count for each in repeated) == 2


async def test_what_a_caller_may_not_do_is_counted_once_a_minute(
    plane: ServedControlPlane,
) -> None:
    reader = await plane.user(await plane.new_key("reader", role=apikey_pb2.APIKey.READ_ONLY))
    for _ in range(30):
        refusal = await call_refused(reader.api.RegisterPiped, api.RegisterPipedRequest(name="x"))
        assert refusal.status == "PERMISSION_DENIED"

    records = await read_audit(plane, actor="reader")

    assert {(each.action, each.outcome) for each in records} == {
        ("RegisterPiped", "PERMISSION_DENIED")
    }
    # One, or one more for each time that the timed job came in between.
    assert sum(each.count for each in records) == 30
    assert len(records) < 30


async def test_many_kinds_of_refusals_are_bounded(plane: ServedControlPlane) -> None:
    gathered = plane.running.gathered_audit
    for number in range(10 * MOST_KINDS):
        actor = describe_person(f"p{number}", 2, "192.0.2.1")
        gathered.note(describe_act("default", actor, "Try", 1), "PERMISSION_DENIED")

    records = await read_audit(plane, action="Try") + await read_audit(plane, action=VARIOUS)

    assert len(records) == MOST_KINDS + 1
    [others] = [each for each in records if each.actor == VARIOUS]
    assert others.count == 9 * MOST_KINDS


async def test_a_record_is_of_its_own_project(plane: ServedControlPlane) -> None:
    theirs = await plane.other_project()
    await call(theirs.api.RegisterPiped, api.RegisterPipedRequest(name="theirs"))

    assert await read_audit(plane, actor="theirs") == []
    answer = await call(theirs.project.ListAudit, pb.ListAuditRequest())
    assert [each.action for each in answer.records] == ["RegisterPiped"]
    assert answer.head.sequence == 1


async def test_lists_are_filtered_by_time(plane: ServedControlPlane) -> None:
    await plane.agent()
    records = await read_audit(plane)
    last = records[-1].at.seconds

    assert await read_audit(plane, since=Timestamp(seconds=last + 1)) == []
    assert await read_audit(plane, before=Timestamp(seconds=records[0].at.seconds)) == []
    assert await read_audit(plane, since=Timestamp(seconds=records[0].at.seconds)) == records


async def plant(plane: ServedControlPlane, admin: ProgramClient) -> list[str]:
    """Calls with secrets in them, and what is secret of the answers."""
    piped = await call(
        admin.api.RegisterPiped, api.RegisterPipedRequest(name="agent", desc="plain")
    )
    agent = await plane.agent_with("default", piped.id, piped.key)
    await call_refused(admin.api.Encrypt, api.EncryptRequest(piped_id=agent.id, plaintext=PLANTED))
    await call(
        admin.api.RegisterEvent,
        api.RegisterEventRequest(name="image", data=PLANTED, contexts={"token": PLANTED}),
    )
    return [piped.key, admin.key, PLANTED]


async def test_no_secret_of_a_call_is_in_the_audit(
    plane: ServedControlPlane, tmp_path: Path
) -> None:
    secrets = await plant(plane, plane.admin)
    secrets.append((tmp_path / "data" / "admin.password").read_text().strip())
    records = await read_audit(plane)

    assert {"RegisterPiped", "RegisterEvent"} <= {each.action for each in records}
    for record in records:
        for secret in secrets:
            assert secret not in str(record)
            assert secret not in record.before + record.after


async def test_the_chain_goes_on_after_a_restart_and_its_heads_are_logged(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        async with serve(tmp_path / "data") as plane:
            await plane.agent()
            records = await read_audit(plane)
            page = await plane.stores.audit.page("default", AuditFilter(), limit=1, cursor="")

    logged = [
        parse_head(fields["head"])
        for line in caplog.records
        if line.getMessage() == "audit.head" and (fields := getattr(line, "fields", None))
    ]
    assert page.head in logged
    verifier = ChainVerifier(logged)
    for record in records:
        verifier.add(record)
    verifier.finish()
    assert verifier.broken is None
    assert [each.sequence for each in logged] == sorted(each.sequence for each in logged)
    # At the start and the end of each: the first has one record, made by the server itself.
    assert format_head(logged[0]).startswith("1:")
    assert logged[-1] == page.head
