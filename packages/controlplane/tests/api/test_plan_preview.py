# SPDX-License-Identifier: Apache-2.0
"""Plan preview over the wire: asked of pipeds with the repository, answered in Go's JSON."""

import base64
import json
from typing import Any

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import command_pb2, common_pb2, planpreview_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call

REMOTE = "git@github.com:org/name.git"


async def ask(plane: ServedControlPlane, **fields: Any) -> list[str]:
    request = pb.RequestPlanPreviewRequest(
        **{
            "repo_remote_url": REMOTE,
            "head_branch": "feature",
            "head_commit": "c0ffee",
            "base_branch": "main",
            "timeout": 60,
            **fields,
        }
    )
    return list((await call(plane.admin.api.RequestPlanPreview, request)).commands)


async def results(plane: ServedControlPlane, commands: list[str], *, handle: int = 0) -> Any:
    answer = await call(
        plane.admin.api.GetPlanPreviewResults,
        pb.GetPlanPreviewResultsRequest(commands=commands, command_handle_timeout=handle),
    )
    return answer.results


async def refused(plane: ServedControlPlane, commands: list[str], **fields: Any) -> str:
    with pytest.raises(CallError) as caught:
        await results(plane, commands, **fields)
    return str(caught.value.status)


async def alive(agent: AgentClient) -> None:
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"up 1\n"))


async def handle(agent: AgentClient, command_id: str, output: bytes, at: int) -> None:
    await call(
        agent.service.ReportCommandHandled,
        pipedservice.ReportCommandHandledRequest(
            command_id=command_id,
            status=command_pb2.COMMAND_SUCCEEDED,
            handled_at=at,
            output=output,
        ),
    )


async def age(plane: ServedControlPlane, command_id: str, seconds: int) -> None:
    def edit(command: command_pb2.Command) -> None:
        command.created_at -= seconds
        if command.handled_at:
            command.handled_at -= seconds

    await plane.stores.commands.update("default", command_id, edit)


