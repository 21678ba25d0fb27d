# SPDX-License-Identifier: Apache-2.0
"""The log of operators: lines on stderr, which piped takes over into its own."""

import logging
import sys
from typing import Final

from pipecd_runtime.logs import JsonFormatter, fields_of

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


def set_up_logging(level: str, encoding: str) -> None:
    """Send everything that is logged to stderr, in the encoding of upstream's flag."""
    handler = logging.StreamHandler(sys.stderr)
    if encoding == "json":
        json = JsonFormatter(has_time=False, event_key="msg", traceback_key="error")
        handler.setFormatter(json)
    else:
        handler.setFormatter(_PlainFormatter())
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)


class _PlainFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        fields = " ".join(f"{key}={value}" for key, value in fields_of(record).items())
        return f"{super().formatMessage(record)} {fields}".rstrip()
