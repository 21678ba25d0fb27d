# SPDX-License-Identifier: Apache-2.0
"""Tokens of service accounts, as the API server itself issues them and refuses them again.

The shortest that it issues lasts for ten minutes; but one that is bound to an object ends with it.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_kubernetes.client import Cluster, Object, UnauthorizedError, load_connection

from pipecd_test_support.kubernetes.api import Api, RefusedError
from pipecd_test_support.kubernetes.real_cluster import Namespace

V1 = "client.authentication.k8s.io/v1"
LIMIT_SECONDS = 60
PROGRAM = """#!{python}
import pathlib
folder = pathlib.Path({folder!r})
with (folder / "runs").open("a") as runs:
    runs.write("run\\n")
print((folder / "answer").read_text())
"""


@pytest.fixture
def account(namespace: Namespace) -> str:
    """A service account that may write ConfigMaps of its namespace."""
    api = "rbac.authorization.k8s.io"
    name = {"name": "deployer"}
    namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name})
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": name, "rules": [rule]}
    namespace.apply(role)
    subject = {"kind": "ServiceAccount", "name": "deployer", "namespace": namespace.name}
    namespace.apply(
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "deployer"},
            "subjects": [subject],
        }
    )
    return "deployer"


def issue(namespace: Namespace, account: str, *, until_deleted: str) -> str:
    """A token that is good until a Secret, which is made for it, is deleted."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": until_deleted}}
    namespace.apply(secret)
    return namespace.cluster.run_kubectl(
        *("--namespace", namespace.name, "create", "token", account),
        *("--bound-object-kind", "Secret", "--bound-object-name", until_deleted),
    ).strip()


async def end(namespace: Namespace, token: str, *, secret: str) -> None:
    """Let a token end, and wait until the server knows: it remembers good ones for seconds."""
    namespace.api.delete("v1", "Secret", secret, namespace.name)
    asked = namespace.cluster.connect(token)
    over = time.monotonic() + LIMIT_SECONDS
    try:
        while await asyncio.to_thread(is_taken, asked):
            assert time.monotonic() < over, "the server still takes the token"
            await asyncio.sleep(0.2)  # between looks at another process
    finally:
        asked.close()


def is_taken(asked: Api) -> bool:
    try:
        asked.request("GET", "/api")
    except RefusedError as error:
        return error.status != 401
    return True


def settings(namespace: Namespace, value: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace.name},
        "data": {"value": value},
    }


@asynccontextmanager
async def connecting(
    namespace: Namespace, path: Path, user: dict[str, Any]
) -> AsyncIterator[Cluster]:
    namespace.cluster.write_kubeconfig(path, user=user)
    connection = await load_connection(kubeconfig=str(path))
    async with await Cluster.connect(connection) as client:
        yield client


def write_file(folder: Path, token: str) -> dict[str, Any]:
    """A file with the token alone, as a kubelet renews it in pods."""
    (folder / "token").write_text(token)
    return {"tokenFile": str(folder / "token")}


def write_program(folder: Path, token: str) -> dict[str, Any]:
    """A credential plugin that gives the token, and does not say when it ends."""
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": token}}
    (folder / "answer").write_text(json.dumps(answer))
    program = folder / "program"
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    command = {"apiVersion": V1, "command": str(program), "interactiveMode": "Never"}
    return {"exec": command}


@pytest.mark.parametrize("write", [write_file, write_program], ids=["file", "program"])
async def test_a_token_that_ended_is_replaced_by_the_one_that_is_there_now(
    write: Callable[[Path, str], dict[str, Any]],
    namespace: Namespace,
    account: str,
    tmp_path: Path,
) -> None:
    first = issue(namespace, account, until_deleted="first")
    second = issue(namespace, account, until_deleted="second")
    async with connecting(namespace, tmp_path / "config", write(tmp_path, first)) as client:
        await client.apply(settings(namespace, "1"))
        await end(namespace, first, secret="first")  # noqa: S106 - its name
        with pytest.raises(UnauthorizedError) as caught:
            await client.apply(settings(namespace, "2"))
        write(tmp_path, second)
        applied = await client.apply(settings(namespace, "2"))

    assert "does not accept our credentials" in str(caught.value)
    assert first not in caught.value.reason()
    assert applied["data"] == {"value": "2"}
