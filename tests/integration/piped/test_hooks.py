# SPDX-License-Identifier: Apache-2.0
"""A push to a git host over HTTP is deployed at once by its hook, with real programs all the way.

The agent polls every hour here: only a hint can be what made it look.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipecd_test_support.git_hooks import SentHook, push_as
from pipecd_test_support.git_http import GitHost
from pipecd_test_support.piped_site import PipedSite, ServerProcess
from pipecd_wire.pipecd.api.repositories_pb2 import Hook

HOUR = "1h"
LIMIT_SECONDS = 60.0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    with GitHost(tmp_path / "host").serving() as made:
        yield made


class HostedSite:
    """A piped whose repository is on a git host, and an application in it."""

    def __init__(self, site: PipedSite, host: GitHost) -> None:
        self.site = site
        self.host = host
        self.remote = host.make_repository("acme/shop.git")
        self.record = site.folder / "record"

    def configure(self, **spec: Any) -> None:
        repository = {"repoId": "example", "remote": self.remote, "branch": "main"}
        self.site.configure("scriptrun", repositories=[repository], syncInterval=HOUR, **spec)

    def push(self, path: str, text: str, **spec: Any) -> str:
        """Commits an application whose script records a text, and pushes it."""
        stage = {"name": "SCRIPT_RUN", "with": {"run": f"echo {text} >> {self.record}"}}
        commit = self.site.commit_application(path, [stage], trigger={}, **spec)
        self.site.git("push", "--quiet", self.remote, "main")
        return commit

    def add_hook(self, host: str) -> dict[str, str]:
        made: dict[str, str] = json.loads(self.site.pipectl("hook", "add", host, "--host", host))
        return made

    async def pipectl(self, *arguments: str) -> str:
        with self.site.explained():
            return await asyncio.to_thread(self.site.pipectl, *arguments)

    async def list_names(self) -> list[str]:
        """The names of the applications of this piped."""
        shown = json.loads(await self.pipectl("application", "list"))
        return [
            each["name"]
            for each in shown.get("applications", [])
            if each["piped_id"] == self.site.piped_id
        ]

    async def wait_registered(self, name: str) -> list[str]:
        """Waits until an application is registered; returns the names of all."""
        with self.site.explained():
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    names = await self.list_names()
                    if name in names:
                        return names
                    await asyncio.sleep(0.05)  # between looks at another process

    async def wait_logged(self, text: str) -> None:
        """Waits until piped's log has a text."""
        with self.site.explained():
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    if text in self.site.log_text():
                        return
                    await asyncio.sleep(0.05)  # between looks at another process's output

    async def wait_deployed(self, path: str, commit: str) -> None:
        await self.pipectl("deployment", "wait", path, "--commit", commit, "--timeout", "60s")


def post(url: str, sent: SentHook) -> tuple[int, str]:
    answer = httpx2.post(url, content=sent.body, headers=sent.headers, timeout=60, trust_env=False)
    return answer.status_code, answer.text


def describe(hosted: HostedSite, commit: str) -> dict[str, Any]:
    return {
        "repository": "acme/shop",
        "domain": hosted.host.address.split("//")[1],
        "commit": commit,
    }


@pytest.fixture
async def hosted(
    server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite], host: GitHost
) -> HostedSite:
    return HostedSite(site_of(server), host)


async def test_a_push_with_a_hook_is_deployed_at_once(hosted: HostedSite) -> None:
    first = hosted.push("shop", "one")
    hosted.configure()
    hosted.site.start()
    async with hosted.site.client() as client:
        await client.register("shop")
    await hosted.wait_deployed("shop", first)
    hook = hosted.add_hook("github")
    assert hook["url"] == f"http://{hosted.site.server.address}/hooks/v1/default/{hook['id']}"

    answers = []

    def send_hook() -> None:
        """As a host does, when it has taken the push and before its client knows."""
        commit = hosted.site.git("rev-parse", "HEAD")
        sent = push_as(Hook.GITHUB, hook["secret"], **describe(hosted, commit))
        answers.append(post(hook["url"], sent))

    hosted.host.on_push = send_hook
    for text in ("two", "three"):
        await hosted.wait_deployed("shop", hosted.push("shop", text))

    assert hosted.site.records() == ["one", "two", "three"]
    looking = f"looking now: {hosted.site.folder.name}\n"
    assert answers == [(202, looking)] * 2

    # Replayed, or about commits that nobody has: git has the last word, and the next push comes.
    hosted.host.on_push = lambda: None
    for commit in ("f" * 40, hosted.site.git("rev-parse", "HEAD~1")):
        sent = push_as(Hook.GITHUB, hook["secret"], **describe(hosted, commit))
        for _ in range(5):
            assert post(hook["url"], sent) == (202, looking)
    pushed = hosted.push("shop", "four")
    said = await hosted.pipectl("repository", "hint", hosted.remote, "--commit", pushed)
    assert json.loads(said)["repositories"][0]["told"] is True
    await hosted.wait_deployed("shop", pushed)
    assert hosted.site.records() == ["one", "two", "three", "four"]


async def test_what_an_agent_finds_it_registers_and_deploys_if_its_file_says_so(
    hosted: HostedSite,
) -> None:
    hosted.push("other", "never")
    commit = hosted.push("found", "one", labels={"env": "dev"})
    hosted.configure(autoRegistration={"labels": {"env": "dev"}})
    hosted.site.start()

    assert await hosted.wait_registered("found") == ["found"]
    await hosted.wait_deployed("found", commit)
    assert hosted.site.records() == ["one"]

    # The next one is found by its push; what a person deletes stays deleted.
    await hosted.pipectl("application", "delete", "found")
    commit = hosted.push("found too", "two", labels={"env": "dev"})
    await hosted.pipectl("repository", "hint", "example")
    assert await hosted.wait_registered("found too") == ["found too"]
    await hosted.wait_deployed("found too", commit)
    await hosted.wait_logged("only a person registers it again")
    assert await hosted.list_names() == ["found too"]
