# SPDX-License-Identifier: Apache-2.0
"""What `pipectl why` says of every situation, and the command it names."""

from typing import Any

import pytest

from pipecd_pipectl.diagnosis import Situation, explain_application, explain_deployment
from pipecd_wire.model import application_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2

NOW = 1_700_000_000
ITEM = api_pb2.ListPipedsResponse.Item(
    piped=piped_pb2.Piped(id="p", name="agent", status=piped_pb2.Piped.ONLINE, started_at=NOW - 120)
)


def make_application(**more: Any) -> application_pb2.Application:
    return application_pb2.Application(id="a", name="hello", piped_id="p", **more)


def make_deployment(
    deployment_id: str, status: str, *, age: int = 60, **more: Any
) -> pb.Deployment:
    return pb.Deployment(
        id=deployment_id,
        application_id="a",
        application_name="hello",
        status=pb.DeploymentStatus.Value(f"DEPLOYMENT_{status}"),
        trigger=pb.DeploymentTrigger(
            commit=pb.Commit(hash="c0ffee123", created_at=NOW - age), timestamp=NOW - age
        ),
        created_at=NOW - age,
        completed_at=NOW - 30 if status in {"SUCCESS", "FAILURE", "CANCELLED"} else 0,
        **more,
    )


def make_situation(**more: Any) -> Situation:
    return Situation(**{"application": make_application(), "piped": ITEM, "now": NOW, **more})


APPROVAL = pb.PipelineStage(
    id="s",
    name="WAIT_APPROVAL",
    index=1,
    status=pb.STAGE_RUNNING,
    available_operation=pb.MANUAL_OPERATION_APPROVE,
    authorized_operators=["ada", "bob"],
    updated_at=NOW - 90,
)
RUNNING = make_deployment("aaaaaaaa-1", "RUNNING", age=100, stages=[APPROVAL])
QUEUED = make_deployment("bbbbbbbb-2", "PENDING", age=50)
LATER = make_deployment("cccccccc-3", "PENDING", age=40)


def make_item(**piped: Any) -> api_pb2.ListPipedsResponse.Item:
    return api_pb2.ListPipedsResponse.Item(piped=piped_pb2.Piped(id="p", name="agent", **piped))


@pytest.mark.parametrize(
    ("situation", "sentence", "command"),
    [
        (
            make_situation(application=make_application(disabled=True)),
            "hello is disabled",
            "pipectl application enable hello",
        ),
        (
            make_situation(piped=None),
            "p is not registered any more",
            "pipectl application update hello --piped NAME",
        ),
        (
            make_situation(piped=make_item(disabled=True)),
            "agent is disabled",
            "pipectl piped enable agent",
        ),
        (
            make_situation(piped=make_item(status=piped_pb2.Piped.OFFLINE, started_at=NOW - 7200)),
            "agent is offline; it was started 2h ago",
            "start it where it runs, then: pipectl piped get agent",
        ),
        (
            make_situation(piped=make_item(status=piped_pb2.Piped.OFFLINE)),
            "it has never been started",
            "start it where it runs, then: pipectl piped get agent",
        ),
        (
            make_situation(
                piped=api_pb2.ListPipedsResponse.Item(
                    piped=ITEM.piped,
                    plugins=[
                        push_pb2.PluginState(
                            name="files", state=push_pb2.PluginState.FAILED, reason="no such file"
                        )
                    ],
                )
            ),
            "the plugin files of agent is failed: no such file",
            "pipectl piped restart-plugin agent --plugin files",
        ),
        (
            make_situation(
                application=make_application(
                    sync_state=application_pb2.ApplicationSyncState(
                        status=application_pb2.INVALID_CONFIG, reason="app.pipecd.yaml:3:1: oh"
                    )
                )
            ),
            "app.pipecd.yaml:3:1: oh",
            "pipectl lint",
        ),
        (
            make_situation(open_deployments=[RUNNING]),
            (
                "stage 2 WAIT_APPROVAL of the deployment aaaaaaaa (commit c0ffee1)"
                " waits for approval by ada, bob, for 1m30s"
            ),
            "pipectl deployment approve hello",
        ),
        (
            make_situation(open_deployments=[QUEUED]),
            "was created 50s ago: its piped has not begun it yet",
            "pipectl deployment wait bbbbbbbb",
        ),
        (
            make_situation(
                open_deployments=[QUEUED],
                waits=[api_pb2.Wait(kind=api_pb2.Wait.SLOT, sentence="its piped runs 100")],
            ),
            "was created 50s ago: its piped runs 100",
            "pipectl deployment wait bbbbbbbb",
        ),
        (make_situation(), "has never been deployed", "pipectl application sync hello"),
        (
            make_situation(last=make_deployment("dddddddd", "FAILURE", status_reason="no disk")),
            "ended as FAILURE 30s ago: no disk",
            "pipectl deployment logs dddddddd",
        ),
        (make_situation(last=make_deployment("dddddddd", "SUCCESS")), "SUCCESS 30s ago", ""),
    ],
)
def test_the_first_cause_is_what_stands_in_the_way(
    situation: Situation, sentence: str, command: str
) -> None:
    first = explain_application(situation)[0]

    assert sentence in first.sentence
    assert command in first.command
    assert bool(command) == bool(first.command)


