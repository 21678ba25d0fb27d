# SPDX-License-Identifier: Apache-2.0
"""What somebody in front of the console waits for, in Debian's Chromium against real programs.

A line that a script prints until it is on the page, the first page (bytes, time, time with a CPU
four times slower), a log of a million lines, and what fifty tabs that nobody touches cost the
server. Times are those of the browser's own clock, from the start of a navigation; nothing is
cached. Bytes are counted between browser and server, whoever of the browser asks for them.

python bench/bench_page.py [--lines N] [--tabs N]
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench_agents import cpu_seconds, started
from bench_console import fill
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from report import Bar, info, report
from world import World, world

from pipecd_test_support.console_site import CannotBrowseError, build_console, find_chromium
from pipecd_wire.model import deployment_pb2

BIN = Path(sys.executable).parent
APPLICATIONS = 200
ROUNDS = 5
TRICKLE_LINES = 60
IDLE_SECONDS = 30.0
TABS_OF_BROWSER = 10
PATIENCE_MS = 120_000
ONLINE = "#connection[data-connection=online]"
CONTENT = "main section li a"

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: trickle
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: |
            until [ -e {gate} ]; do sleep 0.1; done
            for n in $(seq {lines}); do date +%s%N; sleep 0.25; done
"""

# Notes when something is on the page: at the frame that shows it.
NOTE_SEEN = """
([selector, text]) => {
  const look = () => {
    const found = [...document.querySelectorAll(selector)].some(e => e.textContent.includes(text))
    if (!found || window.seenAt !== undefined) return
    window.seenAt = 0
    requestAnimationFrame(() => setTimeout(() => { window.seenAt = performance.now() }))
  }
  const all = {childList: true, subtree: true, characterData: true}
  new MutationObserver(look).observe(document, all)
  look()
}
"""
# Notes how old each line is, in milliseconds, when the frame that shows it is drawn.
NOTE_LINES = """
() => {
  window.ages = new Map()
  const look = () => requestAnimationFrame(() => {
    const now = performance.timeOrigin + performance.now()
    for (const line of document.querySelectorAll('.log-text')) {
      const text = line.textContent
      if (/^[0-9]{19}$/.test(text) && !window.ages.has(text)) {
        window.ages.set(text, now - Number(text.slice(0, 16)) / 1000)
      }
    }
  })
  const all = {childList: true, subtree: true, characterData: true}
  new MutationObserver(look).observe(document, all)
}
"""


class Wire:
    """Passes a browser's bytes on to the server and back, and counts those that come back."""

    def __init__(self, host: str, port: int) -> None:
        self.received = 0
        self._target = (host, port)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, back, counts=False))
                tasks.create_task(self._copy(there, writer, counts=True))
        except* OSError:
            pass  # a page that is closed ends its connections as it likes

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, counts: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                self.received += len(data) if counts else 0
                target.write(data)
                await target.drain()
        finally:
            target.close()


@asynccontextmanager
async def counting(address: str) -> AsyncIterator[tuple[Wire, str]]:
    """A way to a server that counts; yields it and its URL."""
    host, _, port = address.rpartition(":")
    wire = Wire(host, int(port))
    async with await asyncio.start_server(wire.pass_on, "127.0.0.1", 0) as listening:
        yield wire, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def sign_in(browser: Browser, data_folder: Path) -> tuple[str, Any]:
    """Opens a one-time link; returns the address of the console, and what a browser keeps."""
    command = ["sign-in-link", "--project", "default", "--data-dir", str(data_folder)]
    asked = await asyncio.create_subprocess_exec(BIN / "pipecd", *command, stdout=subprocess.PIPE)
    link, _ = await asked.communicate()
    context = await browser.new_context()
    try:
        page = await open_page(context, link.decode().strip())
        await page.wait_for_selector(ONLINE, state="attached")
        return str(await page.evaluate("location.origin")), await context.storage_state()
    finally:
        await context.close()


