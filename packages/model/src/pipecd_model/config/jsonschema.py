# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of each kind, for editors, made from the same structs that load the files.

The struct is `structschema`'s part; here is what a file has around it.
"""

from __future__ import annotations

from typing import Any, Final

from pipecd_model.config import v0
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.describe import summary
from pipecd_model.config.document import API_VERSION, KINDS
from pipecd_model.config.structschema import DIALECT, reference

NAMES: Final = (*KINDS, *v0.KINDS)
"""Every kind that has a schema."""


def document_schema(kind: str) -> dict[str, Any]:
    """Describe a whole file of a kind."""
    cls = KINDS.get(kind, ApplicationConfig)
    definitions: dict[str, Any] = {}
    spec = reference(cls, definitions)
    if kind in v0.KINDS:
        older = {key: {"type": ["object", "array", "null"]} for key in v0.section_keys(kind)}
        body = definitions[cls.__name__]
        definitions[cls.__name__] = {**body, "properties": body["properties"] | older}
    return {
        "$schema": DIALECT,
        "title": kind,
        "description": summary(cls),
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": {"type": "object", "description": "`labels.kind` becomes a label."},
            "spec": spec,
        },
        "required": ["apiVersion", "kind"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }
