# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of options."""

import json
from enum import Enum
from typing import Any, Literal

from pipecd_sdk import Duration, Secret, StageConfig, field
from pipecd_sdk._schema import schema


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(StageConfig):
    """What is inside."""

    path: str


class Options(StageConfig):
    """All kinds of options.

    With more words.
    """

    duration: Duration
    grace: Duration = Duration(seconds=10)
    min_count: int = 1
    ratio: float = 0.5
    enabled: bool = True
    token: Secret | None = None
    names: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    mode: Literal["fast", "safe"] = "safe"
    colour: Colour = Colour.RED
    inner: Inner | None = None
    anything: dict[str, Any] = field(default_factory=dict)


def test_every_kind_of_option_is_described_as_people_write_it() -> None:
    assert json.loads(schema(Options)) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Options",
        "description": "All kinds of options.",
        "required": ["duration"],
        "properties": {
            "duration": {"type": ["string", "number"], "examples": ["90s", "5m", "1h30m"]},
            "grace": {
                "type": ["string", "number"],
                "examples": ["90s", "5m", "1h30m"],
                "default": "10s",
            },
            "minCount": {"type": "integer", "default": 1},
            "ratio": {"type": "number", "default": 0.5},
            "enabled": {"type": "boolean", "default": True},
            "token": {"type": "string"},
            "names": {"type": "array", "items": {"type": "string"}},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "mode": {"enum": ["fast", "safe"], "default": "safe"},
            "colour": {"enum": ["red", "blue"]},
            "inner": {
                "type": "object",
                "title": "Inner",
                "description": "What is inside.",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
            "anything": {"type": "object", "additionalProperties": {}},
        },
    }
