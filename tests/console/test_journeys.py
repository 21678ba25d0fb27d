# SPDX-License-Identifier: Apache-2.0
"""What people do with the console, in a real browser, with a real server, piped and plugins."""

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from pipecd_test_support.console_site import PHONE, ConsoleSite, MakeVisitor, serve_console, visit

PAYLOAD = "<img src=x onerror=window.stolen=1>"
APPROVAL = {"name": "WAIT_APPROVAL"}


def script(run: str, **more: object) -> dict[str, object]:
    return {"name": "SCRIPT_RUN", "with": {"run": run, **more}}


def test_a_sign_in_leads_to_the_page_that_was_wanted(
    visitor: MakeVisitor, site: ConsoleSite
) -> None:
    person = visitor()
    person.open("/pipeds")
    person.submit_sign_in("wrong")
    expect(person.page.get_by_text("Signing in did not work")).to_be_visible()

    person.sign_in(site.password)

    expect(person.page.get_by_role("heading", name="Pipeds")).to_be_visible()
    expect(person.page.get_by_text("scriptrun").first).to_be_visible()
    cookies = {each["name"]: each for each in person.context.cookies()}
    assert cookies["token"]["httpOnly"]


def test_a_link_signs_in_once(visitor: MakeVisitor, site: ConsoleSite) -> None:
    link = site.make_link()
    first, second = visitor(), visitor()
    first.page.goto(link)
    expect(first.page.locator("#connection")).to_be_attached()
    second.page.goto(link)
    expect(second.page.locator("#connection")).to_have_count(0)


def test_a_deployment_is_followed_and_a_second_person_approves(
    visitor: MakeVisitor, site: ConsoleSite
) -> None:
    """Labels, descriptions, comments, commit messages and log lines stay text."""
    gate = site.folder / "gate"
    loud = script(
        f"printf '\\033[31mred\\033[0m\\n'; echo 'needle {PAYLOAD}'; seq 1 300; "
        f"until [ -e '{gate}' ]; do sleep 0.1; done; echo the gate is open"
    )
    site.add(
        "hello",
        [{**loud, "desc": PAYLOAD}, APPROVAL, script("echo published")],
        labels={"team": PAYLOAD},
        message=f"Say {PAYLOAD} hello",
    )
    first, second = visitor(), visitor()
    first.open("/deployments?name=hello")
    first.sign_in(site.password)
    first.wait_live()
    page = first.page
    page.get_by_role("link", name="hello").first.click()
    expect(page.get_by_role("heading", name=f"Say {PAYLOAD} hello")).to_be_visible()
    expect(page.get_by_text(f"team: {PAYLOAD}").first).to_be_visible()
    expect(first.stage("SCRIPT_RUN", "STAGE_RUNNING")).to_contain_text(PAYLOAD)

    lines = page.locator(".log-line")
    expect(lines.filter(has_text=re.compile(r"^\s*\d+300$"))).to_be_visible()
    gate.touch()
    expect(lines.filter(has_text="the gate is open").last).to_be_visible()
    expect(first.stage("WAIT_APPROVAL", "STAGE_RUNNING")).to_be_visible()
    first.stage("SCRIPT_RUN", "STAGE_SUCCESS").click()
    page.get_by_label("Search the log").fill("needle <img")
    expect(page.get_by_text("1 of 2")).to_be_visible()
    expect(lines.filter(has_text=f"needle {PAYLOAD}").last).to_be_visible()
    expect(page.locator(".log-text .fg-1", has_text="red")).to_be_visible()

    second.page.goto(site.make_link())
    expect(second.page.locator("#connection")).to_be_attached()
    second.page.goto(page.url)
    second.page.get_by_role("button", name="Approve").click()
    second.confirm("Approve", Comment=f"looks good {PAYLOAD}")
    first.expect_deployment("DEPLOYMENT_SUCCESS")
    expect(page.get_by_text(f"looks good {PAYLOAD}").first).to_be_visible()
    for each in (page, second.page):
        assert each.evaluate("window.stolen") is None


def test_a_line_has_an_address(visitor: MakeVisitor, site: ConsoleSite) -> None:
    site.add("long", [script("seq 1 5000")])
    person = visitor()
    person.open("/deployments?name=long")
    person.sign_in(site.password)
    person.page.get_by_role("link", name="long").first.click()
    person.expect_deployment("DEPLOYMENT_SUCCESS")
    person.open(re.sub(r"^.*?(/deployments/[^?#]*).*$", r"\1", person.page.url) + "#L1234")

    marked = person.page.locator("#line-1234.marked")
    expect(marked).to_be_in_viewport()
    with person.page.expect_download() as downloading:
        person.page.get_by_role("link", name="Download the log").click()
    text = Path(downloading.value.path()).read_text()
    assert "4999" in text
    assert person.page.locator(".log-line").count() < 200, "only the lines in sight are there"


