# SPDX-License-Identifier: Apache-2.0
"""`pipectl login` as the control plane sees it: a code that a person confirms, over real HTTP."""

import logging
import re
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from pipecd_controlplane.auth import terminal_login
from pipecd_test_support.sign_in_site import SignInSite
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.webservice import service_pb2 as web

PAGE = "/auth/terminal"


async def begin(site: SignInSite, **fields: str) -> tuple[httpx2.AsyncClient, dict[str, Any]]:
    """Returns a program and what it was given; programs send no headers of browsers."""
    program = await site.browser()
    answer = await program.post(f"{PAGE}/start", data={"client": "pipectl on host", **fields})
    assert answer.status_code == 200
    return program, answer.json()


async def poll(program: httpx2.AsyncClient, begun: dict[str, Any]) -> httpx2.Response:
    return await program.post(f"{PAGE}/poll", data={"device_code": begun["device_code"]})


async def person(site: SignInSite, **fields: str) -> httpx2.AsyncClient:
    """Returns a browser in which somebody has signed in; it says where its forms come from."""
    browser = await site.browser(headers={"origin": site.url})
    await site.sign_in(browser, **fields)
    return browser


async def answer(browser: httpx2.AsyncClient, code: str, word: str = "confirm") -> httpx2.Response:
    return await browser.post(f"{PAGE}/answer", data={"code": code, "answer": word})


async def test_a_program_gets_a_session_of_its_own_once_a_person_confirms_its_code(
    site: SignInSite,
) -> None:
    program, begun = await begin(site)
    assert re.fullmatch("[B-Z]{4}-[B-Z]{4}", begun["user_code"])
    assert (await poll(program, begun)).json() == {"status": "pending"}
    browser = await person(site)

    asked = await browser.post(PAGE, data={"code": begun["user_code"].lower()})
    assert "pipectl on host" in asked.text
    assert begun["user_code"] in asked.text
    assert "127.0.0.1" in asked.text
    assert "is signed in" in (await answer(browser, begun["user_code"])).text
    done = (await poll(program, begun)).json()

    assert (done["status"], done["subject"], done["project"]) == ("done", "boss", "shop")
    assert done["token"] != browser.cookies["token"]
    assert await site.me(done["token"]) == "boss"
    await browser.post("/auth/logout")
    assert await site.me(done["token"]) == "boss"
    found = await site.plane.stores.sessions.find_by_id(done["token"].partition(".")[0])
    assert found is not None
    assert found[0].user_agent == "pipectl on host"


async def test_the_session_is_handed_out_once(site: SignInSite) -> None:
    program, begun = await begin(site)
    await answer(await person(site), begun["user_code"])

    assert (await poll(program, begun)).json()["status"] == "done"
    again = await poll(program, begun)

    assert (again.status_code, again.json()["error"]) == (404, "the code is not good any more")
    assert "run `pipectl login` again" in again.json()["hint"]


async def test_it_ends_when_the_session_that_confirmed_it_does(site: SignInSite) -> None:
    """Else whoever is signed in for an hour could be for ever, one code after the other."""
    program, begun = await begin(site)
    browser = await person(site)
    await answer(browser, begun["user_code"])
    done = (await poll(program, begun)).json()

    found = await site.plane.stores.sessions.find_by_id(browser.cookies["token"].partition(".")[0])
    assert found is not None
    assert done["expires_at"] == found[0].expires_at


async def test_a_person_who_signs_out_before_the_program_asks_lets_nobody_in(
    site: SignInSite,
) -> None:
    program, begun = await begin(site)
    browser = await person(site)
    await answer(browser, begun["user_code"])
    await browser.post("/auth/logout")

    refused = await poll(program, begun)

    assert refused.status_code == 401
    assert "token" not in refused.json()


