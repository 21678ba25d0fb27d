# SPDX-License-Identifier: Apache-2.0
"""A plugin from an OCI registry."""

import hashlib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pipecd_model.oci import ARTIFACT, INDEX, LAYER, MANIFEST
from pipecd_piped.programs.errors import ProgramError, ProgramSourceError, SourceAwayError
from pipecd_piped.programs.fetch import FetchedProgram
from pipecd_piped.programs.registry import this_platform
from pipecd_test_support.oci_registry import OciRegistry, digest_of
from pipecd_test_support.web_server import Answer, WebServer

Get = Callable[..., Awaitable[FetchedProgram]]

PLUGIN = b"#!/bin/sh\nexit 0\n"
OTHER = b"#!/bin/sh\nexit 1\n"
HERE = {"os": this_platform().os, "architecture": this_platform().architecture}
PASSWORD = "for-writers"  # noqa: S105 - of a registry that lives as long as a test
ELSEWHERE = {"os": "plan9", "architecture": "mips"}


def described(media_type: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content), **more}


def push(registry: OciRegistry, *, tag: str = "v1", parts: Sequence[bytes] = (PLUGIN,)) -> str:
    """Keep a plugin for two platforms, as upstream's command line would; the index's digest."""
    manifests = []
    for platform, contents in ((ELSEWHERE, [OTHER]), (HERE, parts)):
        for content in contents:
            registry.put_blob(content)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": ARTIFACT,
            "layers": [
                described("text/plain", b"not for us"),
                *(described(LAYER, content) for content in contents),
            ],
        }
        digest = registry.put("team/files", f"{tag}-{platform['os']}", manifest)
        content = registry.manifests["team/files", digest][1]
        manifests.append(described(MANIFEST, content, platform=platform))
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return registry.put("team/files", tag, index)


def pulled(registry: OciRegistry) -> list[str]:
    """The kinds of things that were asked for."""
    return [path.split("/")[-2] for path in registry.asked]


async def test_the_manifest_of_this_platform_leads_to_the_program(
    registry: OciRegistry, get: Get
) -> None:
    push(registry)
    url = f"oci://{registry.host}/team/files:v1"

    got = await get(url, insecure=True)

    assert got.path.read_bytes() == PLUGIN
    assert got.path.stat().st_mode & 0o111
    assert got.url == url
    assert pulled(registry) == ["manifests", "manifests", "blobs"]


async def test_a_manifest_without_an_index_will_do(registry: OciRegistry, get: Get) -> None:
    push(registry)

    got = await get(f"oci://{registry.host}/team/files:v1-{HERE['os']}", insecure=True)

    assert got.path.read_bytes() == PLUGIN


async def test_all_layers_of_a_plugin_make_its_file(registry: OciRegistry, get: Get) -> None:
    push(registry, parts=(PLUGIN, b"# more\n"))

    got = await get(f"oci://{registry.host}/team/files:v1", insecure=True)

    assert got.path.read_bytes() == PLUGIN + b"# more\n"


async def test_a_digest_is_asked_for_once(registry: OciRegistry, get: Get) -> None:
    digest = push(registry)
    url = f"oci://{registry.host}/team/files:v1@{digest}"
    first = await get(url, insecure=True)
    push(registry, parts=(OTHER,))
    again = await get(url, insecure=True)
    registry.stop()

    assert await get(url, insecure=True) == first == again
    assert first.path.read_bytes() == PLUGIN
    assert len(registry.asked) == 3


async def test_a_tag_that_moved_is_seen(registry: OciRegistry, get: Get) -> None:
    push(registry)
    url = f"oci://{registry.host}/team/files:v1"
    await get(url, insecure=True)
    await get(url, insecure=True)
    push(registry, parts=(b"#!/bin/sh\nexit 2\n",))
    kept = await get(url, insecure=True, ask=False)
    moved = await get(url, insecure=True)
    registry.stop()
    offline = await get(url, insecure=True)

    assert kept.path.read_bytes() == PLUGIN
    assert moved.path.read_bytes() == offline.path.read_bytes() == b"#!/bin/sh\nexit 2\n"
    assert pulled(registry).count("blobs") == 2


async def test_an_index_that_is_not_the_pinned_one_is_refused(
    registry: OciRegistry, get: Get, executables: Callable[[], list[str]]
) -> None:
    digest = push(registry)
    push(registry, tag="evil", parts=(OTHER,))
    registry.manifests["team/files", digest] = registry.manifests["team/files", "evil"]

    with pytest.raises(ProgramSourceError, match=f"the manifest has the digest .*, not {digest}"):
        await get(f"oci://{registry.host}/team/files@{digest}", insecure=True)

    assert executables() == []