def test_what_broke_is_two_clicks_from_its_log_and_was_rolled_back(
    visitor: MakeVisitor, site: ConsoleSite
) -> None:
    site.add(
        "fragile",
        [script("echo building"), script("echo it broke here; exit 3", onRollback="echo undone")],
    )
    person = visitor()
    person.open("/")
    person.sign_in(site.password)
    broken = person.page.get_by_role("region", name="Broken")
    broken.get_by_role("link", name="Log of SCRIPT_RUN").click()
    expect(person.page.locator(".log-line", has_text="it broke here").first).to_be_visible()
    expect(person.stage("SCRIPT_RUN_ROLLBACK", "STAGE_SUCCESS")).to_be_visible()

    person.page.get_by_role("link", name="fragile").first.click()
    expect(person.page.get_by_role("heading", name="Held")).to_be_visible()


def test_an_application_is_rolled_back_with_the_difference_first(
    visitor: MakeVisitor, site: ConsoleSite
) -> None:
    site.add("back", [script("cat text")], files={"text": "the first\n"}, message="The first")
    person = visitor()
    person.open("/deployments?name=back&status=succeeded")
    person.sign_in(site.password)
    expect(person.page.get_by_role("link", name="back", exact=True)).to_have_count(1)
    site.piped.commit({"back/text": "the second\n"}, "The second")
    expect(person.page.get_by_role("link", name="back", exact=True)).to_have_count(2)
    person.page.get_by_role("link", name="back", exact=True).first.click()
    changes = person.page.get_by_role("region", name="What it changes")
    changes.get_by_role("button", name="Show").click()
    expect(changes.locator(".diff-line.removed", has_text="the first")).to_be_visible()
    expect(changes.locator(".diff-line.added", has_text="the second")).to_be_visible()
    expect(changes.get_by_text("back/text").first).to_be_visible()
    assert "changes=shown" in person.page.url
    assert person.find_axe_faults() == []
    person.page.get_by_role("link", name="back").first.click()

    person.page.get_by_role("link", name="Roll back").click()
    person.page.get_by_role("button", name="Roll back to this").click()
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_text("back/text")).to_be_visible()
    person.confirm("Roll back", Reason="the second is bad")

    expect(person.page.get_by_role("heading", name="Pinned")).to_be_visible()
    expect(person.page.get_by_text("the second is bad").first).to_be_visible()


def test_drift_shows_with_its_difference(visitor: MakeVisitor, site: ConsoleSite) -> None:
    application = site.add(
        "website",
        [],
        files={"public/index.html": "<h1>hello</h1>\n"},
        flags=["--deploy-target", "files=east"],
        plugins={"files": {"source": "public", "into": "website"}},
    )
    person = visitor()
    person.open(f"/applications/{application}")
    person.sign_in(site.password)
    expect(person.page.get_by_text("In sync").first).to_be_visible()
    tree = person.page.get_by_role("region", name="What runs")
    expect(tree.get_by_role("button", name="index.html")).to_be_visible()
    deployed = next((site.folder / "sites" / "east" / "website").rglob("index.html"))
    deployed.chmod(0o644)
    deployed.write_text(f"<h1>changed by hand {PAYLOAD}</h1>\n")

    expect(person.page.locator("[data-sync=OUT_OF_SYNC]")).to_be_visible()
    expect(person.page.locator(".diff-line.removed", has_text=PAYLOAD)).to_be_visible()
    tree.get_by_role("button", name="index.html").click()
    expect(person.page.get_by_role("dialog", name="index.html")).to_be_visible()
    assert person.page.evaluate("window.stolen") is None


def test_an_application_that_git_offers_is_added(visitor: MakeVisitor, site: ConsoleSite) -> None:
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "offered", "pipeline": {"stages": [script("echo hi")]}},
    }
    site.piped.commit({"offered/app.pipecd.yaml": json.dumps(document)})
    person = visitor()
    person.open("/applications")
    person.sign_in(site.password)
    person.page.get_by_role("button", name=re.compile("found in git")).click()
    person.page.get_by_role("button", name="Choose offered").click()
    person.page.get_by_role("button", name="Add offered").click()

    expect(person.page.get_by_role("heading", name="offered")).to_be_visible()
    expect(person.page.get_by_role("link", name="open").first).to_be_visible()


def test_applications_are_found_by_label_and_name(visitor: MakeVisitor, site: ConsoleSite) -> None:
    site.add("shop-red", [script("true")], labels={"colour": "red"})
    site.add("shop-blue", [script("true")], labels={"colour": "blue"})
    person = visitor()
    person.open("/applications?text=shop")
    person.sign_in(site.password)
    rows = person.page.get_by_role("row").filter(has_text="shop-")
    expect(rows).to_have_count(2)
    person.page.get_by_role("group", name="colour").get_by_role("checkbox", name="red").check()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("shop-red")
    assert "label=colour%3Ared" in person.page.url
    person.page.reload()
    expect(rows).to_have_count(1)


