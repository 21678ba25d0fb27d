# SPDX-License-Identifier: Apache-2.0
"""Log lines that a machine reads, and the same for a person."""

import json
import logging
import sys

from controlplane.ops.operator_log import JsonFormatter, LineFormatter


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.WARNING, __file__, 1, "disk.full", (), None)
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_json_object_with_its_fields() -> None:
    line = json.loads(JsonFormatter().format(record(fields={"free": 0, "path": "/data"})))

    assert (line["level"], line["event"], line["logger"]) == ("warning", "disk.full", "a.b")
    assert (line["free"], line["path"]) == (0, "/data")


def test_a_bug_keeps_its_traceback_in_one_line() -> None:
    try:
        1 / 0  # noqa: B018 - for its error
    except ZeroDivisionError:
        text = JsonFormatter().format(record(exc_info=sys.exc_info()))

    assert "\n" not in text
    assert "ZeroDivisionError" in json.loads(text)["traceback"]


def test_a_person_sees_event_and_fields() -> None:
    text = LineFormatter().format(record(fields={"free": 0}))

    assert text.endswith("warning disk.full free=0")
