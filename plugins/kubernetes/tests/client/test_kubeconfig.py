# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files, in all the forms that people have them; errors name the file and the key."""

import base64
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_kubernetes.client import Connection, ConnectionConfigError, load_connection

from pipecd_sdk.kit import yaml

SECRET = "s3cr3t-value"  # noqa: S105 - of nothing


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig and no cluster around the tests."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "POD_NAMESPACE", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def make_config(*, cluster: Any = None, user: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "https://one:6443"}}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }


def write(path: Path, config: Any) -> str:
    path.write_text(config if isinstance(config, str) else yaml.dump(config))
    return str(path)


async def read_header(connection: Connection) -> str:
    return (await connection.credentials.fetch()).authorization


async def test_a_context_says_where_and_who(tmp_path: Path) -> None:
    config = make_config(
        user={"token": SECRET},
        cluster={"server": "https://one:6443/prefix/", "tls-server-name": "kubernetes"},
    )
    config["contexts"].append({"name": "other", "context": {"cluster": "c", "namespace": "shop"}})
    path = write(tmp_path / "config", config)
    found = await load_connection(kubeconfig=path)
    assert (found.server, found.namespace) == ("https://one:6443/prefix", "default")
    assert found.tls.server_name == "kubernetes"
    assert await read_header(found) == f"Bearer {SECRET}"
    assert found.source == f"context 'dev' of {path!r}"
    other = await load_connection(kubeconfig=path, context="other")
    assert (other.namespace, await read_header(other)) == ("shop", "")


async def test_an_address_of_the_deploy_target_wins(tmp_path: Path) -> None:
    """`masterURL` over what stands in the file; its credentials and authority stay."""
    path = write(tmp_path / "config", make_config(user={"token": SECRET}))
    found = await load_connection(kubeconfig=path, master_url="10.0.0.1:6443")
    assert found.server == "https://10.0.0.1:6443"
    assert await read_header(found) == f"Bearer {SECRET}"


async def test_of_several_files_the_first_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl merges them; a file that is not there is no fault."""
    (tmp_path / "b").mkdir()
    first = make_config(user={"token": "first"}, clusters=[])
    second = make_config(user={"token": "second"}, cluster={"server": "https://two"})
    second["current-context"] = "elsewhere"
    (tmp_path / "b" / "token").write_text("from-file\n")
    second["users"].append({"name": "v", "user": {"tokenFile": "token"}})
    second["contexts"].append({"name": "v", "context": {"cluster": "c", "user": "v"}})
    listed = [
        write(tmp_path / "a", first),
        str(tmp_path / "missing"),
        write(tmp_path / "b" / "config", second),
    ]
    monkeypatch.setenv("KUBECONFIG", ":".join(listed))
    found = await load_connection()
    assert (found.server, await read_header(found)) == ("https://two", "Bearer first")
    # Paths are relative to the file that names them.
    assert await read_header(await load_connection(context="v")) == "Bearer from-file"


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Tokens of service accounts run out after an hour; the file is replaced before."""
    token = tmp_path / "token"
    token.write_text("one\n")
    config = make_config(user={"tokenFile": str(token), "token": "ignored"})
    found = await load_connection(kubeconfig=write(tmp_path / "config", config))
    assert await read_header(found) == "Bearer one"
    replaced = tmp_path / "next"
    replaced.write_text("two\n")
    replaced.replace(token)
    assert await read_header(found) == "Bearer two"
    token.unlink()
    assert await read_header(found) == "Bearer two", "it is being replaced: the last one holds"


async def test_a_token_in_the_file_itself_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A provider's program renews the kubeconfig; kubectl would follow, and so do we."""
    path = tmp_path / "config"
    found = await load_connection(kubeconfig=write(path, make_config(user={"token": "one"})))
    assert await read_header(found) == "Bearer one"
    write(tmp_path / "next", make_config(user={"token": "two"}))
    (tmp_path / "next").replace(path)
    assert await read_header(found) == "Bearer two"
    write(path, f"half: [{SECRET}")
    assert await read_header(found) == "Bearer two", "it is being written: the last one holds"
    write(path, make_config(user={"token": "three"}))
    assert await read_header(found) == "Bearer three"


async def test_a_user_and_a_password_are_sent(tmp_path: Path) -> None:
    config = make_config(user={"username": "ann", "password": SECRET})
    found = await load_connection(kubeconfig=write(tmp_path / "config", config))
    expected = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert await read_header(found) == f"Basic {expected}"


async def test_we_can_act_as_somebody_else(tmp_path: Path) -> None:
    user = {"as": "bob", "as-groups": ["g1", "g2"], "as-user-extra": {"reason": ["audit"]}}
    found = await load_connection(kubeconfig=write(tmp_path / "config", make_config(user=user)))
    assert found.headers == {
        "Impersonate-User": "bob",
        "Impersonate-Group": "g1\ng2",
        "Impersonate-Extra-reason": "audit",
    }


