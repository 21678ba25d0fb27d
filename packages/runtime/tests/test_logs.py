# SPDX-License-Identifier: Apache-2.0
"""The operator log: names and fields, JSON for machines, short lines for people."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from pipecd_runtime.logs import JsonFormatter, configure, log_context, logger


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before


def test_a_line_is_json_with_its_fields(out: io.StringIO) -> None:
    configure(stream=out)

    logger("piped.x").info("stage.finished", stage="WAIT", seconds=1.5)

    line = json.loads(out.getvalue())
    assert line["event"] == "stage.finished"
    assert (line["level"], line["logger"]) == ("info", "piped.x")
    assert (line["stage"], line["seconds"]) == ("WAIT", 1.5)
    assert line["time"].endswith("Z")


def test_bound_fields_are_carried_until_the_end_of_the_block(out: io.StringIO) -> None:
    configure(stream=out)
    log = logger("piped.x")

    with log_context(deployment="d1"), log_context(stage="s1"):
        log.info("inside")
    log.info("outside")

    inside, outside = map(json.loads, out.getvalue().splitlines())
    assert (inside["deployment"], inside["stage"]) == ("d1", "s1")
    assert "deployment" not in outside


def test_fields_of_other_packages_are_shown_too(out: io.StringIO) -> None:
    configure(stream=out)

    logging.getLogger("pipecd_wire.rpc").error("rpc.bug", extra={"fields": {"bug": "1"}})

    assert json.loads(out.getvalue())["bug"] == "1"


def test_a_bug_brings_its_traceback(out: io.StringIO) -> None:
    configure(stream=out)

    try:
        1 / 0  # noqa: B018 - a bug
    except ZeroDivisionError:
        logger("piped.x").bug("component.failed")

    assert "ZeroDivisionError" in json.loads(out.getvalue())["traceback"]


def test_a_person_gets_short_lines(out: io.StringIO) -> None:
    configure(json_lines=False, stream=out)

    logger("piped.x").warning("plugin.failed", plugin="wait", sentence="it has gone")

    assert out.getvalue().endswith(" warning plugin.failed plugin=wait sentence='it has gone'\n")


def test_lines_below_the_level_are_not_written(out: io.StringIO) -> None:
    configure("warning", stream=out)

    logger("piped.x").info("boring")

    assert out.getvalue() == ""


def test_requests_are_not_logged_with_their_signed_addresses(out: io.StringIO) -> None:
    configure("debug", stream=out)

    logging.getLogger("httpx2").info("HTTP Request: PUT https://bucket/?X-Amz-Signature=c0ffee")
    logging.getLogger("httpcore2.http11").debug("send_request_headers: Authorization")

    assert out.getvalue() == ""


def test_no_traceback_brings_a_control_to_the_terminal(out: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError("\x1b]0;owned\x07")

    configure(json_lines=False, stream=out)
    try:
        fail()
    except ValueError:
        logger("test").bug("it.broke")

    assert "\x1b" not in out.getvalue()
    assert r"\x1b]0;owned\x07" in out.getvalue()
    assert "\n  File " in out.getvalue()


def test_a_reader_can_have_other_keys_and_no_time() -> None:
    formatter = JsonFormatter(has_time=False, event_key="msg", traceback_key="error")
    error = ValueError("no")
    trace = (ValueError, error, None)
    record = logging.LogRecord("x", logging.ERROR, "", 0, "broken", None, trace)

    line = json.loads(formatter.format(record))

    assert line.pop("error").endswith("ValueError: no")
    assert line == {"level": "error", "msg": "broken", "logger": "x"}