async def test_a_static_admin_who_is_switched_off_meanwhile_lets_nobody_in(
    site: SignInSite,
) -> None:
    program, begun = await begin(site)
    browser = await person(site)
    await answer(browser, begun["user_code"])
    group = web.AddProjectUserGroupRequest(sso_group="admins", role="Admin")
    await site.call(browser.cookies["token"], "AddProjectUserGroup", group)

    def switch_off(project: project_pb2.Project) -> None:
        project.static_admin_disabled = True

    await site.plane.stores.projects.update("shop", switch_off)

    assert (await poll(program, begun)).status_code == 401


async def test_a_refusal_is_told_to_the_program(site: SignInSite) -> None:
    program, begun = await begin(site)
    browser = await person(site)
    assert "was refused" in (await answer(browser, begun["user_code"], "refuse")).text

    refused = await poll(program, begun)

    assert (refused.status_code, refused.json()["error"]) == (
        403,
        "the sign-in was refused in the browser",
    )
    assert (await answer(browser, begun["user_code"])).status_code == 404


async def test_nobody_without_a_session_learns_of_a_code_or_answers_it(site: SignInSite) -> None:
    program, begun = await begin(site)
    stranger = await site.browser(headers={"origin": site.url})

    asked = await stranger.post(PAGE, data={"code": begun["user_code"]})
    answered = await answer(stranger, begun["user_code"])

    assert "pipectl on host" not in asked.text
    assert "Password" in asked.text
    assert "Password" in answered.text
    assert (await poll(program, begun)).json() == {"status": "pending"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "https://other.example"},
        {},
    ],
)
async def test_a_form_of_another_site_answers_nothing(
    site: SignInSite, headers: dict[str, str]
) -> None:
    program, begun = await begin(site)
    browser = await site.browser(headers=headers)
    browser.cookies.set("token", (await person(site)).cookies["token"])

    answered = await answer(browser, begun["user_code"])
    asked = await browser.post(PAGE, data={"code": begun["user_code"]})

    assert (answered.status_code, asked.status_code) == (403, 403)
    assert (await poll(program, begun)).json() == {"status": "pending"}


async def test_codes_cannot_be_guessed(site: SignInSite) -> None:
    """Whoever guesses one would sign somebody else's terminal in as themselves."""
    _program, begun = await begin(site)
    browser = await person(site)
    for _ in range(5):
        assert (await browser.post(PAGE, data={"code": "XXXX-XXXX"})).status_code == 404

    asked = await browser.post(PAGE, data={"code": begun["user_code"]})

    assert asked.status_code == 429
    assert (await answer(browser, begun["user_code"])).status_code == 429


async def test_a_secret_that_nobody_was_given_gets_nothing(site: SignInSite) -> None:
    program, begun = await begin(site)
    await answer(await person(site), begun["user_code"])

    for code in ("", "x", begun["user_code"], begun["device_code"][:-1]):
        assert (await program.post(f"{PAGE}/poll", data={"device_code": code})).status_code == 404


async def test_what_a_program_calls_itself_is_shown_as_text_and_cut(site: SignInSite) -> None:
    _program, begun = await begin(site, client="<script>alert(1)</script>\x1b[2J" + "y" * 500)
    browser = await person(site)

    asked = await browser.post(PAGE, data={"code": begun["user_code"]})

    assert "<script>" not in asked.text
    assert "&lt;script&gt;" in asked.text
    assert "\x1b" not in asked.text
    assert "y" * 101 not in asked.text


async def test_a_password_alone_gives_a_program_a_session(site: SignInSite) -> None:
    program = await site.browser()
    form = {"project": "shop", "username": "boss", "password": "correct horse"}

    done = (await program.post(f"{PAGE}/password", data=form)).json()
    wrong = await program.post(f"{PAGE}/password", data=form | {"password": "x"})

    assert await site.me(done["token"]) == "boss"
    assert not program.cookies
    assert (wrong.status_code, wrong.json()["error"]) == (
        401,
        "wrong project, user name or password",
    )


