# SPDX-License-Identifier: Apache-2.0
"""Real TLS: whom we trust, who we are, and what happens when either changes."""

import asyncio
import base64
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from pipecd_plugin_kubernetes.client import (
    Cluster,
    ConnectionConfigError,
    RetryPolicy,
    UnauthorizedError,
    UnavailableError,
    load_connection,
)

from pipecd_sdk.kit import yaml
from pipecd_test_support.scripted_api import Reply, ScriptedApi, refuse, serving_api

QUICK = RetryPolicy(most_attempts=3, first_pause_seconds=0.001, longest_pause_seconds=0.002)
EMPTY = Reply(body={"kind": "APIGroupDiscoveryList", "items": []})


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs the certificates of the test."""
    return trustme.CA()


def make_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("localhost",))).configure_cert(context)
    return context


@asynccontextmanager
async def serving_tls(
    authority: trustme.CA, *names: str, wants_certificate: bool = False
) -> AsyncIterator[ScriptedApi]:
    context = make_context(authority, *names)
    if wants_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    async with serving_api(context) as api:
        api.answer("GET", "/api", EMPTY)
        api.answer("GET", "/apis", EMPTY)
        yield api


def write_config(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(yaml.dump(config))
    return str(folder / "config")


async def connect(path: str, **more: Any) -> Cluster:
    return await Cluster.connect(await load_connection(kubeconfig=path, **more), policy=QUICK)


def encode(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def make_client(authority: trustme.CA, name: str) -> tuple[bytes, bytes]:
    issued = authority.issue_cert(common_name=name)
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    return chain, issued.private_key_pem.bytes()


async def test_a_certificate_in_the_file_says_who_we_are(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """The key is never on disk."""
    certificate, key = make_client(authority, "piped")
    async with serving_tls(authority, wants_certificate=True) as api:
        path = write_config(
            tmp_path,
            cluster={
                "server": api.url,
                "certificate-authority-data": encode(authority.cert_pem.bytes()),
            },
            user={"client-certificate-data": encode(certificate), "client-key-data": encode(key)},
        )
        async with await connect(path) as cluster:
            await cluster.discover()
    assert {each.certificate for each in api.requests} == {"piped"}


async def test_certificates_in_files_may_be_renewed(authority: trustme.CA, tmp_path: Path) -> None:
    """The next call uses the new one; nobody restarts anything."""

    def renew(name: str) -> None:
        certificate, key = make_client(authority, name)
        (tmp_path / "client.crt").write_bytes(certificate)
        (tmp_path / "client.key").write_bytes(key)

    renew("first")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    async with serving_tls(authority, wants_certificate=True) as api:
        path = write_config(
            tmp_path,
            cluster={"server": api.url, "certificate-authority": "ca.crt"},
            user={"client-certificate": "client.crt", "client-key": "client.key"},
        )
        async with await connect(path) as cluster:
            await cluster.discover()
            renew("second")
            await asyncio.gather(*(cluster.refresh_discovery() for _ in range(3)))
    seen = [each.certificate for each in api.requests]
    assert seen[:2] == ["first", "first"]
    assert set(seen[2:]) == {"second"}


async def test_a_stranger_is_not_trusted(authority: trustme.CA, tmp_path: Path) -> None:
    """A sentence at once: trying again would not help."""
    async with serving_tls(authority) as api:
        other = encode(trustme.CA().cert_pem.bytes())
        path = write_config(
            tmp_path,
            cluster={"server": api.url, "certificate-authority-data": other},
            user={"token": "never-sent"},
        )
        async with await connect(path) as cluster:
            with pytest.raises(UnavailableError) as caught:
                await cluster.discover()
    assert "its certificate is not trusted" in str(caught.value)
    assert "certificate-authority" in caught.value.hint
    assert caught.value.is_permanent
    assert api.requests == []


async def test_the_name_in_the_certificate_may_be_another(
    authority: trustme.CA, tmp_path: Path
) -> None:
    async with serving_tls(authority, "kubernetes.default") as api:
        cluster = {
            "server": api.url,
            "certificate-authority-data": encode(authority.cert_pem.bytes()),
        }
        path = write_config(tmp_path, cluster=cluster, user={})
        async with await connect(path) as connected:
            with pytest.raises(UnavailableError, match="not trusted: Hostname mismatch"):
                await connected.discover()
        cluster["tls-server-name"] = "kubernetes.default"
        path = write_config(tmp_path, cluster=cluster, user={})
        async with await connect(path) as connected:
            await connected.discover()


async def test_whoever_skips_the_check_is_warned(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(authority, "elsewhere") as api:
        path = write_config(
            tmp_path, cluster={"server": api.url, "insecure-skip-tls-verify": True}, user={}
        )
        with caplog.at_level(logging.WARNING):
            async with await connect(path) as cluster:
                await cluster.discover()
    assert [each.message for each in caplog.records] == ["kubeconfig.insecure"]


async def test_a_missing_certificate_is_a_sentence(authority: trustme.CA, tmp_path: Path) -> None:
    async with serving_tls(authority, wants_certificate=True) as api:
        path = write_config(
            tmp_path,
            cluster={
                "server": api.url,
                "certificate-authority-data": encode(authority.cert_pem.bytes()),
            },
            user={},
        )
        async with await connect(path) as cluster:
            with pytest.raises(UnavailableError, match="cannot find out what the cluster serves"):
                await cluster.discover()


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("nonsense", "nonsense", "certificate and key cannot be used"),
        ("own", "other", "certificate and key cannot be used"),
        ("own", "encrypted", "the key is encrypted"),
    ],
)
async def test_what_cannot_be_a_certificate_is_named_when_connecting(
    certificate: str, key: str, said: str, authority: trustme.CA, tmp_path: Path
) -> None:
    """Before the first call, without asking for a password on a terminal."""
    own, _ = make_client(authority, "piped")
    _, other_key = make_client(authority, "other")
    encrypted = (
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
        b"DEK-Info: AES-128-CBC,00000000000000000000000000000000\n\nAAAA\n"
        b"-----END RSA PRIVATE KEY-----\n"
    )
    values = {"nonsense": b"x", "own": own, "other": other_key, "encrypted": encrypted}
    path = write_config(
        tmp_path,
        cluster={"server": "https://localhost:1"},
        user={
            "client-certificate-data": encode(values[certificate]),
            "client-key-data": encode(values[key]),
        },
    )
    with pytest.raises(ConnectionConfigError) as caught:
        await connect(path)
    assert said in str(caught.value)
    assert "users[0].user.client-certificate" in str(caught.value)


async def test_an_authority_that_is_none_is_named(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        cluster={"server": "https://localhost:1", "certificate-authority-data": encode(b"x")},
        user={},
    )
    with pytest.raises(ConnectionConfigError, match="certificate-authority-data: no certificate"):
        await connect(path)


async def test_a_refused_token_is_fetched_anew_once(tmp_path: Path) -> None:
    """The file was renewed in the moment between reading it and using it."""
    async with serving_api() as api:
        token = tmp_path / "token"
        token.write_text("old")

        def renew(_request: object) -> Reply:
            token.write_text("renewed")
            return refuse(401, "Unauthorized", "Unauthorized")

        api.answer("GET", "/api", renew, EMPTY)
        api.answer("GET", "/apis", EMPTY)
        path = write_config(tmp_path, cluster={"server": api.url}, user={"tokenFile": str(token)})
        async with await connect(path) as cluster:
            await cluster.discover()
            headers = [each.headers["authorization"] for each in api.find("GET", "/api")]
            assert headers == ["Bearer old", "Bearer renewed"]
            api.answer("GET", "/apis", refuse(401, "Unauthorized", "Unauthorized"))
            with pytest.raises(UnauthorizedError) as caught:
                await cluster.refresh_discovery()
    assert "does not accept our credentials" in str(caught.value)
    assert "context 'x' of" in caught.value.hint
    assert "renewed" not in caught.value.reason()
    assert len(api.find("GET", "/apis")) == 2, "with the same token it is not asked again"


async def test_a_refused_credential_runs_its_program_again(tmp_path: Path) -> None:
    """A token that the provider has revoked before its time."""
    program = tmp_path / "plugin"
    answer = '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "t%s"}}'
    runs, version = tmp_path / "runs", "client.authentication.k8s.io/v1"
    script = f"echo >> '{runs}'; printf '{answer}' {version} $(wc -l < '{runs}')"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    async with serving_api() as api:
        api.answer("GET", "/api", EMPTY, refuse(401, "Unauthorized", "Unauthorized"), EMPTY)
        api.answer("GET", "/apis", EMPTY)
        section = {"apiVersion": version, "command": "./plugin"}
        path = write_config(tmp_path, cluster={"server": api.url}, user={"exec": section})
        async with await connect(path) as cluster:
            await cluster.discover()
            await cluster.refresh_discovery()
    sent = [each.headers["authorization"] for each in api.find("GET", "/api")]
    assert sent == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_we_act_as_somebody_else_with_one_line_for_each_group(tmp_path: Path) -> None:
    async with serving_api() as api:
        api.answer("GET", "/api", EMPTY)
        api.answer("GET", "/apis", EMPTY)
        path = write_config(
            tmp_path, cluster={"server": api.url}, user={"as": "bob", "as-groups": ["a", "b"]}
        )
        async with await connect(path) as cluster:
            await cluster.discover()
    headers = api.requests[0].headers
    assert (headers["impersonate-user"], headers["impersonate-group"]) == ("bob", "a,b")


async def test_a_proxy_of_the_file_is_used(authority: trustme.CA, tmp_path: Path) -> None:
    """By CONNECT: it never sees what is said."""
    asked: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        host, _, port = asked[-1].split(b" ")[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump(reader, far_writer))
            tasks.create_task(pump(far_reader, writer))

    proxy = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy, serving_tls(authority) as api:
        path = write_config(
            tmp_path,
            cluster={
                "server": api.url,
                "certificate-authority-data": encode(authority.cert_pem.bytes()),
                "proxy-url": f"http://ann:pass@127.0.0.1:{port}",
            },
            user={"token": "inside"},
        )
        async with await connect(path) as cluster:
            await cluster.discover()
    assert asked[0].startswith(f"CONNECT {api.url.removeprefix('https://')} ".encode())
    assert b"inside" not in b"".join(asked)
    credentials = base64.b64encode(b"ann:pass")
    assert credentials in asked[0]


def test_the_http_library_is_loaded_by_those_who_connect() -> None:
    """It costs a third of the plugin's start, before the first call is answered."""
    program = "import sys, pipecd_plugin_kubernetes.plugin; print('httpx2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"
