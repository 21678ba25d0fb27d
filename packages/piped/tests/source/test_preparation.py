# SPDX-License-Identifier: Apache-2.0
"""Secrets, attachments and older files on their way into a tree, and out of it again."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.errors import ConfigError, SourceError
from pipecd_model.secrets import KeyPair, Opener, Sealer
from pipecd_piped.git import Repository
from pipecd_piped.secrets import KnownSecrets, SecretKeys
from pipecd_piped.source import Preparation, SourceProvider
from pipecd_test_support.git_remote import GitRemote, Remotes
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import Commit, Deployment, DeploymentTrigger

KEY, OTHER = KeyPair.new(1024), KeyPair.new(1024)
SECRET = "the-planted-secret"  # noqa: S105
PLACE = ApplicationGitPath(
    repo=ApplicationGitRepository(id="repo"), path="apps/web", config_filename="app.pipecd.yaml"
)


def application(kind: str = "Application", **spec: Any) -> str:
    head = {"apiVersion": "pipecd.dev/v1beta1", "kind": kind}
    return json.dumps({**head, "spec": {"name": "web", **spec}}, indent=1)


def with_secret(*targets: str, key: KeyPair = KEY, **more: Any) -> str:
    closed = Sealer(key.public).seal(SECRET)
    encryption = {"encryptedSecrets": {"password": closed}, "decryptionTargets": targets}
    return application(encryption=encryption, **more)


def plant(file: Path) -> Path:
    """Write a file that would show a secret once it is rendered."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{{ .encryptedSecrets.password }}")
    return file


class Bench:
    """A remote, its mirror, and a pool that opens secrets."""

    def __init__(self, remote: GitRemote, data_dir: Path) -> None:
        self.remote = remote
        self.data_dir = data_dir
        self.known = KnownSecrets()
        remote.commit({"README": "an example"})
        self.repository = Repository(
            id="repo", remote=remote.remote, branch="main", folder=data_dir / "mirrors" / "repo"
        )
        self.sources = self.pool()

    def pool(self, names: Mapping[str, str] | None = None, *, keys: bool = True) -> SourceProvider:
        opening = SecretKeys(opener=Opener(KEY.private), public=KEY.public.decode())
        preparation = Preparation(
            names=lambda: names or {}, keys=opening if keys else None, known=self.known
        )
        return SourceProvider(self.data_dir, {"repo": self.repository}, preparation=preparation)

    async def push(self, files: dict[str, Any]) -> str:
        commit: str = self.remote.commit(files)
        await self.repository.fetch()
        return commit

    async def at_rest(self) -> None:
        async with asyncio.timeout(30):
            while self.sources.cleaning:  # noqa: ASYNC110 - threads and processes do it
                await asyncio.sleep(0.001)

    def found(self) -> list[str]:
        """The files of the data folder that hold the secret, those that stay."""
        found = []
        for folder, _, names in os.walk(self.data_dir):
            for name in names:
                with suppress(FileNotFoundError):  # deleted while we look
                    if SECRET.encode() in Path(folder, name).read_bytes():
                        found.append(str(Path(folder, name)))
        return found


