# SPDX-License-Identifier: Apache-2.0
"""Every exit code that pipectl promises, and the key that makes a repeated call happen once."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from pipecd_test_support.stub_server import StubServer, serving_stub
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.headers import IDEMPOTENCY_KEY_HEADER, TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model import application_pb2, command_pb2, deployment_pb2, piped_pb2
from pipecd_wire.pipecd.api import api_pb2

PIPECTL = Path(sys.executable).with_name("pipectl")
LIMIT_SECONDS = 60
ENVIRONMENT = {"PIPECTL_API_KEY": "key", "PIPECTL_INSECURE": "1"}
WAIT = ("deployment", "wait", "--deployment-id", "d")


def run(server: StubServer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PIPECTL, *arguments],
        env={**os.environ, **ENVIRONMENT, "PIPECTL_ADDRESS": server.address},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def deployment_with(status: str) -> StubServer:
    """A control plane whose one deployment has a status, and keeps it."""
    number = deployment_pb2.DeploymentStatus.Value(f"DEPLOYMENT_{status}")
    deployment = deployment_pb2.Deployment(id="d", status=number)
    change = api_pb2.WatchDeploymentResponse(deployment=deployment)
    return StubServer(answers={"WatchDeployment": [change]}, holds=True)


@pytest.mark.parametrize(
    ("status", "arguments", "code"),
    [
        ("SUCCESS", (), 0),
        ("FAILURE", (), 1),
        ("CANCELLED", (), 1),
        ("FAILURE", ("--status", "FAILURE"), 0),
        ("FAILURE", ("--status", "SUCCESS"), 1),
        ("RUNNING", ("--status", "RUNNING"), 0),
        ("RUNNING", ("--timeout", "500ms"), 3),
    ],
)
def test_to_wait_for_a_deployment_ends_with_how_it_ended(
    status: str, arguments: Sequence[str], code: int
) -> None:
    with serving_stub(deployment_with(status)) as server:
        done = run(server, *WAIT, *arguments)

    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.NOT_FOUND, 4),
        (grpc.StatusCode.PERMISSION_DENIED, 4),
        (grpc.StatusCode.UNAUTHENTICATED, 4),
        (grpc.StatusCode.UNAVAILABLE, 5),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 5),
        (grpc.StatusCode.FAILED_PRECONDITION, 1),
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.UNIMPLEMENTED, 1),
    ],
)
def test_a_call_that_fails_ends_with_the_code_of_its_status(
    status: grpc.StatusCode, code: int
) -> None:
    with serving_stub(StubServer(status=status)) as server:
        done = run(server, "deployment", "get", "--deployment-id", "d")

    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert ("cannot reach" in done.stderr) == (status is grpc.StatusCode.DEADLINE_EXCEEDED)


@pytest.mark.parametrize("arguments", [("deployment", "get"), ("no-such-command",)])
def test_a_wrong_command_line_ends_with_2(arguments: Sequence[str]) -> None:
    assert run(StubServer(address="127.0.0.1:1"), *arguments).returncode == 2


def test_an_interrupted_wait_ends_with_130() -> None:
    with serving_stub(deployment_with("RUNNING")) as server:
        process = subprocess.Popen(
            [PIPECTL, *WAIT],
            env={**os.environ, **ENVIRONMENT, "PIPECTL_ADDRESS": server.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.called.wait(LIMIT_SECONDS)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=LIMIT_SECONDS)

    assert (process.returncode, told.splitlines()[-1]) == (130, "interrupted")


HANDLED: dict[str, list[Message]] = {
    "GetCommand": [
        pb.GetCommandResponse(
            command=command_pb2.Command(
                status=command_pb2.COMMAND_SUCCEEDED, metadata={TRIGGERED_DEPLOYMENT_ID: "d"}
            )
        )
    ],
    "GetApplication": [
        pb.GetApplicationResponse(application=application_pb2.Application(id="a", piped_id="p"))
    ],
    "GetDeployment": [
        pb.GetDeploymentResponse(
            deployment=deployment_pb2.Deployment(
                id="d",
                stages=[
                    deployment_pb2.PipelineStage(
                        id="s", name="ANALYSIS", status=deployment_pb2.STAGE_RUNNING
                    )
                ],
            )
        )
    ],
    "ListPipeds": [
        api_pb2.ListPipedsResponse(
            pipeds=[api_pb2.ListPipedsResponse.Item(piped=piped_pb2.Piped(id="p", name="agent"))]
        )
    ],
}
CHANGES: list[tuple[str, tuple[str, ...], Message]] = [
    (
        "ApproveStage",
        ("deployment", "approve", "--deployment-id", "d"),
        api_pb2.ApproveStageResponse(),
    ),
    (
        "CancelDeployment",
        ("deployment", "cancel", "--deployment-id", "d"),
        api_pb2.CancelDeploymentResponse(),
    ),
    ("RegisterPiped", ("piped", "register", "--name", "n"), pb.RegisterPipedResponse()),
    ("EnablePiped", ("piped", "enable", "--piped-id", "p"), pb.EnablePipedResponse()),
    ("DisablePiped", ("piped", "disable", "--piped-id", "p"), pb.DisablePipedResponse()),
    (
        "RestartPlugin",
        ("piped", "restart-plugin", "--piped-id", "p", "--plugin", "wait"),
        api_pb2.RestartPluginResponse(),
    ),
    ("DeletePiped", ("piped", "delete", "--piped-id", "p"), api_pb2.DeletePipedResponse()),
    ("UpdatePiped", ("piped", "update", "agent", "--desc", "x"), pb.UpdatePipedResponse()),
    (
        "UpdateApplicationDeployTargets",
        ("application", "update", "--app-id", "a", "--deploy-target", "files=east"),
        pb.UpdateApplicationDeployTargetsResponse(),
    ),
    (
        "RenameApplicationConfigFile",
        ("application", "update", "--app-id", "a", "--config-file-name", "other.yaml"),
        pb.RenameApplicationConfigFileResponse(),
    ),
    (
        "UpdateApplication",
        ("application", "update", "--app-id", "a", "--piped", "agent"),
        pb.UpdateApplicationResponse(),
    ),
    (
        "SkipStage",
        ("deployment", "skip", "--deployment-id", "d", "--stage", "analysis"),
        api_pb2.SkipStageResponse(),
    ),
    ("SyncApplication", ("application", "sync", "--app-id", "a"), pb.SyncApplicationResponse()),
    (
        "SyncApplication",
        ("application", "sync", "--app-id", "a", "--strategy", "quick"),
        api_pb2.SyncApplicationResponse(),
    ),
    (
        "EnableApplication",
        ("application", "enable", "--app-id", "a"),
        pb.EnableApplicationResponse(),
    ),
    (
        "DisableApplication",
        ("application", "disable", "--app-id", "a"),
        pb.DisableApplicationResponse(),
    ),
    (
        "DeleteApplication",
        ("application", "delete", "--app-id", "a"),
        pb.DeleteApplicationResponse(),
    ),
]


@pytest.mark.parametrize(
    ("method", "arguments", "answer"), CHANGES, ids=lambda each: str(each)[:30]
)
def test_a_call_that_changes_something_has_an_idempotency_key(
    method: str, arguments: Sequence[str], answer: Message
) -> None:
    with serving_stub(StubServer(answers={method: [answer], **HANDLED})) as server:
        done = run(server, *arguments)

    assert done.returncode == 0, done.stderr
    (metadata,) = [metadata for called, metadata in server.calls if called == method]
    assert str(uuid.UUID(metadata[IDEMPOTENCY_KEY_HEADER])) == metadata[IDEMPOTENCY_KEY_HEADER]


def test_a_call_that_only_reads_has_no_idempotency_key() -> None:
    with serving_stub(
        StubServer(answers={"GetDeployment": [pb.GetDeploymentResponse()]})
    ) as server:
        done = run(server, "deployment", "get", "--deployment-id", "d")

    assert done.returncode == 0, done.stderr
    ((_, metadata),) = server.calls
    assert IDEMPOTENCY_KEY_HEADER not in metadata


def test_targets_that_are_lost_on_the_way_to_another_piped_are_told() -> None:
    application = application_pb2.Application(id="a", name="hello", piped_id="p")
    application.deploy_targets_by_plugin["files"].deploy_targets.extend(["east", "west"])
    answers: dict[str, list[Message]] = {
        "GetApplication": [pb.GetApplicationResponse(application=application)],
        "ListPipeds": HANDLED["ListPipeds"],
        "UpdateApplication": [pb.UpdateApplicationResponse()],
    }
    with serving_stub(StubServer(answers=answers)) as server:
        done = run(server, "application", "update", "--app-id", "a", "--piped", "agent")

    assert done.returncode == 1
    assert (
        "pipectl application update hello --deploy-target files=east --deploy-target files=west"
        in done.stderr
    )
