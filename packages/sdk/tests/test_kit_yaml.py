# SPDX-License-Identifier: Apache-2.0
"""YAML in and out, as Go reads it."""

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_sdk.kit import patterns, yaml

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
    | st.sampled_from(["y", "No", "on", "1e3", "0x1f", "-", ".5", "12:30", "a\nb\n", "~", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(categories=["L"]), min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_the_examples_are_true() -> None:
    for module in (yaml, patterns):
        assert doctest.testmod(module).failed == 0


@given(VALUES)
def test_what_is_written_is_read_as_the_same(value: object) -> None:
    assert yaml.load(yaml.dump(value)) == value


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), max_size=4))
def test_several_documents_are_read_as_they_were_written(values: list[Any]) -> None:
    assert yaml.load_all(yaml.dump_all(values)) == values


def test_documents_with_directives_comments_and_wide_characters_are_told_apart() -> None:
    text = "%YAML 1.1\n---\nname: 🚀 ü\n...\n# between\n--- {a: 1}\n---\n- x\n"

    assert yaml.load_all(text) == [{"name": "🚀 ü"}, {"a": 1}, ["x"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4: the key 'b' is given twice"),
        ("a: !!python/object:os.system x", "line 1: the tag"),
        (b"a: \xff", "not UTF-8 at byte 3"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str | bytes, told: str) -> None:
    with pytest.raises(yaml.YamlError, match=told):
        yaml.load_all(text)


def test_a_value_that_is_there_twice_is_written_twice() -> None:
    shared = {"a": 1}

    assert yaml.dump([shared, shared]) == "- a: 1\n- a: 1\n"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "{a: " * 100_000 + "}" * 100_000,
        "kind: Service\n---\nspec: " + "[" * 200_000 + "]" * 200_000,
    ],
    ids=["open", "closed", "in the second document"],
)
def test_brackets_without_end_are_refused_at_once(text: str) -> None:
    """The parser alone needs minutes for them, and the file comes from anybody's branch."""
    with pytest.raises(yaml.YamlError, match="nested more than 100 levels deep"):
        yaml.load_all(text)
