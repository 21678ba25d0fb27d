# SPDX-License-Identifier: Apache-2.0
"""Which application of a lane is due next."""

from pipecd_piped.livestate.due import DueTimes


def find_next(due: DueTimes, lane: str, *, closed: str = "") -> tuple[str, float] | None:
    return due.find_next(lane, is_open=lambda each: each != closed)


def test_the_earliest_of_its_lane_is_next() -> None:
    due = DueTimes()
    due.set("late", "a", 3.0)
    due.set("early", "a", 1.0)
    due.set("other", "b", 0.0)

    assert find_next(due, "a") == ("early", 1.0)
    assert find_next(due, "b") == ("other", 0.0)
    assert find_next(due, "c") is None


def test_asking_takes_nothing_away() -> None:
    due = DueTimes()
    due.set("one", "a", 1.0)

    assert find_next(due, "a") == find_next(due, "a") == ("one", 1.0)


def test_the_last_time_that_was_set_counts() -> None:
    due = DueTimes()
    due.set("one", "a", 1.0)
    due.set("two", "a", 2.0)
    due.set("one", "a", 5.0)

    assert due.get("one") == 5.0
    assert find_next(due, "a") == ("two", 2.0)
    due.set("one", "a", 1.0)
    assert find_next(due, "a") == ("one", 1.0)


def test_who_changes_lanes_leaves_the_old_one() -> None:
    due = DueTimes()
    due.set("one", "a", 1.0)
    due.set("one", "b", 1.0)

    assert find_next(due, "a") is None
    assert find_next(due, "b") == ("one", 1.0)


def test_who_is_closed_is_passed_over_and_keeps_its_place() -> None:
    due = DueTimes()
    due.set("one", "a", 1.0)
    due.set("two", "a", 2.0)

    assert find_next(due, "a", closed="one") == ("two", 2.0)
    assert find_next(due, "a") == ("one", 1.0)


def test_who_is_removed_is_never_next() -> None:
    due = DueTimes()
    due.set("one", "a", 1.0)
    due.remove("one")

    assert due.get("one") is None
    assert find_next(due, "a") is None
    due.set("one", "a", 1.0)
    assert find_next(due, "a") == ("one", 1.0)
