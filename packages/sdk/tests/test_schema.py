# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of options."""

import json
from enum import Enum
from typing import Any, Literal

from pipecd_sdk import (
    ApplicationConfig,
    DeploymentPlugin,
    Duration,
    Secret,
    StageConfig,
    StageContext,
    TargetConfig,
    field,
    stage,
)
from pipecd_sdk._schema import schemas_of
from pipecd_sdk.schemas import text_of


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
    """How long."""
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


class Target(TargetConfig):
    path: str


class Section(ApplicationConfig):
    into: str = ""


class Lab(DeploymentPlugin):
    target_config = Target
    application_config = Section

    @stage("LAB_SYNC", quick_sync=True)
    async def sync(self, ctx: StageContext) -> None: ...

    @stage("LAB_ROLLOUT")
    async def roll_out(self, ctx: StageContext, config: Options) -> None: ...

    @stage("LAB_ROLLBACK", rollback=True)
    async def roll_back(self, ctx: StageContext) -> None: ...


def test_every_kind_of_option_is_described_as_people_write_it() -> None:
    found = schemas_of(Lab()).stages["LAB_ROLLOUT"]

    assert found == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Options",
        "description": "All kinds of options.\n\nWith more words.",
        "required": ["duration"],
        "additionalProperties": False,
        "properties": {
            "duration": {
                "type": ["string", "number"],
                "x-type": "duration",
                "examples": ["90s", "5m", "1h30m"],
                "description": "How long.",
            },
            "grace": {
                "type": ["string", "number"],
                "x-type": "duration",
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
            "inner": {"$ref": "#/$defs/Inner", "description": "What is inside."},
            "anything": {"type": "object", "additionalProperties": True},
        },
        "$defs": {
            "Inner": {
                "type": "object",
                "description": "What is inside.",
                "properties": {"path": {"type": "string"}},
                "additionalProperties": False,
                "required": ["path"],
            },
        },
    }


def test_all_places_where_people_write_for_a_plugin_are_described() -> None:
    found = json.loads(schemas_of(Lab()).text())

    assert found["pluginConfig"] is None
    assert list(found["deployTargetConfig"]["properties"]) == ["path"]
    assert list(found["applicationConfig"]["properties"]) == ["into"]
    assert list(found["stages"]) == ["LAB_SYNC", "LAB_ROLLOUT"]  # nobody writes a rollback
    assert found["stages"]["LAB_SYNC"]["properties"] == {}


def test_a_plugin_says_which_stages_are_planned_by_themselves_and_what_it_needs() -> None:
    found = json.loads(schemas_of(Lab()).text())

    assert (found["quickSync"], found["rollback"]) == (["LAB_SYNC"], ["LAB_ROLLBACK"])
    assert found["needsTargets"] is True


def test_anybody_can_print_them() -> None:
    assert json.loads(text_of("pipecd_plugin_wait.plugin:Wait"))["stages"].keys() == {"WAIT"}