def test_an_api_key_is_made_and_revoked(visitor: MakeVisitor, site: ConsoleSite) -> None:
    person = visitor()
    person.open("/settings/api-keys")
    person.sign_in(site.password)
    person.page.get_by_role("button", name="Make a key").click()
    person.page.get_by_label("Name").fill("robot")
    person.page.get_by_role("button", name="Make the key").click()
    key = person.page.locator("#made-key").inner_text()
    assert len(key) > 20
    person.page.get_by_role("button", name="I have kept the key").click()
    row = person.page.get_by_role("row").filter(has_text="robot")
    expect(row).to_contain_text("Read only")
    row.get_by_role("button", name="Revoke robot").click()
    person.confirm("Revoke")
    expect(row).to_have_count(0)


def test_the_end_of_a_session_shows_at_once_in_open_tabs(
    visitor: MakeVisitor, site: ConsoleSite
) -> None:
    mine, theirs = visitor(), visitor()
    theirs.page.goto(site.make_link())
    theirs.wait_live()
    mine.open("/settings/sessions")
    mine.sign_in(site.password)
    row = mine.page.get_by_role("row").filter(has_text="one-time link").first
    row.get_by_role("button").click()
    mine.confirm("End the session")

    expect(theirs.page.get_by_role("heading", name="Sign in to PipeCD")).to_be_visible()


def test_a_phone_approves_from_a_link(visitor: MakeVisitor, site: ConsoleSite) -> None:
    site.add("mobile", [APPROVAL])
    person = visitor(size=PHONE)
    person.open("/")
    person.sign_in(site.password)
    person.page.get_by_role("region", name="Waiting for me").get_by_role(
        "link", name="mobile"
    ).click()
    approve = person.page.get_by_role("button", name="Approve")
    expect(approve).to_be_in_viewport()
    width = person.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE[0], "nothing sticks out"
    approve.tap()
    person.confirm("Approve")
    person.expect_deployment("DEPLOYMENT_SUCCESS")


def test_everything_by_keyboard(visitor: MakeVisitor, site: ConsoleSite) -> None:
    site.add("keys", [APPROVAL])
    person = visitor()
    person.open("/")
    person.sign_in(site.password)
    person.wait_live()
    keyboard = person.page.keyboard
    keyboard.press("Tab")
    expect(person.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keyboard.press("?")
    expect(person.page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    keyboard.press("Escape")
    keyboard.press("g")
    keyboard.press("p")
    expect(person.page.get_by_role("heading", name="Pipeds")).to_be_visible()
    keyboard.press("Control+k")
    keyboard.type("keys: ")
    keyboard.press("Escape")
    keyboard.press("Control+k")
    keyboard.type("keys")
    option = person.page.get_by_role("option").filter(has_text="keys: a change")
    expect(option).to_be_visible()
    while option.get_attribute("aria-selected") != "true":
        keyboard.press("ArrowDown")
    keyboard.press("Enter")
    approve = person.page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    approve.focus()
    keyboard.press("Enter")
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_label("Comment")).to_be_focused()
    keyboard.press("Enter")
    person.expect_deployment("DEPLOYMENT_SUCCESS")


def test_twenty_tabs_stay_live(visitor: MakeVisitor, site: ConsoleSite) -> None:
    """A browser has six connections to a server: all tabs share one stream."""
    person = visitor()
    person.open("/deployments?name=tabs")
    person.sign_in(site.password)
    tabs = [person.page, *(person.context.new_page() for _ in range(19))]
    for tab in tabs[1:]:
        tab.goto(f"{site.url}/deployments?name=tabs")
    for tab in tabs:
        expect(tab.locator("#connection[data-connection=online]")).to_be_attached()

    site.add("tabs", [script("true")])

    for tab in tabs:
        expect(tab.get_by_role("link", name="tabs")).to_be_visible()


def test_a_page_comes_back_after_the_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    with serve_console(tmp_path, with_piped=False) as site, visit(browser, site.url) as person:
        person.open("/pipeds")
        person.sign_in(site.password)
        person.wait_live()
        site.server.kill()
        expect(person.page.get_by_text("No connection to the control plane")).to_be_visible()
        site.server.start()

        person.wait_live()
        expect(person.page.get_by_text("No connection to the control plane")).to_have_count(0)
        site.piped.pipectl("piped", "register", "--name", "newcomer")
        expect(person.page.get_by_role("heading", name="newcomer")).to_be_visible()
