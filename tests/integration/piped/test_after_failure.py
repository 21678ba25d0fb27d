# SPDX-License-Identifier: Apache-2.0
"""After a failure, with real programs: hold, roll back, pin, release; whoever dies meanwhile."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.ids import id_of_command
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, DeploymentRecord
from pipecd_wire.rpc import call


def spec(site: PipedSite, name: str, text: str) -> list[dict[str, Any]]:
    run = f"echo {text} >> {site.folder / name}"
    return [{"name": "SCRIPT_RUN", "with": {"run": "false" if text == "bad" else run}}]


def commit(site: PipedSite, name: str, text: str) -> str:
    """Commit a version of an application that writes a word when it is deployed, or fails."""
    return site.commit_application(name, spec(site, name, text), trigger={})


async def list_deployments(client: SiteClient, application_id: str) -> list[pb.Deployment]:
    request = external.ListDeploymentsRequest(application_ids=[application_id], limit=100)
    return list((await call(client.api.ListDeployments, request)).deployments)


async def deployed(client: SiteClient, application_id: str, wanted: str) -> pb.Deployment:
    """Wait until the newest commit of an application was deployed."""
    found = await wait_answer(
        lambda: list_deployments(client, application_id),
        lambda all_: any(each.trigger.commit.hash == wanted for each in all_),
    )
    [made] = [each for each in found if each.trigger.commit.hash == wanted]
    return await client.completed(made.id)


async def control_of(client: SiteClient, application_id: str) -> ApplicationControl:
    request = own.GetApplicationControlRequest(application_id=application_id)
    return (await call(client.applications.GetApplicationControl, request)).control


async def read_application(client: SiteClient, application_id: str) -> Application:
    request = external.GetApplicationRequest(application_id=application_id)
    return (await call(client.api.GetApplication, request)).application


async def roll_back(client: SiteClient, application_id: str, **to: Any) -> Any:
    request = own.RollBackApplicationRequest(application_id=application_id, **to)
    return await call(client.applications.RollBackApplication, request)


async def wait_known(client: SiteClient, deployment_id: str, application_id: str) -> pb.Deployment:
    await wait_answer(
        lambda: list_deployments(client, application_id),
        lambda all_: any(each.id == deployment_id for each in all_),
    )
    return await client.completed(deployment_id)


async def test_a_failed_commit_is_held_until_it_is_released_or_a_newer_one_comes(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    site, client = shared_site, shared_client
    commit(site, "held", "one")
    application_id = await client.register("held")
    bad = commit(site, "held", "bad")
    failed = await deployed(client, application_id, bad)
    assert failed.status == pb.DEPLOYMENT_FAILURE

    held = await control_of(client, application_id)
    assert (held.hold.commit_hash, held.hold.deployment_id) == (bad, failed.id)
    assert "pipectl application release held" in site.pipectl("why", "held")
    assert bad[:7] in site.pipectl("application", "get", "held", "-o", "table")

    again = site.pipectl("application", "release", "held", "--reason", "once more").strip()
    assert (await client.completed(again)).status == pb.DEPLOYMENT_FAILURE
    assert (await control_of(client, application_id)).hold.deployment_id == again

    good = commit(site, "held", "two")
    assert (await deployed(client, application_id, good)).status == pb.DEPLOYMENT_SUCCESS
    assert not (await control_of(client, application_id)).HasField("hold")
    assert "neither held nor pinned" in site.pipectl("application", "release", "held", code=1)


async def test_a_roll_back_stays_until_it_is_released(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    site, client = shared_site, shared_client
    one = commit(site, "pinned", "one")
    application_id = await client.register("pinned")
    await deployed(client, application_id, one)
    two = commit(site, "pinned", "two")
    await deployed(client, application_id, two)

    shown = site.pipectl("application", "rollback", "pinned", "--dry-run")
    assert "pinned/app.pipecd.yaml" in shown
    assert f"to      {one[:7]}" in shown
    assert "nothing was changed" in shown
    assert not (await control_of(client, application_id)).HasField("pin")
    assert "give --yes" in site.pipectl("application", "rollback", "pinned", code=2)

    made = site.pipectl("application", "rollback", "pinned", "--yes", "--reason", "slow").strip()
    rolled = await client.completed(made)
    assert (rolled.status, rolled.trigger.commit.hash) == (pb.DEPLOYMENT_SUCCESS, one)
    assert rolled.running_commit_hash == two
    assert rolled.summary == "Pipeline: it is a roll-back, and no plugin offers a quick sync"
    record = (
        await call(
            client.deployments.GetDeploymentRecord,
            own.GetDeploymentRecordRequest(deployment_id=made),
        )
    ).record
    assert (record.type, record.reason) == (DeploymentRecord.ROLL_BACK, "slow")

    three = commit(site, "pinned", "three")
    await wait_answer(
        lambda: read_application(client, application_id),
        lambda it: three[:7] in it.sync_state.reason,
    )
    assert "is pinned" in site.pipectl("application", "sync", "pinned", code=1)
    assert "PINNED" in site.pipectl("application", "get", "pinned", "-o", "table")
    assert "PINNED" in site.pipectl("application", "list", "-o", "table")
    assert "pipectl application release pinned" in site.pipectl("why", "pinned")

    assert "released pinned from" in site.pipectl("application", "release", "pinned")
    assert (await deployed(client, application_id, three)).status == pb.DEPLOYMENT_SUCCESS
    assert site.records("pinned") == ["one", "two", "one", "three"]
    found = await wait_answer(
        lambda: read_application(client, application_id),
        lambda it: three[:7] not in it.sync_state.reason,
    )
    assert "wait" not in found.sync_state.reason


async def test_what_the_agent_cannot_do_is_refused_and_leaves_no_pin(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    site, client = shared_site, shared_client
    one = commit(site, "refused", "one")
    application_id = await client.register("refused")
    await deployed(client, application_id, one)

    said = site.pipectl("application", "rollback", "refused", "--to", "f" * 40, "--yes", code=1)

    assert "the piped refused the roll-back: there is no commit fffffff" in said
    assert not (await control_of(client, application_id)).HasField("pin")
    assert len(await list_deployments(client, application_id)) == 1


@pytest.fixture
def own_site(own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]) -> PipedSite:
    site = site_of(own_server)
    site.commit({"README": "an example"})
    site.configure("scriptrun")
    site.start()
    return site


async def test_a_piped_that_dies_makes_the_roll_back_once(own_site: PipedSite) -> None:
    """Between the command and the deployment, and between the deployment and the report on it."""
    site = own_site
    async with site.client() as client:
        one = commit(site, "app", "one")
        application_id = await client.register("app")
        await deployed(client, application_id, one)
        await deployed(client, application_id, commit(site, "app", "two"))
        site.signal(signal.SIGKILL)
        await site.ended()

        answer = await roll_back(client, application_id)
        site.start()
        await wait_answer(
            lambda: list_deployments(client, application_id), lambda all_: len(all_) == 3
        )
        site.signal(signal.SIGKILL)
        await site.ended()
        site.start()
        rolled = await wait_known(client, answer.deployment_id, application_id)

        assert rolled.id == id_of_command(answer.command_id)
        outcome = own.GetCommandOutcomeRequest(command_id=answer.command_id)
        told = await wait_answer(
            lambda: call(client.applications.GetCommandOutcome, outcome), lambda it: it.handled
        )
        assert told.succeeded
        assert len(await list_deployments(client, application_id)) == 3
        assert (await control_of(client, application_id)).pin.commit_hash == one


async def test_a_control_plane_that_dies_loses_no_roll_back(
    own_server: ServerProcess, own_site: PipedSite
) -> None:
    site = own_site
    async with site.client() as client:
        one = commit(site, "app", "one")
        application_id = await client.register("app")
        await deployed(client, application_id, one)
        await deployed(client, application_id, commit(site, "app", "two"))
        answer = await roll_back(client, application_id)
        own_server.kill()
        own_server.start()

    async with site.client() as client:
        rolled = await wait_known(client, answer.deployment_id, application_id)
        assert rolled.status == pb.DEPLOYMENT_SUCCESS, rolled.status_reason
        assert len(await list_deployments(client, application_id)) == 3
        assert (await control_of(client, application_id)).pin.deployment_id == rolled.id
    assert site.records("app") == ["one", "two", "one"]


def commit_waiting(site: PipedSite, name: str) -> str:
    """An application whose script fails until a file is there, and then waits for a person."""
    run = f"echo try >> {site.folder / name} && test -e {site.folder / name}-fixed"
    undo = f"echo undo >> {site.folder / name}"
    stages = [{"name": "SCRIPT_RUN", "with": {"run": run, "onRollback": undo}}]
    return site.commit_application(name, stages, trigger={}, onFailure="wait")


async def wait_open(client: SiteClient, application_id: str) -> pb.Deployment:
    """Wait until the application's deployment waits for a person."""
    [made] = await wait_answer(lambda: list_deployments(client, application_id), bool)
    return await client.until(made.id, lambda it: find_stage_to_decide(it) is not None)


