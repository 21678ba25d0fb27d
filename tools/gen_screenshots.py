# SPDX-License-Identifier: Apache-2.0
"""Take the pictures of the console that README and docs show, of a quickstart with a history.

    python tools/gen_screenshots.py             write docs/images/console-*.png anew
    python tools/gen_screenshots.py --into DIR  write them elsewhere
    python tools/gen_screenshots.py --only NAME write one of them

A quickstart runs in a temporary folder; git and pipectl make of it what people have after a while:
an approval that somebody waits for, a deployment that failed and was rolled back, a website that
was edited by hand. An analysis has a site of its own, whose metrics get worse. Debian's Chromium
looks at them, signed in by a one-time link. The times in the pictures are those of the run, so
every run writes other files: it is no part of `make docs`.
"""

import argparse
import base64
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from pipecd_test_support.console_site import (
    PHONE,
    CannotBrowseError,
    ConsoleSite,
    build_console,
    find_chromium,
    launch_chromium,
    serve_console,
)
from pipecd_test_support.web_server import Answer, Question, WebServer

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
IMAGES = ROOT / "docs" / "images"
FOLDER = Path(tempfile.gettempdir()) / "pipecd-quickstart"
"""Where the quickstart is: pages may show its path, so it has the name of nobody."""
DESKTOP = (1360, 850)
LOW = (1360, 660)
LIMIT_SECONDS = 120
MOST_BYTES = 150_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"

# Run by the browser, which is quicker at it. Each row begins with a byte that names its filter.
USE_PALETTE = """
async (png) => {
  const bytes = Uint8Array.from(atob(png), (each) => each.charCodeAt(0))
  const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}))
  const {width, height} = image
  const pen = new OffscreenCanvas(width, height).getContext('2d')
  pen.drawImage(image, 0, 0)
  const pixels = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer)
  const counted = new Map()
  for (const pixel of pixels) counted.set(pixel, (counted.get(pixel) ?? 0) + 1)
  const common = [...counted].sort((one, other) => other[1] - one[1]).slice(0, 256)
  const colours = common.map(([pixel]) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255])
  const place = new Map(common.map(([pixel], number) => [pixel, number]))
  for (const pixel of counted.keys()) {
    if (place.has(pixel)) continue
    const far = colours.map(([red, green, blue]) =>
      (red - (pixel & 255)) ** 2 +
      (green - ((pixel >> 8) & 255)) ** 2 +
      (blue - ((pixel >> 16) & 255)) ** 2)
    place.set(pixel, far.indexOf(Math.min(...far)))
  }
  const rows = new Uint8Array((width + 1) * height)
  pixels.forEach((pixel, at) => { rows[at + Math.floor(at / width) + 1] = place.get(pixel) })
  let text = ''
  for (let at = 0; at < rows.length; at += 8192) {
    text += String.fromCharCode(...rows.subarray(at, at + 8192))
  }
  return {width, height, palette: colours.flat(), rows: btoa(text)}
}
"""

SHOP = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: shop
  labels:
    env: production
    team: checkout
  pipeline:
    stages:
      - name: SCRIPT_RUN
        desc: Test
        with:
          run: |
            for suite in cart checkout search; do
              printf '\\033[32mpassed\\033[0m %s\\n' "$suite"
            done
      - name: WAIT
        desc: Let the test orders settle
        with:
          duration: 1s
      - name: WAIT_APPROVAL
        desc: The team of the shop says yes
      - name: SCRIPT_RUN
        desc: Open the doors
        with:
          run: echo the shop has its new prices
          onRollback: echo the old prices are back
