# SPDX-License-Identifier: Apache-2.0
"""Roles, groups, single sign-on: rules are told as rules, and count at once."""

from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.rpc import UnaryMethod, call_refused
from pipecd_test_support.waiting import Soon
from pipecd_test_support.web_person import SignIn, WebPerson
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import common_pb2, deployment_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.rpc import CallError, call, stream
from pipecd_wire.webservice import service_pb2 as pb

Sso = project_pb2.ProjectSSOConfig
Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy


def policy_for(
    resource: Resource.ResourceType.ValueType, action: Action.Action.ValueType, **labels: str
) -> project_pb2.ProjectRBACPolicy:
    return project_pb2.ProjectRBACPolicy(
        resources=[Resource(type=resource, labels=labels)], actions=[action]
    )


async def test_a_role_of_ones_own_counts_from_the_next_call_on(
    admin: WebPerson, person: SignIn
) -> None:
    add = pb.AddProjectRBACRoleRequest(
        name="Keys", policies=[policy_for(Resource.API_KEY, Action.LIST)]
    )
    await call(admin.web.AddProjectRBACRole, add)
    await call(
        admin.web.AddProjectUserGroup, pb.AddProjectUserGroupRequest(sso_group="team", role="Keys")
    )
    member = await person(groups=("team",))
    await call(member.web.ListAPIKeys, pb.ListAPIKeysRequest())

    update = pb.UpdateProjectRBACRoleRequest(
        name="Keys", policies=[policy_for(Resource.EVENT, Action.LIST)]
    )
    await call(admin.web.UpdateProjectRBACRole, update)

    error = await call_refused(member.web.ListAPIKeys, pb.ListAPIKeysRequest())
    assert error.status == "PERMISSION_DENIED"
    await call(member.web.ListEvents, pb.ListEventsRequest())


async def test_rules_that_are_broken_are_told_as_such(admin: WebPerson) -> None:
    policies = [policy_for(Resource.EVENT, Action.LIST)]
    await call(
        admin.web.AddProjectRBACRole, pb.AddProjectRBACRoleRequest(name="R", policies=policies)
    )
    await call(
        admin.web.AddProjectUserGroup, pb.AddProjectUserGroupRequest(sso_group="team", role="R")
    )
    wrong: dict[str, tuple[UnaryMethod, Message, str]] = {
        "a role twice": (
            admin.web.AddProjectRBACRole,
            pb.AddProjectRBACRoleRequest(name="R", policies=policies),
            "ALREADY_EXISTS",
        ),
        "a built-in role shadowed": (
            admin.web.AddProjectRBACRole,
            pb.AddProjectRBACRoleRequest(name="Admin", policies=policies),
            "ALREADY_EXISTS",
        ),
        "a built-in role changed": (
            admin.web.UpdateProjectRBACRole,
            pb.UpdateProjectRBACRoleRequest(name="Admin", policies=policies),
            "FAILED_PRECONDITION",
        ),
        "a role without policies": (
            admin.web.AddProjectRBACRole,
            pb.AddProjectRBACRoleRequest(name="S"),
            "INVALID_ARGUMENT",
        ),
        "a role that is not there": (
            admin.web.DeleteProjectRBACRole,
            pb.DeleteProjectRBACRoleRequest(name="nothing"),
            "NOT_FOUND",
        ),
        "a role in use": (
            admin.web.DeleteProjectRBACRole,
            pb.DeleteProjectRBACRoleRequest(name="R"),
            "FAILED_PRECONDITION",
        ),
        "a group twice": (
            admin.web.AddProjectUserGroup,
            pb.AddProjectUserGroupRequest(sso_group="team", role="Viewer"),
            "ALREADY_EXISTS",
        ),
        "a group with an unknown role": (
            admin.web.AddProjectUserGroup,
            pb.AddProjectUserGroupRequest(sso_group="other", role="nothing"),
            "INVALID_ARGUMENT",
        ),
        "a group that is not there": (
            admin.web.DeleteProjectUserGroup,
            pb.DeleteProjectUserGroupRequest(sso_group="nothing"),
            "NOT_FOUND",
        ),
        "a name that is too long": (
            admin.web.GenerateAPIKey,
            pb.GenerateAPIKeyRequest(name="x" * 501),
            "INVALID_ARGUMENT",
        ),
        "a role that is too large": (
            admin.web.AddProjectRBACRole,
            pb.AddProjectRBACRoleRequest(name="x" * 300_000, policies=policies),
            "INVALID_ARGUMENT",
        ),
        "a password that is too short": (
            admin.web.UpdateProjectStaticAdmin,
            pb.UpdateProjectStaticAdminRequest(username="a", password="short"),  # noqa: S106
            "INVALID_ARGUMENT",
        ),
    }
    got = {
        what: (await call_refused(method, request)).status
        for what, (method, request, _) in wrong.items()
    }
    assert got == {what: status for what, (_, _, status) in wrong.items()}


