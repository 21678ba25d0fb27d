# SPDX-License-Identifier: Apache-2.0
"""The operator log: events with a dotted name and fields, for the operator of a process.

Piped and control plane log through it; stage logs, which the person deploying reads, are another
thing. A line of another package with `extra={"fields": …}` is shown the same way.
"""

import contextvars
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

HTTP_CLIENTS: Final = ("httpx2", "httpcore2")
"""Loggers that write whole addresses and headers, with the signatures and tokens in them."""

_bound: contextvars.ContextVar[Mapping[str, object]] = contextvars.ContextVar("bound", default={})  # noqa: B039 - never changed in place


class Logger:
    """A stdlib logger whose calls take fields: `log.info("stage.finished", stage=name)`."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def bug(self, event: str, **fields: object) -> None:
        """Logs an unexpected error, with the traceback of the exception being handled."""
        self._write(logging.ERROR, event, fields, trace=True)

    def _write(
        self, level: int, event: str, fields: Mapping[str, object], *, trace: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"fields": {**_bound.get(), **fields}}
            self._logger.log(level, event, extra=extra, exc_info=trace, stacklevel=3)


def logger(name: str) -> Logger:
    """Returns the logger of a module: `log = logger(__name__)`."""
    return Logger(name)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Adds fields to every line that is logged inside the block, in tasks started there too."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def configure(
    level: str = "info", *, json_lines: bool | None = None, stream: TextIO | None = None
) -> None:
    """Writes the process's log to stderr: as JSON lines, or as short lines on a terminal."""
    stream = sys.stderr if stream is None else stream
    json_lines = not stream.isatty() if json_lines is None else json_lines
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if json_lines else ShortFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for each in HTTP_CLIENTS:
        logging.getLogger(each).setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, logger, fields."""

    def __init__(
        self, *, has_time: bool = True, event_key: str = "event", traceback_key: str = "traceback"
    ) -> None:
        """The keys can be set for other readers; `has_time` False if the reader adds the time."""
        super().__init__()
        self._has_time = has_time
        self._event_key = event_key
        self._traceback_key = traceback_key

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"time": _timestamp(record)} if self._has_time else {}
        line["level"] = record.levelname.lower()
        line[self._event_key] = record.getMessage()
        line["logger"] = record.name
        line |= fields_of(record)
        if record.exc_info:
            line[self._traceback_key] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class ShortFormatter(logging.Formatter):
    """Short lines such as `12:00:01 warning plugin.failed plugin=wait`."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {key}={_plain(value)}" for key, value in fields_of(record).items())
        text = f"{clock} {record.levelname.lower()} {record.getMessage()}{fields}"
        if not record.exc_info:
            return text
        lines = self.formatException(record.exc_info).split("\n")
        return "\n".join((text, *(each if each.isprintable() else repr(each) for each in lines)))


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Returns the fields that a line was written with."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _timestamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _plain(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
