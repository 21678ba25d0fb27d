# SPDX-License-Identifier: Apache-2.0
"""Every page: nothing that axe calls serious in both themes, nothing that a phone cuts off."""

import pytest
from playwright.sync_api import expect

from pipecd_test_support.console_site import PHONE, ConsoleSite, MakeVisitor

PAGES = (
    "/",
    "/applications",
    "/deployments",
    "/pipeds",
    "/chains",
    "/events",
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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_for_axe(
    visitor: MakeVisitor, site: ConsoleSite, places: list[str], theme: str
) -> None:
    person = visitor(theme=theme)
    person.open("/")
    assert person.find_axe_faults() == [], "the sign-in page"
    person.sign_in(site.password)
    found = {}
    for path in places:
        person.open(path)
        person.wait_live()
        expect(person.page.locator("main [role=status][aria-label=Loading]")).to_have_count(0)
        found[path] = person.find_axe_faults()

    assert {path: faults for path, faults in found.items() if faults} == {}


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

    assert {path: width for path, width in widths.items() if width > PHONE[0]} == {}