@pytest.fixture
async def bench(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(git_remote(), tmp_path / "data")
    await made.repository.open()
    async with made.sources:
        yield made
    await made.repository.close()


async def test_a_target_holds_its_secret_only_while_it_is_used(bench: Bench) -> None:
    commit = await bench.push(
        {
            "apps/web/app.pipecd.yaml": with_secret("conf/db.yaml"),
            "apps/web/conf/db.yaml": "password: {{ .encryptedSecrets.password }}\n",
        }
    )

    async with bench.sources.open(PLACE, commit) as source:
        file = Path(source.application_directory) / "conf" / "db.yaml"
        assert file.read_text() == f"password: {SECRET}\n"
    await bench.at_rest()

    assert bench.found() == []
    async with bench.sources.worktree("repo", commit) as tree:
        text = (tree.path / "apps/web/conf/db.yaml").read_text()
        assert text == "password: {{ .encryptedSecrets.password }}\n"


async def test_an_attachment_may_hold_a_secret(bench: Bench) -> None:
    commit = await bench.push(
        {
            "apps/web/app.pipecd.yaml": with_secret(
                "inner.txt",
                attachment={"sources": {"inner": "inner.txt"}, "targets": ["task.json"]},
            ),
            "apps/web/inner.txt": "{{ .encryptedSecrets.password }}",
            "apps/web/task.json": '{"x": "{{ .attachment.inner }}"}',
        }
    )

    async with bench.sources.open(PLACE, commit) as source:
        file = Path(source.application_directory) / "task.json"
        assert json.loads(file.read_text()) == {"x": SECRET}


async def test_what_was_opened_is_known_to_be_a_secret(bench: Bench) -> None:
    commit = await bench.push({"apps/web/app.pipecd.yaml": with_secret()})
    deployment = Deployment(
        id="d1", git_path=PLACE, trigger=DeploymentTrigger(commit=Commit(hash=commit))
    )

    with bench.known.opened(deployment):
        await bench.sources.read(PLACE, commit)

        assert bench.known.value("d1", "password") == SECRET
        assert bench.known.mask_for("d1", f"it is {SECRET}") == "it is ***"


async def test_a_template_that_fails_leaves_every_file_as_it_was(bench: Bench) -> None:
    commit = await bench.push(
        {
            "apps/web/app.pipecd.yaml": with_secret("good.yaml", "bad.yaml"),
            "apps/web/good.yaml": "{{ .encryptedSecrets.password }}",
            "apps/web/bad.yaml": "{{ .encryptedSecrets.passwrd }}",
        }
    )

    with pytest.raises(ConfigError, match="passwrd"):
        async with bench.sources.open(PLACE, commit):
            pytest.fail("it was opened")
    await bench.at_rest()

    assert bench.found() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (with_secret("db.yaml", key=OTHER), "closed for another key"),
        (with_secret("missing.yaml"), "'missing.yaml' is not there"),
        (with_secret("../../../../etc/passwd"), "leads out of the repository"),
    ],
)
async def test_what_is_wrong_is_said(bench: Bench, text: str, told: str) -> None:
    commit = await bench.push({"apps/web/app.pipecd.yaml": text, "apps/web/db.yaml": "x"})

    with pytest.raises(ConfigError, match=told) as raised:
        async with bench.sources.open(PLACE, commit):
            pytest.fail("it was opened")
    assert "apps/web/app.pipecd.yaml:" in str(raised.value)


