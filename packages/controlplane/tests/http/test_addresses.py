# SPDX-License-Identifier: Apache-2.0
"""Whose address a request has, before and behind proxies."""

import pytest

from pipecd_controlplane.http.addresses import TrustedProxies, limit_key

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])


@pytest.mark.parametrize(
    ("connected", "forwarded", "expected"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "203.0.113.7, 10.9.9.9", "203.0.113.7"),
        ("10.0.0.1", "10.1.1.1, 10.9.9.9", "10.1.1.1"),
        ("10.0.0.1", "203.0.113.7:4711", "203.0.113.7"),
        ("10.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("fd00::1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7, rubbish", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4,rubbish,203.0.113.7", "203.0.113.7"),
        ("203.0.113.1", "203.0.113.7", "203.0.113.1"),
        ("", "203.0.113.7", ""),
    ],
)
def test_only_what_trusted_proxies_have_written_counts(
    connected: str, forwarded: str, expected: str
) -> None:
    assert PROXIES.find_client(connected, forwarded) == expected


def test_a_chain_of_proxies_without_end_is_looked_at_from_its_end() -> None:
    forwarded = ",".join(["203.0.113.7"] + ["10.0.0.2"] * 10_000)

    assert PROXIES.find_client("10.0.0.1", forwarded) == "10.0.0.2"


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert TrustedProxies().find_client("10.0.0.1", "203.0.113.7") == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_limits_count_networks_of_ipv6(address: str, expected: str) -> None:
    assert limit_key(address) == expected
