# SPDX-License-Identifier: Apache-2.0
"""`pipectl plugin push` against a registry."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipecd_model.errors import ConfigError, DeniedError, PipecdError, UnavailableError
from pipecd_pipectl.cli import cli
from pipecd_test_support.oci_registry import USER, OciRegistry, digest_of
from pipecd_test_support.web_server import Answer, WebServer

PROGRAM = b"#!/bin/sh\nexit 0\n"
LARGE = b"\x7fELF" + b"x" * 3_000_000
PASSWORD = "pass:word"  # noqa: S105 - of a registry that lives as long as a test


@pytest.fixture
def registry() -> Iterator[OciRegistry]:
    with OciRegistry() as serving:
        yield serving


@pytest.fixture
def guarded() -> Iterator[OciRegistry]:
    with OciRegistry(password=PASSWORD) as serving:
        yield serving


@pytest.fixture
def files(tmp_path: Path) -> str:
    (tmp_path / "files-amd64").write_bytes(PROGRAM)
    (tmp_path / "files-arm64").write_bytes(LARGE)
    return f"linux/amd64={tmp_path}/files-amd64,linux/arm64={tmp_path}/files-arm64"


def push(server: WebServer, files: str, *more: str, password: str = "") -> Result:
    arguments = ["--registry", server.host, "--repository", "team/files", "--tag", "v1"]
    return CliRunner().invoke(
        cli,
        ["plugin", "push", "--insecure", "-o", "json", *arguments, "--files", files, *more],
        input=password,
    )


def pushed(registry: OciRegistry, reference: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(registry.manifests["team/files", reference][1])
    return document


def test_an_artifact_has_a_manifest_for_each_platform(registry: OciRegistry, files: str) -> None:
    done = push(registry, files)

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    index = pushed(registry, "v1")
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    platforms = [each["platform"] for each in index["manifests"]]
    assert platforms == [
        {"os": "linux", "architecture": "amd64"},
        {"os": "linux", "architecture": "arm64"},
    ]
    for described, content in zip(index["manifests"], (PROGRAM, LARGE), strict=True):
        manifest = pushed(registry, described["digest"])
        assert manifest["artifactType"] == "application/vnd.pipecd.piped.plugin+type"
        [layer] = manifest["layers"]
        assert layer["mediaType"] == "application/vnd.pipecd.piped.plugin"
        assert registry.blobs[layer["digest"]] == content
    digest = digest_of(registry.manifests["team/files", "v1"][1])
    assert told["url"] == f"oci://{registry.host}/team/files:v1@{digest}"
    assert told["sha256"]["linux/amd64"] == hashlib.sha256(PROGRAM).hexdigest()


def test_the_same_files_make_the_same_artifact_and_are_sent_once(
    registry: OciRegistry, files: str
) -> None:
    first = json.loads(push(registry, files).stdout)
    sent = [asked for asked in registry.asked if asked.startswith("PUT") and "blobs" in asked]
    second = json.loads(push(registry, files).stdout)

    assert first == second
    assert len(sent) == 3
    again = [asked for asked in registry.asked if asked.startswith("PUT") and "blobs" in asked]
    assert again == sent


def test_the_tag_comes_last(registry: OciRegistry, files: str) -> None:
    push(registry, files)

    assert registry.asked[-1] == "PUT /v2/team/files/manifests/v1"


def test_a_password_is_read_from_the_standard_input(guarded: OciRegistry, files: str) -> None:
    done = push(guarded, files, "--username", USER, "--password-stdin", password=f"{PASSWORD}\n")

    assert done.exit_code == 0, done.output
    assert pushed(guarded, "v1")


def test_the_login_of_docker_is_used(guarded: OciRegistry, files: str, docker: Path) -> None:
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (docker / "config.json").write_text(json.dumps({"auths": {guarded.host: {"auth": auth}}}))

    done = push(guarded, files)

    assert done.exit_code == 0, done.output
    assert pushed(guarded, "v1")


def test_without_a_login_nothing_is_pushed(guarded: OciRegistry, files: str) -> None:
    done = push(guarded, files)

    assert isinstance(done.exception, DeniedError)
    assert "log in with docker" in done.exception.hint
    assert (guarded.blobs, guarded.manifests) == ({}, {})


def test_a_login_that_another_program_keeps_is_told(
    guarded: OciRegistry, files: str, docker: Path
) -> None:
    (docker / "config.json").write_text(json.dumps({"credsStore": "desktop"}))

    done = push(guarded, files)

    assert isinstance(done.exception, ConfigError)
    assert "--password-stdin" in done.exception.hint


def test_a_refusal_of_the_registry_is_told(files: str) -> None:
    with WebServer() as server:
        for path in ("blobs/uploads/", "manifests/v1"):
            server.give(f"/v2/team/files/{path}", Answer(status=405, body=b"read only"))

        done = push(server, files)

    assert type(done.exception) is PipecdError
    told = "the registry refused POST /v2/team/files/blobs/uploads/: 405 read only"
    assert str(done.exception) == told


def test_a_registry_that_is_away_is_told(files: str) -> None:
    with WebServer() as server:
        pass

    done = push(server, files)

    assert isinstance(done.exception, UnavailableError)
    assert "cannot reach the registry" in str(done.exception)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("linux={}/files-amd64", "not a file for a platform"),
        ("linux/amd64", "not a file for a platform"),
        ("linux/amd64={}/absent", "cannot read"),
        ("linux/amd64={}/notes", "is not a program"),
        ("linux/amd64={}/files-amd64,linux/amd64={}/files-arm64", "two files for linux/amd64"),
    ],
)
def test_a_wrong_call_reaches_no_registry(
    registry: OciRegistry, files: str, tmp_path: Path, given: str, told: str
) -> None:
    (tmp_path / "notes").write_text("not a program")

    done = push(registry, given.replace("{}", str(tmp_path)))

    assert isinstance(done.exception, ConfigError)
    assert told in str(done.exception)
    assert registry.asked == []


def test_a_user_without_a_password_is_refused(registry: OciRegistry, files: str) -> None:
    done = push(registry, files, "--username", USER)

    assert done.exit_code == 2
    assert "go together" in done.output
