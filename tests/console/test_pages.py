# SPDX-License-Identifier: Apache-2.0
"""Every page: nothing that axe calls serious in both themes, nothing that a phone cuts off."""

from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, expect

from pipecd_test_support.console_site import (
    PHONE,
    ConsoleSite,
    MakeVisitor,
    Visitor,
    serve_console,
    visit,
)

THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
PAGES = (
    "/",
    "/applications",
    "/deployments",
    "/pipeds",
    "/chains",
    "/events",
    "/traces",
    "/previews",
    "/insights",
    "/audit",
    "/settings/members",
    "/settings/api-keys",
    "/settings/sessions",
    "/settings/windows",
    "/settings/secrets",
    "/nowhere",
)


@pytest.fixture(scope="module")
def places(site: ConsoleSite) -> list[str]:
    """All pages, those of one application and one deployment too."""
    run = {"name": "SCRIPT_RUN", "with": {"run": "echo seen", "onRollback": "echo undone"}}
    application = site.add("seen", [run, {"name": "WAIT_APPROVAL"}], labels={"team": "blue"})
    site.piped.pipectl("deployment", "wait", "seen", "--status", "RUNNING")
    deployment = site.deployments("seen")[0]["id"]
    own = (
        f"/applications/{application}",
        f"/applications/{application}?tab=history",
        f"/deployments/{deployment}",
    )
    return [*PAGES, *own]


def test_nothing_serious_for_axe(
    visitor: MakeVisitor, site: ConsoleSite, places: list[str]
) -> None:
    """Each page is opened once and judged in both themes: opening it takes longest."""
    person = visitor()
    person.open("/")
    assert find_faults(person) == {}, "the sign-in page"
    person.sign_in(site.password)
    found = {}
    for path in places:
        person.open(path)
        person.wait_live()
        expect(person.page.locator("main [role=status][aria-label=Loading]")).to_have_count(0)
        found[path] = find_faults(person)

    assert {path: faults for path, faults in found.items() if faults} == {}


def find_faults(person: Visitor) -> dict[str, list[str]]:
    """What axe finds, by theme; those without a fault are left out."""
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        person.page.emulate_media(color_scheme=theme)
        if faults := person.find_axe_faults():
            found[theme] = faults
    return found


def test_nothing_sticks_out_of_a_phone(
    visitor: MakeVisitor, site: ConsoleSite, places: list[str]
) -> None:
    person = visitor(size=PHONE)
    person.open("/")
    person.sign_in(site.password)
    widths = {}
    for path in places:
        person.open(path)
        person.wait_live()
        expect(person.page.locator("main [role=status][aria-label=Loading]")).to_have_count(0)
        widths[path] = person.page.evaluate("document.documentElement.scrollWidth")
        if path.startswith("/settings/"):
            # Its underline lies one pixel below the box, on the line of the tabs.
            expect(person.page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.95)

    assert {path: width for path, width in widths.items() if width > PHONE[0]} == {}


def test_an_empty_page_says_what_comes_next(browser: Browser, tmp_path: Path) -> None:
    """Nothing there and nothing found are two things, and only the second is about filters."""
    with serve_console(tmp_path, with_piped=False) as site, visit(browser, site.url) as person:
        page = person.page
        person.open("/events")
        person.sign_in(site.password)
        expect(page.get_by_role("heading", name="There is no event yet")).to_be_visible()
        expect(page.get_by_label("An event in an application file")).to_be_visible()
        person.open("/events?status=failed")
        expect(page.get_by_role("heading", name="No event is like that")).to_be_visible()
        page.get_by_role("link", name="show all events").click()
        expect(page.get_by_role("heading", name="There is no event yet")).to_be_visible()
        person.open("/chains")
        expect(page.get_by_text("pipectl chain list")).to_be_visible()
        person.open("/pipeds")
        page.get_by_role("button", name="More for agent").click()
        page.get_by_role("menuitem", name="Disable").click()
        person.confirm("Disable")
        expect(page.get_by_role("heading", name="Every piped is disabled")).to_be_visible()
        page.get_by_role("checkbox", name="Show disabled ones (1)").check()
        page.get_by_role("button", name="More for agent").click()
        page.get_by_role("menuitem", name="Delete").click()
        person.confirm("Delete", **{"Type agent to confirm": "agent"})
        expect(page.get_by_role("heading", name="There is no piped yet")).to_be_visible()
        expect(page.get_by_text("pipectl piped register --name NAME")).to_be_visible()
        person.open("/traces")
        expect(page.get_by_role("heading", name="There is no trace yet")).to_be_visible()
        person.open("/previews")
        expect(page.get_by_role("heading", name="No piped has told of a repo")).to_be_visible()
        assert person.find_axe_faults() == []
