# SPDX-License-Identifier: Apache-2.0
"""The log of operators: lines on stderr, which piped takes over into its own."""

import json
import logging
import sys
from typing import Final

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


def set_up_logging(level: str, encoding: str) -> None:
    """Send everything that is logged to stderr, in the encoding of upstream's flag."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if encoding == "json" else _Plain())
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)


class _Plain(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        return f"{super().formatMessage(record)} {fields}".rstrip()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}