async def test_each_piped_with_the_repository_and_base_branch_is_asked(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    disabled = await plane.agent(name="disabled")
    await call(plane.admin.api.DisablePiped, pb.DisablePipedRequest(piped_id=disabled.id))

    commands = await ask(plane)

    assert len(commands) == 1
    listed = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    (command,) = listed.commands
    assert (command.id, command.commander) == (commands[0], "pipectl")
    assert command.build_plan_preview == command_pb2.Command.BuildPlanPreview(
        repository_id="repo",
        head_branch="feature",
        head_commit="c0ffee",
        base_branch="main",
        timeout=60,
    )
    assert await ask(plane, base_branch="other") == []
    assert await ask(plane, repo_remote_url="git@github.com:org/other.git") == []


async def test_a_caller_waits_while_the_piped_is_at_it(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await alive(agent)
    commands = await ask(plane)

    assert await refused(plane, commands) == "NOT_FOUND"


async def test_a_piped_that_is_not_there_is_said(plane: ServedControlPlane) -> None:
    agent = await plane.agent(name="east")
    commands = await ask(plane)

    (result,) = await results(plane, commands)

    assert result.error == "Maybe Piped is offline currently."
    assert (result.command_id, result.piped_id) == (commands[0], agent.id)
    assert (result.piped_name, result.piped_url) == (
        "east",
        f"http://{plane.address}/settings/piped",
    )


async def test_a_piped_that_takes_too_long_is_said(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await alive(agent)
    commands = await ask(plane)
    await age(plane, commands[0], 20)

    assert await refused(plane, commands, handle=30) == "NOT_FOUND"
    (result,) = await results(plane, commands, handle=10)

    assert "Timed out" in result.error


async def test_the_answer_in_gos_json_comes_back_as_a_message(plane: ServedControlPlane) -> None:
    """Names as in the protos, enums and 64-bit numbers as numbers, bytes as base64."""
    agent = await plane.agent(name="east")
    await alive(agent)
    (command_id,) = await ask(plane)
    output = {
        "command_id": "whatever the piped says",
        "results": [
            {
                "application_id": "app",
                "application_name": "hello",
                "application_kind": 1,
                "application_directory": "apps/hello",
                "piped_id": agent.id,
                "project_id": "default",
                "labels": {"env": "dev"},
                "head_branch": "feature",
                "head_commit": "c0ffee",
                "sync_strategy": 2,
                "plan_details": base64.b64encode(b"+ line").decode(),
                "plugin_names": ["files"],
                "created_at": 1700000000,
                "a_field_of_a_later_version": True,
            }
        ],
    }
    now = (await plane.stores.commands.get("default", command_id)).created_at
    await handle(agent, command_id, json.dumps(output).encode(), now)

    (result,) = await results(plane, [command_id])

    assert result.command_id == command_id
    assert result.results == [
        planpreview_pb2.ApplicationPlanPreviewResult(
            application_id="app",
            application_name="hello",
            application_url=f"http://{plane.address}/applications/app",
            application_kind=common_pb2.TERRAFORM,
            application_directory="apps/hello",
            piped_id=agent.id,
            project_id="default",
            labels={"env": "dev"},
            head_branch="feature",
            head_commit="c0ffee",
            sync_strategy=common_pb2.PIPELINE,
            plan_details=b"+ line",
            plugin_names=["files"],
            created_at=1700000000,
        )
    ]


@pytest.mark.parametrize(
    ("output", "error"), [(b"", "gave no output"), (b"not json", "cannot be read")]
)
async def test_an_answer_that_was_never_given_or_is_no_json_is_said_of_its_piped(
    plane: ServedControlPlane, output: bytes, error: str
) -> None:
    agent = await plane.agent()
    await alive(agent)
    (command_id,) = await ask(plane)
    await handle(agent, command_id, output, int(plane.build.NOON * 2))

    (result,) = await results(plane, [command_id])

    assert error in result.error
    assert result.piped_name == "agent"


async def test_a_dead_piped_is_named_and_the_rest_is_shown(plane: ServedControlPlane) -> None:
    """One of three says nothing, one says nonsense: what the third says is shown."""
    agents = {name: await plane.agent(name=name) for name in ("dead", "odd", "well")}
    await alive(agents["odd"])
    await alive(agents["well"])
    commands = await ask(plane)
    by_piped = {
        (await plane.stores.commands.get("default", command_id)).piped_id: command_id
        for command_id in commands
    }
    now = int(plane.build.NOON * 2)
    await handle(agents["odd"], by_piped[agents["odd"].id], b"[", now)
    answer = json.dumps({"results": [{"applicationName": "web"}]}).encode()
    await handle(agents["well"], by_piped[agents["well"].id], answer, now)

    found = {result.piped_name: result for result in await results(plane, commands)}

    assert found["dead"].error == "Maybe Piped is offline currently."
    assert "cannot be read" in found["odd"].error
    assert not found["well"].error
    assert [each.application_name for each in found["well"].results] == ["web"]


async def test_an_old_answer_is_not_kept(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await alive(agent)
    (command_id,) = await ask(plane)
    now = (await plane.stores.commands.get("default", command_id)).created_at
    await handle(agent, command_id, b"{}", now)
    await age(plane, command_id, 25 * 3600)

    assert await refused(plane, [command_id]) == "FAILED_PRECONDITION"


async def test_commands_of_others_and_of_other_kinds_are_refused(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    sync = await call(
        plane.admin.api.SyncApplication, pb.SyncApplicationRequest(application_id=application_id)
    )
    theirs = await plane.other_project()
    await plane.agent(theirs)
    answer = await call(
        theirs.api.RequestPlanPreview,
        pb.RequestPlanPreviewRequest(
            repo_remote_url=REMOTE, head_branch="f", head_commit="c0ffee", base_branch="main"
        ),
    )

    assert await refused(plane, [sync.command_id]) == "FAILED_PRECONDITION"
    assert await refused(plane, list(answer.commands)) == "PERMISSION_DENIED"


async def test_a_repeated_request_asks_once(plane: ServedControlPlane) -> None:
    await plane.agent()
    user = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "once")])
    request = pb.RequestPlanPreviewRequest(
        repo_remote_url=REMOTE, head_branch="f", head_commit="c0ffee", base_branch="main"
    )

    first = await call(user.api.RequestPlanPreview, request)
    second = await call(user.api.RequestPlanPreview, request)

    assert list(first.commands) == list(second.commands)


@pytest.mark.parametrize("field", ["head_branch", "base_branch"])
@pytest.mark.parametrize(
    "name",
    [
        "evil:refs/replace/0123456789abcdef0123456789abcdef01234567",
        "evil:refs/heads/main",
        "+evil",
        "--upload-pack=touch x",
        "a b",
        "a\nb",
        "a..b",
        "@{-1}",
        "HEAD",
        "main^{tree}",
        "*",
        "x.lock",
        "x" * 2000,
    ],
)
async def test_a_name_that_no_git_may_get_is_refused(
    plane: ServedControlPlane, field: str, name: str
) -> None:
    agent = await plane.agent()

    with pytest.raises(CallError, match=f"{field}: .* is not the name of a branch") as caught:
        await ask(plane, **{field: name})

    assert caught.value.status == "INVALID_ARGUMENT"
    listed = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    assert not listed.commands


@pytest.mark.parametrize("name", ["main", "HEAD", "--all", "c0ffee^", "c0ffee\n", "abc"])
async def test_what_is_no_hash_of_a_commit_is_refused(plane: ServedControlPlane, name: str) -> None:
    await plane.agent()

    with pytest.raises(CallError, match=r"head_commit: .* is not the hash of a commit") as caught:
        await ask(plane, head_commit=name)

    assert caught.value.status == "INVALID_ARGUMENT"