"""

ANALYSIS = "console-analysis"
SLOW_AFTER = 14
"""Evaluations after which the canary is slow."""
METRICS = [
    {
        "provider": "prometheus",
        "query": 'sum(rate(errors_total{app="{{ .App.Name }}"}[1m]))',
        "interval": "1s",
        "expected": {"max": 0.1},
    },
    {
        "provider": "prometheus",
        "query": 'latency_seconds{app="shop", variant="{{ .Variant.Name }}"}',
        "interval": "1s",
        "strategy": "CANARY_BASELINE",
        "deviation": "HIGH",
        "failureLimit": 2,
    },
]

PAGE = """\
<!doctype html>
<title>PipeCD quickstart</title>
<h1>Hello from version 2</h1>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One file: what is opened, and what must be seen before it is taken."""

    name: str
    path: str
    wanted: str
    theme: str = "light"
    size: tuple[int, int] = DESKTOP
    scale: float = 1.5
    part: str = ""
    """What of the page is taken; all that is in sight when it is empty."""


class Quickstart:
    """A running quickstart, and what git and pipectl do to it."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        self._folder = folder

    def commit(self, message: str, author: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            file = self.repository / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        by = f"{author} <{author.lower()}@localhost>"
        for arguments in (["add", "--all"], ["commit", "-qm", message, f"--author={by}"]):
            run(["git", "-C", str(self.repository), *arguments])

    def pipectl(self, *arguments: str) -> str:
        return run([str(self._folder / "pipectl"), *arguments])

    def wait(self, application: str, message: str, status: str) -> dict[str, Any]:
        """Wait until the deployment of a commit has a status or waits for approval; returns it."""
        for _ in polls(f"{application}: {message!r} has not become {status}"):
            listed = json.loads(self.pipectl("deployment", "list", "--app-name", application))
            for deployment in listed.get("deployments", []):
                found: dict[str, Any] = deployment
                states = {
                    f"{each['name']} {each['status_name']}" for each in found.get("stages", [])
                }
                if found["trigger"]["commit"]["message"] == message and (
                    status in states | {found["status_name"]}
                ):
                    return found
        raise AssertionError

    def approve(self, application: str, message: str, comment: str) -> None:
        found = self.wait(application, message, "WAIT_APPROVAL RUNNING")
        self.pipectl("deployment", "approve", str(found["id"]), "--comment", comment)

    def make_link(self) -> str:
        arguments = ["quickstart", "--data-dir", str(self._folder), "--link"]
        return run([str(BIN / "pipecd"), *arguments]).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--into", type=Path, default=IMAGES, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="NAME", help="e.g. console-analysis")
    arguments = parser.parse_args()
    is_wanted = {arguments.only}.__contains__ if arguments.only else lambda _: True
    try:
        find_chromium()
        build_console()
    except CannotBrowseError as error:
        print(f"no pictures: {error}", file=sys.stderr)
        return 1
    arguments.into.mkdir(parents=True, exist_ok=True)
    with launch_chromium() as browser:
        plain = browser.new_page()

        def write(picture: Picture, link: str) -> None:
            small = shrink(plain, take(browser, link, picture))
            (arguments.into / f"{picture.name}.png").write_bytes(small)
            print(f"{picture.name}.png: {len(small) / 1000:.0f} kB", flush=True)
            if len(small) > MOST_BYTES:
                raise SystemExit(f"{picture.name}.png is larger than {MOST_BYTES} bytes")

        if is_wanted(ANALYSIS):
            with run_analysis() as (site, picture):
                write(picture, site.make_link())
        if arguments.only != ANALYSIS:
            with run_quickstart(FOLDER) as quickstart:
                for picture in make_history(quickstart):
                    if is_wanted(picture.name):
                        write(picture, quickstart.make_link())
    return 0


@contextmanager
def run_analysis() -> Iterator[tuple[ConsoleSite, Picture]]:
    """A site where a canary was analysed and failed: its answers became slow after a while."""
    with (
        Monitoring() as monitoring,
        tempfile.TemporaryDirectory(prefix="pipecd-") as folder,
        serve_console(Path(folder), with_piped=False) as site,
    ):
        provider = {"name": "prometheus", "type": "PROMETHEUS"}
        config = {"analysisProviders": [{**provider, "config": {"address": monitoring.url}}]}
        site.piped.commit({"README": "an example"})
        site.piped.configure("scriptrun", {"name": "analysis", "config": config})
        site.piped.start()
        for _ in polls("the piped has not told its repositories"):
            if '"repositories"' in site.piped.pipectl("piped", "list", "--output", "json"):
                break
        site.add("shop", [{"name": "ANALYSIS", "with": {"duration": "40s", "metrics": METRICS}}])
        for _ in polls("the analysis has not failed"):
            found = site.deployments("shop")
            if found and found[0]["status_name"] == "FAILURE":
                break
        path = f"/deployments/{found[0]['id']}"
        yield site, Picture(name=ANALYSIS, path=path, wanted=".sign-of.bad", part=".panel.analysis")


class Monitoring(WebServer):
    """Answers like Prometheus: a rate of errors, and how long a canary and its baseline take."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: Counter[str] = Counter()
        self.give("/api/v1/query_range", self.tell)

    def tell(self, question: Question) -> Answer:
        query = question.query["query"][0]
        self._asked[query] += 1
        number = self._asked[query]
        chance = random.Random(f"{query} {number}")  # noqa: S311 - the same in every run
        middle = 0.02 if "errors" in query else 0.18
        if "canary" in query and number > SLOW_AFTER:
            middle *= 2.2
        values = [[0, str(abs(chance.gauss(middle, middle / 5)))] for _ in range(6)]
        data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
        return Answer(body=json.dumps({"status": "success", "data": data}).encode())


@contextmanager
def run_quickstart(folder: Path) -> Iterator[Quickstart]:
    """A quickstart that nobody had before, and that is gone afterwards."""
    if folder.exists():
        raise SystemExit(f"there is a {folder} already: remove it first")
    command = [str(BIN / "pipecd"), "quickstart", "--data-dir", str(folder)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            # The console calls who opens a link by the name that the server's user has here.
            env={**os.environ, "LOGNAME": "ada"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        try:
            for _ in polls("the quickstart is not ready"):
                if process.poll() is not None:
                    said.seek(0)
                    raise SystemExit(f"the quickstart ended: {said.read().decode()}")
                marker = folder / "quickstart.json"
                if marker.exists() and "website" in marker.read_text():
                    break
            yield Quickstart(folder)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_SECONDS)
            shutil.rmtree(folder, ignore_errors=True)


def make_history(quickstart: Quickstart) -> list[Picture]:
    """Make what the pictures show; returns which to take."""
    begin = "Say hello"
    quickstart.approve("hello", begin, "the first one")
    quickstart.wait("hello", begin, "SUCCESS")
    quickstart.wait("website", begin, "SUCCESS")
    quickstart.commit("Move the website to version 2", "Grace", {"website/public/index.html": PAGE})
    quickstart.wait("website", "Move the website to version 2", "SUCCESS")

    broken = "Publish to the new mirror"
    publish = 'echo "published: $(cat message.txt)"\n'
    publish += 'echo "mirror.example: connection refused" >&2\nexit 1\n'
    quickstart.commit(broken, "Ada", {"hello/publish.sh": publish})
    quickstart.approve("hello", broken, "go on")
    failed = quickstart.wait("hello", broken, "FAILURE")

    prices = "Change the prices for spring"
    quickstart.commit(prices, "Grace", {"shop/app.pipecd.yaml": SHOP})
    quickstart.pipectl(
        *("application", "add", "shop", "--piped", "quickstart", "--repo-id", "example"),
        *("--app-dir", "shop", "--labels", "env=production,team=checkout"),
    )
    waiting = quickstart.wait("shop", prices, "WAIT_APPROVAL RUNNING")

    edited = quickstart.repository.parent / "out" / "www" / "east" / "current" / "index.html"
    edited.write_text(PAGE.replace("version 2", "somebody in a hurry"))
    listed = json.loads(quickstart.pipectl("application", "list", "--app-name", "website"))
    website = f"/applications/{listed['applications'][0]['id']}"
    drifted = "[data-sync=OUT_OF_SYNC]"
    return [
        Picture(name="console-application", path=website, wanted=f"{drifted}, .diff-line.removed"),
        Picture(name="console-home", path="/", wanted="main a:text-is('shop')", size=LOW),
        Picture(name="console-deployment", path=f"/deployments/{failed['id']}", wanted=".log-line"),
        Picture(
            name="console-dark",
            path="/applications",
            wanted="main td:has-text('Out of sync')",
            theme="dark",
            size=LOW,
        ),
        Picture(
            name="console-phone",
            path=f"/deployments/{waiting['id']}",
            wanted="button:has-text('Approve')",
            size=PHONE,
        ),
    ]


def take(browser: Browser, link: str, picture: Picture) -> bytes:
    """Return a picture of a page as PNG. Raises SystemExit when it shows a path of this machine."""
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=picture.scale,
        color_scheme="dark" if picture.theme == "dark" else "light",
        is_mobile=picture.size == PHONE,
        has_touch=picture.size == PHONE,
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(link)
        wait_live(page)
        page.goto(str(page.evaluate("location.origin")) + picture.path)
        wait_live(page)
        expect(page.locator(picture.wanted).first).to_be_visible()
        page.wait_for_load_state("load")
        page.evaluate("document.fonts.ready")
        check_words(picture.name, page.locator("body").inner_text())
        if picture.part:
            return page.locator(picture.part).screenshot(animations="disabled", caret="hide")
        return page.screenshot(animations="disabled", caret="hide")
    finally:
        context.close()


def wait_live(page: Page) -> None:
    """Wait until the page hears of changes."""
    expect(page.locator("#connection[data-connection=online]")).to_be_attached()


def check_words(name: str, words: str) -> None:
    """Raise SystemExit for what tells where the picture was taken."""
    for told in (str(ROOT), str(Path.home()), socket.gethostname()):
        if told in words:
            raise SystemExit(f"{name} would show {told!r}")


def shrink(page: Page, png: bytes) -> bytes:
    """Return a PNG with a palette: the 256 commonest colours, and the nearest of them for others.

    A page has few colours; the rest are shades at the edges of letters.
    """
    drawn = page.evaluate(USE_PALETTE, base64.b64encode(png).decode())
    header = struct.pack(">IIBBBBB", drawn["width"], drawn["height"], 8, 3, 0, 0, 0)
    rows = zlib.compress(base64.b64decode(drawn["rows"]), 9)
    parts = ((b"IHDR", header), (b"PLTE", bytes(drawn["palette"])), (b"IDAT", rows), (b"IEND", b""))
    return SIGNATURE + b"".join(pack_chunk(kind, data) for kind, data in parts)


def pack_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def polls(failure: str) -> Iterator[None]:
    """Yield now and then until the time is up. Raises SystemExit then."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        yield
        time.sleep(0.3)
    raise SystemExit(failure)


def run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
