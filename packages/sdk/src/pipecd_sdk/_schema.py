# SPDX-License-Identifier: Apache-2.0
"""A plugin's description of itself: its stages, and what people can write for it as JSON Schemas.

A plugin returns the schemas when it runs. Its package holds the whole description as well, in
`schemas.json`, for editors and for `pipectl lint` and `simulate` on a machine where nothing runs;
`python -m pipecd_sdk.schemas` writes that file.
"""

import json
from typing import Any

import msgspec

from pipecd_model.config import ConfigModel
from pipecd_sdk.plugin import StagePlugin


class Schemas(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one plugin; a schema is None where the plugin takes nothing."""

    needs_targets: bool = False
    quick_sync: tuple[str, ...] = ()
    """The stages that a deployment without a pipeline runs."""
    rollback: tuple[str, ...] = ()
    """The stages that the plugin plans by itself; none of them can be written in a pipeline."""
    plugin_config: dict[str, Any] | None = None
    deploy_target_config: dict[str, Any] | None = None
    application_config: dict[str, Any] | None = None
    stages: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    def text(self) -> str:
        """Returns the description as the text of `schemas.json`."""
        document = {
            "needsTargets": self.needs_targets,
            "quickSync": self.quick_sync,
            "rollback": self.rollback,
            "pluginConfig": self.plugin_config,
            "deployTargetConfig": self.deploy_target_config,
            "applicationConfig": self.application_config,
            "stages": self.stages,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def schemas_of(plugin: StagePlugin) -> Schemas:
    """Describe a plugin: its stages, and everything that people write for it."""
    kind = plugin.config_type()
    return Schemas(
        needs_targets=plugin.needs_targets,
        quick_sync=tuple(name for name, each in plugin.stages.items() if each.quick_sync),
        rollback=tuple(name for name, each in plugin.stages.items() if each.rollback),
        plugin_config=_schema(kind) if kind else None,
        deploy_target_config=_schema(plugin.target_config) if plugin.needs_targets else None,
        application_config=(
            _schema(plugin.application_config) if plugin.has_application_config() else None
        ),
        stages={
            name: _schema(definition.config) if definition.config is not None else _NO_OPTIONS
            for name, definition in plugin.stages.items()
            if not definition.rollback
        },
    )


_NO_OPTIONS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def _schema(cls: type[ConfigModel]) -> dict[str, Any]:
    from pipecd_model.config.structschema import struct_schema  # noqa: PLC0415 - asked for rarely

    return struct_schema(cls)
