# SPDX-License-Identifier: Apache-2.0
"""Nobody locks everybody out of a project, themselves included."""

from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from pipecd_controlplane.usecases.ways_in import has_admin_way_in
from pipecd_test_support.sign_in_site import SignInSite
from pipecd_wire.model import project_pb2
from pipecd_wire.rpc import CallError
from pipecd_wire.webservice import service_pb2 as web

Sso = project_pb2.ProjectSSOConfig
Resource, Policy = project_pb2.ProjectRBACResource, project_pb2.ProjectRBACPolicy

GITHUB = Sso(
    provider=Sso.GITHUB,
    session_ttl=1,
    github=Sso.GitHub(client_id="id", client_secret="secret"),  # noqa: S106
)
OWNER = project_pb2.ProjectRBACRole(
    name="Owner",
    policies=[Policy(resources=[Resource(type=Resource.PROJECT)], actions=[Policy.ALL])],
)


async def signed_in(site: SignInSite) -> str:
    browser = await site.browser()
    await site.sign_in(browser)
    return str(browser.cookies["token"])


async def refusal(site: SignInSite, token: str, name: str, request: Message) -> CallError:
    with pytest.raises(CallError) as caught:
        await site.call(token, name, request)
    return caught.value


async def edit(site: SignInSite, change: Callable[[project_pb2.Project], None]) -> None:
    await site.plane.stores.projects.update("shop", change)


async def with_single_sign_on(site: SignInSite, token: str, *, group: str = "org/ops") -> None:
    await site.call(token, "UpdateProjectSSOConfig", web.UpdateProjectSSOConfigRequest(sso=GITHUB))
    await site.call(
        token,
        "AddProjectUserGroup",
        web.AddProjectUserGroupRequest(sso_group=group, role="Admin"),
    )


async def test_the_only_way_in_cannot_be_switched_off(site: SignInSite) -> None:
    token, other = await signed_in(site), await signed_in(site)

    error = await refusal(site, token, "DisableStaticAdmin", web.DisableStaticAdminRequest())

    assert error.status == "FAILED_PRECONDITION"
    assert error.message.startswith("nobody could administer the project 'shop' any more")
    assert await site.me(token) == "boss"
    assert await site.me(other) == "boss"


async def test_single_sign_on_that_makes_nobody_an_admin_is_no_other_way_in(
    site: SignInSite,
) -> None:
    token = await signed_in(site)
    await site.call(token, "UpdateProjectSSOConfig", web.UpdateProjectSSOConfigRequest(sso=GITHUB))
    await site.call(
        token,
        "AddProjectUserGroup",
        web.AddProjectUserGroupRequest(sso_group="org/dev", role="Editor"),
    )

    error = await refusal(site, token, "DisableStaticAdmin", web.DisableStaticAdminRequest())

    assert error.status == "FAILED_PRECONDITION"


async def test_who_switches_the_static_admin_off_goes_on_and_can_undo_it(site: SignInSite) -> None:
    token, other = await signed_in(site), await signed_in(site)
    await with_single_sign_on(site, token)

    await site.call(token, "DisableStaticAdmin", web.DisableStaticAdminRequest())

    assert await site.me(token) == "boss"
    assert await site.me(other) == "UNAUTHENTICATED"
    browser = await site.browser()
    assert (await site.sign_in(browser)).status_code == 303

    await site.call(token, "DisableStaticAdmin", web.DisableStaticAdminRequest())  # once more
    await site.call(token, "EnableStaticAdmin", web.EnableStaticAdminRequest())

    assert await site.me(token) == "boss"
    assert (await site.sign_in(browser)).status_code == 302


