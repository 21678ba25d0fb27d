# SPDX-License-Identifier: Apache-2.0
"""Names and documents of artifacts in a registry."""

import json
from typing import Any

import pytest

from pipecd_model.errors import ConfigError
from pipecd_model.oci import (
    Challenge,
    Reference,
    parse_challenge,
    parse_document,
    parse_reference,
)

DIGEST = f"sha256:{'a1' * 32}"


@pytest.mark.parametrize(
    ("url", "reference"),
    [
        ("oci://example.com/files", Reference(host="example.com", repository="files")),
        (
            "oci://example.com:5000/team/files:v1.2",
            Reference(host="example.com:5000", repository="team/files", tag="v1.2"),
        ),
        (
            f"oci://example.com/files@{DIGEST}",
            Reference(host="example.com", repository="files", digest=DIGEST),
        ),
        (
            f"oci://[::1]:5000/files:v1@{DIGEST}",
            Reference(host="[::1]:5000", repository="files", tag="v1", digest=DIGEST),
        ),
    ],
)
def test_a_reference_is_read(url: str, reference: Reference) -> None:
    assert parse_reference(url) == reference
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    "url",
    [
        "oci://example.com",
        "oci:///files",
        "oci://example.com/Files",
        "oci://example.com/../files",
        "oci://example.com/files:",
        "oci://example.com/files@sha256:abc",
        "oci://example.com/files@md5:abc",
        "oci://user:secret@example.com/files",
        "oci://example.com/files?x=y",
        "https://example.com/files",
    ],
)
def test_what_is_no_reference_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address of an artifact"):
        parse_reference(url)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost:5000", True),
        ("127.0.0.1", True),
        ("127.9.9.9:5000", True),
        ("[::1]:5000", True),
        ("localhost.example.com", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_a_registry_on_this_machine_is_known(host: str, is_loopback: bool) -> None:
    assert Reference(host=host, repository="x").is_loopback is is_loopback


def test_docker_hub_serves_under_another_name() -> None:
    assert parse_reference("oci://docker.io/a/b").server == "registry-1.docker.io"


def descriptor(**changes: Any) -> dict[str, Any]:
    return {"mediaType": "x/y", "digest": DIGEST, "size": 3, **changes}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "not a manifest"),
        ("{", "not a manifest"),
        ('{"schemaVersion": "two"}', "not a manifest"),
        (
            json.dumps({"schemaVersion": 2, "layers": [descriptor()], "manifests": [descriptor()]}),
            "it has layers and manifests",
        ),
        (
            json.dumps({"schemaVersion": 2, "layers": [descriptor(digest="sha256:../../x")]}),
            "not a digest",
        ),
        (json.dumps({"schemaVersion": 2, "manifests": [descriptor(size=-1)]}), "not a digest"),
    ],
)
def test_a_document_that_says_nothing_clear_is_refused(content: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_document(content.encode())


def test_a_document_keeps_its_bytes_when_it_is_written_again() -> None:
    content = json.dumps(
        {"schemaVersion": 2, "mediaType": "m", "layers": [descriptor()]}, separators=(",", ":")
    ).encode()

    assert parse_document(content).encode() == content


def test_a_challenge_is_read() -> None:
    header = (
        'Bearer realm="https://example.com/token",service=registry, scope="repository:x:pull,push"'
    )

    assert parse_challenge(header) == Challenge(
        scheme="bearer",
        realm="https://example.com/token",
        service="registry",
        scope="repository:x:pull,push",
    )
