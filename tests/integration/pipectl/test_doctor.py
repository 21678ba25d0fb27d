# SPDX-License-Identifier: Apache-2.0
"""`pipectl doctor` and `piped check` against a real control plane, git and plugins."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipecd_test_support.controlplane_process import running_server

BIN = Path(sys.executable).parent
LIMIT = 60


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    async with running_server(tmp_path / "data") as running:
        yield {
            "PIPECTL_ADDRESS": running.address,
            "PIPECTL_API_KEY_FILE": str(tmp_path / "data" / "admin.key"),
            "PIPECTL_INSECURE": "1",
        }


async def run(
    env: dict[str, str], program: str, *arguments: str, typed: str = ""
) -> "subprocess.CompletedProcess[str]":
    def wait_done() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program, *arguments],
            input=typed,
            env={**os.environ, **env, "PATH": f"{BIN}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return await asyncio.to_thread(wait_done)


def read(done: "subprocess.CompletedProcess[str]") -> dict[str, tuple[str, str]]:
    """The verdict and the text of each check."""
    told: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return {each["check"]: (each["verdict"], each["text"]) for each in told}


async def test_a_new_control_plane_is_reached_and_lacks_an_agent(server: dict[str, str]) -> None:
    done = await run(server, "pipectl", "doctor", "-o", "json")

    rows = read(done)
    assert done.returncode == 1
    assert [rows[name][0] for name in ("name", "port", "tls", "clock", "git")] == ["ok"] * 5
    assert rows["credentials"] == ("ok", "accepted; they may read and write")
    assert rows["agents"][0] == "fail"


async def test_a_wrong_key_is_told_apart_from_a_wrong_address(
    server: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("some.thing")

    done = await run(
        {**server, "PIPECTL_API_KEY_FILE": str(tmp_path / "key")}, "pipectl", "doctor", "-o", "json"
    )

    assert done.returncode == 1
    assert read(done)["credentials"][0] == "fail"
    assert read(done)["port"][0] == "ok"


async def test_a_plain_server_that_is_asked_for_tls(server: dict[str, str]) -> None:
    done = await run({**server, "PIPECTL_INSECURE": ""}, "pipectl", "doctor", "-o", "json")

    assert read(done)["tls"][0] == "fail"
    assert "does not speak TLS" in read(done)["tls"][1]


async def test_a_control_plane_with_tls_is_reached_with_the_certificate_of_its_authority(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    chain = b"".join(each.bytes() for each in leaf.cert_chain_pems)
    (tmp_path / "cert.pem").write_bytes(chain)
    flags = (f"--tls-cert={tmp_path / 'cert.pem'}", f"--tls-key={tmp_path / 'key.pem'}")
    async with running_server(tmp_path / "data", *flags) as server:
        settings = {
            "PIPECTL_ADDRESS": f"localhost:{server.address.rpartition(':')[2]}",
            "PIPECTL_API_KEY_FILE": str(tmp_path / "data" / "admin.key"),
        }
        trusted = {**settings, "PIPECTL_CERT_FILE": str(tmp_path / "ca.pem")}
        rows = read(await run(trusted, "pipectl", "doctor", "-o", "json"))
        untrusted = read(await run(settings, "pipectl", "doctor", "-o", "json"))

    assert rows["certificate"][0] == rows["clock"][0] == rows["credentials"][0] == "ok"
    assert "tls" not in rows
    assert "is not trusted" in untrusted["certificate"][1]


async def test_who_is_signed_in_is_told_with_the_end_of_the_session(
    server: dict[str, str], tmp_path: Path
) -> None:
    settings = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    password = (tmp_path / "data" / "admin.password").read_text()
    words = ("login", server["PIPECTL_ADDRESS"], "--insecure", "--username", "admin")
    signed_in = await run(settings, "pipectl", *words, "--password-stdin", typed=password)

    done = await run(settings, "pipectl", "doctor", "-o", "json")

    assert signed_in.returncode == 0, signed_in.stderr
    verdict, text = read(done)["credentials"]
    assert verdict == "ok"
    assert text.startswith("signed in as admin, until 20")


CONFIG = """
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: {project}
  pipedID: {id}
  apiAddress: {address}
  pipedKeyFile: {key}
  repositories:
    - {{repoId: good, remote: {remote}, branch: main}}
    - {{repoId: branchless, remote: {remote}, branch: mian}}
    - {{repoId: gone, remote: {remote}-gone, branch: main}}
  plugins:
    - {{name: wait}}
    - {{name: nothing-of-ours}}
    - {{name: file, port: 7001, url: "file://{remote}/missing"}}
