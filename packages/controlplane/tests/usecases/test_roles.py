# SPDX-License-Identifier: Apache-2.0
"""Rights: what no policy grants is denied, and labels limit."""

import pytest

from pipecd_controlplane.usecases import roles
from pipecd_model.errors import ConfigError
from pipecd_wire.model import project_pb2 as pb
from pipecd_wire.options import rights_pb2

Resource, Policy = pb.ProjectRBACResource, pb.ProjectRBACPolicy


def role(
    name: str,
    *resources: pb.ProjectRBACResource,
    actions: list[pb.ProjectRBACPolicy.Action.ValueType],
) -> pb.ProjectRBACRole:
    return pb.ProjectRBACRole(
        name=name,
        policies=[Policy(resources=resources, actions=actions)],
    )


def test_nobody_without_a_role_may_do_anything() -> None:
    for resource in Resource.ResourceType.values():
        for action in Policy.Action.values():
            assert roles.grant([], resource, action) is None


@pytest.mark.parametrize("name", ["Admin", "Editor", "Viewer"])
def test_only_the_admin_sees_keys_or_changes_the_project(name: str) -> None:
    held = [roles.BUILT_IN[name]]
    allowed = name == "Admin"
    assert (roles.grant(held, Resource.API_KEY, Policy.LIST) is not None) is allowed
    assert (roles.grant(held, Resource.PROJECT, Policy.UPDATE) is not None) is allowed
    assert (roles.grant(held, Resource.PIPED, Policy.UPDATE) is not None) is allowed


@pytest.mark.parametrize("name", ["Admin", "Editor", "Viewer"])
def test_everybody_sees_what_concerns_everybody(name: str) -> None:
    held = [roles.BUILT_IN[name]]
    for resource, action in (
        (Resource.PROJECT, Policy.GET),
        (Resource.APPLICATION, Policy.LIST),
        (Resource.DEPLOYMENT, Policy.GET),
        (Resource.PIPED, Policy.LIST),
        (Resource.INSIGHT, Policy.GET),
        (Resource.EVENT, Policy.LIST),
        (Resource.DEPLOYMENT_CHAIN, Policy.GET),
        (Resource.DEPLOYMENT_CHAIN, Policy.LIST),
    ):
        granted = roles.grant(held, resource, action)
        assert granted is not None, (resource, action)
        assert granted.covers({})


@pytest.mark.parametrize(
    ("name", "allowed"), [("Admin", True), ("Editor", True), ("Viewer", False)]
)
def test_who_only_views_changes_no_application(name: str, allowed: bool) -> None:
    held = [roles.BUILT_IN[name]]
    for resource in (Resource.APPLICATION, Resource.DEPLOYMENT):
        granted = roles.grant(held, resource, Policy.UPDATE)
        assert (granted is not None) is allowed


def test_built_in_roles_are_told_from_those_of_a_project() -> None:
    own = role("Own", Resource(type=Resource.PIPED), actions=[Policy.GET])

    all_roles = roles.all_roles(pb.Project(rbac_roles=[own]))

    built_in = {name: each.is_builtin for name, each in all_roles.items()}
    assert built_in == {"Own": False, "Admin": True, "Editor": True, "Viewer": True}


def test_label_sets_of_several_policies_add_up() -> None:
    teams = [
        role("a", Resource(type=Resource.APPLICATION, labels={"team": team}), actions=[Policy.GET])
        for team in ("a", "b")
    ]

    grant = roles.grant(teams, Resource.APPLICATION, Policy.GET)

    assert grant is not None
    assert [grant.covers({"team": team}) for team in ("a", "b", "c")] == [True, True, False]
    assert roles.grant(teams, Resource.APPLICATION, Policy.UPDATE) is None
    assert roles.grant(teams, Resource.PIPED, Policy.GET) is None


def test_a_right_on_all_resources_can_be_limited_by_labels_too() -> None:
    limited = role("a", Resource(type=Resource.ALL, labels={"team": "a"}), actions=[Policy.ALL])

    grant = roles.grant([limited], Resource.DEPLOYMENT, Policy.CREATE)

    assert grant is not None
    assert grant.is_limited
    assert not grant.covers({"team": "b"})


def test_a_right_without_labels_wins_over_one_with_them() -> None:
    limited = role(
        "a", Resource(type=Resource.APPLICATION, labels={"team": "a"}), actions=[Policy.GET]
    )
    whole = role("b", Resource(type=Resource.APPLICATION), actions=[Policy.ALL])

    grant = roles.grant([limited], Resource.APPLICATION, Policy.GET)
    assert grant is not None
    assert grant.is_limited
    assert grant.covers({"team": "a"})
    assert grant.covers({"team": "a", "env": "dev"})
    assert not grant.covers({"team": "b"})
    assert not grant.covers({})
    both = roles.grant([limited, whole], Resource.APPLICATION, Policy.GET)
    assert both is not None
    assert not both.is_limited
    assert both.covers({})


OPEN = rights_pb2.OPEN_RESOURCES


def opener(
    *actions: pb.ProjectRBACPolicy.Action.ValueType,
    right: str = "open-resources",
    kind: pb.ProjectRBACResource.ResourceType.ValueType = Resource.APPLICATION,
    **labels: str,
) -> pb.ProjectRBACRole:
    """A role that a policy gives one of our own rights."""
    resource = Resource(type=kind, labels={roles.RIGHT_LABEL: right, **labels})
    return role("Opener", resource, actions=list(actions))


