# SPDX-License-Identifier: Apache-2.0
"""Who signed in and out is in the audit; who could not is counted, without what they typed."""

from pipecd_controlplane.store.audit import AuditFilter
from pipecd_test_support.sign_in_site import PASSWORD, SignInSite
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

WRONG = {"password": "wrong"}
TYPED = "hunter2-typed-as-the-name"


async def read_audit(site: SignInSite, project_id: str = "shop") -> list[AuditRecord]:
    await site.plane.running.gathered_audit.flush()
    page = await site.plane.stores.audit.page(
        project_id, AuditFilter(oldest_first=True), limit=1000, cursor=""
    )
    return page.items


async def test_a_sign_in_and_a_sign_out_are_recorded(site: SignInSite) -> None:
    browser = await site.browser()
    await site.sign_in(browser)
    session_id = browser.cookies["token"].partition(".")[0]
    await browser.post("/auth/logout")

    signed_in, signed_out = await read_audit(site)

    assert (signed_in.action, signed_out.action) == ("SignIn", "SignOut")
    for record in (signed_in, signed_out):
        assert record.actor_kind == AuditRecord.PERSON
        assert (record.actor, record.actor_id) == ("boss", "STATIC_ADMIN")
        assert record.address == "127.0.0.1"
        assert (record.subject_kind, record.subject) == ("session", session_id)
        assert record.outcome == "OK"


async def test_neither_password_nor_cookie_is_in_the_audit(site: SignInSite) -> None:
    browser = await site.browser()
    await site.sign_in(browser)
    token = browser.cookies["token"]

    text = str(await read_audit(site))

    assert PASSWORD not in text
    assert token.partition(".")[2] not in text


async def test_failures_are_counted_together(site: SignInSite) -> None:
    browser = await site.browser()
    for _ in range(3):
        await site.sign_in(browser, **WRONG)

    records = await read_audit(site)

    # One, or one more for each time that the timed job came in between.
    assert sum(each.count for each in records) == 3
    for record in records:
        assert (record.action, record.outcome) == ("SignIn", "UNAUTHENTICATED")
        assert record.actor == "boss"
        assert (record.subject_kind, record.subject) == ("project", "shop")


async def test_a_name_that_is_nobodys_is_not_kept(site: SignInSite) -> None:
    """People type their password where the name belongs."""
    await site.sign_in(await site.browser(), username=TYPED)

    [record] = await read_audit(site)

    assert record.actor == ""
    assert TYPED not in str(record)


async def test_a_project_that_is_not_there_gets_no_audit(site: SignInSite) -> None:
    await site.sign_in(await site.browser(), project="nothing")

    assert await read_audit(site, "nothing") == []
    assert await read_audit(site) == []


async def test_what_was_counted_is_written_once(site: SignInSite) -> None:
    browser = await site.browser()
    await site.sign_in(browser, **WRONG)
    gathered = site.plane.running.gathered_audit

    await gathered.flush()
    await gathered.flush()

    assert [each.count for each in await read_audit(site)] == [1]
