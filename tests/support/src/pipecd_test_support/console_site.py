# SPDX-License-Identifier: Apache-2.0
"""A control plane with its console, a piped with plugins, and a browser that looks at it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from pipecd_test_support.piped_site import BIN, LIMIT, PipedSite, ServerProcess, register_site

ROOT: Final = Path(__file__).parents[4]
BUILDER: Final = ROOT / "tools" / "build_console.py"
AXE: Final = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BUILD_SECONDS: Final = 600
PATIENCE_MS: Final = 60_000
"""How long a page may take to show something on a machine that others use as well."""

DESKTOP: Final = (1440, 900)
PHONE: Final = (390, 844)

expect.set_options(timeout=PATIENCE_MS)


class CannotBrowseError(Exception):
    """There is no browser, or no console: says why."""


def find_chromium() -> Path:
    """Returns an installed Chromium. Raises CannotBrowseError without one."""
    named = os.environ.get("PIPECD_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if not found or not Path(found).exists():
        raise CannotBrowseError("there is no Chromium: `apt-get install chromium`, or name one")
    return Path(found)


def build_console() -> None:
    """Builds the console unless it is of these sources. Raises CannotBrowseError if it cannot."""
    done = subprocess.run(
        [sys.executable, BUILDER],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise CannotBrowseError(f"the console cannot be built: {done.stderr[-2000:]}")
    if not AXE.is_file():
        raise CannotBrowseError(f"there is no {AXE}: `make console ARGS=--anew`")


@contextmanager
def launch_chromium() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody in front of a page. What the page reports as a fault is kept in `faults`."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.faults: list[str] = []
        self.requested: set[str] = set()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._note_console)
        page.on("request", lambda request: self.requested.add(request.url))

    def _note_console(self, message: Any) -> None:
        # Refused scripts and styles are told here alone.
        if message.type == "error" and "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def sign_in(self, password: str, *, name: str = "admin") -> None:
        """Signs in with the form, from any page."""
        self.submit_sign_in(password, name=name)
        expect(self.page.locator("#connection")).to_be_attached()

    def submit_sign_in(self, password: str, *, name: str = "admin") -> None:
        """Sends the form, whatever comes of it."""
        page = self.page
        page.get_by_label("User name").fill(name)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in", exact=True).click()

    def wait_live(self) -> None:
        """Waits until the page hears of changes."""
        expect(self.page.locator("#connection[data-connection=online]")).to_be_attached()

    def confirm(self, action: str, **fields: str) -> None:
        """Answers the question that is open."""
        dialog = self.page.get_by_role("dialog")
        for label, text in fields.items():
            dialog.get_by_label(label).fill(text)
        dialog.get_by_role("button", name=action, exact=True).click()
        expect(dialog).to_have_count(0)

    def stage(self, name: str, status: str, *, nth: int = 0) -> Locator:
        """The card of a stage in a status."""
        cards = self.page.locator(f"button[data-stage={name}][data-status={status}]")
        return cards.nth(nth)

    def expect_deployment(self, status: str) -> None:
        expect(self.page.locator(f"[data-status={status}]").first).to_be_visible()

    def find_axe_faults(self) -> list[str]:
        """Returns what axe finds on the page that is serious, with its place."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate(
            "() => axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)"
        )
        return [
            f"{each['id']}: {each['help']} at {node['target']}: {node.get('failureSummary', '')}"
            for each in found
            if each["impact"] in {"serious", "critical"}
            for node in each["nodes"]
        ]


MakeVisitor = Callable[..., Visitor]
"""Makes somebody with a browser of their own; see `visit`."""


class ConsoleSite:
    """A control plane and a piped that has plugins, with what people and git do to them."""

    def __init__(self, folder: Path, server: ServerProcess, piped: PipedSite) -> None:
        self.folder = folder
        self.server = server
        self.piped = piped

    @property
    def url(self) -> str:
        return f"http://{self.server.address}"

    @property
    def password(self) -> str:
        return (self.server.folder / "data" / "admin.password").read_text().strip()

    def make_link(self) -> str:
        """Returns a link that signs a browser in, once."""
        data = self.server.folder / "data"
        done = subprocess.run(
            [BIN / "pipecd", "sign-in-link", "--project", "default", "--data-dir", data],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        return done.stdout.strip()

    def add(
        self,
        path: str,
        stages: Iterable[Mapping[str, Any]],
        *,
        labels: Mapping[str, str] | None = None,
        message: str = "a change",
        files: Mapping[str, str] | None = None,
        flags: Iterable[str] = (),
        **spec: Any,
    ) -> str:
        """Commits an application, registers it, and returns its id. Commits deploy it."""
        spec = {"name": path, "labels": dict(labels or {}), **spec}
        if stages := list(stages):
            spec |= {"pipeline": {"stages": stages}, "planner": {"alwaysUsePipeline": True}}
        document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
        files = {f"{path}/{name}": text for name, text in (files or {}).items()}
        self.piped.commit({f"{path}/app.pipecd.yaml": json.dumps(document), **files}, message)
        named = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        arguments = ["--repo-id", "example", "--app-dir", path, "--piped-id", self.piped.piped_id]
        arguments += ["--labels", named] if named else []
        made = self.piped.pipectl("application", "add", path, *arguments, *flags)
        return str(json.loads(made)["application_id"])

    def deployments(self, name: str) -> list[dict[str, Any]]:
        """The deployments of an application, newest first."""
        answer = json.loads(self.piped.pipectl("deployment", "list", "--app-name", name))
        return list(answer.get("deployments", []))


@contextmanager
def serve_console(folder: Path, *, with_piped: bool = True) -> Iterator[ConsoleSite]:
    """A control plane and, if wanted, a piped at work."""
    server = ServerProcess(folder / "server")
    server.folder.mkdir()
    server.start()
    piped_folder = folder / "agent"
    piped_folder.mkdir()
    piped = register_site(piped_folder, server)
    try:
        if with_piped:
            piped.commit({"README": "an example"})
            targets = [
                {"name": name, "config": {"path": str(folder / "sites" / name)}}
                for name in ("east", "west")
            ]
            piped.configure(
                "wait",
                "waitapproval",
                "scriptrun",
                {"name": "files", "deployTargets": targets},
            )
            piped.start("--live-state-interval", "1s")
        yield ConsoleSite(folder, server, piped)
    finally:
        piped.close()
        server.stop()


@contextmanager
def visit(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    theme: str = "light",
) -> Iterator[Visitor]:
    """Somebody with a browser of their own: no cookie, no cache."""
    width, height = size
    is_phone = width < 500
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        has_touch=is_phone,
        is_mobile=is_phone,
    )
    try:
        yield Visitor(context, context.new_page(), url)
    finally:
        context.close()
