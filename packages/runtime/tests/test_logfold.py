# SPDX-License-Identifier: Apache-2.0
"""A flood of equal lines is a few of them, and a count."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from pipecd_runtime.logfold import MOST_KINDS, FoldRepeats


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self) -> list[object]:
        return [getattr(record, "fields", {}) for record in self.records]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def folded(lines: Lines, clock: Clock) -> Iterator[FoldRepeats]:
    made = FoldRepeats(
        ["outside"], always={"done"}, burst=3, interval=timedelta(seconds=10), clock=clock
    )
    lines.addFilter(made)
    root = logging.getLogger()
    before = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    yield made
    root.setLevel(before)
    root.removeHandler(lines)


def say(name: str = "outside.door", event: str = "refused", **fields: object) -> None:
    logging.getLogger(name).info(event, extra={"fields": fields})


def test_a_flood_is_its_first_lines_and_then_a_count(
    folded: FoldRepeats, lines: Lines, clock: Clock
) -> None:
    for number in range(1000):
        say(peer=number, reason="slow")
    clock.now = 10
    folded.flush()

    assert lines.fields() == [
        {"peer": 0, "reason": "slow"},
        {"peer": 1, "reason": "slow"},
        {"peer": 2, "reason": "slow"},
        {"reason": "slow", "repeated": 997, "seconds": 10.0},
    ]
    assert {record.getMessage() for record in lines.records} == {"refused"}


def test_a_flood_that_goes_on_is_a_line_for_each_interval(
    folded: FoldRepeats, lines: Lines, clock: Clock
) -> None:
    for second in range(100):
        clock.now = second
        for _ in range(50):
            say()

    assert len(lines.records) <= 10 * 4
    assert sum("repeated" in str(fields) for fields in lines.fields()) >= 8


def test_nothing_is_lost_in_the_count(folded: FoldRepeats, lines: Lines, clock: Clock) -> None:
    for second in range(50):
        clock.now = second
        say()
    clock.now = 1000
    folded.flush()

    counted = [getattr(record, "fields", {}).get("repeated", 1) for record in lines.records]
    assert sum(counted) == 50


def test_kinds_are_folded_apart(folded: FoldRepeats, lines: Lines) -> None:
    for _ in range(10):
        say(event="refused", reason="slow")
        say(event="refused", reason="large")
        say(event="closed")

    assert len(lines.records) == 9


def test_what_others_cannot_cause_is_written_as_it_comes(folded: FoldRepeats, lines: Lines) -> None:
    for _ in range(10):
        say("inside", "deployed")
        say("outsider", "deployed")
        say("outside.door", "done")
        logging.getLogger("outside").debug("detail")

    assert len(lines.records) == 40


def test_events_that_are_all_different_are_folded_too(folded: FoldRepeats, lines: Lines) -> None:
    for number in range(MOST_KINDS * 4):
        say(event=f"refused {number}")

    assert len(lines.records) <= MOST_KINDS + 3