async def test_a_failed_deployment_waits_for_a_person_who_retries(own_site: PipedSite) -> None:
    """Through a death of piped while it waits, and one right after the retry was asked for."""
    site = own_site
    async with site.client() as client:
        commit_waiting(site, "waiting")
        application_id = await client.register("waiting")
        waiting = await wait_open(client, application_id)
        assert "pipectl deployment retry waiting" in site.pipectl("why", "waiting")
        assert "waits for a person" in site.pipectl("deployment", "get", "waiting", "-o", "table")

        site.signal(signal.SIGKILL)
        await site.ended()
        site.start()
        said = site.pipectl("deployment", "retry", "waiting", "--comment", "once more")
        assert said.strip() == "runs stage 1 SCRIPT_RUN of waiting again, as attempt 2"
        again = await client.until(
            waiting.id,
            lambda it: find_stage_to_decide(it) is not None and it.stages[0].retried_count == 1,
        )
        assert site.records("waiting") == ["try", "try"]

        (site.folder / "waiting-fixed").touch()
        site.signal(signal.SIGKILL)
        await site.ended()
        await call(client.deployments.RetryStage, own.RetryStageRequest(deployment_id=again.id))
        site.start()
        ended = await client.completed(again.id)

        assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
        assert ended.stages[0].retried_count == 2
        assert site.records("waiting") == ["try", "try", "try"]
        story = site.pipectl("deployment", "get", "waiting", "-o", "table")
        assert "admin retried 1 SCRIPT_RUN as attempt 2: once more" in story
        assert "admin retried 1 SCRIPT_RUN as attempt 3" in story


async def test_a_failed_deployment_that_waits_is_rolled_back_on_demand(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    site, client = shared_site, shared_client
    commit_waiting(site, "undone")
    application_id = await client.register("undone")
    waiting = await wait_open(client, application_id)

    assert site.pipectl("deployment", "rollback", "undone").strip() == waiting.id

    ended = await client.completed(waiting.id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "admin chose to roll back; rolled back" in ended.status_reason
    assert site.records("undone") == ["try", "undo"]
    control = await control_of(client, application_id)
    assert control.hold.deployment_id == waiting.id
    assert not control.HasField("pin")
    refused = site.pipectl("deployment", "retry", "undone", code=1)
    assert "does not wait for a person after a failure" in refused