async def test_passwords_of_programs_count_as_attempts_like_all_others(site: SignInSite) -> None:
    program = await site.browser()
    form = {"project": "shop", "username": "boss", "password": "x"}
    for _ in range(10):
        await program.post(f"{PAGE}/password", data=form)

    refused = await program.post(f"{PAGE}/password", data=form | {"password": "correct horse"})

    assert refused.status_code == 429
    error = unquote((await site.sign_in(await site.browser())).cookies["error"])
    assert error.startswith("too many attempts to sign in")


async def test_the_page_leads_to_a_sign_in_and_back(site: SignInSite) -> None:
    browser = await site.browser(headers={"origin": site.url})
    first = await browser.get(PAGE, params={"project": 'shop"><script>'})
    assert "shop&quot;&gt;&lt;script&gt;" in first.text
    assert 'name="next" value="/auth/terminal"' in first.text

    wrong = await site.sign_in(browser, next=PAGE, password="x")  # noqa: S106
    assert (wrong.status_code, wrong.headers["location"]) == (303, PAGE)
    assert "wrong project, user name or password" in (await browser.get(PAGE)).text
    assert "wrong project" not in (await browser.get(PAGE)).text
    right = await site.sign_in(browser, next=PAGE)

    assert (right.status_code, right.headers["location"]) == (302, PAGE)
    assert "boss" in (await browser.get(PAGE)).text


@pytest.mark.parametrize("path", ["https://evil.example", "//evil.example", "/auth/logout", "x"])
async def test_a_sign_in_leads_to_no_other_page(site: SignInSite, path: str) -> None:
    signed_in = await site.sign_in(await site.browser(), next=path)

    assert signed_in.headers["location"] == "/"


async def test_no_page_may_be_kept_or_framed(site: SignInSite) -> None:
    page = await (await site.browser()).get(PAGE)

    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-frame-options"] == "DENY"


def test_a_code_is_long_enough_and_read_however_it_is_written() -> None:
    assert len(terminal_login.ALPHABET) ** terminal_login.CODE_LENGTH > 10**10
    assert terminal_login.normalize_code(" wdjb mj-ht\n") == "WDJBMJHT"
    assert terminal_login.format_code("WDJBMJHT") == "WDJB-MJHT"
    assert len(terminal_login.normalize_code("B" * 1000)) != terminal_login.CODE_LENGTH


async def test_no_secret_of_a_sign_in_is_logged(
    site: SignInSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    program, begun = await begin(site)
    browser = await person(site)
    await browser.post(PAGE, data={"code": "XXXX-XXXX"})
    await answer(browser, begun["user_code"])
    token = (await poll(program, begun)).json()["token"]

    logged = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    assert "login.confirmed" in logged
    for secret in (begun["device_code"], begun["user_code"], token, "correct horse"):
        assert secret not in logged
        assert secret.replace("-", "") not in logged


async def test_a_session_that_a_program_has_is_listed_and_can_be_ended(site: SignInSite) -> None:
    program, begun = await begin(site)
    await answer(await person(site), begun["user_code"])
    token = (await poll(program, begun)).json()["token"]

    open_ones = await site.plane.stores.sessions.open_of_project("shop", now=0)
    assert "pipectl on host" in {each.user_agent for each in open_ones}
    assert {each.via for each in open_ones} == {access_pb2.Session.STATIC_ADMIN}
    await site.plane.stores.sessions.end("shop", token.partition(".")[0])

    assert await site.me(token) == "UNAUTHENTICATED"


async def test_one_address_cannot_ask_for_codes_without_end(site: SignInSite) -> None:
    program = await site.browser()
    statuses = {(await program.post(f"{PAGE}/start")).status_code for _ in range(110)}

    assert statuses == {200, 429}


async def test_a_code_that_is_right_uses_no_attempt_up(site: SignInSite) -> None:
    _program, begun = await begin(site)
    browser = await person(site)

    for _ in range(8):
        assert (await browser.post(PAGE, data={"code": begun["user_code"]})).status_code == 200
