# SPDX-License-Identifier: Apache-2.0
"""One bad file, repository or plugin harms nobody else, and says so where its owner looks.

One site for all: a control plane, a piped, two good repositories and some that are not, a good
plugin and one that answers in every wrong way.
"""

import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient, register_site
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import Retry, call

HOSTILE = Path(__file__).parent / "programs" / "hostile_plugin.py"
LIMIT = 100
MIB = 1024 * 1024


def document(name: str, *stages: Any, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "pipecd.dev/v1beta1",
            "kind": "Application",
            "spec": {
                "name": name,
                "pipeline": {"stages": list(stages)},
                "planner": {"alwaysUsePipeline": True, "autoRollback": False},
                **spec,
            },
        }
    )


def good(name: str, number: int = 0) -> str:
    return document(name, {"name": "DUMMY_SYNC"}, description=str(number))


def make_folder(file: Path) -> None:
    file.mkdir()
    (file / "x").write_text("1")


BAD_FILES: dict[str, str | bytes | Callable[[Path], None]] = {
    "over-the-limit": b"#" * (17 * MIB),
    "large": b"#" * (5 * MIB),
    "no-text": b"\xff\xfe\x00",
    "empty": "",
    "bomb": "a0: &a0 [x, x]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60)),
    "deep": "[" * 50_000,
    "faults": document("x", *({"name": ""} for _ in range(3000))),
    "long-name": good("x" * 100_000),
    "outside": lambda file: file.symlink_to("/etc/passwd"),
    "round": lambda file: file.symlink_to(file.name),
    "folder": make_folder,
    "missing": lambda _: None,
}


class Town:
    """The site, and what else is in it."""

    def __init__(self, site: PipedSite) -> None:
        self.site = site
        self.second = site.folder / "second"
        self.number = 0

    def git(self, folder: Path, *arguments: str) -> str:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def repositories(self) -> list[dict[str, str]]:
        """The good ones, and one of each bad sort."""
        folder = self.site.folder
        for name in ("second", "empty", "branchless", "corrupt"):
            (folder / name).mkdir()
            self.git(folder / name, "init", "--quiet", "--initial-branch=main")
        for name in ("branchless", "corrupt"):
            self.git(folder / name, "commit", "--quiet", "--allow-empty", "--message=one")
        self.git(folder / "branchless", "branch", "--move", "other")
        for objects in (folder / "corrupt" / ".git" / "objects").glob("??/*"):
            objects.chmod(0o644)
            objects.write_bytes(b"garbage")
        paths = {
            "example": self.site.repository,
            "second": self.second,
            "empty": folder / "empty",
            "branchless": folder / "branchless",
            "corrupt": folder / "corrupt",
            "gone": folder / "gone",
        }
        remotes = {name: str(path) for name, path in paths.items()}
        remotes["elsewhere"] = "http://127.0.0.1:1/nobody/listens.git"
        return [
            {"repoId": name, "remote": remote, "branch": "main"} for name, remote in remotes.items()
        ]

    def push(self, folder: Path, files: dict[str, Any]) -> str:
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_symlink() or file.is_file():
                file.unlink()
            if callable(content):
                content(file)
            else:
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git(folder, "add", "--all")
        self.git(folder, "commit", "--quiet", "--allow-empty", "--message=a change")
        return self.git(folder, "rev-parse", "HEAD")

    async def register(
        self,
        client: SiteClient,
        path: str,
        repo: str = "example",
        filename: str = "app.pipecd.yaml",
    ) -> str:
        git_path = self.site.git_path(path)
        git_path.repo.Clear()
        git_path.repo.id = repo
        git_path.config_filename = filename
        request = own.AddApplicationRequest(
            name=path, piped_id=self.site.piped_id, git_path=git_path
        )
        retry = Retry(attempts=500, cap_seconds=0.2, also=frozenset({"NOT_FOUND"}))
        made = await call(client.applications.AddApplication, request, retry=retry)
        return str(made.application_id)

    async def until(
        self,
        client: SiteClient,
        application_id: str,
        holds: Callable[[application_pb2.Application], bool],
    ) -> application_pb2.Application:
        request = api.GetApplicationRequest(application_id=application_id)
        found = application_pb2.Application()
        with self.site.explained():
            try:
                async with asyncio.timeout(LIMIT):
                    while True:
                        found = (await call(client.api.GetApplication, request)).application
                        if holds(found):
                            return found
                        assert self.site.alive()
                        await asyncio.sleep(0.1)  # between looks at another process
            except TimeoutError:
                raise AssertionError(f"it stayed so: {found}") from None

    async def deployed(self, client: SiteClient, application_id: str, commit: str) -> None:
        """Wait until the trigger has deployed a commit of an application, successfully."""

        def is_there(application: application_pb2.Application) -> bool:
            last = application.most_recently_successful_deployment
            return last.trigger.commit.hash == commit

        await self.until(client, application_id, is_there)

    async def bystanders_deploy(self, client: SiteClient) -> None:
        """Commit something to both good repositories: it is deployed in both."""
        self.number += 1
        for folder, application_id in (
            (self.site.repository, self.same_repository),
            (self.second, self.other_repository),
        ):
            commit = self.push(folder, {"good/app.pipecd.yaml": good("good", self.number)})
            await self.deployed(client, application_id, commit)

    same_repository = ""
    other_repository = ""


