# SPDX-License-Identifier: Apache-2.0
"""Decoding: types, defaults, rules between settings. What a plugin's options go through too."""

from enum import Enum
from typing import Any, ClassVar, Literal

import msgspec
import pytest

from pipecd_model.config import ConfigModel, Duration, Report, Secret, decode
from pipecd_model.config.schema import yaml_key


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Inner(ConfigModel):
    word: str
    number: int = 3


class Sample(ConfigModel):
    aliases: ClassVar = {"oldText": "text"}
    moved: ClassVar = {"gone": "use text"}

    text: str = "default"
    count: int = 7
    ratio: float = 0.5
    on: bool = True
    wait: Duration = Duration(minutes=1)
    colour: Colour = Colour.RED
    mode: Literal["FAST", "SLOW"] = "FAST"
    items: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    script: str | tuple[str, ...] = ""
    raw: dict[str, Any] = msgspec.field(default_factory=dict)
    anything: Any = None
    secret: Secret | None = None
    host_name: str = ""

    def check(self, report: Report) -> None:
        if self.text == "bad":
            report.fault("text", message="is bad")
        if self.text == "odd":
            report.warn("text", message="is odd")


def faults(raw: object) -> list[str]:
    value, findings = decode(Sample, raw)
    assert value is None
    return [str(each) for each in findings.faults]


def sample(raw: object) -> Sample:
    value, findings = decode(Sample, raw)
    assert findings.faults == []
    assert value is not None
    return value


def test_values_arrive_as_their_types() -> None:
    value = sample(
        {
            "text": "x",
            "count": 5.0,
            "ratio": 2,
            "on": False,
            "wait": "90s",
            "colour": "BLUE",
            "mode": "SLOW",
            "items": ["a", "b"],
            "labels": {"k": "v", "empty": None},
            "inner": {"word": "w"},
            "inners": [{"word": "1"}, {"word": "2", "number": 4}],
            "raw": {"any": [1, {"thing": None}]},
            "anything": [1],
            "secret": "s",
            "hostname": "h",
        }
    )

    assert value == Sample(
        text="x",
        count=5,
        ratio=2,
        on=False,
        wait=Duration(seconds=90),
        colour=Colour.BLUE,
        mode="SLOW",
        items=("a", "b"),
        labels={"k": "v", "empty": ""},
        inner=Inner(word="w"),
        inners=(Inner(word="1"), Inner(word="2", number=4)),
        raw={"any": [1, {"thing": None}]},
        anything=[1],
        secret=Secret("s"),
        host_name="h",
    )
    assert type(value.count) is int


@pytest.mark.parametrize(
    "raw",
    [
        {},
        None,
        {"text": None, "count": None, "on": None, "items": None, "inner": None, "raw": None},
        {"text": "", "count": 0, "ratio": 0.0, "wait": "0s", "items": [], "labels": {}, "raw": {}},
        {"wait": 0, "items": {}},
    ],
)
def test_null_and_zero_mean_the_default(raw: object) -> None:
    assert sample(raw) == Sample()


def test_only_a_boolean_can_be_turned_off() -> None:
    assert sample({"on": False}).on is False


def test_defaults_are_not_shared() -> None:
    sample({}).labels["k"] = "v"

    assert sample({}).labels == {}


def test_a_struct_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        sample({}).text = "other"


