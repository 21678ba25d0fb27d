# SPDX-License-Identifier: Apache-2.0
"""The whole way: a commit or a wish becomes a deployment, and its end is known."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import ApplicationSyncStatus
from pipecd_wire.model.command_pb2 import COMMAND_SUCCEEDED
from pipecd_wire.rpc import call

ON_COMMIT: dict[str, Any] = {"trigger": {}}


def script(text: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": text}}


async def deployments_of(
    client: SiteClient, application_id: str, at_least: int
) -> list[pb.Deployment]:
    """Wait for so many deployments of an application."""
    request = external.ListDeploymentsRequest(application_ids=[application_id], limit=100)
    answer = await wait_answer(
        lambda: call(client.api.ListDeployments, request),
        lambda it: len(it.deployments) >= at_least,
    )
    return list(answer.deployments)


async def test_a_registered_application_is_deployed_and_each_commit_after_it(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    record = shared_site.folder / "flow"
    commit = shared_site.commit_application("flow", [script(f"echo one >> {record}")], **ON_COMMIT)
    application_id = await shared_client.register("flow")
    [first] = await deployments_of(shared_client, application_id, 1)
    first = await shared_client.completed(first.id)
    assert first.status == pb.DEPLOYMENT_SUCCESS, first.status_reason
    assert first.trigger.commit.hash == commit
    assert first.running_commit_hash == ""

    later = shared_site.commit_application("flow", [script(f"echo two >> {record}")], **ON_COMMIT)
    known = await deployments_of(shared_client, application_id, 2)
    [second] = [each for each in known if each.trigger.commit.hash == later]
    second = await shared_client.completed(second.id)

    assert second.status == pb.DEPLOYMENT_SUCCESS, second.status_reason
    assert second.running_commit_hash == commit
    assert shared_site.records("flow") == ["one", "two"]


async def test_a_person_can_ask_for_a_deployment(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    shared_site.commit_application("asked", [script("true")])
    application_id = await shared_client.register("asked")

    asked = await call(
        shared_client.api.SyncApplication,
        external.SyncApplicationRequest(application_id=application_id),
    )
    [made] = await deployments_of(shared_client, application_id, 1)
    ended = await shared_client.completed(made.id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    request = external.GetCommandRequest(command_id=asked.command_id)
    answer = await wait_answer(
        lambda: call(shared_client.api.GetCommand, request), lambda it: it.command.status != 0
    )
    command = answer.command
    assert command.status == COMMAND_SUCCEEDED
    assert command.metadata["TriggeredDeploymentID"] == made.id


async def test_a_broken_application_file_is_told_where_its_author_looks(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    """No deployment comes of it: the application itself says what is wrong, and where."""
    shared_site.commit({"sad/app.pipecd.yaml": "kind: Application\nspec: [\n"})
    application_id = await shared_client.register("sad")

    request = external.GetApplicationRequest(application_id=application_id)
    answer = await wait_answer(
        lambda: call(shared_client.api.GetApplication, request),
        # The piped may have looked before it had seen the commit.
        lambda it: "app.pipecd.yaml:3:1" in it.application.sync_state.reason,
    )

    assert answer.application.sync_state.status == ApplicationSyncStatus.INVALID_CONFIG


async def test_the_application_shows_what_runs_and_whether_it_is_being_deployed(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    gate = shared_site.folder / "shown-gate"
    commit = shared_site.commit_application(
        "shown", [script(f"while [ ! -e {gate} ]; do sleep 0.05; done")], **ON_COMMIT
    )
    application_id = await shared_client.register("shown")
    request = external.GetApplicationRequest(application_id=application_id)
    [made] = await deployments_of(shared_client, application_id, 1)
    await shared_client.stage_running(made.id, 0)

    during = (await call(shared_client.api.GetApplication, request)).application
    await asyncio.to_thread(gate.touch)
    await shared_client.completed(made.id)
    answer = await wait_answer(
        lambda: call(shared_client.api.GetApplication, request),
        lambda it: not it.application.deploying,
    )
    after = answer.application

    assert during.deploying
    assert not during.HasField("most_recently_successful_deployment")
    assert after.most_recently_successful_deployment.deployment_id == made.id
    assert after.most_recently_successful_deployment.trigger.commit.hash == commit
    assert after.most_recently_successful_deployment.completed_at > 0


async def test_what_an_application_file_says_of_itself_is_shown(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    shared_site.commit_application("named", [script("true")], labels={"team": "product"})
    application_id = await shared_client.register("named")

    answer = await wait_answer(
        lambda: call(
            shared_client.api.GetApplication,
            external.GetApplicationRequest(application_id=application_id),
        ),
        lambda it: bool(it.application.labels),
    )

    assert dict(answer.application.labels) == {"team": "product"}


async def test_deployments_of_one_application_run_one_after_the_other(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    record = shared_site.folder / "queue"
    gate = shared_site.folder / "queue-gate"
    text = f"echo $SR_TRIGGERED_COMMIT_HASH >> {record}\nwhile [ ! -e {gate} ]; do sleep 0.05; done"
    commits = [shared_site.commit_application("queue", [script(text)], **ON_COMMIT)]
    application_id = await shared_client.register("queue")
    [first] = await deployments_of(shared_client, application_id, 1)
    await shared_client.stage_running(first.id, 0)
    commits.append(shared_site.commit_application("queue", [script(text + "\ntrue")], **ON_COMMIT))
    known = await deployments_of(shared_client, application_id, 2)
    [second] = [each for each in known if each.trigger.commit.hash == commits[1]]

    waiting = await shared_client.until(second.id, lambda it: True)
    await asyncio.to_thread(gate.touch)
    await shared_client.completed(second.id)

    assert waiting.status == pb.DEPLOYMENT_PENDING
    assert shared_site.records("queue") == commits


async def test_a_queued_deployment_is_cancelled_at_once(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    gate = shared_site.folder / "drop-gate"
    text = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    shared_site.commit_application("drop", [script(text)], **ON_COMMIT)
    application_id = await shared_client.register("drop")
    [first] = await deployments_of(shared_client, application_id, 1)
    await shared_client.stage_running(first.id, 0)
    shared_site.commit_application("drop", [script(text + "\ntrue")], **ON_COMMIT)
    known = await deployments_of(shared_client, application_id, 2)
    [second] = [each for each in known if each.id != first.id]

    await shared_client.cancel(second.id)
    dropped = await shared_client.completed(second.id)
    await asyncio.to_thread(gate.touch)
    kept = await shared_client.completed(first.id)

    assert dropped.status == pb.DEPLOYMENT_CANCELLED
    assert dropped.status_reason.endswith(" before it began")
    assert list(dropped.stages) == []
    assert kept.status == pb.DEPLOYMENT_SUCCESS


async def test_the_masked_configuration_is_known_and_the_key_is_not(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    answer = await call(
        shared_client.api.GetPiped, external.GetPipedRequest(piped_id=shared_site.piped_id)
    )

    assert "pipedID" in answer.piped.config
    assert shared_site.key not in answer.piped.config
    assert [each.id for each in answer.piped.repositories] == ["example"]
    assert {each.name for each in answer.piped.plugins} == {
        "wait",
        "waitapproval",
        "scriptrun",
        "dummy",
    }
    assert json.dumps(shared_site.key) not in shared_site.log_text()


async def test_a_setting_without_effect_is_said_on_the_page_and_in_the_log_until_it_is_gone(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    """And the deployment goes on: it is a note, not a fault."""
    idle = {"driftDetection": {"ignoreFields": ["v1:ConfigMap:default:a#data"]}}
    shared_site.commit_application("idle", [script("true")], **ON_COMMIT, **idle)
    application_id = await shared_client.register("idle")
    request = external.GetApplicationRequest(application_id=application_id)

    def ask() -> Awaitable[external.GetApplicationResponse]:
        return call(shared_client.api.GetApplication, request)

    sentence = "spec.driftDetection has no effect: no field is left out of the comparison yet"
    await wait_answer(ask, lambda it: sentence in it.application.sync_state.reason)
    [made] = await deployments_of(shared_client, application_id, 1)
    assert (await shared_client.completed(made.id)).status == pb.DEPLOYMENT_SUCCESS
    said = [
        line["warning"]
        for line in shared_site.events()
        if line["event"] == "application.file_odd" and "idle/" in line["warning"]
    ]
    assert [text.partition(" ")[2] for text in said] == [
        "spec.driftDetection: has no effect: no field is left out of the comparison yet"
    ], "once for a version of the file"

    shared_site.commit_application("idle", [script("true")], **ON_COMMIT)
    await wait_answer(ask, lambda it: sentence not in it.application.sync_state.reason)
