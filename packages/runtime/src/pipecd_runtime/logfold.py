# SPDX-License-Identifier: Apache-2.0
"""Folds equal lines of the operator log: the first few of an interval are written, then a count.

For lines that callers can cause at will: a flood of them must not fill a disk, nor hide everything
else.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

MOST_KINDS: Final = 500
"""Kinds of lines that are counted apart; further ones of a logger and level are one kind."""

TELLING_FIELDS: Final = ("status", "reason")
"""Fields with few values that make a line another kind."""


@dataclass(slots=True)
class _Kind:
    since: float
    written: int
    held_back: int
    last: logging.LogRecord


class FoldRepeats(logging.Filter):
    """A filter of handlers that lets at most `burst` equal lines pass in an interval.

    Lines are equal when logger, level, event and `TELLING_FIELDS` are. Only those of `loggers` and
    of what is below them count, and of these only what is at least of level INFO.
    """

    def __init__(
        self,
        loggers: Collection[str],
        *,
        always: Collection[str] = (),
        burst: int = 20,
        interval: timedelta = timedelta(seconds=10),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.seconds = interval.total_seconds()
        self._exact = frozenset(loggers)
        self._prefixes = tuple(f"{name}." for name in loggers)
        self._always = frozenset(always)
        self._burst = burst
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._is_meant(record) or getattr(record, "is_summary", False):
            return True
        now = self._clock()
        with self._lock:
            key = self._key(record)
            kind = self._kinds.get(key)
            if kind is None or (now - kind.since >= self.seconds and not kind.held_back):
                self._kinds[key] = _Kind(now, 1, 0, record)
                return True
            kind.written += 1
            if kind.written <= self._burst:
                return True
            kind.held_back += 1
            kind.last = record
            is_due = now - kind.since >= self.seconds
        if is_due:
            self.flush()
        return False

    def flush(self) -> None:
        """Logs how many lines were held back in the intervals that are over."""
        now = self._clock()
        with self._lock:
            over = {
                key: kind for key, kind in self._kinds.items() if now - kind.since >= self.seconds
            }
            for key in over:
                del self._kinds[key]
        for kind in over.values():
            if kind.held_back:
                _write_summary(kind, now)

    def _is_meant(self, record: logging.LogRecord) -> bool:
        return (
            record.levelno >= logging.INFO
            and (record.name in self._exact or record.name.startswith(self._prefixes))
            and record.msg not in self._always
        )

    def _key(self, record: logging.LogRecord) -> Hashable:
        fields = getattr(record, "fields", {})
        told = tuple(str(fields.get(name, ""))[:100] for name in TELLING_FIELDS)
        key = (record.name, record.levelno, str(record.msg)[:200], told)
        if len(self._kinds) < MOST_KINDS or key in self._kinds:
            return key
        return (record.name, record.levelno)


def _write_summary(kind: _Kind, now: float) -> None:
    last = kind.last
    fields = getattr(last, "fields", {})
    told = {name: fields[name] for name in TELLING_FIELDS if name in fields}
    told |= {"repeated": kind.held_back, "seconds": round(now - kind.since, 1)}
    values = last.args if isinstance(last.args, tuple) else ()
    logging.getLogger(last.name).log(
        last.levelno, last.msg, *values, extra={"fields": told, "is_summary": True}
    )