def test_a_failed_commit_is_said_not_to_be_deployed_again() -> None:
    causes = explain_application(make_situation(last=make_deployment("d", "FAILURE")))

    assert "not deployed again by itself" in causes[1].sentence
    assert causes[1].command == "pipectl application sync hello"


def test_what_is_queued_is_told_behind_what_until_the_one_that_holds_all() -> None:
    situation = make_situation(open_deployments=[RUNNING, QUEUED, LATER])

    last = [each.sentence for each in explain_deployment(situation, LATER)]
    whole = [each.sentence for each in explain_application(situation)]

    assert "cccccccc (commit c0ffee1) waits behind bbbbbbbb" in last[0]
    assert "bbbbbbbb (commit c0ffee1) waits behind aaaaaaaa" in last[1]
    assert "waits for approval by ada, bob" in last[2]
    assert "waits for approval by ada, bob" in whole[0]
    assert "waits behind bbbbbbbb" in whole[2]


def test_an_obstacle_comes_before_the_queue() -> None:
    situation = make_situation(
        piped=make_item(status=piped_pb2.Piped.OFFLINE), open_deployments=[QUEUED]
    )

    causes = explain_deployment(situation, QUEUED)

    assert "offline" in causes[0].sentence
    assert "bbbbbbbb" in causes[1].sentence


def test_a_completed_deployment_says_how_it_ended() -> None:
    done = make_deployment("dddddddd", "CANCELLED", status_reason="by ada")

    (cause,) = explain_deployment(make_situation(), done)

    assert "ended as CANCELLED 30s ago: by ada" in cause.sentence


@pytest.mark.parametrize("name", ["two words", "--help", "$(reboot)", "a;b", "it's", "\x1b[2J"])
def test_a_name_that_a_shell_would_misread_is_not_suggested(name: str) -> None:
    application = application_pb2.Application(id="01234567-89", name=name, piped_id="p")
    situation = make_situation(application=application)

    (cause,) = explain_application(situation)

    assert cause.command == "pipectl application sync 01234567"
    assert name in cause.sentence


@pytest.mark.parametrize(
    "kind", [api_pb2.Wait.SLOT, api_pb2.Wait.LOCK, api_pb2.Wait.RULE, api_pb2.Wait.CHAIN]
)
def test_what_its_piped_has_it_wait_for_is_said_with_what_to_do(
    kind: api_pb2.Wait.Kind.ValueType,
) -> None:
    wait = api_pb2.Wait(kind=kind, sentence="so it is", hint="do this", position=2)
    situation = make_situation(open_deployments=[QUEUED], waits=[wait])

    [cause] = explain_application(situation)

    assert cause.sentence.endswith(": so it is, 2 before it (do this)")


def test_a_running_one_that_is_paused_says_so() -> None:
    wait = api_pb2.Wait(kind=api_pb2.Wait.RULE, sentence="the emergency stop by eve", hint="lift")
    paused = make_deployment("aaaaaaaa-1", "RUNNING")

    [cause] = explain_application(make_situation(open_deployments=[paused], waits=[wait]))

    assert cause.sentence.endswith("is RUNNING: the emergency stop by eve (lift)")
