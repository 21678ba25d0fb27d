# SPDX-License-Identifier: Apache-2.0
"""The live state as a tree, and finding one resource in it."""

from typing import Any

import pytest

from pipecd_model.errors import ConfigError, NotFoundError
from pipecd_pipectl.commands.resource import find_resource, name_resource
from pipecd_pipectl.resourceview import walk_tree
from pipecd_wire.model.application_live_state_pb2 import ResourceState


def make(resource_id: str, *parents: str, **fields: Any) -> ResourceState:
    return ResourceState(
        **{"id": resource_id, "name": resource_id, "parent_ids": parents, "plugin_name": "p"}
        | fields
    )


def draw(*resources: ResourceState) -> list[str]:
    return [f"{'.' * depth}{each.id}" for depth, each in walk_tree(resources)]


def test_a_resource_stands_below_each_of_its_parents_in_the_order_of_names() -> None:
    drawn = draw(make("b"), make("a"), make("c", "a", "b"), make("d", "c"), make("e", "gone"))

    assert drawn == ["a", ".c", "..d", "b", ".c", "e"]


def test_a_circle_is_shown_and_does_not_go_on_for_ever() -> None:
    assert draw(make("a", "b"), make("b", "a"), make("c", "c")) == ["a", ".b", "..a", "c", ".c"]


def test_a_parent_is_of_the_same_deploy_target() -> None:
    drawn = draw(
        make("root", deploy_target="x"),
        make("leaf", "root", deploy_target="y"),
        make("leaf", "root", deploy_target="x"),
    )

    assert drawn == ["root", ".leaf", "leaf"]


def test_a_hostile_tree_costs_no_more_than_its_edges() -> None:
    """Each layer has both of the layer above as parents: 2^50 ways lead to the last one."""
    layers = [make("0-a"), make("0-b")]
    for number in range(1, 50):
        above = (f"{number - 1}-a", f"{number - 1}-b")
        layers += [make(f"{number}-{side}", *above) for side in "ab"]
    chain = [make("c0"), *(make(f"c{n}", f"c{n - 1}") for n in range(1, 5000))]

    assert len(draw(*layers)) == 2 + 49 * 4
    assert len(draw(*chain)) == 5000


RESOURCES = [
    make("uid-1", name="web", resource_type="Deployment", deploy_target="east"),
    make("uid-2", name="web", resource_type="Service", deploy_target="east"),
    make("uid-3", name="web-1", resource_type="Pod", deploy_target="east"),
    make("uid-4", name="web-1", resource_type="Pod", deploy_target="west"),
    make("web", name="uid-1", resource_type="Odd"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [("uid-2", "uid-2"), ("service/WEB", "uid-2"), ("web", "web"), ("Deployment/web", "uid-1")],
)
def test_a_resource_is_found_by_its_id_its_name_or_with_its_kind(text: str, found: str) -> None:
    assert find_resource(RESOURCES, text).id == found


def test_what_can_be_several_is_listed_and_what_is_not_there_is_suggested() -> None:
    with pytest.raises(ConfigError, match=r"any of 2 resources.*\n.*on east.*uid-3\n.*on west"):
        find_resource(RESOURCES, "web-1")
    with pytest.raises(NotFoundError) as near:
        find_resource(RESOURCES, "Deployment/wep")
    assert "'Deployment/web'" in near.value.hint
    with pytest.raises(NotFoundError, match="no resource 'zzz'"):
        find_resource([], "zzz")


def test_a_list_of_candidates_is_clean_and_bounded() -> None:
    many = [make(f"id\x1b]0;owned\x07{n}", name="same") for n in range(30)]

    with pytest.raises(ConfigError) as refused:
        find_resource(many, "same")

    assert "\x1b" not in str(refused.value)
    assert "… and 20 more" in str(refused.value)


def test_each_resource_has_a_name_that_finds_it_again() -> None:
    for each in RESOURCES:
        assert find_resource(RESOURCES, name_resource(each, RESOURCES)).id == each.id