async def test_a_session_that_was_kept_ends_with_the_next_who_switches_it_off(
    site: SignInSite,
) -> None:
    first = await signed_in(site)
    await with_single_sign_on(site, first)
    await site.call(first, "DisableStaticAdmin", web.DisableStaticAdminRequest())
    await site.call(first, "EnableStaticAdmin", web.EnableStaticAdminRequest())
    second = await signed_in(site)

    await site.call(second, "DisableStaticAdmin", web.DisableStaticAdminRequest())

    assert await site.me(first) == "UNAUTHENTICATED"
    assert await site.me(second) == "boss"


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("DeleteProjectUserGroup", web.DeleteProjectUserGroupRequest(sso_group="org/own")),
        (
            "UpdateProjectRBACRole",
            web.UpdateProjectRBACRoleRequest(
                name="Owner",
                policies=[Policy(resources=[Resource(type=Resource.EVENT)], actions=[Policy.LIST])],
            ),
        ),
        (
            "UpdateProjectRBACRole",
            web.UpdateProjectRBACRoleRequest(
                name="Owner",
                policies=[
                    Policy(
                        resources=[Resource(type=Resource.ALL, labels={"team": "a"})],
                        actions=[Policy.ALL],
                    )
                ],
            ),
        ),
        (
            # A group of the older form hides the same group with another role.
            "UpdateProjectRBACConfig",
            web.UpdateProjectRBACConfigRequest(
                rbac=project_pb2.ProjectRBACConfig(viewer="org/own")
            ),
        ),
    ],
    ids=["group", "role", "role with labels", "older groups"],
)
async def test_without_a_static_admin_the_last_way_in_cannot_be_taken_away(
    site: SignInSite, name: str, request_: Message
) -> None:
    token = await signed_in(site)
    await site.call(token, "UpdateProjectSSOConfig", web.UpdateProjectSSOConfigRequest(sso=GITHUB))

    def own_the_project(project: project_pb2.Project) -> None:
        project.rbac_roles.append(OWNER)
        project.user_groups.add(sso_group="org/own", role="Owner")

    await edit(site, own_the_project)
    await site.call(token, "DisableStaticAdmin", web.DisableStaticAdminRequest())
    before = await site.plane.stores.projects.get("shop")

    error = await refusal(site, token, name, request_)

    assert error.status == "FAILED_PRECONDITION"
    assert error.message.startswith("nobody could administer the project 'shop' any more")
    assert await site.plane.stores.projects.get("shop") == before

    await site.call(token, "EnableStaticAdmin", web.EnableStaticAdminRequest())
    await site.call(token, name, request_)


async def test_one_of_two_admin_groups_can_be_taken_away(site: SignInSite) -> None:
    token = await signed_in(site)
    await with_single_sign_on(site, token)
    rbac = project_pb2.ProjectRBACConfig(admin="org/old")
    await site.call(token, "UpdateProjectRBACConfig", web.UpdateProjectRBACConfigRequest(rbac=rbac))
    await site.call(token, "DisableStaticAdmin", web.DisableStaticAdminRequest())

    await site.call(
        token,
        "DeleteProjectUserGroup",
        web.DeleteProjectUserGroupRequest(sso_group="org/ops"),
    )
    error = await refusal(
        site,
        token,
        "UpdateProjectRBACConfig",
        web.UpdateProjectRBACConfigRequest(rbac=project_pb2.ProjectRBACConfig()),
    )

    assert error.status == "FAILED_PRECONDITION"


def test_a_shared_sign_in_counts_when_the_configuration_file_has_it() -> None:
    project = project_pb2.Project(
        shared_sso_name="ours", rbac=project_pb2.ProjectRBACConfig(admin="org/ops")
    )

    assert has_admin_way_in(project, {"ours"})
    assert not has_admin_way_in(project, {"another"})


def test_a_client_without_an_id_or_a_secret_is_no_way_in() -> None:
    for sso in (
        Sso(),
        Sso(provider=Sso.GITHUB, github=Sso.GitHub(client_id="id")),
        Sso(provider=Sso.OIDC, oidc=Sso.Oidc(client_id="id", client_secret="x")),  # noqa: S106
        Sso(provider=Sso.GOOGLE),
    ):
        project = project_pb2.Project(sso=sso, rbac=project_pb2.ProjectRBACConfig(admin="org/ops"))
        assert not has_admin_way_in(project, set())