async def test_a_link_does_not_lead_a_secret_out(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("{{ .encryptedSecrets.password }}")
    link = bench.remote.path / "apps/web/db.yaml"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    commit = await bench.push({"apps/web/app.pipecd.yaml": with_secret("db.yaml")})

    with pytest.raises(SourceError, match="symbolic link"):
        async with bench.sources.open(PLACE, commit):
            pytest.fail("it was opened")
    assert outside.read_text() == "{{ .encryptedSecrets.password }}"


@pytest.mark.parametrize(
    "sibling", ["../work2/db.yaml", "../../10/work/db.yaml"], ids=["work -> work2", "1 -> 10"]
)
async def test_a_link_to_a_sibling_whose_name_begins_alike_leads_out_as_well(
    bench: Bench, sibling: str
) -> None:
    first = await bench.push({"apps/web/app.pipecd.yaml": application()})
    async with bench.sources.worktree("repo", first) as tree:
        root = tree.path
    assert root.parent.name == "1"
    plant(root.parents[sibling.count("../") - 1] / sibling.rpartition("../")[2])
    link = bench.remote.path / "apps/web/db.yaml"
    link.symlink_to(Path("../..") / sibling)
    commit = await bench.push({"apps/web/app.pipecd.yaml": with_secret("db.yaml")})
    await bench.at_rest()

    with pytest.raises(SourceError, match="symbolic link"):
        async with bench.sources.open(PLACE, commit):
            pytest.fail("it was opened")
    assert bench.found() == []


async def test_without_keys_files_are_not_deployed_with_their_placeholders(bench: Bench) -> None:
    commit = await bench.push(
        {"apps/web/app.pipecd.yaml": with_secret("db.yaml"), "apps/web/db.yaml": "x"}
    )
    async with bench.pool(keys=False) as sources:
        with pytest.raises(ConfigError, match="this piped cannot open secrets"):
            async with sources.open(PLACE, commit):
                pytest.fail("it was opened")


async def test_a_piped_that_stops_leaves_no_opened_secret(bench: Bench) -> None:
    commit = await bench.push(
        {
            "apps/web/app.pipecd.yaml": with_secret("db.yaml"),
            "apps/web/db.yaml": "{{ .encryptedSecrets.password }}",
        }
    )
    async with bench.pool() as sources, sources.open(PLACE, commit) as source:
        assert bench.found() == [f"{source.application_directory}/db.yaml"]

    assert bench.found() == []


async def test_nor_does_one_that_was_killed_once_the_next_has_started(bench: Bench) -> None:
    commit = await bench.push(
        {
            "apps/web/app.pipecd.yaml": with_secret("db.yaml"),
            "apps/web/db.yaml": "{{ .encryptedSecrets.password }}",
        }
    )
    async with bench.sources.open(PLACE, commit) as source:
        folder = Path(source.application_directory)
        script = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", cwd=folder, stdin=asyncio.subprocess.PIPE
        )
        async with bench.pool() as restarted:
            # A script still works in the tree: its files are its own.
            assert bench.found() == [f"{folder}/db.yaml"]
            script.kill()
            await script.wait()
            async with restarted.worktree("repo", commit):
                pass
            async with asyncio.timeout(30):
                while bench.found():  # noqa: ASYNC110 - threads and processes do it
                    await asyncio.sleep(0.001)


async def test_an_older_file_reaches_plugins_in_todays_shape(bench: Bench) -> None:
    stages = [{"name": "K8S_PRIMARY_ROLLOUT", "with": {"timeout": "5m", "prune": True}}]
    text = application("KubernetesApp", input={"namespace": "shop"}, pipeline={"stages": stages})
    commit = await bench.push({"apps/web/app.pipecd.yaml": text})

    async with bench.pool({"kubernetes": "cluster"}) as sources:
        read = await sources.read(PLACE, commit)
        async with sources.open(PLACE, commit) as opened:
            assert opened.application_config == read.application_config

    document = json.loads(read.application_config)
    assert document["kind"] == "Application"
    assert document["spec"]["plugins"] == {"cluster": {"input": {"namespace": "shop"}}}
    (stage,) = document["spec"]["pipeline"]["stages"]
    assert (stage["timeout"], stage["with"]) == ("5m", {"prune": True})


async def test_what_is_wrong_in_an_older_file_is_said_where_it_is_written(bench: Bench) -> None:
    text = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  timeout: 1d\n"
    commit = await bench.push({"apps/web/app.pipecd.yaml": text})

    with pytest.raises(ConfigError, match=r"app\.pipecd\.yaml:4:12: spec\.timeout"):
        await bench.sources.read(PLACE, commit)


async def test_files_that_are_too_large_together_are_not_read(bench: Bench) -> None:
    """Zeros take no room in a repository; read whole, they would take all memory."""
    names = [f"zeros-{number}" for number in range(5)]
    text = application(attachment={"sources": {each: each for each in names}, "targets": ["t"]})
    files = {f"apps/web/{each}": bytes(8 * 2**20) for each in names}
    commit = await bench.push({"apps/web/app.pipecd.yaml": text, "apps/web/t": "x", **files})

    with pytest.raises(SourceError, match="have more than 32 MiB together"):
        async with bench.sources.open(PLACE, commit):
            pass
