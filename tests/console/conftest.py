# SPDX-License-Identifier: Apache-2.0
"""A browser, and a site for all journeys; they run in one worker, because they share both."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser

from pipecd_test_support.console_site import (
    DESKTOP,
    CannotBrowseError,
    ConsoleSite,
    MakeVisitor,
    Visitor,
    build_console,
    find_chromium,
    launch_chromium,
    serve_console,
    visit,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/console" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("console"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def console() -> None:
    """The console is built, and there is a browser; else everything here is skipped."""
    try:
        find_chromium()
        build_console()
    except CannotBrowseError as error:
        pytest.skip(str(error))


# Not for the whole session: while it is open, no test of this process can have an event loop.
@pytest.fixture(scope="module")
def browser(console: None) -> Iterator[Browser]:
    with launch_chromium() as launched:
        yield launched


@pytest.fixture(scope="session")
def site(console: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """A control plane and a piped at work, shared by the journeys."""
    with serve_console(tmp_path_factory.mktemp("console")) as serving:
        yield serving


@pytest.fixture
def visitor(browser: Browser, site: ConsoleSite) -> Iterator[MakeVisitor]:
    """Makes people in front of pages; each page must be free of faults at the end."""
    made: list[Visitor] = []
    with ExitStack() as opened:

        def make(size: tuple[int, int] = DESKTOP, theme: str = "light") -> Visitor:
            made.append(opened.enter_context(visit(browser, site.url, size=size, theme=theme)))
            return made[-1]

        yield make
        faults = [fault for each in made for fault in each.faults]
        strangers = {url for each in made for url in each.requested if not url.startswith(site.url)}
    assert not faults
    assert not {url for url in strangers if url.startswith("http")}, "a request to another host"