def test_a_text_or_a_list_is_told_apart_by_what_is_written() -> None:
    assert sample({"script": "a"}).script == "a"
    assert sample({"script": ["a", "b"]}).script == ("a", "b")
    assert faults({"script": 5}) == ["script: expected a text, got the number 5 (put it in quotes)"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"text": 1.5}, "text: expected a text, got the number 1.5 (put it in quotes)"),
        ({"text": True}, "text: expected a text, got true (put it in quotes)"),
        ({"text": ["a"]}, "text: expected a text, got a list"),
        ({"count": "7"}, "count: expected a number, got the text '7' (without quotes)"),
        ({"count": 7.5}, "count: expected a whole number, got 7.5"),
        ({"count": True}, "count: expected a number, got true"),
        ({"ratio": "x"}, "ratio: expected a number, got the text 'x' (without quotes)"),
        ({"on": "true"}, "on: expected true or false, got the text 'true' (without quotes)"),
        ({"on": 1}, "on: expected true or false, got the number 1 (without quotes)"),
        ({"wait": None}, "wait: the value is empty (remove the key or give e.g. 90s, 5m)"),
        ({"wait": "soon"}, "wait: not a duration: 'soon' (e.g. 90s, 5m)"),
        (
            {"colour": "GREEN"},
            "colour: unknown value 'GREEN' (did you mean 'RED'? one of RED, BLUE)",
        ),
        ({"mode": "slow"}, "mode: unknown value 'slow' (did you mean 'SLOW'? one of FAST, SLOW)"),
        ({"mode": []}, "mode: unknown value [] (one of FAST, SLOW)"),
        ({"items": "a"}, "items: expected a list, got the text 'a'"),
        ({"items": {"a": 1}}, 'items: expected a list, got a mapping (start each item with "- ")'),
        ({"items": ["a", None]}, "items[1]: the item is empty (remove it)"),
        ({"items": ["a", 5]}, "items[1]: expected a text, got the number 5 (put it in quotes)"),
        ({"labels": ["a"]}, "labels: expected a mapping, got a list"),
        ({"labels": {"k": 1}}, "labels.k: expected a text, got the number 1 (put it in quotes)"),
        (
            {"inner": "word:x"},
            "inner: expected a mapping, got the text 'word:x' (add a space after \":\")",
        ),
        ({"inner": 5}, "inner: expected a mapping, got the number 5 (with word, number)"),
        ({"inner": {}}, "inner.word: missing"),
        ({"inner": {"word": ""}}, "inner.word: must not be empty"),
        ({"inners": [{"word": "a"}, {}]}, "inners[1].word: missing"),
        ({"raw": "x"}, "raw: expected a mapping, got the text 'x'"),
        ({"secret": 12345}, "secret: expected a text (put it in quotes)"),
        ({"text": "bad"}, "text: is bad"),
        (
            {"text": "a", "oldText": "b"},
            "oldText: oldText and text are the same setting (use only text)",
        ),
        ("x", "expected a mapping, got the text 'x' (with text, count, ratio, on, wait, colour)"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(raw: object, told: str) -> None:
    assert faults(raw) == [told]


def test_everything_wrong_is_said_at_once() -> None:
    told = faults({"count": "x", "inners": [{}, {"word": 1}], "text": "bad", "labels": 1})

    assert [each.split(":")[0] for each in told] == [
        "count",
        "labels",
        "inners[0].word",
        "inners[1].word",
        "text",
    ]


def test_an_alias_is_read() -> None:
    assert sample({"oldtext": "x"}).text == "x"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"txt": 1}, "txt: unknown key, ignored (did you mean 'text'?)"),
        ({"gone": 1}, "gone: unknown key, ignored (use text)"),
        ({"zzzzzz": 1}, "zzzzzz: unknown key, ignored"),
        ({"Text": "x"}, "Text: elsewhere spelled 'text'"),
        ({"wait": 30}, "wait: a bare number counts nanoseconds: 30 (did you mean 30s?)"),
        ({"text": "odd"}, "text: is odd"),
    ],
)
def test_what_is_odd_is_told_and_loads(raw: object, told: str) -> None:
    value, findings = decode(Sample, raw)

    assert value is not None
    assert [str(each) for each in findings.warnings] == [told]


def test_a_large_bare_number_is_a_duration_like_any_other() -> None:
    _, findings = decode(Sample, {"wait": 60_000_000_000})

    assert findings.warnings == []


def test_strict_decoding_refuses_unknown_keys() -> None:
    _, findings = decode(Sample, {"txt": 1}, strict=True)

    assert [str(each) for each in findings.faults] == ["txt: unknown key (did you mean 'text'?)"]


def test_paths_start_where_the_caller_says() -> None:
    _, findings = decode(Sample, {"count": "x"}, path=("spec", "stages", 2, "with"))

    assert str(findings.faults[0]).startswith("spec.stages[2].with.count: ")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("piped_id", "pipedID"),
        ("hook_url", "hookURL"),
        ("host_name", "hostName"),
        ("with_", "with"),
        ("name", "name"),
    ],
)
def test_a_field_is_spelled_as_files_do(name: str, key: str) -> None:
    assert yaml_key(name) == key
