# SPDX-License-Identifier: Apache-2.0
"""Paths to numbers in JSON."""

from typing import Any

import pytest
from pipecd_plugin_analysis.jsonpath import (
    BadJsonPathError,
    NoSuchValueError,
    find_values,
    parse_path,
)

DOCUMENT = {"data": [{"v": 1, "a b": [10, 20]}, {"v": 2}], "m": {"x": 3, "y": 4}, "one": 5}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.one", [5]),
        ("$.data[*].v", [1, 2]),
        ("$.data[-1].v", [2]),
        ("$['data'][0][\"a b\"]", [10, 20]),
        ("$.m.*", [3, 4]),
        ("$.data[0]['a b'][1]", [20]),
    ],
)
def test_a_path_leads_to_its_values(path: str, found: list[Any]) -> None:
    assert find_values(DOCUMENT, parse_path(path)) == found


def test_a_list_at_the_top_is_taken_item_by_item() -> None:
    assert find_values([1, 2], parse_path("$")) == [1, 2]


@pytest.mark.parametrize("path", ["", "one", "$one", "$..one", "$[?(@.a)]", "$.a[1:2]", "$.", "$["])
def test_what_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(BadJsonPathError):
        parse_path(path)


@pytest.mark.parametrize("path", ["$.nope", "$.data[7]", "$.one.two", "$.one[*]", "$.data.v"])
def test_a_step_into_nothing_is_told_with_its_place(path: str) -> None:
    with pytest.raises(NoSuchValueError, match="the answer has nothing at"):
        find_values(DOCUMENT, parse_path(path))
