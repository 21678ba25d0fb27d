# SPDX-License-Identifier: Apache-2.0
"""Which hosts rendering may fetch from."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import ChartRegistry, ChartRepository, KubernetesPluginConfig
from pipecd_plugin_kubernetes.rendering.hosts import read_allowed_hosts

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts, parse_address

LOOKED_UP = {"public.example.com": "93.184.216.34", "inside.example.com": "10.1.2.3"}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(_loop: object, host: str, *_args: Any, **_more: Any) -> Any:
        if host not in LOOKED_UP:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (LOOKED_UP[host], 0))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", look_up)


async def is_allowed(allowed: Sequence[str], address: str) -> bool:
    try:
        await Hosts(allowed).check(address, "the base")
    except StageFailedError:
        return False
    return True


@pytest.mark.parametrize(
    ("allowed", "address", "expected"),
    [
        ([], "https://example.com/a", False),
        (["example.com"], "https://example.com/a", True),
        (["example.com"], "https://EXAMPLE.com.:8443/a", True),
        (["example.com"], "https://example.com@evil.com/a", False),
        (["example.com"], "https://evil.com/example.com", False),
        (["example.com"], "https://sub.example.com", False),
        (["example.com"], "https://notexample.com", False),
        (["example.com"], "ftp://example.com/a", False),
        (["example.com"], "file:///etc/passwd", False),
        (["example.com"], "git@example.com:a/b", False),
        (["example.com"], "https://[::1", False),
        (["example.com"], "https://", False),
        (["*.example.com"], "https://public.example.com", True),
        (["*.example.com"], "https://example.com", False),
        (["*.example.com"], "https://inside.example.com", False),
        (["*.example.com"], "https://nowhere.example.com", False),
        (["*.example.com", "10.0.0.0/8"], "https://inside.example.com", True),
        (["inside.example.com"], "https://inside.example.com", True),
        (["*.example.com"], "http://127.0.0.1/", False),
        (["*.example.com"], "http://169.254.169.254/latest", False),
        (["127.0.0.1"], "http://127.0.0.1:8080/", True),
        (["::1"], "http://[::1]:8080/", True),
        (["*.example.com"], "http://[::ffff:127.0.0.1]/", False),
        (["*.example.com"], "http://2130706433/", False),
        (["*.example.com"], "http://0x7f.1/", False),
    ],
)
async def test_only_named_hosts_are_allowed(
    allowed: list[str], address: str, expected: bool
) -> None:
    assert await is_allowed(allowed, address) is expected


async def test_the_hosts_of_chart_repositories_and_registries_are_allowed() -> None:
    hosts = read_allowed_hosts(
        KubernetesPluginConfig(
            chart_repositories=(ChartRepository(name="a", address="https://charts.a.dev/x"),),
            chart_registries=(ChartRegistry(address="reg.b.dev:5000"),),
        )
    )
    await hosts.check("https://charts.a.dev/other", "x")
    await hosts.check("oci://reg.b.dev:5000/web", "x", schemes=("oci",))


async def test_the_sentence_names_what_to_do_and_no_password() -> None:
    with pytest.raises(StageFailedError) as caught:
        await Hosts([]).check("https://me:hunter2@example.com/a", "the base")
    said = caught.value.reason()
    assert "'example.com' is not an allowed host (add it to allowedHosts" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("text", ["../base", "a.yaml", "dir/a.yaml", "."])
def test_paths_are_no_addresses(text: str) -> None:
    assert parse_address(text) is None
