# SPDX-License-Identifier: Apache-2.0
"""Rights: what no policy grants is denied, and labels limit."""

import pytest

from pipecd_controlplane.usecases import roles
from pipecd_controlplane.usecases.keys import new_api_key, new_password, new_piped_key
from pipecd_wire.model import project_pb2 as pb

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


def test_a_right_without_labels_wins_over_one_with_them() -> None:
    limited = role(
        "a", Resource(type=Resource.APPLICATION, labels={"team": "a"}), actions=[Policy.GET]
    )
    whole = role("b", Resource(type=Resource.APPLICATION), actions=[Policy.ALL])

    grant = roles.grant([limited], Resource.APPLICATION, Policy.GET)
    assert grant is not None
    assert grant.covers({"team": "a", "env": "dev"})
    assert not grant.covers({"team": "b"})
    assert not grant.covers({})
    both = roles.grant([limited, whole], Resource.APPLICATION, Policy.GET)
    assert both is not None
    assert both.covers({})


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


def test_secrets_are_made_of_much_chance() -> None:
    """Two thousand keys without one alike, and every letter in them."""
    for make in (new_piped_key, new_password, lambda: new_api_key("id")):
        made = {make() for _ in range(2000)}
        assert len(made) == 2000
        assert len(set("".join(made)) - {"."}) == 36