@pytest.fixture(scope="module")
def town(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    made = Town(register_site(tmp_path_factory.mktemp("town"), server))
    repositories = made.repositories()
    plugin = made.site.folder / "hostile"
    plugin.write_text(f"#!{sys.executable}\n{HOSTILE.read_text()}")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    hostile = {
        "name": "hostile",
        "url": f"file://{plugin}",
        "port": pick_port(),
        "deployTargets": [{"name": "here"}],
    }
    dummy = {"name": "dummy", "deployTargets": [{"name": "there"}]}
    made.site.configure(dummy, hostile, repositories=repositories)
    for folder in (made.site.repository, made.second):
        made.push(folder, {"good/app.pipecd.yaml": good("good")})
    made.site.start()
    try:
        yield made
    finally:
        made.site.close()


@pytest.fixture
async def client(town: Town) -> AsyncIterator[SiteClient]:
    async with town.site.client() as opened:
        if not town.same_repository:
            town.same_repository = await town.register(opened, "good")
            town.other_repository = await town.register(opened, "good", "second")
        yield opened


@pytest.mark.timeout(300)
async def test_bad_files_are_told_on_their_applications_and_the_others_are_deployed(
    town: Town, client: SiteClient
) -> None:
    town.push(
        town.site.repository,
        {f"{name}/app.pipecd.yaml": content for name, content in BAD_FILES.items()},
    )
    bad = {name: await town.register(client, name) for name in BAD_FILES}
    words = [":(glob)*", "-h", "*", "a b", "<script>", "x" * 300, "."]
    for word in words:
        bad[f"the file {word[:20]}"] = await town.register(client, "good", filename=word)

    await town.bystanders_deploy(client)

    for name, application_id in bad.items():
        told = await town.until(
            client,
            application_id,
            lambda it: it.sync_state.status == application_pb2.INVALID_CONFIG,
        )
        assert 10 < len(told.sync_state.reason) < 10_000, name
    await town.bystanders_deploy(client)


@pytest.mark.timeout(300)
async def test_bad_repositories_are_told_on_their_applications_and_the_others_are_deployed(
    town: Town, client: SiteClient
) -> None:
    bad = {
        name: await town.register(client, "web", name)
        for name in ("empty", "branchless", "corrupt", "gone", "elsewhere")
    }

    await town.bystanders_deploy(client)

    for name, application_id in bad.items():
        told = await town.until(
            client,
            application_id,
            lambda it: it.sync_state.short_reason == "the git repository cannot be reached",
        )
        assert 10 < len(told.sync_state.reason) < 1000, name
    await town.bystanders_deploy(client)


UNREADABLE = "the answer is not a message of the protocol"
ANOTHERS = "is run by the plugin 'dummy', not by 'hostile'"

FAILING = {
    "stages: huge": "answered BuildPipelineSyncStages with more than 10 MiB",
    "stages: no message": UNREADABLE,
    "stages: no text": "the plugins answered no stage",
    "stages: foreign index": "index 99, which it was not asked about",
    "stages: negative index": "index -2147483648, which it was not asked about",
    "stages: one twice": "index 0 twice",
    "stages: without a name": "stages[0].name: must have at least 1 character",
    "stages: long texts": "at most 8388608",
    "stages: a thousand": "index 0 twice",
    "stages: none": "the plugins answered no stage",
    "stages: never": "did not answer BuildPipelineSyncStages in time",
    "execute: huge": "answered ExecuteStage with more than 10 MiB",
    "execute: no message": UNREADABLE,
    "execute: no text": UNREADABLE,
    "execute: no end": "which is not an end",
    "execute: unknown status": "the status 999, which is not an end",
    "execute: long reason": "xxxx",
    "execute: another's log": ANOTHERS,
    "execute: another's metadata": ANOTHERS,
}
HARMLESS = [
    "versions: huge",
    "versions: no message",
    "versions: no text",
    "versions: never",
    "execute: long line",
    "execute: odd lines",
]


@pytest.mark.timeout(300)
async def test_bad_answers_of_a_plugin_fail_its_deployments_and_no_other(
    town: Town, client: SiteClient
) -> None:
    waiting = document(
        "waiting",
        {"name": "DUMMY_SYNC", "with": {"sleep": "10m"}},
        trigger={"onCommit": {"disabled": True}},
    )
    head = town.push(town.site.repository, {"waiting/app.pipecd.yaml": waiting})
    victim_id = await client.deploy("waiting", head)
    victim_stage = await client.stage_running(victim_id, 0)
    theirs = [victim_id, victim_stage.id]
    evils = [*FAILING, *HARMLESS, "execute: never"]
    head = town.push(
        town.site.repository,
        {
            f"evil{number}/app.pipecd.yaml": document(
                f"evil{number}",
                {"name": "EVIL", "with": {"evil": evil, "theirs": theirs}},
                trigger={"onCommit": {"disabled": True}},
            )
            for number, evil in enumerate(evils)
        },
    )
    deployments = {
        evil: await client.deploy(f"evil{number}", head, targets={"hostile": ["here"]})
        for number, evil in enumerate(evils)
    }

    await town.bystanders_deploy(client)
    told: dict[str, tuple[int, str]] = {}
    for evil, deployment_id in deployments.items():
        if evil == "execute: never":
            await client.stage_running(deployment_id, 0)
            await client.cancel(deployment_id)
        ended = await client.completed(deployment_id)
        told[evil] = (ended.status, ended.status_reason)
    await town.bystanders_deploy(client)

    for evil, sentence in FAILING.items():
        status, reason = told[evil]
        assert (status, sentence in reason) == (pb.DEPLOYMENT_FAILURE, True), (evil, reason[:500])
        assert len(reason) < 20_000
    assert {told[evil][0] for evil in HARMLESS} == {pb.DEPLOYMENT_SUCCESS}
    assert told["execute: never"][0] == pb.DEPLOYMENT_CANCELLED
    victim = await client.until(victim_id, lambda _: True)
    [stage] = [each for each in victim.stages if each.id == victim_stage.id]
    assert stage.status == pb.STAGE_RUNNING
    assert "another" not in stage.metadata.values()
    await client.cancel(victim_id)
    ended = await client.completed(victim_id)
    assert "written by another plugin" not in "\n".join(await client.log(ended, stage))


@pytest.mark.timeout(300)
async def test_bad_live_states_are_told_on_their_applications_and_the_others_are_seen(
    town: Town, client: SiteClient
) -> None:
    evils = ["live: huge", "live: no message", "live: no text", *["live: never"] * 5]
    paths = [f"live{number}" for number in range(len(evils))]
    never = {"trigger": {"onCommit": {"disabled": True}}}
    head = town.push(
        town.site.repository,
        {
            f"{path}/app.pipecd.yaml": document(
                path, {"name": "EVIL", "with": {"evil": evil}}, **never
            )
            for path, evil in zip(paths, evils, strict=True)
        }
        | {"seen/app.pipecd.yaml": document("seen", {"name": "DUMMY_SYNC"}, **never)},
    )
    for path, evil in zip(paths, evils, strict=True):
        application_id = await client.register(path, hostile=["here"])
        targets = {"hostile": ["here"]}
        made = await client.deploy(path, head, application_id, targets=targets)
        assert (await client.completed(made)).status == pb.DEPLOYMENT_SUCCESS
        if evil != "live: never":
            await town.until(
                client,
                application_id,
                lambda it: "the plugin 'hostile' cannot tell" in it.sync_state.short_reason,
            )

    bystander = await client.register("seen", dummy=["there"])
    made = await client.deploy("seen", head, bystander, targets={"dummy": ["there"]})
    await client.completed(made)

    seen = await town.until(
        client, bystander, lambda it: it.sync_state.status == application_pb2.SYNCED
    )
    assert seen.sync_state.head_deployment_id == made


@pytest.mark.timeout(300)
async def test_a_plugin_that_ends_again_and_again_takes_no_other_with_it(
    town: Town, client: SiteClient
) -> None:
    head = town.push(
        town.site.repository,
        {
            "ends/app.pipecd.yaml": document(
                "ends",
                {"name": "EVIL", "with": {"evil": "execute: the end"}},
                trigger={"onCommit": {"disabled": True}},
            )
        },
    )
    deployment_id = await client.deploy("ends", head, targets={"hostile": ["here"]})

    await town.bystanders_deploy(client)

    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "hostile" in ended.status_reason
    await town.bystanders_deploy(client)


def test_piped_has_lived_through_all_of_it(town: Town) -> None:
    assert town.site.alive()
    events = [line.get("event") for line in town.site.events()]
    assert "component.failed" not in events
    assert "deployment.bug" not in events
    assert "stage.bug" not in events
    assert "livestate.bug" not in events
