# SPDX-License-Identifier: Apache-2.0
"""Hooks of git hosts over real HTTP: who is let in, who is hinted, what a person reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipecd_controlplane.usecases import hook_deliveries
from pipecd_controlplane.usecases.hooks import MOST_OF_PROJECT
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_server import (
    AgentClient,
    ProgramClient,
    Serve,
    ServedControlPlane,
)
from pipecd_test_support.git_hooks import (
    COMMIT,
    SentHook,
    describe_push,
    push_as,
    send_as,
)
from pipecd_test_support.served_settings import PlaneWith
from pipecd_test_support.waiting import Soon
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.pipecd.api import repositories_pb2_grpc as pb_grpc
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream

HOSTS = [number for number in pb.Hook.Host.values() if number]
KEY = [("pipecd-idempotency-key", "once")]


def names(host: pb.Hook.Host.ValueType) -> str:
    return pb.Hook.Host.Name(host).lower()


def repositories(user: ProgramClient) -> "pb_grpc.RepositoryServiceAsyncStub":
    stub: pb_grpc.RepositoryServiceAsyncStub = pb_grpc.RepositoryServiceStub(user.channel)
    return stub


async def add_hook(
    plane: ServedControlPlane,
    host: pb.Hook.Host.ValueType = pb.Hook.GITHUB,
    *,
    user: ProgramClient | None = None,
    name: str = "ours",
    **fields: Any,
) -> pb.AddHookResponse:
    request = pb.AddHookRequest(name=name, host=host, **fields)
    return await call(repositories(user or plane.admin).AddHook, request)


async def post(client: httpx2.AsyncClient, url: str, sent: SentHook) -> httpx2.Response:
    return await client.post(url, content=sent.body, headers=sent.headers)


@asynccontextmanager
async def hints(agent: AgentClient, soon: Soon) -> AsyncIterator[Any]:
    """Yields a function that returns the next hint that the agent is sent."""
    request = push_pb2.WatchRequest(instance_id="instance", data_folder_id="folder")
    async with aclosing(stream(agent.push.Watch, request)) as messages:
        await soon(anext(messages))

        async def take() -> push_pb2.GitHint:
            while True:
                message = await soon(anext(messages))
                if message.WhichOneof("body") == "git_hint":
                    return message.git_hint

        yield take


@pytest.mark.parametrize("host", HOSTS, ids=names)
async def test_a_push_reaches_the_agent_that_watches_the_repository(
    plane: ServedControlPlane, client: httpx2.AsyncClient, soon: Soon, host: pb.Hook.Host.ValueType
) -> None:
    agent = await plane.agent(name="near")
    made = await add_hook(plane, host)
    async with hints(agent, soon) as take:
        answer = await post(client, made.url, push_as(host, made.secret))

        assert answer.status_code == 202
        assert answer.text == "looking now: near\n"
        assert answer.headers["content-type"].startswith("text/plain")
        assert await take() == push_pb2.GitHint(
            repository_id="repo", branch="main", commit_hash=COMMIT
        )


async def test_nobody_without_the_secret_learns_or_moves_anything(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    await plane.agent()
    theirs = await plane.other_project()
    made = await add_hook(plane)
    other = await add_hook(plane, user=theirs)
    good = push_as(pb.Hook.GITHUB, made.secret)
    refused = [
        await post(client, made.url, push_as(pb.Hook.GITHUB, "wrong")),
        await post(client, made.url, SentHook(headers=good.headers, body=good.body + b" ")),
        # Those of another hook, of another host, of no hook, under another project.
        await post(client, made.url, push_as(pb.Hook.GITHUB, other.secret)),
        await post(client, made.url, push_as(pb.Hook.GITLAB, made.secret)),
        await post(client, made.url.replace(made.hook.id, "none"), good),
        await post(client, made.url.replace("/default/", "/theirs/"), good),
        await post(client, other.url.replace("/theirs/", "/default/"), good),
    ]

    assert {answer.status_code for answer in refused} == {401}
    assert {answer.text for answer in refused} == {f"{hook_deliveries.REFUSED}\n"}
    assert len({frozenset(answer.headers) for answer in refused}) == 1


async def test_an_unsigned_request_is_told_to_set_the_secret(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    """Whether there is such a hook or not."""
    made = await add_hook(plane)
    for url in (made.url, made.url.replace(made.hook.id, "none")):
        answer = await client.post(url, json=describe_push(pb.Hook.GITHUB))

        assert (answer.status_code, answer.text) == (401, f"{hook_deliveries.UNSIGNED}\n")


async def test_the_generic_hook_refuses_an_old_time(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    made = await add_hook(plane, pb.Hook.GENERIC)
    sent = send_as(pb.Hook.GENERIC, made.secret, b"{}", at=1_700_000_000)

    answer = await post(client, made.url, sent)

    assert (answer.status_code, answer.text) == (401, f"{hook_deliveries.STALE}\n")


async def test_a_replayed_hook_is_one_hint_until_the_agent_has_taken_it(
    plane: ServedControlPlane, client: httpx2.AsyncClient, soon: Soon
) -> None:
    agent = await plane.agent()
    made = await add_hook(plane)
    sent = push_as(pb.Hook.GITHUB, made.secret)
    last = push_as(pb.Hook.GITHUB, made.secret, commit="f" * 40)
    async with hints(agent, soon) as take:
        # Nobody reads the stream: gRPC holds a few messages, the rest is one.
        answers = [await post(client, made.url, sent) for _ in range(40)]
        answers.append(await post(client, made.url, last))
        seen = [await take()]
        while seen[-1].commit_hash != "f" * 40:
            seen.append(await take())

    assert {answer.status_code for answer in answers} == {202}
    assert len(seen) <= 41


async def test_what_nobody_watches_is_taken_and_says_so(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    made = await add_hook(plane)
    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret))
    assert answer.status_code == 202
    assert answer.text.startswith("no agent watches https://github.com/org/name.git. Add it to")

    await plane.agent(name="away")
    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret))
    assert answer.text == "not connected, will look by itself: away\n"

    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret, branch="feature"))
    assert answer.status_code == 202
    assert answer.text.endswith("; watched: main\n")


async def test_agents_of_other_projects_and_disabled_ones_are_not_hinted(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    theirs = await plane.other_project()
    await plane.agent(theirs, name="theirs")
    off = await plane.agent(name="off")

    def disable(piped: Any) -> None:
        piped.disabled = True

    await plane.stores.pipeds.update("default", off.id, disable)
    made = await add_hook(plane)

    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret))

    assert answer.text.startswith("no agent watches")


async def test_a_person_at_the_host_reads_what_became_of_each_delivery(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    made = await add_hook(plane)

    def send(body: bytes, event: str) -> SentHook:
        return send_as(pb.Hook.GITHUB, made.secret, body, events={"X-GitHub-Event": event})

    answer = await post(client, made.url, send(b'{"zen": "x"}', "ping"))
    assert (answer.status_code, answer.text) == (
        200,
        f"{'the hook works: '}pushes will be passed on\n",
    )
    answer = await post(client, made.url, send(b"{}", "issues"))
    assert (answer.status_code, answer.text) == (
        202,
        "nothing to do: the event 'issues' is no push\n",
    )
    answer = await post(client, made.url, send(b"{}", "push"))
    assert answer.status_code == 400
    assert answer.text.startswith("not understood: the body is not the JSON of a push")
    answer = await client.get(made.url)
    assert answer.status_code == 405
    assert "let a git host POST to it" in answer.text


async def test_a_hook_can_be_for_one_repository_alone(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    await plane.agent(name="away")
    made = await add_hook(plane, repository_url="git@github.com:ORG/name.git")

    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret))
    assert answer.text.startswith("not connected")
    other = push_as(pb.Hook.GITHUB, made.secret, repository="org/other")
    answer = await post(client, made.url, other)
    assert answer.text == "nothing to do: the hook is for git@github.com:ORG/name.git alone\n"


async def test_two_secrets_are_good_while_a_rotation_overlaps(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    service = repositories(plane.admin)
    made = await add_hook(plane)
    rotated = await call(service.RotateHook, pb.RotateHookRequest(hook_id=made.hook.id))

    async def try_both() -> list[int]:
        return [
            (await post(client, made.url, push_as(pb.Hook.GITHUB, secret))).status_code
            for secret in (made.secret, rotated.secret)
        ]

    assert rotated.secret != made.secret
    assert rotated.hook.older_secret_until - rotated.hook.secret_created_at == 24 * 3600
    assert await try_both() == [202, 202]
    (listed,) = (await call(service.ListHooks, pb.ListHooksRequest())).hooks
    assert listed.older_secret_used_at >= listed.created_at
    await call(service.RevokeOlderHookSecret, pb.RevokeOlderHookSecretRequest(hook_id=made.hook.id))
    assert await try_both() == [401, 202]
    without = pb.RotateHookRequest(hook_id=made.hook.id)
    without.overlap.FromSeconds(0)
    newest = await call(service.RotateHook, without)
    assert await try_both() == [401, 401]
    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, newest.secret))
    assert answer.status_code == 202
    await call(service.DeleteHook, pb.DeleteHookRequest(hook_id=made.hook.id))
    answer = await post(client, made.url, push_as(pb.Hook.GITHUB, newest.secret))
    assert (answer.status_code, answer.text) == (401, f"{hook_deliveries.REFUSED}\n")


async def test_a_call_that_is_repeated_with_its_key_is_told_the_same_secret(
    plane: ServedControlPlane,
) -> None:
    user = await plane.user(plane.admin.key, extra=KEY)

    first, again = [await add_hook(plane, user=user) for _ in range(2)]
    rotate = pb.RotateHookRequest(hook_id=first.hook.id)
    rotated, repeated = [await call(repositories(user).RotateHook, rotate) for _ in range(2)]

    assert first == again
    assert rotated == repeated
    assert rotated.secret != first.secret
    with pytest.raises(CallError) as refused:
        await add_hook(plane)
    assert refused.value.status == "ALREADY_EXISTS"


async def test_bad_requests_are_refused_with_a_sentence(plane: ServedControlPlane) -> None:
    service = repositories(plane.admin)
    made = await add_hook(plane)
    too_long = pb.RotateHookRequest(hook_id=made.hook.id)
    too_long.overlap.FromSeconds(31 * 24 * 3600)
    negative = pb.RotateHookRequest(hook_id=made.hook.id)
    negative.overlap.FromSeconds(-1)
    cases: list[tuple[Any, Any, str]] = [
        (service.AddHook, pb.AddHookRequest(name="a"), "INVALID_ARGUMENT"),
        (service.AddHook, pb.AddHookRequest(name=" ", host=pb.Hook.GITHUB), "INVALID_ARGUMENT"),
        (
            service.AddHook,
            pb.AddHookRequest(name="a", host=pb.Hook.GITHUB, repository_url="no"),
            "INVALID_ARGUMENT",
        ),
        (service.RotateHook, too_long, "INVALID_ARGUMENT"),
        (service.RotateHook, negative, "INVALID_ARGUMENT"),
        (service.RotateHook, pb.RotateHookRequest(hook_id="none"), "NOT_FOUND"),
        (service.DeleteHook, pb.DeleteHookRequest(hook_id="none"), "NOT_FOUND"),
        (
            service.HintRepository,
            pb.HintRepositoryRequest(repository="repo", branch="--x"),
            "INVALID_ARGUMENT",
        ),
    ]
    for method, request, status in cases:
        with pytest.raises(CallError) as refused:
            await call(method, request)
        assert refused.value.status == status, request


async def test_a_project_has_so_many_hooks_and_no_more(plane: ServedControlPlane) -> None:
    for number in range(MOST_OF_PROJECT):
        await add_hook(plane, name=f"hook {number}")

    with pytest.raises(CallError, match="which is the most"):
        await add_hook(plane, name="one more")


async def test_a_hint_by_a_program_reaches_the_agents(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent(name="near")
    service = repositories(plane.admin)
    async with hints(agent, soon) as take:
        for repository in ("repo", "https://github.com/Org/Name"):
            answer = await call(
                service.HintRepository, pb.HintRepositoryRequest(repository=repository)
            )
            (hinted,) = answer.repositories
            assert (hinted.piped_name, hinted.repository_id, hinted.told) == ("near", "repo", True)
            assert (await take()).branch == "main"
        for unknown in (
            pb.HintRepositoryRequest(repository="https://github.com/org/other"),
            pb.HintRepositoryRequest(repository="repo", branch="other"),
        ):
            assert not (await call(service.HintRepository, unknown)).repositories


async def test_secrets_are_on_disk_encrypted_and_outlive_a_restart(
    serve: Serve, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    folder = tmp_path / "data"
    async with serve(folder) as plane:
        made = await add_hook(plane)
        path = made.hook.path
    for file in folder.rglob("*"):
        assert not file.is_file() or made.secret.encode() not in file.read_bytes(), file
    async with serve(folder) as plane:
        answer = await post(
            client, f"http://{plane.address}{path}", push_as(pb.Hook.GITHUB, made.secret)
        )
    assert answer.status_code == 202


async def test_a_new_encryption_key_closes_the_secrets_anew(
    plane_with: PlaneWith, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    """After that the older key can go."""
    keys = [tmp_path / "one", tmp_path / "two"]
    for key in keys:
        key.write_text(key.name * 40)
    async with plane_with(encryption_key_files=(keys[0],)) as plane:
        made = await add_hook(plane)
    async with plane_with(encryption_key_files=(keys[1], keys[0])):
        pass
    async with plane_with(encryption_key_files=(keys[1],)) as plane:
        url = f"http://{plane.address}{made.hook.path}"
        answer = await post(client, url, push_as(pb.Hook.GITHUB, made.secret))
    assert answer.status_code == 202


async def test_a_data_folder_whose_key_was_left_behind_gets_no_new_one(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    """A new key would open none of the secrets, and nobody would notice before they are needed."""
    async with plane_with() as plane:
        made = await add_hook(plane)
        key = plane.running.data_dir / "encryption.key"
    away = key.rename(key.with_name("away"))

    with pytest.raises(ConfigError, match="a key that this server does not have") as caught:
        async with plane_with():
            pass
    assert "copy encryption.key" in caught.value.hint
    assert not key.exists()

    away.rename(key)
    async with plane_with() as plane:
        url = f"http://{plane.address}{made.hook.path}"
        answer = await post(client, url, push_as(pb.Hook.GITHUB, made.secret))
    assert answer.status_code == 202


async def test_a_body_has_a_limit_of_its_own(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    """Larger than that of a form: a push of many commits has a long list of them."""
    limits = FrontLimitsConfig(max_hook_bytes=200_000)
    async with plane_with(limits=limits) as plane:
        made = await add_hook(plane)
        large = describe_push(pb.Hook.GITHUB) | {"padding": "x" * 150_000}
        sent = send_as(pb.Hook.GITHUB, made.secret, json.dumps(large).encode())
        assert (await post(client, made.url, sent)).status_code == 202

        sent = send_as(pb.Hook.GITHUB, made.secret, b" " * 200_001)
        answer = await post(client, made.url, sent)
        assert answer.status_code == 413
        assert "look by themselves" in answer.text

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b" " * 10_000

        answer = await client.post(made.url, content=chunks(), headers=sent.headers)
        assert answer.status_code == 413


async def test_forged_hooks_use_up_their_own_allowance_and_nobody_elses(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    """Even from the same address: many projects share the addresses of a git host."""
    agent = await plane.agent(name="away")
    made, other = await add_hook(plane), await add_hook(plane, name="other")
    forged = push_as(pb.Hook.GITHUB, "wrong")
    statuses = [
        (await post(client, made.url, forged)).status_code
        for _ in range(hook_deliveries.REFUSED_BURST + 20)
    ]

    assert statuses[: hook_deliveries.REFUSED_BURST] == [401] * hook_deliveries.REFUSED_BURST
    assert 429 in statuses
    limited = await post(client, made.url, forged)
    if limited.status_code == 429:
        assert int(limited.headers["retry-after"]) >= 1
    answer = await post(client, other.url, push_as(pb.Hook.GITHUB, other.secret))
    assert answer.status_code == 202
    answer = await post(client, made.url.replace(made.hook.id, "none"), forged)
    assert answer.status_code == 401
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b""))


async def test_what_became_of_hooks_is_counted(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    made = await add_hook(plane)
    await post(client, made.url, push_as(pb.Hook.GITHUB, made.secret))
    await post(client, made.url, push_as(pb.Hook.GITHUB, "wrong"))

    answer = await client.get(
        f"http://{plane.address}/metrics", headers={"authorization": f"Bearer {plane.admin.key}"}
    )

    counted = 'pipecd_hooks_total{outcome="unwatched",pipecd_component="server",project="default"}'
    assert f"{counted} 1.0" in answer.text
    (listed,) = (await call(repositories(plane.admin).ListHooks, pb.ListHooksRequest())).hooks
    assert listed.last_accepted_at >= listed.created_at
    assert listed.last_refused_at >= listed.created_at


async def test_deliveries_at_the_same_time_are_each_answered(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    made = await add_hook(plane)
    sent = push_as(pb.Hook.GITHUB, made.secret)

    answers = await asyncio.gather(*(post(client, made.url, sent) for _ in range(50)))

    assert {answer.status_code for answer in answers} == {202}
