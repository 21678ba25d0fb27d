# SPDX-License-Identifier: Apache-2.0
"""Signing in through GitHub, and through what several projects share."""

from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config.controlplane import GithubConfig, SharedSsoConfig
from pipecd_model.config.values import Secret
from pipecd_model.errors import ConfigError
from pipecd_test_support.chosen_store import get_chosen_store
from pipecd_test_support.identity_providers import GitHubServer, WalkThrough
from pipecd_test_support.sign_in_site import ReadError, SignInSite, SiteWith
from pipecd_wire.model import project_pb2
from pipecd_wire.webservice import service_pb2 as web


@pytest.fixture
async def shop(site_with: SiteWith, github: GitHubServer) -> Any:
    shared = SharedSsoConfig(
        name="ours",
        provider="GITHUB",
        session_ttl=3,
        github=GithubConfig(
            client_id="client",
            client_secret=Secret("s3cret"),
            base_url=f"{github.url}/api/v3/",
        ),
    )
    async with site_with(shared_sso=(shared,), state_key="k" * 40) as site:
        await site.project(
            shared_sso_name="ours",
            user_groups=[project_pb2.ProjectUserGroup(sso_group="org/ops", role="Editor")],
        )
        yield site


async def test_a_member_of_a_team_gets_the_role_of_its_group(
    shop: SignInSite, github: GitHubServer, through: WalkThrough
) -> None:
    github.teams = ["org/dev", "org/ops"]
    browser = await shop.browser()

    answer = await through(browser)

    assert answer.status_code == 302
    assert "max-age=10800" in answer.headers["set-cookie"].lower()
    token = browser.cookies["token"]
    assert await shop.me(token) == "ada"
    await shop.call(token, "ListApplications", web.ListApplicationsRequest())
    (asked,) = github.asked
    assert asked["scope"] == "read:org"
    assert asked["redirect_uri"].endswith("/auth/callback?project=shop")


async def test_teams_beyond_the_first_hundred_count(
    shop: SignInSite, github: GitHubServer, through: WalkThrough
) -> None:
    github.teams = [*(f"org/team-{number}" for number in range(250)), "org/ops"]
    browser = await shop.browser()

    await through(browser)

    assert await shop.me(browser.cookies["token"]) == "ada"


async def test_who_is_in_no_team_is_not_let_in(
    shop: SignInSite, github: GitHubServer, through: WalkThrough, error_of: ReadError
) -> None:
    answer = await through(await shop.browser())

    assert error_of(answer).startswith("you have no role in this project")
    assert "token" not in answer.cookies


async def test_a_code_that_github_does_not_know_is_refused(
    shop: SignInSite, github: GitHubServer, through: WalkThrough, error_of: ReadError
) -> None:
    github.teams = ["org/ops"]
    browser = await shop.browser()
    begun = await browser.post("/auth/login", data={"project": "shop"})
    state = begun.headers["location"].partition("state=")[2].partition("&")[0]

    answer = await browser.get("/auth/callback", params={"state": state, "code": "made-up"})

    assert error_of(answer) == "GitHub did not accept the sign-in"


async def test_a_changed_encryption_key_closes_what_is_kept_anew(
    site_with: SiteWith, github: GitHubServer, tmp_path: Path, through: WalkThrough
) -> None:
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    old.write_text("o" * 64)
    new.write_text("n" * 64)
    github.teams = ["org/ops"]
    sso = project_pb2.ProjectSSOConfig(
        provider=project_pb2.ProjectSSOConfig.GITHUB,
        session_ttl=1,
        github=project_pb2.ProjectSSOConfig.GitHub(
            client_id="client",
            client_secret="s3cret",  # noqa: S106
            base_url=f"{github.url}/api/v3/",
        ),
    )
    async with site_with(encryption_key_files=(old,)) as site:
        group = project_pb2.ProjectUserGroup(sso_group="org/ops", role="Viewer")
        await site.project(user_groups=[group])
        browser = await site.browser()
        await site.sign_in(browser)
        request = web.UpdateProjectSSOConfigRequest(sso=sso)
        await site.call(browser.cookies["token"], "UpdateProjectSSOConfig", request)
        before = (await site.plane.stores.projects.get("shop")).sso.github.client_secret

    async with site_with(encryption_key_files=(new, old)) as site:
        after = (await site.plane.stores.projects.get("shop")).sso.github.client_secret
        assert before != after

    async with site_with(encryption_key_files=(new,)) as site:
        browser = await site.browser()
        assert (await through(browser)).status_code == 302
        assert await site.me(browser.cookies["token"]) == "ada"

    if get_chosen_store() == "postgresql":  # which knows what key its servers have in common
        with pytest.raises(ConfigError, match="a key that this server does not have"):
            async with site_with(encryption_key_files=(old,)):
                pass
        return
    async with site_with(encryption_key_files=(old,)) as site:
        browser = await site.browser()
        answer = await browser.post("/auth/login", data={"project": "shop"})
        assert answer.status_code == 303  # the key is lost, and with it this one way in
        assert (await site.sign_in(browser)).status_code == 302
