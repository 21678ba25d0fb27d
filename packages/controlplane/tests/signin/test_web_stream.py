# SPDX-License-Identifier: Apache-2.0
"""The stream of a browser over gRPC-Web: no other site opens it, and a session's end ends it."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from pipecd_test_support.sign_in_site import SignInSite
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc.frames import frame

WATCH = "/pipecd.api.v1.ProjectService/WatchChanges"
WEB = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
TRAILERS = 0x80


async def read_frames(response: httpx2.Response) -> AsyncIterator[tuple[int, bytes]]:
    """Yields kind and content of each frame as it arrives."""
    held = b""
    async for chunk in response.aiter_bytes():
        held += chunk
        while len(held) >= 5 and len(held) >= (end := 5 + int.from_bytes(held[1:5], "big")):
            yield held[0], held[5:end]
            held = held[end:]


async def test_the_end_of_a_session_ends_its_stream_at_once(site: SignInSite) -> None:
    browser = await site.browser(headers={"origin": site.url})
    await site.sign_in(browser)
    session_id = browser.cookies["token"].partition(".")[0]
    body = frame(pb.WatchChangesRequest(keep_alive_seconds=30).SerializeToString())
    async with browser.stream("POST", WATCH, content=body, headers=WEB) as response:
        frames = read_frames(response)
        kind, data = await anext(frames)
        assert kind == 0
        assert pb.WatchChangesResponse.FromString(data).cursor

        await site.plane.stores.sessions.end("shop", session_id)

        rest = [each async for each in frames]
        assert rest[-1][0] == TRAILERS
        assert b"grpc-status:16" in rest[-1][1].replace(b" ", b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        WATCH,
        "/pipecd.api.v1.WindowService/StopDeployments",
        "/pipecd.api.v1.OverviewService/GetOverview",
    ],
)
async def test_a_page_of_another_site_is_refused(
    site: SignInSite, path: str, headers: dict[str, str]
) -> None:
    browser = await site.browser()
    await site.sign_in(browser)
    answer = await browser.post(path, content=frame(b""), headers=WEB | headers)
    told = answer.headers.get("grpc-status", "") or answer.content.decode("latin-1")
    assert "7" in told
    assert "another site" in answer.headers.get("grpc-message", "") + answer.text
