# SPDX-License-Identifier: Apache-2.0
"""A control plane with two projects, and who calls it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.project_side import ProjectSide, add_side
from pipecd_test_support.rights_matrix import RightsMatrix, make_callers
from pipecd_test_support.served_settings import serving_with
from pipecd_wire.rpc import connect


@pytest.fixture
async def releases() -> AsyncIterator[str]:
    """Where released versions are listed: nothing of the world outside."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'[{"tag_name": "v1.0.0", "body": ""}]'
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.fixture
async def plane(
    store_kind: str, tmp_path: Path, releases: str
) -> AsyncIterator[ServedControlPlane]:
    async with serving_with(tmp_path / "data", releases_url=releases) as served:
        yield served


@pytest.fixture
async def sides(plane: ServedControlPlane) -> tuple[ProjectSide, ProjectSide]:
    """Ours and theirs."""
    return await add_side(plane, "ours"), await add_side(plane, "theirs")


@pytest.fixture
async def world(plane: ServedControlPlane, sides: tuple[ProjectSide, ProjectSide]) -> RightsMatrix:
    for side in sides:
        side.callers = await make_callers(side)
    channel = await plane.opened.enter_async_context(connect(plane.address))
    return RightsMatrix(channel=channel, ours=sides[0], theirs=sides[1])