async def test_the_project_shows_all_roles_and_groups_the_older_ones_first(
    admin: WebPerson,
) -> None:
    rbac = project_pb2.ProjectRBACConfig(admin="org/ops", editor="org/dev", viewer="org/ops")
    await call(
        admin.web.AddProjectUserGroup, pb.AddProjectUserGroupRequest(sso_group="new", role="Viewer")
    )
    await call(admin.web.UpdateProjectRBACConfig, pb.UpdateProjectRBACConfigRequest(rbac=rbac))

    shown = (await call(admin.web.GetProject, pb.GetProjectRequest())).project

    assert [role.name for role in shown.rbac_roles] == ["Admin", "Editor", "Viewer"]
    assert all(role.is_builtin for role in shown.rbac_roles)
    assert [(each.sso_group, each.role) for each in shown.user_groups] == [
        ("org/ops", "Admin"),
        ("org/dev", "Editor"),
        ("new", "Viewer"),
    ]


async def test_the_form_of_single_sign_on_can_be_saved_as_upstreams_page_sends_it(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    """Without a time for sessions, which the rules of the message ask for."""
    github = Sso.GitHub(client_id="id", client_secret="secret")  # noqa: S106
    request = pb.UpdateProjectSSOConfigRequest(sso=Sso(provider=Sso.GITHUB, github=github))

    await call(admin.web.UpdateProjectSSOConfig, request)

    kept = await plane.stores.projects.get("default")
    assert kept.sso.session_ttl == 168
    assert kept.sso.github.client_secret.startswith("pv1.")


async def test_a_secret_that_is_not_given_stays_and_goes_to_no_other_address(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    """Whoever may change the address must not get to read the secret there."""

    def ask(**fields: Any) -> pb.UpdateProjectSSOConfigRequest:
        oidc = Sso.Oidc(**{"issuer": "https://one.example", **fields})
        return pb.UpdateProjectSSOConfigRequest(sso=Sso(provider=Sso.OIDC, oidc=oidc))

    missing = await call_refused(admin.web.UpdateProjectSSOConfig, ask(client_id="id"))
    await call(admin.web.UpdateProjectSSOConfig, ask(client_id="id", client_secret="s"))  # noqa: S106
    before = (await plane.stores.projects.get("default")).sso.oidc
    moved = await call_refused(admin.web.UpdateProjectSSOConfig, ask(issuer="https://two.example"))
    await call(admin.web.UpdateProjectSSOConfig, ask(roles_claim_key="groups"))

    after = (await plane.stores.projects.get("default")).sso.oidc
    assert "client_secret is not set" in missing.message
    assert moved.status == "INVALID_ARGUMENT"
    assert "give the secret again" in moved.message
    assert after.client_secret == before.client_secret
    assert (after.issuer, after.roles_claim_key) == ("https://one.example", "groups")


async def test_a_right_with_labels_reaches_only_what_has_them(
    plane: ServedControlPlane, admin: WebPerson, person: SignIn
) -> None:
    agent = await plane.agent()
    ours = await plane.application(agent, name="ours", labels={"team": "a", "env": "dev"})
    other = await plane.application(agent, name="other", labels={"team": "b"})
    await plane.deployment(agent, ours, "d-ours", labels={"team": "a"})
    await plane.deployment(agent, other, "d-other", labels={"team": "b"})
    policies = [
        policy_for(Resource.APPLICATION, Action.ALL, team="a"),
        policy_for(Resource.DEPLOYMENT, Action.ALL, team="a"),
    ]
    await call(
        admin.web.AddProjectRBACRole, pb.AddProjectRBACRoleRequest(name="A", policies=policies)
    )
    member = await person("A")

    listed = await call(member.web.ListApplications, pb.ListApplicationsRequest())
    assert [each.id for each in listed.applications] == [ours]
    deployments = await call(member.web.ListDeployments, pb.ListDeploymentsRequest())
    assert [each.id for each in deployments.deployments] == ["d-ours"]
    await call(member.web.DisableApplication, pb.DisableApplicationRequest(application_id=ours))
    others: list[tuple[UnaryMethod, Message]] = [
        (member.web.GetApplication, pb.GetApplicationRequest(application_id=other)),
        (member.web.DisableApplication, pb.DisableApplicationRequest(application_id=other)),
        (member.web.DeleteApplication, pb.DeleteApplicationRequest(application_id=other)),
        (member.web.SyncApplication, pb.SyncApplicationRequest(application_id=other)),
        (member.web.GetDeployment, pb.GetDeploymentRequest(deployment_id="d-other")),
        (member.web.CancelDeployment, pb.CancelDeploymentRequest(deployment_id="d-other")),
    ]
    for method, request in others:
        assert (await call_refused(method, request)).status == "NOT_FOUND"
    # Where labels are not looked at, the right does not count at all.
    error = await call_refused(
        member.web.ListUnregisteredApplications, pb.ListUnregisteredApplicationsRequest()
    )
    assert error.status == "PERMISSION_DENIED"


async def test_a_right_with_labels_reaches_no_further_through_the_api_of_programs(
    plane: ServedControlPlane, admin: WebPerson, person: SignIn
) -> None:
    """A person who is signed in with pipectl calls that one."""
    agent = await plane.agent()
    ours = await plane.application(agent, name="ours", labels={"team": "a"})
    other = await plane.application(agent, name="other", labels={"team": "b"})
    await plane.deployment(agent, ours, "d-ours", labels={"team": "a"})
    await plane.deployment(agent, other, "d-other", labels={"team": "b"})
    policies = [
        policy_for(Resource.APPLICATION, Action.ALL, team="a"),
        policy_for(Resource.DEPLOYMENT, Action.ALL, team="a"),
    ]
    await call(
        admin.web.AddProjectRBACRole, pb.AddProjectRBACRoleRequest(name="A", policies=policies)
    )
    reach = (await person("A")).api

    listed = await call(reach.ListApplications, api.ListApplicationsRequest())
    assert [each.id for each in listed.applications] == [ours]
    deployments = await call(reach.ListDeployments, api.ListDeploymentsRequest())
    assert [each.id for each in deployments.deployments] == ["d-ours"]
    await call(reach.ListStageLogs, api.ListStageLogsRequest(deployment_id="d-ours"))
    targets = api.UpdateApplicationDeployTargetsRequest(
        application_id=other,
        deploy_targets_by_plugin={"wait": deployment_pb2.DeployTargets(deploy_targets=["x"])},
    )
    move = api.UpdateApplicationRequest(
        application_id=other,
        piped_id=agent.id,
        platform_provider="p",
        git_path=common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id="repo"), path="apps/a"
        ),
    )
    others: list[tuple[UnaryMethod, Message]] = [
        (reach.GetApplication, api.GetApplicationRequest(application_id=other)),
        (reach.UpdateApplication, move),
        (reach.EnableApplication, api.EnableApplicationRequest(application_id=other)),
        (reach.DisableApplication, api.DisableApplicationRequest(application_id=other)),
        (reach.DeleteApplication, api.DeleteApplicationRequest(application_id=other)),
        (reach.SyncApplication, api.SyncApplicationRequest(application_id=other)),
        (reach.UpdateApplicationDeployTargets, targets),
        (reach.GetDeployment, api.GetDeploymentRequest(deployment_id="d-other")),
        (reach.ListStageLogs, api.ListStageLogsRequest(deployment_id="d-other")),
    ]
    for method, request in others:
        assert (await call_refused(method, request)).status == "NOT_FOUND"
    rename = api.RenameApplicationConfigFileRequest(
        application_ids=[ours], new_filename="other.pipecd.yaml"
    )
    assert (
        await call_refused(reach.RenameApplicationConfigFile, rename)
    ).status == "PERMISSION_DENIED"


