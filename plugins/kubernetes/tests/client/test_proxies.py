# SPDX-License-Identifier: Apache-2.0
"""Proxies of the environment, by the rules of kubectl."""

import pytest
from pipecd_plugin_kubernetes.client.proxies import find_proxy

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "exceptions", "is_used"),
    [
        ("https://api.example.com", "", True),
        ("https://api.example.com", "*", False),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", False),
        ("https://api.example.com", "other.com, api.example.com:443", False),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://notexample.com", "example.com", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8,10.1.2.3", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://[fd00::1]:443", "10.0.0.0/8", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_a_server_is_reached_through_the_proxy_or_not(
    server: str, exceptions: str, is_used: bool
) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}
    assert find_proxy(server, environment) == (PROXY if is_used else "")


def test_variables_have_two_spellings_and_a_scheme() -> None:
    assert find_proxy("https://h", {"https_proxy": "p:1"}) == "http://p:1"
    assert find_proxy("http://h", {"HTTPS_PROXY": PROXY}) == ""
    assert find_proxy("http://h", {"http_proxy": PROXY, "no_proxy": "h"}) == ""
