# SPDX-License-Identifier: Apache-2.0
"""What repositories say about applications reaches the control plane, once and when it is new."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_piped.appconfig import ApplicationFiles, Discovery
from pipecd_piped.appconfig.scan import is_application_file
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.git import Repository
from pipecd_test_support.git_remote import GitRemote, Remotes
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.common_pb2 import (
    ECS,
    ApplicationGitPath,
    ApplicationGitRepository,
    ApplicationInfo,
)
from pipecd_wire.rpc import validation

LIMIT = 30.0


def file(name: str, kind: str = "Application", **spec: Any) -> str:
    lines = ["apiVersion: pipecd.dev/v1beta1", f"kind: {kind}", "spec:", f"  name: {name}"]
    return "\n".join([*lines, *(f"  {key}: {value}" for key, value in spec.items())]) + "\n"


def application(id: str, path: str, repo: str = "repo", **more: Any) -> Application:
    filename = more.pop("config_filename", "app.pipecd.yaml")
    return Application(
        id=id,
        name=more.pop("name", id),
        piped_id="piped",
        project_id="project",
        git_path=ApplicationGitPath(
            repo=ApplicationGitRepository(id=repo), path=path, config_filename=filename
        ),
        **more,
    )


class Told:
    """Reports in the order in which they were given."""

    def __init__(self) -> None:
        self.updates: list[list[ApplicationInfo]] = []
        self.suggestions: list[list[str]] = []
        self.requests: list[Any] = []
        self._something = asyncio.Event()

    def put(self, lane: str, method: str, request: Message) -> None:
        assert validation.check(request) is None
        assert request.DESCRIPTOR.name == f"{method}Request"
        self.requests.append(request)
        applications = list(request.applications)  # type: ignore[attr-defined] # both have it
        if method == "UpdateApplicationConfigurations":
            self.updates.append(applications)
        else:
            self.suggestions.append([each.name for each in applications])
        self._something.set()
        self._something = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                await self._something.wait()


class Bench:
    """Repositories and a state, with a discovery that comes and goes."""

    def __init__(self, git_remote: Remotes, folder: Path) -> None:
        self.remote = git_remote()
        self.other = git_remote("other")
        self.folder = folder
        self.state = ControlPlaneState()
        self.told = Told()

    @asynccontextmanager
    async def running(
        self, *applications: Application, repositories: tuple[str, ...] = ("repo",), **options: Any
    ) -> AsyncIterator[None]:
        self.state.replace(applications=applications, deployments=(), commands=())
        remotes = {"repo": self.remote.remote, "other": self.other.remote}
        made = {
            id: Repository(
                id=id, remote=remotes[id], branch="main", folder=self.folder / "mirrors" / id
            )
            for id in repositories
        }
        discovery = Discovery(
            piped_id="piped",
            repositories=made,
            state=self.state,
            files=ApplicationFiles(),
            reports=self.told,
            **options,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(discovery.run())
            yield
            running.cancel()
        for repository in made.values():
            await repository.close()


@pytest.fixture
def bench(git_remote: Remotes, tmp_path: Path) -> Bench:
    return Bench(git_remote, tmp_path)


async def test_files_that_nobody_has_registered_are_suggested(bench: Bench) -> None:
    bench.remote.commit(
        {
            "a/app.pipecd.yaml": file("one", labels="{team: x}", description="words"),
            "a/second.pipecd.yaml": file("two"),
            "b/.pipe.yaml": file("old", kind="ECSApp"),
            "app.pipecd.yaml": file("root"),
            "x/app.pipecd.yaml": file("short path"),
            "c/app.yaml": file("not by its name"),
            "c/app.pipecd.yaml": "kind: [",
            "d/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {}\n",
            "e/app.pipecd.yaml": file("registered"),
        }
    )
    async with bench.running(application("registered", "e")):
        await bench.told.until(lambda: bool(bench.told.suggestions))

    (request,) = bench.told.requests
    found = {info.name: info for info in request.applications}
    assert set(found) == {"one", "two", "old", "root", "short path"}
    assert found["one"] == ApplicationInfo(
        name="one",
        labels={"team": "x"},
        description="words",
        repo_id="repo",
        path="a/",
        config_filename="app.pipecd.yaml",
        piped_id="piped",
    )
    assert found["two"].config_filename == "second.pipecd.yaml"
    assert (found["old"].config_filename, found["old"].kind) == (".pipe.yaml", ECS)
    assert found["root"].path == "./"


async def test_suggestions_are_told_again_when_they_change_and_only_then(bench: Bench) -> None:
    bench.remote.commit({"one/app.pipecd.yaml": file("one")})
    async with bench.running():
        await bench.told.until(lambda: len(bench.told.suggestions) == 1)
        bench.remote.commit({"README": "x"})
        bench.remote.commit({"two/app.pipecd.yaml": file("two")})
        await bench.told.until(lambda: len(bench.told.suggestions) == 2)
        bench.state.merge(StateChange(applications=(application("one", "one"),)))
        await bench.told.until(lambda: len(bench.told.suggestions) == 3)
        bench.remote.commit({"two/app.pipecd.yaml": None})
        await bench.told.until(lambda: len(bench.told.suggestions) == 4)
        bench.state.merge(StateChange(removed_applications=frozenset({"one"})))
        await bench.told.until(lambda: len(bench.told.suggestions) == 5)

    assert bench.told.suggestions == [["one"], ["one", "two"], ["two"], [], ["one"]]


async def test_a_file_that_was_moved_is_suggested_at_its_new_place_only(bench: Bench) -> None:
    bench.remote.commit({"old/app.pipecd.yaml": file("web")})
    async with bench.running():
        await bench.told.until(lambda: len(bench.told.requests) == 1)
        bench.remote.commit({"old/app.pipecd.yaml": None, "new/app.pipecd.yaml": file("web")})
        await bench.told.until(lambda: len(bench.told.requests) == 2)

    places = [[each.path for each in request.applications] for request in bench.told.requests]
    assert places == [["old"], ["new"]]


async def test_only_files_with_the_labels_of_this_piped_are_suggested(bench: Bench) -> None:
    bench.remote.commit(
        {
            "one/app.pipecd.yaml": file("one", labels="{env: dev, team: x}"),
            "two/app.pipecd.yaml": file("two", labels="{env: prod}"),
            "three/app.pipecd.yaml": file("three"),
        }
    )
    async with bench.running(selector={"env": "dev"}):
        await bench.told.until(lambda: bool(bench.told.suggestions))

    assert bench.told.suggestions == [["one"]]


async def test_an_empty_list_is_told_once(bench: Bench) -> None:
    """What an earlier piped suggested is gone."""
    bench.remote.commit({"README": "1"})
    async with bench.running():
        await bench.told.until(lambda: bool(bench.told.suggestions))

    assert bench.told.suggestions == [[]]


async def test_the_first_list_waits_for_every_repository_that_can_be_had(bench: Bench) -> None:
    bench.remote.commit({"one/app.pipecd.yaml": file("one")})
    bench.other.commit({"two/app.pipecd.yaml": file("two")})
    async with bench.running(repositories=("repo", "other")):
        await bench.told.until(lambda: bool(bench.told.suggestions))

    assert bench.told.suggestions == [["two", "one"]]


async def test_a_repository_that_is_away_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.remote.commit({"one/app.pipecd.yaml": file("one")})
    bench.other.path.rename(bench.other.path.with_name("away"))
    async with bench.running(repositories=("repo", "other")):
        await bench.told.until(lambda: bool(bench.told.suggestions))

    assert bench.told.suggestions == [["one"]]


BAD: dict[str, str | bytes] = {
    "too large for git": b"#" * (17 * 1024 * 1024),
    "too large to parse": b"#" * (5 * 1024 * 1024),
    "no text": b"\xff\0",
    "bomb": "[" * 100_000,
    "long name": file("x" * 100_000),
    "long description": file("long", description="x" * 100_000),
    "long labels": file("long", labels="{a: " + "x" * 100_000 + "}"),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_file_keeps_no_other_file_from_being_suggested(bench: Bench, bad: str) -> None:
    names = ["one", "two", "three"]
    bench.remote.commit(
        {
            "m/app.pipecd.yaml": BAD[bad],
            **{f"{name}/app.pipecd.yaml": file(name) for name in names},
        }
    )
    async with bench.running():
        await bench.told.until(lambda: bool(bench.told.suggestions))
        bench.remote.commit({"z/app.pipecd.yaml": file("later")})
        await bench.told.until(lambda: len(bench.told.suggestions) == 2)

    assert set(bench.told.suggestions[0]) == set(names)
    assert set(bench.told.suggestions[1]) == {*names, "later"}


async def test_a_file_of_any_name_keeps_no_other_file_from_being_suggested(bench: Bench) -> None:
    odd = ["line\nbreak", "escape\x1b[31m", "cr\r", "tab\t", ":(glob)x", "-h", "a b", "\udcff"]
    bench.remote.commit({f"{name}/app.pipecd.yaml": file("odd") for name in odd})
    (bench.remote.path / "linked").symlink_to("/etc")
    bench.remote.commit({"good/app.pipecd.yaml": file("good")})
    async with bench.running():
        await bench.told.until(lambda: bool(bench.told.suggestions))

    (request,) = bench.told.requests
    assert {info.path for info in request.applications} == {":(glob)x", "-h", "a b", "good"}


async def test_what_no_control_plane_would_take_is_left_out_of_the_report(bench: Bench) -> None:
    """A report with one invalid entry is refused whole."""
    bench.remote.commit(
        {
            "good/app.pipecd.yaml": file("good"),
            "nul/app.pipecd.yaml": file('"a\\0b"'),
        }
    )
    async with bench.running():
        await bench.told.until(lambda: bool(bench.told.suggestions))

    assert "good" in bench.told.suggestions[0]  # and `Told` has checked the whole request


def break_tree(remote: GitRemote) -> None:
    """Commit a folder that is no folder."""
    tree = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"],
        cwd=remote.path,
        input=b"40000 broken\0" + bytes.fromhex(remote.git("rev-parse", "HEAD:x")),
        capture_output=True,
        check=True,
    ).stdout.decode()
    commit = remote.git("commit-tree", tree.strip(), "-m", "broken")
    remote.git("update-ref", "refs/heads/main", commit)


async def test_a_repository_that_cannot_be_read_does_not_hold_up_the_others(bench: Bench) -> None:
    """It is reachable, and its tree is one that git refuses to list."""
    bench.remote.commit({"one/app.pipecd.yaml": file("one")})
    bench.other.commit({"x": "1"})
    break_tree(bench.other)

    async with bench.running(repositories=("repo", "other"), first_scan_seconds=0.1):
        await bench.told.until(lambda: bool(bench.told.suggestions))
        bench.remote.commit({"two/app.pipecd.yaml": file("two")})
        await bench.told.until(lambda: ["one", "two"] in bench.told.suggestions)


async def test_a_report_has_a_size_that_a_control_plane_takes(bench: Bench) -> None:
    text = "x" * 60_000
    names = [f"n{number:03}" for number in range(60)]
    bench.remote.commit({f"{name}/app.pipecd.yaml": file(name, description=text) for name in names})
    async with bench.running(*(application(name, name) for name in names[:55])):
        await bench.told.until(
            lambda: sum(map(len, bench.told.updates)) == 55 and bool(bench.told.suggestions)
        )

    assert len(bench.told.updates) > 1
    assert all(request.ByteSize() < 4 * 1024 * 1024 for request in bench.told.requests)
    assert bench.told.suggestions[-1] == names[55:]


async def test_what_a_file_says_about_its_registered_application_is_told_once(
    bench: Bench,
) -> None:
    bench.remote.commit(
        {
            "web/app.pipecd.yaml": file("web"),
            "same/app.pipecd.yaml": file("same"),
            "nameless/app.pipecd.yaml": (
                "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {description: d}\n"
            ),
        }
    )
    registered = (
        application("web", "web", name="old name", labels={"gone": "x"}),
        application("same", "same"),
        application("nameless", "nameless", description="d"),
        application("missing_file_error", "missing"),
        application("lost", "../lost"),
    )
    async with bench.running(*registered):
        await bench.told.until(lambda: len(bench.told.updates) == 1)
        bench.remote.commit({"README": "x"})
        bench.remote.commit({"web/app.pipecd.yaml": file("web", description="new")})
        await bench.told.until(lambda: len(bench.told.updates) == 2)
        taken = application("web", "web", description="new")
        bench.state.merge(StateChange(applications=(taken,)))
        edited = application("web", "web", description="by hand")
        bench.state.merge(StateChange(applications=(edited,)))
        await bench.told.until(lambda: len(bench.told.updates) == 3)

    first, second, third = bench.told.updates
    assert [(info.id, info.name, dict(info.labels)) for info in first] == [("web", "web", {})]
    assert [(info.id, info.description) for info in second] == [("web", "new")]
    assert third == second


async def test_news_about_deployments_of_applications_are_no_news_here(bench: Bench) -> None:
    bench.remote.commit({"web/app.pipecd.yaml": file("web", description="new")})
    web = application("web", "web")
    async with bench.running(web):
        await bench.told.until(lambda: bool(bench.told.updates))
        for _ in range(20):
            bench.state.merge(
                StateChange(applications=(application("web", "web", deploying=True),))
            )
        bench.remote.commit({"one/app.pipecd.yaml": file("one")})
        await bench.told.until(lambda: ["one"] in bench.told.suggestions)

    assert len(bench.told.updates) == 1


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("app.pipecd.yaml", True),
        ("a/x.pipecd.yaml", True),
        ("a/.pipe.yaml", True),
        ("a/x.pipe.yaml", False),
        ("a/app.pipecd.yml", False),
        ("app.pipecd.yaml/x", False),
    ],
)
def test_application_files_are_known_by_their_names(path: str, taken: bool) -> None:
    assert is_application_file(path) is taken