async def test_a_deployment_that_a_person_asks_for_has_their_name(
    plane: ServedControlPlane, person: SignIn
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent, name="web")
    member = await person("Editor", name="ada")

    request = api.SyncApplicationRequest(application_id=application_id)
    asked = await call(member.api.SyncApplication, request)

    told = await call(member.api.GetCommand, api.GetCommandRequest(command_id=asked.command_id))
    assert told.command.commander == "ada"


async def test_keys_are_shown_without_their_hash_and_with_their_last_use(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    made = await call(admin.web.GenerateAPIKey, pb.GenerateAPIKeyRequest(name="ci"))
    listed = await call(admin.web.ListAPIKeys, pb.ListAPIKeysRequest())
    unused = {key.name: key for key in listed.keys}["ci"]
    assert (unused.key_hash, unused.last_used_at, unused.creator) == ("redacted", 0, "ada")

    user = await plane.user(made.key)
    await call(user.api.ListApplications, api.ListApplicationsRequest())
    listed = await call(admin.web.ListAPIKeys, pb.ListAPIKeysRequest())
    assert {key.name: key for key in listed.keys}["ci"].last_used_at > 0

    await call(admin.web.DisableAPIKey, pb.DisableAPIKeyRequest(id=made.key.partition(".")[0]))
    with pytest.raises(CallError) as caught:
        await call(user.api.ListApplications, api.ListApplicationsRequest())
    assert caught.value.status == "UNAUTHENTICATED"


async def test_an_end_of_a_key_is_shown_and_must_lie_ahead(admin: WebPerson) -> None:
    request = access_pb2.GenerateApiKeyRequest(name="ci", expires_at=2**40)
    await call(admin.keys.GenerateApiKey, request)
    listed = await call(admin.keys.ListApiKeys, access_pb2.ListApiKeysRequest())
    assert {item.key.name: item.expires_at for item in listed.keys}["ci"] == 2**40

    with pytest.raises(CallError) as caught:
        await call(
            admin.keys.GenerateApiKey, access_pb2.GenerateApiKeyRequest(name="x", expires_at=1)
        )
    assert caught.value.status == "INVALID_ARGUMENT"


async def test_who_may_not_change_the_project_sees_and_ends_only_sessions_of_their_own(
    admin: WebPerson, person: SignIn
) -> None:
    viewer = await person("Viewer", name="grace")
    await person("Viewer", name="grace")

    seen = await call(viewer.access.ListSessions, access_pb2.ListSessionsRequest())
    assert {each.subject for each in seen.sessions} == {"grace"}
    assert len(seen.sessions) == 2
    with pytest.raises(CallError) as caught:
        await call(
            viewer.access.RevokeSession,
            access_pb2.RevokeSessionRequest(session_id=admin.session_id),
        )
    assert caught.value.status == "NOT_FOUND"
    all_of_them = await call(admin.access.ListSessions, access_pb2.ListSessionsRequest())
    assert len(all_of_them.sessions) == 3


async def test_a_stream_ends_with_its_session(admin: WebPerson, person: SignIn, soon: Soon) -> None:
    viewer = await person("Viewer", name="grace")
    watching = stream(viewer.project.WatchChanges, api_pb2.WatchChangesRequest())
    await soon(anext(watching))

    request = access_pb2.RevokeSessionRequest(session_id=viewer.session_id)
    await call(admin.access.RevokeSession, request)

    with pytest.raises(CallError) as caught:
        await soon(anext(watching))
    assert caught.value.status == "UNAUTHENTICATED"
