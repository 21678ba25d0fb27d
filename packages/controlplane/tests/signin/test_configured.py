# SPDX-License-Identifier: Apache-2.0
"""Projects of the configuration file: as the file says, and changed nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.usecases.keys import hash_of
from pipecd_model.config.controlplane import ProjectConfig, StaticAdminConfig
from pipecd_model.config.values import Secret
from pipecd_test_support.sign_in_site import SignInSite, SiteWith
from pipecd_wire.rpc import CallError
from pipecd_wire.webservice import service_pb2 as web


async def quickstart(password: str = "hello-pipecd") -> ProjectConfig:  # noqa: S107
    hashed = Secret(await hash_of(password))
    admin = StaticAdminConfig(username="hello-pipecd", password_hash=hashed)
    return ProjectConfig(id="quickstart", desc="for trial", static_admin=admin)


async def sign_in(site: SignInSite, password: str = "hello-pipecd") -> Any:  # noqa: S107
    browser = await site.browser()
    form = {"project": "quickstart", "username": "hello-pipecd", "password": password}
    return await site.sign_in(browser, **form), browser


async def test_its_admin_signs_in_and_cannot_be_changed(site_with: SiteWith) -> None:
    async with site_with(projects=(await quickstart(),)) as site:
        assert await site.plane.stores.projects.ids() == ["quickstart"]
        answer, browser = await sign_in(site)
        assert answer.status_code == 302
        token = browser.cookies["token"]

        for name, request in (
            ("DisableStaticAdmin", web.DisableStaticAdminRequest()),
            (
                "UpdateProjectStaticAdmin",
                web.UpdateProjectStaticAdminRequest(username="x", password="long enough"),  # noqa: S106
            ),
            ("AddProjectUserGroup", web.AddProjectUserGroupRequest(sso_group="g", role="Viewer")),
        ):
            with pytest.raises(CallError) as caught:
                await site.call(token, name, request)
            assert caught.value.status == "FAILED_PRECONDITION"


async def test_a_password_that_changed_in_the_file_ends_older_sessions(site_with: SiteWith) -> None:
    async with site_with(projects=(await quickstart(),)) as site:
        _, browser = await sign_in(site)
        token = browser.cookies["token"]

    async with site_with(projects=(await quickstart("another one"),)) as site:
        assert await site.me(token) == "UNAUTHENTICATED"
        assert (await sign_in(site, "another one"))[0].status_code == 302


async def test_sessions_survive_a_restart(site_with: SiteWith) -> None:
    project = await quickstart()
    async with site_with(projects=(project,)) as site:
        _, browser = await sign_in(site)
        token = browser.cookies["token"]

    async with site_with(projects=(project,)) as site:
        assert await site.me(token) == "hello-pipecd"


async def test_a_built_console_is_served_for_every_path(
    site_with: SiteWith, tmp_path: Path
) -> None:
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>console</h1>")
    (folder / "assets" / "a.123.js").write_text("1")

    async with site_with(static_dir=folder) as site:
        browser = await site.browser()
        for path in ("/", "/deployments/x"):
            answer = await browser.get(path)
            assert (answer.status_code, answer.text) == (200, "<h1>console</h1>")
        asset = await browser.get("/assets/a.123.js")
        assert asset.headers["cache-control"] == "public, max-age=31536000"
        assert (await browser.get("/assets/nothing")).status_code == 404
        assert (await browser.get("/assets/%2e%2e/%2e%2e/data/admin.key")).status_code == 404
        assert (await browser.get("/healthz")).text == "ok"
