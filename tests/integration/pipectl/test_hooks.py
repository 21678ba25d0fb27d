# SPDX-License-Identifier: Apache-2.0
"""`pipectl hook` and `pipectl repository` against a real control plane."""

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipecd_test_support.git_hooks import push_as
from pipecd_test_support.pipectl_site import PipectlSite
from pipecd_test_support.piped_site import ServerProcess
from pipecd_wire.pipecd.api.repositories_pb2 import Hook
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceStub
from pipecd_wire.rpc import call, connect


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipectlSite]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        made = PipectlSite(server=server)
        asyncio.run(made.register_piped("agent"))
        yield made
    finally:
        server.stop()


def run_json(site: PipectlSite, *arguments: str) -> Any:
    return json.loads(site.run(*arguments).stdout)


def fail(site: PipectlSite, *arguments: str, code: int = 1) -> str:
    return site.run(*arguments, code=code).stderr


def post(url: str, secret: str) -> int:
    sent = push_as(Hook.GITHUB, secret)
    return httpx2.post(url, content=sent.body, headers=sent.headers, trust_env=False).status_code


def test_a_hook_is_made_used_changed_and_deleted(site: PipectlSite, tmp_path: Path) -> None:
    made = run_json(site, "hook", "add", "ours", "--host", "github")
    assert made["url"] == f"http://{site.server.address}/hooks/v1/default/{made['id']}"
    assert post(made["url"], made["secret"]) == 202
    assert post(made["url"], "wrong") == 401

    secret_file = tmp_path / "secret"
    rotated = run_json(
        site, "hook", "rotate", "ours", "--overlap", "1h", "--secret-file", str(secret_file)
    )
    assert "secret" not in rotated
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    secret = secret_file.read_text().strip()
    assert [post(made["url"], each) for each in (secret, made["secret"])] == [202, 202]
    listed = site.show("hook", "list").lines
    assert listed[0].split()[:2] == ["NAME", "HOST"]
    assert listed[1].split()[:2] == ["ours", "github"]
    (hook,) = run_json(site, "hook", "list")["hooks"]
    assert hook["name"] == "ours"
    assert not any("ecret" in key and key.endswith("secret") for key in hook)
    site.run("hook", "revoke", "ours")
    assert [post(made["url"], each) for each in (secret, made["secret"])] == [202, 401]
    assert "has one secret" in fail(site, "hook", "revoke", "ours")
    site.run("hook", "delete", "ours", "--dry-run")
    assert post(made["url"], secret) == 202
    site.run("hook", "delete", made["id"][:8])
    assert post(made["url"], secret) == 401
    assert "there is no hook 'ours'" in fail(site, "hook", "delete", "ours", code=4)


def test_a_terminal_shows_what_belongs_into_the_settings_of_the_host(site: PipectlSite) -> None:
    shown = site.show("hook", "add", "shown", "--host", "gitlab").text

    assert f"URL:    http://{site.server.address}/hooks/v1/default/" in shown
    assert "Secret: " in shown
    assert "Settings > Webhooks" in shown
    assert "The secret is not shown again." in shown
    site.run("hook", "delete", "shown")


def test_a_name_of_another_hook_and_a_file_that_exists_are_refused(
    site: PipectlSite, tmp_path: Path
) -> None:
    site.run("hook", "add", "twice", "--host", "gitea")
    assert "has a hook 'twice' already" in fail(site, "hook", "add", "twice", "--host", "forgejo")
    there = tmp_path / "there"
    there.write_text("")
    refusal = fail(site, "hook", "add", "other", "--host", "github", "--secret-file", str(there))
    assert "exists already" in refusal
    names = [each["name"] for each in run_json(site, "hook", "list")["hooks"]]
    assert names == ["twice"]
    site.run("hook", "delete", "twice")


def test_a_hostile_name_does_not_reach_the_terminal(site: PipectlSite) -> None:
    site.run("hook", "add", "evil\x1b[2Jname", "--host", "github")

    for output in ("table", "wide", "name"):
        assert "\x1b[2J" not in site.show("hook", "list", "--output", output).raw
    (hook,) = run_json(site, "hook", "list")["hooks"]
    assert "\x1b" not in site.show("hook", "delete", hook["id"], "--dry-run").text
    site.run("hook", "delete", hook["id"])


def test_a_hint_says_who_looks(site: PipectlSite) -> None:
    shown = run_json(site, "repository", "hint", "example", "--branch", "main")
    assert [each["piped_name"] for each in shown["repositories"]] == ["agent"]
    table = site.show("repository", "hint", "/example")
    assert "not connected, looks by itself" in table.text
    nobody = site.show("repository", "hint", "https://example.com/a/b")
    assert nobody.code == 0
    assert "no agent watches https://example.com/a/b" in nobody.text
    assert "not the name of a branch" in fail(
        site, "repository", "hint", "example", "--branch=--x", code=2
    )


def test_an_application_says_that_its_piped_has_registered_it(site: PipectlSite) -> None:
    async def register() -> None:
        token = f"PIPED-TOKEN default,{site.piped_id},{site.piped_key}"
        async with connect(
            site.server.address, metadata=lambda: [("authorization", token)]
        ) as channel:
            found = push_pb2.FoundApplication(
                name="found", repository_id="example", path="found", config_filename="a.yaml"
            )
            request = push_pb2.RegisterApplicationsRequest(applications=[found])
            await call(PushServiceStub(channel).RegisterApplications, request)

    asyncio.run(register())
    site.add_application("by hand")

    assert "by its piped" in site.show("application", "get", "found").text
    assert "by its piped" not in site.show("application", "get", "by hand").text
