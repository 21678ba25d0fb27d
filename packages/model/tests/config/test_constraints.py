# SPDX-License-Identifier: Apache-2.0
"""Constraints as data, and structs made from schemas: refused as the real struct refuses."""

import json
from typing import Any, ClassVar, Literal

import pytest
from msgspec import field

from pipecd_model.config import ConfigModel, Duration, Percentage, Replicas, decode
from pipecd_model.config.constraints import (
    AddsUp,
    AnyGiven,
    AtMostCount,
    InRange,
    NoSuchConstraintError,
    NotTogether,
    parse_constraint,
)
from pipecd_model.config.schemastruct import struct_from_schema
from pipecd_model.config.structschema import struct_schema


class Part(ConfigModel):
    """A part."""

    name: str
    low: float | None = None


class Options(ConfigModel):
    """All kinds of settings."""

    moved: ClassVar = {"old": "use age"}
    constraints: ClassVar = (
        InRange(key="age", minimum=0, message="too young: {value}"),
        InRange(key="copies", minimum=1, maximum=10, message="not 1 to 10: {value}", hint="1"),
        NotTogether(key="right", others=("left",), message="left excludes it"),
        AnyGiven(among=("left", "right", "part"), message="nothing is chosen", hint="left"),
        AnyGiven(
            key="part",
            section="part",
            among=("low",),
            when={"mode": "deep"},
            unless="left",
            message="missing",
        ),
        AtMostCount(key="votes", of="voters", message="{value} of {count}"),
        AddsUp(key="first", keys=("first", "second"), total=100, message="it is {sum}"),
    )

    age: Duration = Duration(seconds=5)
    copies: Replicas = Replicas()
    left: str = ""
    right: tuple[str, ...] = ()
    part: Part | None = None
    mode: Literal["flat", "deep"] = "flat"
    votes: int = 1
    voters: tuple[str, ...] = ()
    first: Percentage = Percentage(0)
    second: Percentage = Percentage(0)
    either: int | Literal["all"] = 0
    parts: dict[str, Part] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


def told(cls: type[ConfigModel], raw: object) -> list[str]:
    _, found = decode(cls, raw, strict=True)
    return [str(each) for each in (*found.faults, *found.warnings)]


AGAIN = struct_from_schema(json.loads(json.dumps(struct_schema(Options))))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"left": "a"}, []),
        ({}, ["nothing is chosen (left)"]),
        ({"left": " "}, ["nothing is chosen (left)"]),
        ({"left": "a", "age": "-1s"}, ["age: too young: -1s"]),
        ({"left": "a", "copies": "11%"}, ["copies: not 1 to 10: 11% (1)"]),
        (
            {"left": "a", "Right": ["b"]},
            ["Right: left excludes it", "Right: elsewhere spelled 'right'"],
        ),
        ({"part": {"name": "x"}, "mode": "deep"}, ["part: missing"]),
        ({"left": "a", "mode": "deep"}, []),
        ({"part": {"name": "x", "low": 1}, "mode": "deep"}, []),
        ({"left": "a", "votes": 2, "voters": ["x", "x"]}, ["votes: 2 of 1"]),
        ({"left": "a", "votes": 2}, []),
        ({"left": "a", "first": 30, "second": "60%"}, ["second: it is 90"]),
        ({"left": "a", "second": 60}, []),
        ({"left": "a", "second": 101}, ["second: it is 101"]),
        ({"left": "a", "either": "all"}, []),
        ({"left": "a", "either": 3}, []),
        ({"left": "a", "either": []}, ["either: expected a number, got a list"]),
        ({"left": "a", "old": 1}, ["old: unknown key (use age)"]),
        ({"left": "a", "parts": {"x": {}}}, ["parts.x.name: missing"]),
        ({"left": "a", "others": {"x": {"y": 1}}}, []),
        ({"left": 1}, ["left: expected a text, got the number 1 (put it in quotes)"]),
    ],
)
def test_a_struct_and_its_schema_refuse_the_same_with_the_same_words(
    raw: object, expected: list[str]
) -> None:
    assert told(Options, raw) == expected
    assert told(AGAIN, raw) == expected


def test_a_constraint_is_read_back_as_it_was_written() -> None:
    for each in Options.constraints:
        again = parse_constraint(json.loads(json.dumps(each.to_json())))
        assert again.to_json() == json.loads(json.dumps(each.to_json()))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "newer"},
        {"kind": "inRange", "step": 2},
        {"kind": "inRange", "key": "a"},
        {"kind": "inRange", "key": "a", "message": "m", "minimum": "one"},
        {"kind": "inRange", "key": ["a"], "message": "m"},
        {"kind": "anyGiven", "message": "m", "among": 7},
        {"kind": "addsUp", "message": {}, "keys": ["a"], "total": 1},
    ],
)
def test_what_is_no_constraint_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(NoSuchConstraintError):
        parse_constraint(raw)


def test_what_a_schema_says_in_a_way_that_is_not_known_refuses_nothing() -> None:
    cls = struct_from_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": ["string", "null"]},
                "b": {"oneOf": [{"type": "integer"}]},
                "c": {"$ref": "#/$defs/Gone"},
                "d": {"type": "array"},
            },
            "x-constraints": [{"kind": "newer"}],
        }
    )

    assert told(cls, {"a": 1, "b": "x", "c": [1], "d": [1, "a"], "e": 5}) == []


@pytest.mark.parametrize(
    "message", ["{other}", "{value.__class__}", "{value:>999999999999}", "{", "{0}"]
)
def test_the_sentence_of_a_schema_is_no_format_string(message: str) -> None:
    """A schema comes with somebody's plugin: it must neither crash lint nor read objects."""

    class Aged(ConfigModel):
        constraints: ClassVar = (InRange(key="age", minimum=1, message=message),)

        age: int = 0

    [fault] = told(Aged, {"age": -1})
    assert message in fault