async def test_a_manifest_that_is_not_the_one_of_the_index_is_refused(
    registry: OciRegistry, get: Get, executables: Callable[[], list[str]]
) -> None:
    push(registry)
    push(registry, tag="evil", parts=(OTHER,))
    good = digest_of(registry.manifests["team/files", f"v1-{HERE['os']}"][1])
    evil = registry.manifests["team/files", f"evil-{HERE['os']}"]
    registry.manifests["team/files", good] = evil

    with pytest.raises(ProgramSourceError, match=f"the manifest has the digest .*, not {good}"):
        await get(f"oci://{registry.host}/team/files:v1", insecure=True)

    assert executables() == []


async def test_a_layer_that_is_not_the_one_of_the_manifest_is_never_a_program(
    registry: OciRegistry, get: Get, executables: Callable[[], list[str]]
) -> None:
    push(registry)
    registry.blobs[digest_of(PLUGIN)] = OTHER

    with pytest.raises(ProgramSourceError, match=f"the layer has the digest {digest_of(OTHER)}"):
        await get(f"oci://{registry.host}/team/files:v1", insecure=True)

    assert executables() == []


async def test_a_checksum_holds_for_the_file_in_the_registry_too(
    registry: OciRegistry, get: Get, executables: Callable[[], list[str]]
) -> None:
    push(registry)
    url = f"oci://{registry.host}/team/files:v1"

    with pytest.raises(ProgramError, match="has the sha256"):
        await get(url, insecure=True, sha256="0" * 64)
    assert executables() == []
    got = await get(url, insecure=True, sha256=hashlib.sha256(PLUGIN).hexdigest())

    assert got.path.read_bytes() == PLUGIN


async def test_a_platform_that_is_missing_is_told(registry: OciRegistry, get: Get) -> None:
    push(registry)
    content = registry.manifests["team/files", f"v1-{HERE['os']}"][1]
    manifests = [described(MANIFEST, content, platform=ELSEWHERE)]
    registry.put(
        "team/files", "v2", {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    )

    with pytest.raises(ProgramSourceError, match=f"is not made for {this_platform()}") as raised:
        await get(f"oci://{registry.host}/team/files:v2", insecure=True)

    assert raised.value.hint == "it is for plan9/mips"


async def test_an_image_is_no_plugin(registry: OciRegistry, get: Get) -> None:
    image = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", b"x")],
    }
    registry.put("team/files", "v1", image)

    with pytest.raises(ProgramSourceError, match="is no plugin: it has no layer of the type"):
        await get(f"oci://{registry.host}/team/files:v1", insecure=True)


async def test_what_is_no_manifest_is_told(registry: OciRegistry, get: Get) -> None:
    registry.manifests["team/files", "v1"] = (MANIFEST, b"<html>")

    with pytest.raises(ProgramSourceError, match="not a manifest"):
        await get(f"oci://{registry.host}/team/files:v1", insecure=True)


async def test_a_tag_that_is_not_there_is_told(registry: OciRegistry, get: Get) -> None:
    with pytest.raises(ProgramSourceError, match=r"oci://.*/team/files:v9 answered 404"):
        await get(f"oci://{registry.host}/team/files:v9", insecure=True)


async def test_a_registry_without_tls_must_be_named_as_one(registry: OciRegistry, get: Get) -> None:
    push(registry)

    with pytest.raises(SourceAwayError, match=r"is away: .*SSL"):
        await get(f"oci://{registry.host}/team/files:v1")

    assert registry.asked == []


async def test_a_registry_with_tls_gives_what_it_has(get: Get, secure: ssl.SSLContext) -> None:
    with OciRegistry(password=PASSWORD, tls=secure) as registry:
        push(registry)
        got = await get(f"oci://{registry.host}/team/files:v1")

    assert got.path.read_bytes() == PLUGIN


async def test_a_token_that_anybody_gets_is_fetched(get: Get) -> None:
    with OciRegistry(password=PASSWORD) as registry:
        push(registry)
        got = await get(f"oci://{registry.host}/team/files:v1", insecure=True)

    assert got.path.read_bytes() == PLUGIN
    assert registry.asked.count("GET /token") == 1


async def test_a_token_is_not_sent_to_where_a_blob_is(get: Get) -> None:
    with OciRegistry(password=PASSWORD) as registry, WebServer() as storage:
        push(registry)
        target = storage.give("/blob", Answer(body=PLUGIN)).replace("127.0.0.1", "localhost")
        del registry.blobs[digest_of(PLUGIN)]
        registry.give(
            f"/v2/team/files/blobs/{digest_of(PLUGIN)}",
            Answer(status=307, headers={"Location": target}),
        )
        got = await get(f"oci://{registry.host}/team/files:v1", insecure=True)

    assert got.path.read_bytes() == PLUGIN
    assert "Authorization" not in storage.questions[0].headers


async def test_a_registry_that_wants_a_password_is_told(server: WebServer, get: Get) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="files"'}
    server.give("/v2/team/files/manifests/v1", Answer(status=401, headers=challenge))

    with pytest.raises(ProgramSourceError, match="wants a password") as raised:
        await get(f"oci://{server.host}/team/files:v1", insecure=True)

    assert raised.value.hint == "piped reads only what anybody may read"
