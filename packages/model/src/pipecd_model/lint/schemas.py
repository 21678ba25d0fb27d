# SPDX-License-Identifier: Apache-2.0
"""What people wrote for a plugin, judged by the schemas that it describes itself with.

They are decoded as the plugin decodes them, so lint says what the plugin would say.
"""

from __future__ import annotations

from typing import Any

from pipecd_model.config.decoder import Findings, decode
from pipecd_model.config.path import Path
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.schemastruct import Schema, struct_from_schema


def judge(schema: Schema, value: Any, path: Path) -> Findings:
    """Return everything that is wrong with a value, and what its author should look at."""
    _, findings = decode(_struct(schema), value, path=path, strict=True)
    return findings


def _struct(schema: Schema) -> type[ConfigModel]:
    """Make the struct of a schema once; schemas live as long as the descriptions they are of."""
    if id(schema) not in _structs:
        _structs[id(schema)] = (schema, struct_from_schema(schema))
    return _structs[id(schema)][1]


_structs: dict[int, tuple[Schema, type[ConfigModel]]] = {}
"""By the identity of the schema, which is kept with its struct so that nothing else gets it."""
