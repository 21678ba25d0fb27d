# SPDX-License-Identifier: Apache-2.0
"""Floods on a real server that may have 1,024 descriptors: it goes on, and is as before after them.

How fast it answers meanwhile is measured by `bench/bench_floods.py`.
"""

from pathlib import Path

import pytest
import trustme

from pipecd_test_support.besieged import (
    DESCRIPTORS,
    Besieged,
    ask_admin,
    ask_anew,
    besieged,
    endure,
    warm_up,
)
from pipecd_test_support.floods import FLOODS

MOST_MEMORY = 64.0
MOST_LOG = 1_000_000
RESERVE = 64
"""Descriptors that are left when strangers have all they can get."""

GROUPS = {
    "little": ["half-requests", "half-open", "half-preface", "idle-http2", "slow-headers"],
    "heads": ["huge-headers", "one-huge-header", "huge-url"],
    "bodies": ["text-bombs", "unfinished-bodies", "unfinished-forms", "slow-bodies"],
    "chunks": ["chunk-trickle", "chunk-extensions"],
    "answers": ["pipelining", "no-reading"],
    "frames": ["settings-flood", "ping-flood", "continuation-flood", "empty-frames"],
    "hooks": ["forged-hooks", "unfinished-hooks"],
    "calls": ["rapid-reset", "many-streams", "refused-calls", "wrong-keys"],
}
UNDER_TLS = ["tls-half-hello", "tls-half-open", "tls-half-requests"]

pytestmark = pytest.mark.timeout(600)


async def check(server: Besieged, flood: str) -> None:
    """That all callers are answered is checked by `endure`, and that descriptors come back."""
    report = await endure(server, flood, calls=6)

    assert report.connections > 0, flood
    assert report.memory_growth <= MOST_MEMORY, flood
    assert report.log_growth <= MOST_LOG, flood
    assert report.most_descriptors <= DESCRIPTORS - RESERVE, flood


def test_every_flood_is_tried() -> None:
    tried = [flood for group in GROUPS.values() for flood in group]

    assert sorted([*tried, *UNDER_TLS]) == sorted(FLOODS)


@pytest.mark.parametrize("group", GROUPS)
async def test_callers_are_answered_during_a_flood_of_strangers(group: str, tmp_path: Path) -> None:
    async with besieged(tmp_path) as server:
        await warm_up(server)
        for flood in GROUPS[group]:
            await check(server, flood)


async def test_callers_are_answered_during_a_flood_of_handshakes(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "server.crt", tmp_path / "server.key"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    flags = ("--tls-cert", str(chain), "--tls-key", str(key))

    async with besieged(tmp_path, *flags, roots=authority.cert_pem.bytes()) as server:
        await warm_up(server)
        for flood in UNDER_TLS:
            await check(server, flood)


async def test_a_known_caller_is_answered_during_a_flood_from_its_own_address(
    tmp_path: Path,
) -> None:
    async with besieged(tmp_path) as server:
        await warm_up(server)
        for flood in ("half-requests", "idle-http2"):
            await endure(server, flood, calls=6, source="127.0.0.1")
        await ask_anew(server)


async def test_a_flood_of_floods_leaves_nothing_behind(tmp_path: Path) -> None:
    """What one flood costs is had again by the next: memory does not grow with their number."""
    async with besieged(tmp_path) as server:
        await warm_up(server)
        await endure(server, "idle-http2", calls=3)
        after_one = server.memory()
        for _ in range(3):
            await endure(server, "idle-http2", calls=3)
        await ask_admin(server)

        assert server.memory() - after_one <= MOST_MEMORY / 2


async def test_the_server_takes_all_descriptors_that_it_may_have(tmp_path: Path) -> None:
    async with besieged(tmp_path, ulimit="-S -n 300") as server:
        soft, hard = server.descriptor_limits()

    assert soft == hard


async def test_a_server_with_too_few_descriptors_says_so(tmp_path: Path) -> None:
    with pytest.raises(IndexError):  # it does not print where it listens
        async with besieged(tmp_path, ulimit="-n 150"):
            raise AssertionError("it serves")

    assert "150 descriptors are too few" in (tmp_path / "log").read_text()
