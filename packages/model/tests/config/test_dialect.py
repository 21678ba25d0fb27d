# SPDX-License-Identifier: Apache-2.0
"""The YAML dialect: files mean here what they mean to others who read them."""

import json
from typing import Any

import pytest
import yaml

from pipecd_model.config import dialect


def value(text: str) -> Any:
    parsed = dialect.parse(text)
    assert parsed.faults == []
    return parsed.value


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", True),
        ("On", True),
        ("TRUE", True),
        ("y", True),
        ("no", False),
        ("off", False),
        ("N", False),
        ("yEs", "yEs"),
        ("~", None),
        ("", None),
        ("null", None),
        ("12:30", "12:30"),
        ("22:22:22", "22:22:22"),
        ("2024-01-02", "2024-01-02"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1.5e-2", -0.015),
        ("10", 10),
        ("-10", -10),
        ("+10", 10),
        ("0", 0),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0o17", 15),
        ("017", 15),
        ("0b101", 5),
        ("08", 8.0),
        ("10%", "10%"),
        ("1.2.3", "1.2.3"),
        ("v1", "v1"),
        ("1e", "1e"),
        ("0x", "0x"),
        ("+", "+"),
        (".", "."),
        ("'10'", "10"),
        ('"yes"', "yes"),
        ("!!str 10", "10"),
        ("!!int '10'", 10),
        ("=", "="),
    ],
)
def test_a_word_means(written: str, meant: object) -> None:
    found = value(f"a: {written}\n")["a"]

    assert found == meant
    assert type(found) is type(meant)


def test_blocks_are_texts() -> None:
    assert value("a: |\n  1\n  2\nb: >\n  yes\n") == {"a": "1\n2\n", "b": "yes\n"}


def test_keys_become_texts() -> None:
    assert value("8080: a\n1.5: b\n'1': c\n") == {"8080": "a", "1.5": "b", "1": "c"}


def test_a_key_that_reads_as_a_boolean_is_told() -> None:
    parsed = dialect.parse("a:\n  on: 1\n")

    assert parsed.value == {"a": {"true": 1}}
    assert [(slip.line, slip.column, slip.message) for slip in parsed.warnings] == [
        (2, 3, "the key 'on' is read as 'true'")
    ]


def test_a_key_given_twice_is_a_fault_that_names_both_lines() -> None:
    parsed = dialect.parse("a: 1\nb: 2\na: 3\nb: 4\n")

    assert [(slip.line, slip.message) for slip in parsed.faults] == [
        (3, "the key 'a' is given twice, first in line 1"),
        (4, "the key 'b' is given twice, first in line 2"),
    ]


def test_anchors_and_aliases_are_written_out() -> None:
    assert value("a: &x {k: 1}\nb: *x\nc: &y text\nd: [*y]\n*y : z\n") == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": "text",
        "d": ["text"],
        "text": "z",
    }


def test_merged_keys_give_way_to_the_maps_own() -> None:
    text = "base: &b {k: 1, l: 1}\nmore: &m {l: 2, m: 2}\na:\n  k: 0\n  <<: [*b, *m]\n"

    assert value(text)["a"] == {"k": 0, "l": 1, "m": 2}


def test_merging_does_not_count_as_giving_a_key_twice() -> None:
    assert value("base: &b {x: 1}\na:\n  <<: *b\n  x: 2\n")["a"] == {"x": 2}


def test_merging_something_else_is_a_fault() -> None:
    parsed = dialect.parse("a:\n  <<: 5\n")

    assert [slip.message for slip in parsed.faults] == ["<< takes a mapping or a list of mappings"]


def test_a_quoted_merge_key_is_a_key() -> None:
    assert value("a: {'<<': 1}\n") == {"a": {"<<": 1}}


def test_json_is_yaml() -> None:
    document = {"a": [1, 2.5, None, True, "x"], "b": {"c": {}}, "d": []}

    assert value(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: .inf\n", ".inf is not a number"),
        ("a: -.Inf\n", "-.Inf is not a number"),
        ("a: .nan\n", ".nan is not a number"),
        ("a: 1e999\n", "the number 1e999 is out of range"),
        ("a: !!binary aGk=\n", "the tag !!binary is not supported"),
        ("a: !mine x\n", "the tag !mine is not supported"),
        (
            "a: !!python/object/apply:os.system [x]\n",
            "the tag !!python/object/apply:os.system is not supported",
        ),
        ("? \n: 1\n", "a key is empty"),
    ],
)
def test_what_cannot_be_written_as_json_is_a_fault(text: str, message: str) -> None:
    assert [slip.message for slip in dialect.parse(text).faults] == [message]


def test_only_the_first_document_counts_and_a_second_is_told() -> None:
    parsed = dialect.parse("a: 1\n---\na: 2\n")

    assert parsed.value == {"a": 1}
    assert [slip.line for slip in parsed.warnings] == [2]


@pytest.mark.parametrize("text", ["a: 1\n---\n", "---\na: 1\n...\n", "a: 1\n---\n[broken\n"])
def test_what_is_empty_or_broken_past_the_first_document_does_not_matter(text: str) -> None:
    assert dialect.parse(text).value == {"a": 1}


def test_nothing_is_none() -> None:
    assert value("") is None
    assert value("# only a comment\n") is None


def test_an_alias_inside_what_it_stands_for_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="inside what it stands for"):
        dialect.parse("a: &x [1, *x]\n")


def test_an_alias_to_nothing_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match=r"\*x is not defined"):
        dialect.parse("a: *x\n")


@pytest.mark.parametrize("opened", ["[", "- ", "{a: "])
def test_a_hundred_thousand_levels_are_refused_and_do_not_end_the_process(opened: str) -> None:
    """Composing such a text with the C parser's own nodes ends the interpreter."""
    with pytest.raises(yaml.YAMLError, match="levels deep"):
        dialect.parse(opened * 100_000)


def test_a_few_lines_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    with pytest.raises(yaml.YAMLError, match="once aliases are written out"):
        dialect.parse("\n".join(lines))


def test_a_very_long_number_is_a_text() -> None:
    digits = "9" * 10_000

    assert value(f"a: {digits}\n") == {"a": digits}
