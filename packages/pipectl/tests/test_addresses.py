# SPDX-License-Identifier: Apache-2.0
"""Addresses of control planes: whatever a program prints, a person may give."""

import pytest

from pipecd_model.errors import ConfigError
from pipecd_pipectl.addresses import parse_address


@pytest.mark.parametrize(
    ("text", "insecure", "target", "url"),
    [
        ("pipecd.example.com:8080", False, "pipecd.example.com:8080", None),
        ("127.0.0.1:8080", True, "127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("pipecd.example.com", False, "pipecd.example.com:443", "https://pipecd.example.com"),
        ("pipecd.example.com", True, "pipecd.example.com:80", "http://pipecd.example.com"),
        ("http://127.0.0.1:8080", False, "127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", True, "127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTPS://Pipecd.Example.com", False, "pipecd.example.com:443", None),
        ("[::1]:8080", True, "[::1]:8080", "http://[::1]:8080"),
        ("https://[2001:db8::1]", False, "[2001:db8::1]:443", "https://[2001:db8::1]"),
    ],
)
def test_an_address_is_read_however_it_is_written(
    text: str, insecure: bool, target: str, url: str | None
) -> None:
    address = parse_address(text, insecure=insecure)

    assert address.target == target
    assert address.insecure == address.url.startswith("http://")
    if url is not None:
        assert address.url == url
        assert parse_address(address.url) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":8080",
        "http://",
        "grpc://host:1",
        "host:port",
        "host:99999",
        "host:0",
        "host/path",
        "https://host/path",
        "https://host?x=1",
        "https://host#x",
        "https://user:secret@host",
        "a b",
        "host\n:80",
        "host\x1b[2J",
        "[::1",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(text)

    assert "pipecd.example.com" in refused.value.hint
    assert "\x1b" not in str(refused.value)


def test_an_address_with_tls_is_not_called_insecure() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        parse_address("https://host", insecure=True)
