# SPDX-License-Identifier: Apache-2.0
"""What people can write for a plugin, as JSON Schemas: for editors, `pipectl lint` and piped.

A plugin answers them when it runs. Its package holds them as well, in `schemas.json`, for whoever
lints a file on a machine where nothing runs; `python -m pipecd_sdk.schemas` writes that file.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from pipecd_model.config import ConfigModel
from pipecd_sdk.plugin import StagePlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """The schemas of one plugin; None where it takes nothing."""

    plugin_config: dict[str, Any] | None = None
    deploy_target_config: dict[str, Any] | None = None
    application_config: dict[str, Any] | None = None
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def text(self) -> str:
        """All of them as one file."""
        document = {
            "pluginConfig": self.plugin_config,
            "deployTargetConfig": self.deploy_target_config,
            "applicationConfig": self.application_config,
            "stages": self.stages,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def schemas_of(plugin: StagePlugin) -> Schemas:
    """Describe everything that people write for a plugin."""
    kind = plugin.config_type()
    return Schemas(
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
