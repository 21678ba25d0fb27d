# SPDX-License-Identifier: Apache-2.0
"""A piped's configuration as it may be shown: every secret replaced by asterisks.

Secrets of ours are known by their type. What belongs to plugins is unread, so there whatever looks
like a secret by its name or its form is replaced as well. Paths of key files count as such a name.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from pipecd_model.config.document import API_VERSION
from pipecd_model.config.piped import PipedConfig
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.values import MASK, Secret, format_duration

_SECRET_NAME = re.compile(r"(?i)pass(?:word|wd|phrase)|secret|token|credential|signature|key|auth")
_PUBLIC_NAME = re.compile(r"(?i)public")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_ASSIGNMENT = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
_PEM = "-----BEGIN "


def to_masked_yaml(config: PipedConfig) -> str:
    """Write the document with its secrets masked and its defaults filled in."""
    document = {"apiVersion": API_VERSION, "kind": "Piped", "spec": _mask_value(config)}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _mask_value(value: Any, *, secret: bool = False) -> Any:
    if isinstance(value, ConfigModel):
        return _mask_settings(value)
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, dict):
        return {
            key: _mask_value(each, secret=secret or _names_a_secret(key))
            for key, each in value.items()
        }
    if isinstance(value, tuple | list):
        return [_mask_value(each, secret=secret) for each in value]
    if secret and value not in ("", None) and not isinstance(value, bool):
        return MASK
    return _mask_secret(value) if isinstance(value, str) else value


def _mask_settings(config: ConfigModel) -> dict[str, Any]:
    """Show settings of ours that are set; a name alone makes only a text suspicious, no section."""
    shown = {}
    for each in msgspec.structs.fields(config):
        value = getattr(config, each.name)
        if value is not None and value not in ("", (), {}):
            suspicious = isinstance(value, str) and _names_a_secret(each.encode_name)
            shown[each.encode_name] = _mask_value(value, secret=suspicious)
    return shown


def _names_a_secret(key: str) -> bool:
    return bool(_SECRET_NAME.search(key)) and not _PUBLIC_NAME.search(key)


def _mask_secret(text: str) -> str:
    """Mask what is a secret by its form: a key, a login in an address, `password=…`."""
    if _PEM in text and "PUBLIC" not in text:
        return MASK
    assignment = _ASSIGNMENT.fullmatch(text)
    if assignment and _names_a_secret(assignment[1]):
        return f"{assignment[1]}={MASK}"
    return _LOGIN.sub(MASK, text)