async def open_page(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(url)
    return page


@asynccontextmanager
async def fresh(browser: Browser, state: Any) -> AsyncIterator[BrowserContext]:
    """A browser that is signed in and has nothing in its cache."""
    context = await browser.new_context(
        storage_state=state, viewport={"width": 1440, "height": 900}
    )
    try:
        yield context
    finally:
        await context.close()


async def wait_true(page: Page, expression: str) -> None:
    """Waits for something on the page; its policy forbids that it is asked from within."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.05)


async def time_page(
    browser: Browser, state: Any, url: str, seen: tuple[str, str], *, slower: float = 1
) -> float:
    """Returns the seconds from the start of a navigation until something is on the page.

    The page must then hear a key: `?` opens its list of shortcuts.
    """
    async with fresh(browser, state) as context:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        if slower > 1:
            session = await context.new_cdp_session(page)
            await session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
        await page.add_init_script(f"({NOTE_SEEN})({json.dumps(seen)})")
        await page.goto(url)
        await wait_true(page, "window.seenAt > 0")
        milliseconds = float(await page.evaluate("window.seenAt"))
        await page.keyboard.press("?")
        await page.get_by_role("dialog", name="Shortcuts").wait_for()
        return milliseconds / 1000


async def count_bytes(browser: Browser, state: Any, origin: str, path: str, seen: str) -> float:
    """Returns the kilobytes that a browser without a cache receives until a page is complete."""
    async with (
        counting(origin.removeprefix("http://")) as (wire, url),
        fresh(browser, state) as context,
    ):
        page = await open_page(context, url + path)
        await page.locator(seen).first.wait_for()
        await page.wait_for_selector(ONLINE, state="attached")
        await page.wait_for_timeout(1000)  # what a page asks for last
        return wire.received / 1000


async def measure_first_page(browser: Browser, state: Any, origin: str) -> None:
    size = await count_bytes(browser, state, origin, "/", CONTENT)
    report("page.first page, packed, with its data", size, "kB", Bar("<=", 250))
    for name, slower, bar in (("", 1, 1.0), (", 4 x slower CPU", 4, 3.0)):
        times = [
            await time_page(browser, state, f"{origin}/", (CONTENT, ""), slower=slower)
            for _ in range(ROUNDS)
        ]
        report(f"page.interactive{name}", statistics.median(times), "s", Bar("<=", bar))
        info(f"page.interactive{name}, slowest of {ROUNDS}", max(times), "s")


async def measure_long_log(browser: Browser, state: Any, origin: str, lines: int) -> None:
    path = "/deployments/deployment-0?stage=s1"
    for name, number in (("its end", lines - 1), ("a line in the middle", lines // 2)):
        place = path if number == lines - 1 else f"{path}#L{number + 1}"
        seen = (".log-line", f"{number} of a long log")
        times = [await time_page(browser, state, origin + place, seen) for _ in range(ROUNDS)]
        median = statistics.median(times)
        report(f"page.log of {lines} lines, {name}", median, "s", Bar("<=", 2))
        size = await count_bytes(browser, state, origin, place, f"text={seen[1]}")
        info(f"page.log of {lines} lines, {name}, received", size, "kB")
    whole = sum(len(f"{number} of a long log") for number in range(lines)) / 1000
    first_page = await count_bytes(browser, state, origin, "/", CONTENT)
    share = max(0.0, size - first_page) / whole * 100
    report(f"page.log of {lines} lines, share of {whole:.0f} kB", share, "%", Bar("<=", 5))


async def measure_idle(
    browser: Browser, state: Any, origin: str, server_id: int, tabs: int
) -> None:
    """Several browsers, because all tabs of one share one stream."""
    contexts = [
        await browser.new_context(storage_state=state)
        for _ in range(max(1, tabs // TABS_OF_BROWSER))
    ]
    try:
        for number in range(tabs):
            page = await open_page(contexts[number % len(contexts)], f"{origin}/")
            await page.wait_for_selector(ONLINE, state="attached")
        await asyncio.sleep(5)  # what a page asks for after it has opened
        used = cpu_seconds(server_id)
        await asyncio.sleep(IDLE_SECONDS)
        each_minute = (cpu_seconds(server_id) - used) / IDLE_SECONDS * 60
        name = f"page.server with {tabs} idle tabs of {len(contexts)} browsers"
        report(name, each_minute, "s/min", Bar("<=", 1.0))
    finally:
        for context in contexts:
            await context.close()


async def measure_lines(browser: Browser, running: World) -> None:
    """A script prints the time now and then; the page says how old each is when it is drawn."""
    gate = running.root / "gate"
    application = APPLICATION.format(gate=gate, lines=TRICKLE_LINES)
    running.write("trickle/app.pipecd.yaml", application)
    await running.add_application("trickle")
    [found] = await running.deployments_of(running.commit("trickle"), 1)
    planned = await running.until(
        found.id, lambda it: it.status > deployment_pb2.DEPLOYMENT_PENDING
    )
    origin, state = await sign_in(browser, running.root / "control-plane")
    async with fresh(browser, state) as context:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.add_init_script(f"({NOTE_LINES})()")
        await page.goto(f"{origin}/deployments/{found.id}?stage={planned.stages[0].id}")
        await page.wait_for_selector(ONLINE, state="attached")
        await page.locator(".log-line").filter(has_text=re.compile("date")).first.wait_for()
        gate.touch()
        await wait_true(page, f"window.ages.size === {TRICKLE_LINES}")
        ages = [float(age) for age in await page.evaluate("[...window.ages.values()]")]
    info("page.log line to browser, median", statistics.median(ages), "ms")
    report(
        "page.log line to browser, p95", statistics.quantiles(ages, n=20)[-1], "ms", Bar("<=", 300)
    )
    info("page.log line to browser, slowest", max(ages), "ms")


async def measure(browser: Browser, lines: int, tabs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        async with world(Path(folder)) as running:
            await measure_lines(browser, running)
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        await fill(Path(folder), APPLICATIONS, lines)
        server, _ = await started(folder)
        try:
            origin, state = await sign_in(browser, Path(folder))
            await measure_first_page(browser, state, origin)
            await measure_long_log(browser, state, origin, lines)
            await measure_idle(browser, state, origin, server.pid, tabs)
        finally:
            server.terminate()
            await server.wait()


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--tabs", type=int, default=50)
    arguments = parser.parse_args()
    try:
        chromium = find_chromium()
        build_console()
    except CannotBrowseError as error:
        print(f"bench page: skipped, {error}", flush=True)
        return
    info("page.load average before", os.getloadavg()[0], "processes")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            await measure(browser, arguments.lines, arguments.tabs)
        finally:
            await browser.close()
    info("page.load average after", os.getloadavg()[0], "processes")


if __name__ == "__main__":
    asyncio.run(main())
