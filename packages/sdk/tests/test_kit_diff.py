# SPDX-License-Identifier: Apache-2.0
"""The structural diff: what differs, what is passed over, how it is shown."""

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_sdk.kit import diff as kit
from pipecd_sdk.kit.diff import MISSING, diff, format_unified, render

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "0", "true", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def paths(old: object, new: object, **options: Any) -> list[str]:
    return [node.path for node in diff(old, new, **options)]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(kit).failed == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": "1"}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": True}, {"a": "true"}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a.0", "a.1"]),
        ({"a": [1]}, {"a": [1, 2, 3]}, ["a.1", "a.2"]),
        ({"a": {"b": 1}}, {"a": [1]}, ["a"]),
        ({"a": {}}, {}, ["a"]),
        ({"a": None}, {"a": None}, []),
        ({"b": 1, "a": {"z": 1, "y": 1}}, {}, ["a", "b"]),
        (1, 2, [""]),
    ],
)
def test_what_differs_is_told_by_its_path(old: object, new: object, expected: list[str]) -> None:
    assert paths(old, new) == expected


@pytest.mark.parametrize("empty", [None, {}, [], 0, "", False, 0.0])
def test_empty_equals_missing_on_either_side_when_asked(empty: object) -> None:
    assert paths({"a": empty}, {}, equate_empty=True) == []
    assert paths({}, {"a": empty}, equate_empty=True) == []
    assert paths({"a": empty}, {"a": "x"}, equate_empty=True) == ["a"]


def test_empty_values_of_different_types_still_differ() -> None:
    assert paths({"a": {}}, {"a": []}, equate_empty=True) == ["a"]
    assert paths({"a": 0}, {"a": ""}, equate_empty=True) == ["a"]


def test_keys_that_only_the_old_side_has_are_passed_over_at_every_depth_but_items_are_not() -> None:
    old = {"a": 1, "deep": {"x": 1, "y": 2}, "list": [{"k": 1, "l": 2}, 5]}
    new = {"deep": {"y": 2}, "list": [{"k": 1}]}

    assert paths(old, new, ignore_adding_map_keys=True) == ["list.1"]
    assert paths(new, old, ignore_adding_map_keys=True) == ["a", "deep.x", "list.0.l", "list.1"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1, "1", True), (1.5, "1.50", True), (1, "one", False), (0, "", False), (True, "1", False)],
)
def test_a_number_equals_its_text_when_asked(one: object, other: object, same: bool) -> None:
    for old, new in ((one, other), (other, one)):
        assert (diff({"a": old}, {"a": new}, numeric_strings=True) == []) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(True, "true", True), (False, "false", True), (True, "false", False), (True, 1, False)],
)
def test_a_truth_value_equals_its_word_when_asked(one: object, other: object, same: bool) -> None:
    for old, new in ((one, other), (other, one)):
        assert (diff({"a": old}, {"a": new}, bool_strings=True) == []) is same


def test_paths_can_be_ignored_for_one_resource() -> None:
    old = {"spec": {"replicas": 1, "replicasMax": 1, "template": {"a": 1}}}
    new = {"spec": {"replicas": 2, "replicasMax": 2, "template": {"a": 2}}}
    ignore = {"apps:Deployment::web": ["spec.replicas", "spec.template"]}

    assert paths(old, new, ignore=ignore, key="apps:Deployment::web") == ["spec.replicasMax"]
    assert len(paths(old, new, ignore=ignore, key="apps:Deployment::other")) == 3


@given(VALUES)
def test_a_tree_does_not_differ_from_itself(value: object) -> None:
    assert diff(value, value) == []


@given(VALUES, VALUES)
def test_both_directions_find_the_same_places(old: object, new: object) -> None:
    forth, back = diff(old, new), diff(new, old)

    assert [(n.path, n.old, n.new) for n in forth] == [(n.path, n.new, n.old) for n in back]
    assert [n.path for n in forth] == sorted(n.path for n in forth)


@given(VALUES, VALUES)
def test_every_option_only_takes_differences_away(old: object, new: object) -> None:
    options = {"equate_empty": True, "numeric_strings": True, "bool_strings": True}

    assert set(paths(old, new, **options)) <= set(paths(old, new))


def test_one_side_alone_and_values_of_many_lines_are_shown() -> None:
    nodes = diff({"a": {"gone": 1}}, {"a": {"new": {"x": [1, 2]}}})

    assert render(nodes) == (
        "  a:\n    #a.gone\n-   gone: 1\n\n    #a.new\n+   new:\n+     x:\n+     - 1\n+     - 2\n\n"
    )


def test_what_is_under_a_masked_path_is_never_shown() -> None:
    old, new = {"data": {"k": "old"}, "x": 1}, {"data": {"k": "new"}, "x": 2}

    shown = render(diff(old, new), mask="data")

    assert "old" not in shown
    assert "-   k: '*****'\n+   k: '*****'\n" in shown
    assert "- x: 1\n+ x: 2\n" in shown


def test_a_missing_side_is_a_whole_patch() -> None:
    assert format_unified(MISSING, {"a": 1}) == "@@ -0,0 +1 @@\n+a: 1\n"
    assert format_unified({"a": 1}, {"a": 1}) == ""
