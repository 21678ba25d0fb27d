# SPDX-License-Identifier: Apache-2.0
"""Which bytes are a header of the PROXY protocol, and whom it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_controlplane.http.proxy_protocol import (
    FIXED_BYTES,
    REST_BYTES,
    SIGNATURE,
    TEXT_BYTES,
    ProxyHeaderError,
    count_missing,
    parse_header,
)
from pipecd_test_support.balancer import ProxyVersion, make_proxy_header


def binary(command: int, family: int, rest: bytes = b"") -> bytes:
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


IPV4 = bytes([203, 0, 113, 7, 10, 0, 0, 1, 0x9C, 0x40, 1, 0xBB])
MAPPED = bytes(10) + b"\xff\xff" + bytes([203, 0, 113, 7]) + bytes(16) + IPV4[-4:]
TLV = b"\x04\x00\x03\x00\x00\x00"

LONGEST = (
    b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    b" ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"
)


def read(stream: bytes, step: int) -> tuple[bytes, str | None]:
    """Reads a header, at most `step` bytes at once; returns it and whom it names."""
    header = b""
    while missing := count_missing(header):
        assert len(header) < len(stream), "the header is not whole"
        header += stream[len(header) :][: min(missing, step)]
    return header, parse_header(header)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 443\r\n", "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n", "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 40000 443\r\n", "203.0.113.7"),
        (b"PROXY UNKNOWN\r\n", None),
        (LONGEST, None),
        (binary(0x21, 0x11, IPV4), "203.0.113.7"),
        (binary(0x21, 0x11, IPV4 + TLV), "203.0.113.7"),
        (binary(0x21, 0x11, IPV4 + bytes(REST_BYTES - len(IPV4))), "203.0.113.7"),
        (binary(0x21, 0x21, MAPPED), "203.0.113.7"),
        (binary(0x21, 0x00), None),
        (binary(0x21, 0x31, bytes(216)), None),
        (binary(0x20, 0x00), None),
        (binary(0x20, 0x11, IPV4), None),
        (binary(0x20, 0xFF, TLV), None),
    ],
)
@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize("behind", [b"\r\n", b"PROXY TCP4 ", SIGNATURE, b"\x16\x03\x01"])
def test_a_header_is_read_to_its_end_and_not_further(
    header: bytes, named: str | None, step: int, behind: bytes
) -> None:
    assert read(header + behind, step) == (header, named)


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"proxy TCP4",
        b"PROXY\tTCP4",
        SIGNATURE[:-1] + b"\r",
        SIGNATURE[1:],
        LONGEST[:-2] + b"0\r\n",
        b"PROXY UNKNOWN" + b"x" * TEXT_BYTES,
        b"PROXY UNKNOWNX\r\n",
        b"PROXY TCP4\r\n\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 443\n\r\n",
        b"PROXY TCP4 203.0.113.7  10.0.0.1 40000 443\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 443 \r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 65536\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 0443\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 -1\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0 40000 443\r\n",
        b"PROXY TCP4 203.0.113.07 10.0.0.1 40000 443\r\n",
        b"PROXY TCP4 2001:db8::7 ::1 40000 443\r\n",
        b"PROXY TCP6 203.0.113.7 10.0.0.1 40000 443\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 40000 443\r\n",
        b"PROXY TCP5 203.0.113.7 10.0.0.1 40000 443\r\n",
        binary(0x22, 0x11, IPV4),
        binary(0x11, 0x11, IPV4),
        binary(0x31, 0x11, IPV4),
        binary(0x21, 0x11, IPV4[:-1]),
        binary(0x21, 0x21, MAPPED[:-1]),
        binary(0x21, 0x12, IPV4),
        binary(0x21, 0x22, MAPPED),
        binary(0x21, 0x01, IPV4),
        binary(0x21, 0x41, IPV4),
        binary(0x21, 0x11, IPV4 + bytes(REST_BYTES)),
        binary(0x20, 0x00, bytes(REST_BYTES + 1)),
    ],
)
@pytest.mark.parametrize("step", [1, 10_000])
def test_anything_else_is_refused(start: bytes, step: int) -> None:
    with pytest.raises(ProxyHeaderError):
        read(start, step)


@given(
    st.integers(1, 2), st.ip_addresses(), st.integers(0, 65_535), st.binary(), st.integers(1, 50)
)
def test_whoever_is_named_is_found(
    version: ProxyVersion, client: object, port: int, behind: bytes, step: int
) -> None:
    header = make_proxy_header(version, (str(client), port), (str(client), 443))
    header_read, named = read(header + behind, step)

    assert header_read == header
    assert named in {str(client), str(getattr(client, "ipv4_mapped", None))}


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(SIGNATURE.__add__)))
def test_no_bytes_break_the_parser_or_make_it_read_without_end(stream: bytes) -> None:
    header = b""
    try:
        while missing := count_missing(header):
            assert len(header) + missing <= FIXED_BYTES + REST_BYTES
            if len(header) == len(stream):
                return
            header += stream[len(header) :][:missing]
        parse_header(header)
    except ProxyHeaderError:
        pass
