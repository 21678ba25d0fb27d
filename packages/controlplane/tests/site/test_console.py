# SPDX-License-Identifier: Apache-2.0
"""Our own console is served from the files of a build, as soon as they are there."""

import gzip
from pathlib import Path

import httpx2
import pytest

from pipecd_test_support.served_settings import serving_with

INDEX = "<!doctype html><title>console</title>"
SCRIPT = "console.log(1);" * 200
STRICT = ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'")


def build(folder: Path, index: str = INDEX) -> None:
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "assets" / "app-1a2b.js").write_text(SCRIPT)
    (folder / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT.encode()))
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "index.html").write_text(index)


def browser(address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=30)


async def test_the_page_is_there_once_it_is_built_and_again_when_it_is_built_anew(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "console"
    async with (
        serving_with(tmp_path / "data", console_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        none = await client.get("/")
        assert (none.status_code, "make console" in none.text) == (200, True)
        assert (await client.get("/applications")).status_code == 404

        build(folder)
        for path in ("/", "/applications", "/deployments/x?stage=1", "/index.html"):
            page = await client.get(path)
            assert (page.status_code, page.text) == (200, INDEX), path
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert page.headers["cache-control"] == "no-cache"

        for path in ("/auth/nothing", "/hooks/v1/x", "/download/x"):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/auth/login")).status_code == 405
        assert (await client.post("/applications")).status_code == 405

        build(folder, INDEX + "<p>newer")
        assert (await client.get("/")).text == INDEX + "<p>newer"


async def test_assets_are_kept_for_ever_and_sent_packed(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    build(folder)
    async with (
        serving_with(tmp_path / "data", console_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        plain = await client.get("/assets/app-1a2b.js", headers={"accept-encoding": "identity"})
        packed = await client.get("/assets/app-1a2b.js", headers={"accept-encoding": "br, gzip"})
        refused = await client.get("/assets/app-1a2b.js", headers={"accept-encoding": "gzip;q=0"})
        assert plain.text == packed.text == refused.text == SCRIPT
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
        assert "content-encoding" not in refused.headers
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
        assert plain.headers["vary"] == "accept-encoding"
        # Of an older build: the page in its place would be a riddle for whoever reads the error.
        assert (await client.get("/assets/app-old.js")).status_code == 404


async def test_a_browser_that_has_the_page_is_not_sent_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    build(folder)
    async with (
        serving_with(tmp_path / "data", console_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        first = await client.get("/deployments/x")
        again = await client.get("/", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/%2e%2e/%2e%2e/data/admin.key",
        "/..%2fdata%2fadmin.key",
        "//etc/passwd",
        "/assets/..%5c..%5cdata",
        "/assets/app-1a2b.js.gz",
    ],
)
async def test_no_path_leads_out_of_the_build(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "console"
    build(folder)
    async with (
        serving_with(tmp_path / "data", console_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        answer = await client.get(path)
        assert answer.status_code == 404 or answer.text == INDEX


async def test_nothing_written_into_a_page_runs_and_nobody_frames_it(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    build(folder)
    async with (
        serving_with(tmp_path / "data", console_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        for path in ("/", "/assets/app-1a2b.js", "/auth/terminal", "/healthz", "/auth/logout"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "unsafe" not in policy, path
            assert all(part in policy for part in STRICT), path
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"


async def test_a_page_of_somebody_else_keeps_the_policy_that_it_needs(tmp_path: Path) -> None:
    """Upstream's writes styles into itself."""
    folder = tmp_path / "theirs"
    build(folder)
    async with (
        serving_with(tmp_path / "data", static_dir=folder) as plane,
        browser(plane.address) as client,
    ):
        policy = (await client.get("/applications")).headers["content-security-policy"]
        assert "style-src 'self' 'unsafe-inline'" in policy
        assert "frame-ancestors 'none'" in policy
        assert (
            "unsafe" not in (await client.get("/auth/terminal")).headers["content-security-policy"]
        )