@pytest.mark.parametrize(
    ("name", "allowed"), [("Admin", True), ("Editor", True), ("Viewer", False)]
)
def test_who_only_views_does_not_open_resources(name: str, allowed: bool) -> None:
    held = [roles.BUILT_IN[name]]
    granted = roles.grant(held, Resource.APPLICATION, Policy.GET, OPEN)
    assert (granted is not None) is allowed
    assert roles.grant(held, Resource.APPLICATION, Policy.GET) is not None


def test_an_own_right_comes_with_all_actions_and_not_with_each_of_them() -> None:
    each = [Policy.GET, Policy.LIST, Policy.CREATE, Policy.UPDATE, Policy.DELETE]
    listed = role("a", Resource(type=Resource.APPLICATION), actions=each)
    limited = role(
        "b", Resource(type=Resource.APPLICATION, labels={"team": "b"}), actions=[Policy.ALL]
    )

    assert roles.grant([listed], Resource.APPLICATION, Policy.GET, OPEN) is None
    grant = roles.grant([listed, limited], Resource.APPLICATION, Policy.GET, OPEN)
    assert grant is not None
    assert [grant.covers({"team": team}) for team in ("a", "b")] == [False, True]


@pytest.mark.parametrize("action", [Policy.GET, Policy.ALL])
def test_a_policy_that_names_an_own_right_grants_nothing_else(
    action: pb.ProjectRBACPolicy.Action.ValueType,
) -> None:
    """Not even on an application whose repository gives it a label of that name."""
    held = [opener(action)]

    granted = roles.grant(held, Resource.APPLICATION, Policy.GET, OPEN)

    assert granted is not None
    assert not granted.is_limited
    for other in Policy.Action.values():
        assert roles.grant(held, Resource.APPLICATION, other) is None
    assert roles.grant(held, Resource.DEPLOYMENT, Policy.GET, OPEN) is None


def test_an_own_right_can_be_limited_to_labels_and_to_actions() -> None:
    grant = roles.grant([opener(Policy.GET, env="dev")], Resource.APPLICATION, Policy.GET, OPEN)

    assert grant is not None
    assert [grant.covers({"env": env}) for env in ("dev", "live")] == [True, False]
    assert roles.grant([opener(Policy.LIST)], Resource.APPLICATION, Policy.GET, OPEN) is None
    assert (
        roles.grant([opener(Policy.GET, right="other")], Resource.APPLICATION, Policy.GET, OPEN)
        is None
    )


def test_every_resource_of_a_policy_counts() -> None:
    held = role(
        "a",
        Resource(type=Resource.APPLICATION, labels={roles.RIGHT_LABEL: "open-resources"}),
        Resource(type=Resource.PIPED),
        Resource(type=Resource.APPLICATION),
        actions=[Policy.GET],
    )

    for resource in (Resource.APPLICATION, Resource.PIPED):
        granted = roles.grant([held], resource, Policy.GET)
        assert granted is not None
        assert not granted.is_limited


def test_a_right_that_there_is_not_is_refused_by_its_name() -> None:
    roles.check_rights(opener(Policy.GET).policies)
    roles.check_rights(roles.BUILT_IN["Editor"].policies)
    for wrong in ("open-resource", "own-right-unspecified", ""):
        with pytest.raises(ConfigError, match=f"no right {wrong!r}") as caught:
            roles.check_rights(opener(Policy.GET, right=wrong).policies)
        assert "open-resources" in caught.value.hint


def test_a_role_of_a_project_cannot_shadow_a_built_in_one() -> None:
    project = pb.Project(
        rbac_roles=[role("Viewer", Resource(type=Resource.ALL), actions=[Policy.ALL])]
    )

    (held,) = roles.roles_of(project, [], ["Viewer"])

    assert roles.grant([held], Resource.API_KEY, Policy.LIST) is None


def test_a_group_of_the_older_form_has_its_highest_role() -> None:
    project = pb.Project(
        rbac=pb.ProjectRBACConfig(admin="g", viewer="g"),
        user_groups=[pb.ProjectUserGroup(sso_group="g", role="Editor")],
    )

    assert [each.name for each in roles.roles_of(project, ["g"], [])] == ["Admin"]


def test_everybody_has_the_roles_of_their_groups_and_of_no_other() -> None:
    project = pb.Project(
        rbac=pb.ProjectRBACConfig(editor="editors"),
        rbac_roles=[role("Own", Resource(type=Resource.PIPED), actions=[Policy.GET])],
        user_groups=[
            pb.ProjectUserGroup(sso_group="a", role="Own"),
            pb.ProjectUserGroup(sso_group="b", role="Admin"),
            pb.ProjectUserGroup(sso_group="c", role="Gone"),
        ],
    )

    def names(groups: list[str], fixed: list[str]) -> list[str]:
        return [each.name for each in roles.roles_of(project, groups, fixed)]

    assert names(["a"], []) == ["Own"]
    assert names(["editors", "a", "unknown"], []) == ["Editor", "Own"]
    assert names(["a"], ["Viewer", "Own", "Unheard"]) == ["Viewer", "Own"]
    assert names(["c"], []) == []
    assert names([""], []) == []