async def test_the_cluster_around_us_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod nothing needs to be configured."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    folder = tmp_path / "account"
    folder.mkdir()
    with pytest.raises(ConnectionConfigError, match=r"service account.*account/token.*No such"):
        await load_connection(service_account=folder)
    (folder / "token").write_text("inside")
    (folder / "ca.crt").write_text("certificate")
    (folder / "namespace").write_text("pipecd")
    found = await load_connection(service_account=folder)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "pipecd")
    assert await read_header(found) == "Bearer inside"
    (folder / "token").write_text("rotated")
    assert await read_header(found) == "Bearer rotated"
    (folder / "namespace").unlink()
    found = await load_connection(service_account=folder, master_url="https://elsewhere")
    assert (found.server, found.namespace) == ("https://elsewhere", "default")


async def test_the_usual_file_is_found(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", make_config())
    assert (await load_connection()).server == "https://one:6443"


async def test_without_anything_the_setting_is_named() -> None:
    with pytest.raises(ConnectionConfigError) as caught:
        await load_connection()
    assert "does not run in a cluster" in str(caught.value)
    assert "kubeConfigPath" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"current-context": "nowhere"}, "there is no context 'nowhere'"),
        ({"current-context": ""}, "current-context is not set"),
        ({"current-context": ["x"]}, "config: current-context: not a text"),
        ({"clusters": []}, "contexts[0].context.cluster: there is no cluster 'c'"),
        ({"users": []}, "contexts[0].context.user: there is no user 'u'"),
        ({"users": "x"}, "config: users: not a list"),
        ({"users": ["x"]}, "users[0]: not a map"),
        ({"cluster": {"server": "ftp://x"}}, "cluster.server: not the address of a server"),
        ({"cluster": {"server": "https://"}}, "cluster.server: not an address"),
        ({"cluster": {"server": "https://a b"}}, "cluster.server: not an address"),
        ({"cluster": {"server": "https://h:99999"}}, "cluster.server: not an address"),
        ({"cluster": {"server": f"https://u:{SECRET}@h"}}, "has no user and password"),
        ({"cluster": {"certificate-authority": "x"}}, "there is no address of a server"),
        ({"user": {"token": {"a": SECRET}}}, "users[0].user.token: not a text"),
        ({"user": {"client-key-data": SECRET + "!"}}, "user.client-key-data: not base64"),
        ({"user": {"client-certificate": "x"}}, "there is no client-key beside it"),
        ({"user": {"client-key": "x"}}, "there is no client-certificate beside it"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider: no longer a part"),
        ({"user": {"exec": {"apiVersion": "v1"}}}, "exec.command: there is no command"),
        (
            {"user": {"exec": {"command": "x", "apiVersion": "v1alpha1"}}},
            "exec.apiVersion: not a known version: 'v1alpha1'",
        ),
        (
            {
                "user": {
                    "exec": {
                        "command": "x",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                }
            },
            "exec.interactiveMode: Always, but there is nobody to answer",
        ),
        (
            {"cluster": {"server": "https://h", "insecure-skip-tls-verify": "yes"}},
            "insecure-skip-tls-verify: neither true nor false",
        ),
        (
            {"cluster": {"server": "https://h", "proxy-url": f"ftp://u:{SECRET}@p"}},
            "cluster.proxy-url: not a proxy",
        ),
    ],
)
async def test_what_is_wrong_is_named_with_file_and_key(
    change: dict[str, Any], place: str, tmp_path: Path
) -> None:
    """And never with the value, which may be a secret."""
    path = write(tmp_path / "config", make_config(**change))
    with pytest.raises(ConnectionConfigError) as caught:
        await load_connection(kubeconfig=path)
    said = caught.value.reason()
    assert place in said
    assert path in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"a: {SECRET}\n  b: 1\n", "is no YAML: line 2"),
        ("- 1\n", "not a map"),
        ("", "current-context is not set"),
        (f"\x00{SECRET}", "is no YAML"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "config", text)
    with pytest.raises(ConnectionConfigError) as caught:
        await load_connection(kubeconfig=path)
    assert said in str(caught.value)
    assert path in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionConfigError, match="there is no kubeconfig"):
        await load_connection(kubeconfig=str(tmp_path / "none"))


async def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    """Values are logged and printed by accident: they must not say anything."""
    config = make_config(
        user={"token": SECRET, "username": "ann", "password": SECRET, "as": "bob"},
        cluster={"server": "https://h", "proxy-url": f"http://u:{SECRET}@p:3128"},
    )
    found = await load_connection(kubeconfig=write(tmp_path / "config", config))
    credential = await found.credentials.fetch()
    assert SECRET not in repr(found) + repr(found.credentials) + repr(credential)


async def test_a_token_that_is_no_header_is_refused(tmp_path: Path) -> None:
    """A line end in a token would be another header."""
    config = make_config(user={"token": f"{SECRET}\r\nX-Evil: 1"})
    found = await load_connection(kubeconfig=write(tmp_path / "config", config))
    with pytest.raises(
        Exception, match=r"users\[0\].user.token: the token has characters"
    ) as caught:
        await found.credentials.fetch()
    assert SECRET not in str(caught.value)