"""


async def write_piped(server: dict[str, str], folder: Path, *, key: str = "") -> Path:
    """A registered piped's configuration, with a repository and what is wrong with others."""
    made = json.loads((await run(server, "pipectl", "piped", "register", "--name", "dev")).stdout)
    remote = folder / "remote"
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    await run({}, "git", "init", "-q", "-b", "main", str(remote))
    await run({}, "git", "-C", str(remote), *who, "commit", "-q", "--allow-empty", "-m", "first")
    (folder / "key").write_text(key or made["key"])
    (folder / "key").chmod(0o600)
    file = folder / "piped.yaml"
    file.write_text(
        CONFIG.format(
            project="default",
            id=made["id"],
            address=server["PIPECTL_ADDRESS"],
            key=folder / "key",
            remote=remote,
        )
    )
    return file


async def test_everything_that_a_piped_file_names_is_checked(
    server: dict[str, str], tmp_path: Path
) -> None:
    """Through pipectl, which asks the piped that is installed beside it."""
    file = await write_piped(server, tmp_path)

    done = await run(server, "pipectl", "doctor", "--piped-config", str(file), "-o", "json")

    rows = read(done)
    assert done.returncode == 1
    assert rows["control plane"] == ("ok", "knows this piped and its key")
    assert rows["piped key"] == ("ok", f"is in {tmp_path / 'key'}")
    assert rows["repository good"][0] == "ok"
    assert rows["repository branchless"] == ("fail", f"{tmp_path}/remote has no branch 'mian'")
    assert rows["repository gone"][0] == "fail"
    assert rows["plugin wait"][0] == "ok"
    assert "there is no executable" in rows["plugin nothing-of-ours"][1]
    assert rows["plugin file"][0] == "fail"
    assert "secrets" not in rows


async def test_a_key_that_the_control_plane_does_not_know_is_told(
    server: dict[str, str], tmp_path: Path
) -> None:
    file = await write_piped(server, tmp_path, key="wrong")
    (tmp_path / "key").chmod(0o644)

    done = await run(
        server, "piped", "check", "--insecure", "--config-file", str(file), "-o", "json"
    )

    assert read(done)["control plane"][0] == "fail"
    assert "wrong piped key" in read(done)["control plane"][1]
    assert read(done)["piped key"] == ("warn", f"{tmp_path / 'key'} can be read by other users")


async def test_a_file_that_is_not_a_pipeds_is_told_with_the_places(tmp_path: Path) -> None:
    file = tmp_path / "piped.yaml"
    file.write_text("apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {}\n")

    done = await run({}, "pipectl", "doctor", "--piped-config", str(file))

    assert done.returncode == 1
    assert "not of kind Piped" in done.stdout
    assert "Traceback" not in done.stderr


async def test_a_piped_file_without_a_readable_key_is_told(tmp_path: Path) -> None:
    file = tmp_path / "piped.yaml"
    file.write_text(
        CONFIG.format(project="p", id="i", address="localhost:1", key="/gone", remote=tmp_path)
    )

    done = await run({}, "piped", "check", "--config-file", str(file), "--output", "json")

    assert read(done)["piped key"] == (
        "fail",
        "cannot read '/gone': No such file or directory",
    )
