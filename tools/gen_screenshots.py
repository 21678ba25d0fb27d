# SPDX-License-Identifier: Apache-2.0
"""Take the pictures of the console that README and docs show, of a quickstart with a history.

    python tools/gen_screenshots.py             write docs/images/console-*.png anew
    python tools/gen_screenshots.py --into DIR  write them elsewhere

A quickstart runs in a temporary folder; git and pipectl make of it what people have after a while:
an approval that somebody waits for, a deployment that failed and was rolled back, a website that
was edited by hand. Debian's Chromium looks at it, signed in by a one-time link. The times in the
pictures are those of the run, so every run writes other files: it is no part of `make docs`.
"""

import argparse
import json
import os
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from pipecd_test_support.console_site import (
    PHONE,
    CannotBrowseError,
    build_console,
    find_chromium,
    launch_chromium,
)

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
CHANNELS = {2: 3, 6: 4}
"""Bytes of a pixel, by the coding of a PNG: colour, and colour with alpha."""

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
                states = {f"{each['name']} {each['status_name']}" for each in found["stages"]}
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
        # The console calls who opens it by the name that the person has on this machine.
        return run([str(BIN / "pipecd"), *arguments], env={**os.environ, "LOGNAME": "ada"}).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--into", type=Path, default=IMAGES, metavar="FOLDER")
    arguments = parser.parse_args()
    try:
        find_chromium()
        build_console()
    except CannotBrowseError as error:
        print(f"no pictures: {error}", file=sys.stderr)
        return 1
    arguments.into.mkdir(parents=True, exist_ok=True)
    with run_quickstart(FOLDER) as quickstart, launch_chromium() as browser:
        taken = {
            picture.name: take(browser, quickstart.make_link(), picture)
            for picture in make_history(quickstart)
        }
    for name, png in taken.items():
        small = shrink(png)
        (arguments.into / f"{name}.png").write_bytes(small)
        print(f"{name}.png: {len(small) / 1000:.0f} kB", flush=True)
        if len(small) > MOST_BYTES:
            raise SystemExit(f"{name}.png is larger than {MOST_BYTES} bytes")
    return 0


@contextmanager
def run_quickstart(folder: Path) -> Iterator[Quickstart]:
    """A quickstart that nobody had before, and that is gone afterwards."""
    if folder.exists():
        raise SystemExit(f"there is a {folder} already: remove it first")
    command = [str(BIN / "pipecd"), "quickstart", "--data-dir", str(folder)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
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


def shrink(png: bytes) -> bytes:
    """Return a PNG with a palette: the 256 commonest colours, and the nearest of them for others.

    A page has few colours; the rest are shades at the edges of letters.
    """
    width, height, pixels = read_pixels(png)
    counted = Counter(pixels)
    palette = [colour for colour, _ in counted.most_common(256)]
    place = {colour: number for number, colour in enumerate(palette)}
    for colour in counted.keys() - place.keys():
        place[colour] = find_nearest(colour, palette)
    numbers = bytes(place[pixel] for pixel in pixels)
    rows = b"".join(b"\0" + numbers[at : at + width] for at in range(0, len(numbers), width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(rows, 9)))
    return SIGNATURE + b"".join(pack_chunk(*part) for part in (*parts, (b"IEND", b"")))


def find_nearest(colour: bytes, palette: Sequence[bytes]) -> int:
    """Return the place of the colour in the palette that looks most like another."""

    def distance(number: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(colour, palette[number], strict=True))

    return min(range(len(palette)), key=distance)


def read_pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Return width, height and the colours of a PNG of 8 bits a channel, as Chromium writes it."""
    packed, at, header = b"", len(SIGNATURE), b""
    while at < len(png):
        [length] = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        header = data if kind == b"IHDR" else header
        packed += data if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, coding, *_ = struct.unpack(">IIBBBBB", header)
    if depth != 8 or coding not in CHANNELS:
        raise SystemExit(f"Chromium wrote a PNG of another kind: {depth} bits, coding {coding}")
    channels = CHANNELS[coding]
    raw = zlib.decompress(packed)
    stride = width * channels
    pixels: list[bytes] = []
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        row = bytearray(raw[start + 1 : start + 1 + stride])
        undo_filter(raw[start], row, above, channels)
        pixels += [bytes(row[x : x + 3]) for x in range(0, stride, channels)]
        above = row
    return width, height, pixels


def undo_filter(kind: int, row: bytearray, above: bytearray, channels: int) -> None:
    """Turn what a row of a PNG says about its neighbours into colours, in place."""
    for x in range(len(row)):
        left = row[x - channels] if x >= channels else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[x]
        elif kind == 3:
            guess = (left + above[x]) // 2
        elif kind == 4:
            corner = above[x - channels] if x >= channels else 0
            guess = predict(left, above[x], corner)
        else:
            return
        row[x] = (row[x] + guess) & 255


def predict(left: int, above: int, corner: int) -> int:
    """Return the neighbour that is nearest to what all three suggest, as PNG defines it."""
    whole = left + above - corner
    return min((left, above, corner), key=lambda each: abs(whole - each))


def pack_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def polls(failure: str) -> Iterator[None]:
    """Yield now and then until the time is up. Raises SystemExit then."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        yield
        time.sleep(0.3)
    raise SystemExit(failure)


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
