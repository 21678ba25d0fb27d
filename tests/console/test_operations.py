# SPDX-License-Identifier: Apache-2.0
"""What people decide and set up with the console: each click reaches what it is meant for."""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pipecd_model.secrets import KeyPair, Opener
from pipecd_test_support.console_site import ConsoleSite, MakeVisitor, Visitor, serve_console

KEYS = KeyPair.new(2048)
REASON = "Reason, shown to everyone"


@pytest.fixture(scope="module")
def site(console: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """A site of its own, because what is done here stops all deployments; its piped has keys."""
    folder = tmp_path_factory.mktemp("operations")
    with serve_console(folder, with_piped=False) as serving:
        (folder / "private").write_bytes(KEYS.private)
        (folder / "public").write_bytes(KEYS.public)
        files = {
            "privateKeyFile": str(folder / "private"),
            "publicKeyFile": str(folder / "public"),
        }
        serving.piped.commit({"README": "an example"})
        serving.piped.configure(
            "wait", "scriptrun", secretManagement={"type": "KEY_PAIR", "config": files}
        )
        serving.piped.start()
        yield serving


@pytest.fixture
def person(visitor: MakeVisitor, site: ConsoleSite) -> Visitor:
    """Somebody who may do everything, and the piped is at work."""
    made: Visitor = visitor()
    made.open("/pipeds")
    made.sign_in(site.password)
    made.wait_live()
    expect(made.page.get_by_text("scriptrun").first).to_be_visible()
    return made


def script(run: str, **more: object) -> dict[str, object]:
    return {"name": "SCRIPT_RUN", "with": {"run": run, **more}}


def open_deployment(person: Visitor, name: str) -> None:
    """Goes to the newest deployment of an application."""
    person.open(f"/deployments?name={name}")
    person.page.get_by_role("link", name=name).first.click()


def choose(page: Page, menu: str, item: str) -> None:
    """Chooses from a menu."""
    page.get_by_role("button", name=menu).click()
    page.get_by_role("menuitem", name=item).click()


def test_a_failed_stage_is_retried_a_waiting_one_skipped_and_a_hopeless_one_rolled_back(
    person: Visitor, site: ConsoleSite
) -> None:
    """`onFailure: wait` leaves the choice to a person."""
    gate = site.folder / "retry-gate"
    pause = {"name": "WAIT", "with": {"duration": "1h"}}
    site.add(
        "patient",
        [script(f"echo trying; test -e '{gate}'"), pause, script("echo finished")],
        onFailure="wait",
    )
    page = person.page
    open_deployment(person, "patient")
    expect(person.stage("SCRIPT_RUN", "STAGE_FAILURE")).to_be_visible()
    gate.touch()
    page.get_by_role("button", name="Retry").click()
    person.confirm("Retry", Comment="the gate is there now")

    expect(person.stage("SCRIPT_RUN", "STAGE_SUCCESS")).to_be_visible()
    page.get_by_role("button", name="Skip WAIT").click()
    person.confirm("Skip the stage", Comment="no need to wait")
    person.expect_deployment("DEPLOYMENT_SUCCESS")
    expect(page.get_by_text("no need to wait")).to_be_visible()
    expect(page.get_by_text("the gate is there now")).to_be_visible()
    person.stage("SCRIPT_RUN", "STAGE_SUCCESS").click()
    page.get_by_label("Attempt").select_option(label="Attempt 1")
    expect(page.locator(".log-line", has_text="trying").first).to_be_visible()

    undone = script("echo done", onRollback="echo undone")
    site.add("hopeless", [undone, script("exit 3")], onFailure="wait")
    open_deployment(person, "hopeless")
    page.get_by_role("button", name="Roll back now").click()
    person.confirm("Roll back", Reason="it cannot work")
    expect(person.stage("SCRIPT_RUN_ROLLBACK", "STAGE_SUCCESS")).to_be_visible()
    person.expect_deployment("DEPLOYMENT_FAILURE")


def test_a_window_and_the_emergency_stop_hold_deployments_until_somebody_lets_them_go(
    person: Visitor, site: ConsoleSite
) -> None:
    page = person.page
    person.open("/settings/windows")
    page.get_by_role("button", name="Add a window").click()
    page.get_by_label("Name").fill("nights")
    begin = datetime.now(tz=UTC) - timedelta(hours=1)
    page.get_by_label(re.compile("First start")).fill(begin.strftime("%Y-%m-%dT%H:%M"))
    page.get_by_label("Hours").fill("48")
    page.get_by_label(REASON).fill("the shop is busy")
    page.get_by_role("button", name="Add the window").click()
    expect(page.get_by_role("button", name="Delete the window nights")).to_be_visible()
    preview = page.get_by_role("region", name=re.compile("The next seven days"))
    expect(preview.get_by_text("Closed").first).to_be_visible()
    expect(preview.get_by_text("Open", exact=True).first).to_be_visible()

    site.add("urgent", [script("true")])
    open_deployment(person, "urgent")
    waits = page.get_by_role("region", name="What it waits for")
    expect(waits).to_contain_text("nights")
    choose(page, "Cancel and more", "Begin in spite of the rules")
    person.confirm("Let it begin", Reason="a customer cannot pay")
    person.expect_deployment("DEPLOYMENT_SUCCESS")
    expect(page.get_by_text("a customer cannot pay")).to_be_visible()

    person.open("/settings/windows")
    page.get_by_role("button", name="Delete the window nights").click()
    person.confirm("Delete the window")
    expect(page.get_by_text("There is no window")).to_be_visible()

    page.get_by_role("button", name="Emergency stop").click()
    person.confirm("Stop all deployments", **{REASON: "the building burns"})
    expect(page.get_by_text("the building burns")).to_be_visible()
    site.add("stopped", [script("true")])
    open_deployment(person, "stopped")
    expect(waits).to_contain_text("the building burns")
    person.open("/settings/windows")
    page.get_by_role("button", name="Let deployments go on").click()
    person.confirm("Let deployments go on")
    expect(page.get_by_role("button", name="Emergency stop")).to_be_visible()
    open_deployment(person, "stopped")
    person.expect_deployment("DEPLOYMENT_SUCCESS")


def test_a_role_is_made_changed_and_given_to_a_group(person: Visitor) -> None:
    page = person.page
    person.open("/settings/members")
    page.get_by_role("button", name="Make a role").click()
    page.get_by_label("Name").fill("Watcher")
    page.get_by_role("checkbox", name="get of deployment", exact=True).check()
    page.get_by_role("checkbox", name="list of deployment", exact=True).check()
    page.get_by_role("button", name="Make the role").click()
    roles = page.get_by_role("region", name="Roles")
    row = roles.get_by_role("listitem").filter(has_text="Watcher")
    expect(row).to_contain_text("get, list of deployment")
    page.get_by_role("button", name="Change the role Watcher").click()
    dialog = page.get_by_role("dialog", name="Change the role Watcher")
    expect(dialog.get_by_role("checkbox", name="get of deployment", exact=True)).to_be_checked()
    dialog.get_by_role("checkbox", name="list of deployment", exact=True).uncheck()
    dialog.get_by_role("checkbox", name="update of deployment", exact=True).check()
    dialog.get_by_role("button", name="Change the role").click()
    expect(row).to_contain_text("get, update of deployment")

    page.get_by_role("button", name="Give a group a role").click()
    page.get_by_label("Group at the provider").fill("shop/watchers")
    page.get_by_role("dialog").get_by_role("combobox").select_option("Watcher")
    page.get_by_role("button", name="Give the role").click()
    group = page.get_by_role("row").filter(has_text="shop/watchers")
    expect(group).to_contain_text("Watcher")

    page.get_by_role("button", name="Take the role from shop/watchers").click()
    person.confirm("Take it")
    expect(group).to_have_count(0)
    page.get_by_role("button", name="Delete the role Watcher").click()
    person.confirm("Delete the role")
    expect(row).to_have_count(0)


def test_single_sign_on_is_set_up_and_its_secret_is_never_shown(person: Visitor) -> None:
    page = person.page
    person.open("/settings/members")
    page.get_by_role("button", name="Set up single sign-on").click()
    dialog = page.get_by_role("dialog", name="Single sign-on")
    save = dialog.get_by_role("button", name="Save")
    dialog.get_by_label("Issuer").fill("javascript:alert(1)")
    expect(dialog.get_by_text("It begins with https://")).to_be_visible()
    dialog.get_by_label("Issuer").fill("https://id.example.com")
    dialog.get_by_label("Client id").fill("console")
    expect(save).to_be_disabled()
    dialog.get_by_label("Client secret").fill("open-sesame")
    save.click()
    ways = page.get_by_role("region", name="Ways to sign in")
    expect(ways).to_contain_text("OpenID Connect https://id.example.com")
    assert person.find_axe_faults() == []

    page.get_by_role("button", name="Change single sign-on").click()
    expect(dialog.get_by_label("Client secret")).to_have_value("")
    expect(dialog.get_by_label("Issuer")).to_have_value("https://id.example.com")
    dialog.get_by_label("Issuer").fill("https://other.example.com")
    save.click()
    expect(dialog.get_by_role("alert")).to_contain_text("give the secret again")
    assert person.find_axe_faults() == []
    dialog.get_by_label("Issuer").fill("https://id.example.com")
    dialog.get_by_text("More").click()
    dialog.get_by_label("Claim with the groups").fill("teams")
    save.click()
    expect(dialog).to_have_count(0)
    assert "open-sesame" not in page.content()


def test_a_secret_is_sealed_for_a_piped_that_can_open_it(person: Visitor) -> None:
    page = person.page
    person.open("/settings/secrets")
    opener = Opener(KEYS.private)
    for encode in (False, True):
        page.get_by_label("The secret").fill("a password")
        page.get_by_role("checkbox", name="Encode it as base64 first").set_checked(encode)
        page.get_by_role("button", name="Seal", exact=True).click()
        sealed = page.get_by_role("status").locator("pre")
        expect(sealed).to_be_visible()
        expect(page.get_by_label("The secret")).to_have_value("")
        opened = opener.open(sealed.inner_text().strip())
        assert (base64.b64decode(opened).decode() if encode else opened) == "a password"


def test_a_piped_is_added_with_its_configuration_and_its_key_is_rotated(
    person: Visitor, site: ConsoleSite, tmp_path: Path
) -> None:
    page = person.page
    person.open("/pipeds")
    page.get_by_role("button", name="Add a piped").click()
    page.get_by_label("Name").fill("far-away")
    page.get_by_role("button", name="Add", exact=True).click()
    dialog = page.get_by_role("dialog", name="far-away is added")
    first = dialog.locator(".secret").inner_text()
    file = tmp_path / "piped.yaml"
    file.write_text(dialog.locator("pre").inner_text())
    site.piped.pipectl("lint", str(file))
    assert first not in file.read_text()
    dialog.get_by_role("button", name="I have kept the key").click()
    panel = page.get_by_role("region", name="far-away")
    expect(panel).to_contain_text("1 key")
    expect(page.get_by_text(first)).to_have_count(0)

    choose(page, "More for far-away", "Make a new key")
    page.get_by_role("dialog").get_by_role("button", name="Make a new key").click()
    dialog = page.get_by_role("dialog", name="A new key for far-away")
    second = dialog.locator(".secret").inner_text()
    assert len(second) > 20
    assert second != first
    dialog.get_by_role("button", name="I have kept the key").click()
    expect(panel).to_contain_text("2 keys")
    choose(page, "More for far-away", "Delete the older key")
    person.confirm("Delete the older key")
    expect(panel).to_contain_text("1 key")
