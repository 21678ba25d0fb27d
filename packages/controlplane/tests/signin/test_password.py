# SPDX-License-Identifier: Apache-2.0
"""Signing in with a password, over real HTTP."""

import time

import pytest

from pipecd_test_support.sign_in_site import ReadError, SignInSite
from pipecd_wire.pipecd.api import access_pb2, access_pb2_grpc
from pipecd_wire.rpc import call, connect
from pipecd_wire.webservice import service_pb2 as web

WRONG = "wrong project, user name or password"


async def test_who_knows_the_password_is_let_in(site: SignInSite) -> None:
    browser = await site.browser()

    answer = await site.sign_in(browser)

    assert (answer.status_code, answer.headers["location"]) == (302, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "max-age=604800" in cookie
    assert await site.me(browser.cookies["token"]) == "boss"


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "wrong"},
        {"username": "nobody"},
        {"project": "nothing"},
        {"password": ""},
        {"password": "x" * 5000},
    ],
)
async def test_who_does_not_gets_one_and_the_same_answer(
    site: SignInSite, error_of: ReadError, fields: dict[str, str]
) -> None:
    browser = await site.browser()

    answer = await site.sign_in(browser, **fields)

    assert error_of(answer) == WRONG
    assert "token" not in answer.cookies


async def test_a_static_admin_that_is_switched_off_is_answered_as_a_wrong_one(
    site: SignInSite, error_of: ReadError
) -> None:
    await site.project("off", static_admin_disabled=True)

    answer = await site.sign_in(await site.browser(), project="off")

    assert error_of(answer) == WRONG


async def test_an_unknown_user_costs_as_much_work_as_a_wrong_password(site: SignInSite) -> None:
    """So that nobody learns from the time which projects and users exist."""
    browser = await site.browser()
    work = {}
    for name, fields in {"known": {"password": "x"}, "unknown": {"project": "nothing"}}.items():
        tries = []
        for _ in range(3):
            started = time.process_time()
            await site.sign_in(browser, **fields)
            tries.append(time.process_time() - started)
        work[name] = min(tries)

    assert work["unknown"] > work["known"] / 2
    assert work["known"] > work["unknown"] / 2


async def test_attempts_have_a_limit_that_even_the_right_password_meets(
    site: SignInSite, error_of: ReadError
) -> None:
    browser = await site.browser()
    for _ in range(10):
        await site.sign_in(browser, password="wrong")  # noqa: S106

    assert error_of(await site.sign_in(browser)).startswith("too many attempts to sign in")
    await site.project("other")
    assert (await site.sign_in(browser, project="other")).status_code == 302


async def test_the_limit_is_the_same_for_users_that_do_not_exist(
    site: SignInSite, error_of: ReadError
) -> None:
    browser = await site.browser()
    for _ in range(10):
        await site.sign_in(browser, username="nobody")

    answer = await site.sign_in(browser, username="nobody")
    assert error_of(answer).startswith("too many attempts to sign in")


async def test_a_session_can_be_ended_from_elsewhere_at_once(site: SignInSite) -> None:
    first, second = await site.browser(), await site.browser()
    await site.sign_in(first)
    await site.sign_in(second)
    pairs = [("cookie", f"token={second.cookies['token']}")]
    async with connect(site.plane.address) as channel:
        stub = access_pb2_grpc.AccessServiceStub(channel)
        listed = await call(stub.ListSessions, access_pb2.ListSessionsRequest(), metadata=pairs)
        (other,) = [each for each in listed.sessions if each.id != listed.current_id]
        assert (other.subject, other.via) == ("boss", access_pb2.Session.STATIC_ADMIN)

        request = access_pb2.RevokeSessionRequest(session_id=other.id)
        await call(stub.RevokeSession, request, metadata=pairs)

    assert await site.me(first.cookies["token"]) == "UNAUTHENTICATED"
    assert await site.me(second.cookies["token"]) == "boss"


async def test_a_new_password_ends_all_sessions_of_the_old_one(site: SignInSite) -> None:
    browser = await site.browser()
    await site.sign_in(browser)
    token = browser.cookies["token"]

    request = web.UpdateProjectStaticAdminRequest(username="boss", password="even better")  # noqa: S106
    await site.call(token, "UpdateProjectStaticAdmin", request)

    assert await site.me(token) == "UNAUTHENTICATED"
    assert (await site.sign_in(browser, password="even better")).status_code == 302  # noqa: S106


async def test_a_body_that_is_no_form_is_refused(site: SignInSite, error_of: ReadError) -> None:
    browser = await site.browser()

    large = await browser.post("/auth/login/static", content=b"x=" + b"y" * 50_000)
    huge = await browser.post("/auth/login/static", content=b"x=" + b"y" * 100_000)
    broken = await browser.post("/auth/login/static", content=b"\xff\xfe")

    assert error_of(large) == "the form is too large"
    assert huge.status_code == 413
    assert error_of(broken) == "the form cannot be read"


async def test_the_first_start_leaves_a_password_for_its_owner(site: SignInSite) -> None:
    file = site.plane.running.data_dir / "admin.password"
    browser = await site.browser()

    answer = await site.sign_in(
        browser, project="default", username="admin", password=file.read_text().strip()
    )

    assert answer.status_code == 302
    assert file.stat().st_mode & 0o077 == 0
