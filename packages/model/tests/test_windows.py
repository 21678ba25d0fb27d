# SPDX-License-Identifier: Apache-2.0
"""Windows: when deployments may begin, in every zone, whatever the clocks do."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import ConfigError
from pipecd_model.windows import check_window, find_denial, list_occurrences, list_spans
from pipecd_wire.pipecd.control.control_pb2 import Window

ALLOW, DENY = Window.ALLOW, Window.DENY


def window(hours: float = 8, **fields: Any) -> Window:
    """One that begins on Monday, 2026-03-02, at nine o'clock in UTC."""
    given: dict[str, Any] = {
        "name": "night",
        "effect": DENY,
        "start": "2026-03-02T09:00:00",
        "time_zone": "UTC",
        "duration": Duration(seconds=int(hours * 3600)),
    }
    return Window(**(given | fields))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def denied(*windows: Window, now: str, labels: dict[str, str] | None = None) -> str:
    """Returns the sentence and the end of a denial; empty when there is none."""
    denial = find_denial(windows, application_id="app", labels=labels or {}, now=at(now))
    if denial is None:
        return ""
    return (
        f"{denial.sentence} until {denial.until:%m-%d %H:%M}" if denial.until else denial.sentence
    )


def test_without_windows_everything_may_begin() -> None:
    assert denied(now="2026-03-02T12:00") == ""


def test_a_window_that_denies_ends_by_itself() -> None:
    once = window(reason="release party")

    assert denied(once, now="2026-03-02T08:59") == ""
    expected = "the window 'night' denies deployments (release party) until 03-02 17:00"
    assert denied(once, now="2026-03-02T09:00") == expected
    assert denied(once, now="2026-03-02T17:00") == "", "its end does not belong to it"
    assert denied(once, now="2026-03-09T10:00") == "", "it is once"


def test_where_windows_allow_nothing_begins_outside_of_them() -> None:
    office = window(name="office", effect=ALLOW, rule="FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR")

    assert denied(office, now="2026-03-06T12:00") == ""
    expected = "deployments begin only within the window 'office' until 03-09 09:00"
    assert denied(office, now="2026-03-06T17:00") == expected


def test_deny_wins() -> None:
    office = window(name="office", effect=ALLOW, rule="FREQ=DAILY")
    lunch = window(1, name="lunch", start="2026-03-02T12:00:00", rule="FREQ=DAILY")

    assert denied(office, lunch, now="2026-03-03T11:59") == ""
    assert denied(office, lunch, now="2026-03-03T12:30").endswith(
        "denies deployments until 03-03 13:00"
    )
    assert denied(office, lunch, now="2026-03-03T13:00") == ""


def test_an_end_is_when_it_really_may_begin() -> None:
    """The first window ends within the second, which ends outside of the one that allows."""
    office = window(8, name="office", effect=ALLOW, rule="FREQ=DAILY")
    first = window(3, name="a", start="2026-03-02T14:00:00")
    second = window(3, name="b", start="2026-03-02T16:00:00")

    assert denied(office, first, second, now="2026-03-02T15:00").endswith("until 03-03 09:00")


def test_a_denial_without_end_says_none() -> None:
    always = window(24, start="2026-03-02T00:00:00", rule="FREQ=DAILY")

    assert denied(always, now="2026-03-05T10:00") == "the window 'night' denies deployments"


def test_windows_are_for_the_applications_that_they_name() -> None:
    other = window(application_id="other")
    labelled = window(labels={"env": "prod", "team": "a"})

    assert denied(other, now="2026-03-02T10:00") == ""
    assert denied(window(application_id="app"), now="2026-03-02T10:00") != ""
    assert denied(labelled, now="2026-03-02T10:00", labels={"env": "prod"}) == ""
    assert denied(labelled, now="2026-03-02T10:00", labels={"env": "prod", "team": "a"}) != ""


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        # Clocks go forward: the day has 23 hours; Lord Howe moves by half an hour.
        ("Europe/Berlin", "2026-03-29", 23.0),
        ("America/New_York", "2026-03-08", 23.0),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        # Clocks go back.
        ("Europe/Berlin", "2026-10-25", 25.0),
        ("America/New_York", "2026-11-01", 25.0),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
    ],
)
def test_a_whole_day_is_a_whole_day_when_the_clocks_change(
    zone: str, day: str, hours: float
) -> None:
    daily = window(24, start="2026-01-01T00:00:00", rule="FREQ=DAILY", time_zone=zone)
    middle = at(f"{day}T12:00")

    found = list(list_occurrences(daily, middle - timedelta(days=3), middle + timedelta(days=3)))

    assert all(one.end == other.start for one, other in pairwise(found)), "without a gap"
    lengths = {(one.end - one.start).total_seconds() / 3600 for one in found}
    assert lengths == {24.0, hours}


@pytest.mark.parametrize(
    ("zone", "start", "begins", "ends"),
    [
        # 02:30 is left out on that night: it begins when the hour would have been half over.
        ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30", "2026-03-29T01:30"),
        # 02:30 is there twice: it begins at the first.
        ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30", "2026-10-25T02:30"),
        ("America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30", "2026-11-01T07:30"),
        ("Asia/Tokyo", "2026-03-29T02:30:00", "2026-03-28T17:30", "2026-03-28T18:30"),
    ],
)
def test_hours_that_are_left_out_or_there_twice(
    zone: str, start: str, begins: str, ends: str
) -> None:
    once = window(1, start=start, time_zone=zone)

    found = list(list_occurrences(once, at("2026-01-01T00:00"), at("2027-01-01T00:00")))

    if begins == ends:
        assert found == [], "an hour that does not exist"
        return
    (only,) = found
    assert (only.start, only.end) == (at(begins), at(ends))


def test_nights_keep_their_times_on_the_wall() -> None:
    night = window(8, start="2026-01-01T22:00:00", rule="FREQ=DAILY", time_zone="Europe/Berlin")

    assert denied(night, now="2026-03-28T21:30").endswith("until 03-29 04:00"), "06:00 in summer"
    assert denied(night, now="2026-10-24T20:30").endswith("until 10-25 05:00"), "06:00 in winter"


def test_a_week_is_previewed_without_gaps() -> None:
    office = window(8, name="office", effect=ALLOW, rule="FREQ=WEEKLY;BYDAY=MO,TU")
    start = at("2026-03-02T00:00")

    spans = list_spans(
        [office], application_id="app", labels={}, start=start, end=start + timedelta(days=7)
    )

    assert [(f"{each.start:%a %H}", bool(each.reason)) for each in spans] == [
        ("Mon 00", True),
        ("Mon 09", False),
        ("Mon 17", True),
        ("Tue 09", False),
        ("Tue 17", True),
    ]
    assert spans[-1].end == start + timedelta(days=7)


def test_a_clock_that_goes_back_asks_anew() -> None:
    once = window()

    assert denied(once, now="2026-03-02T17:00") == ""
    assert denied(once, now="2026-03-02T16:59") != ""


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"time_zone": "Mars/Olympus"}, "time zone: there is none called 'Mars/Olympus'"),
        ({"time_zone": "../../etc/passwd"}, "time zone: there is none called"),
        ({"start": "tomorrow"}, "start: 'tomorrow' is no local time"),
        ({"start": "2026-03-02T09:00:00+01:00"}, "is no local time"),
        ({"duration": Duration(seconds=1)}, "duration: 0:00:01 is not between a minute"),
        ({"duration": Duration(seconds=400 * 86400)}, "and 366 days"),
        ({"rule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rule: it never occurs"),
        ({"rule": "FREQ=SECONDLY"}, "rule: FREQ is none of"),
        ({"effect": Window.EFFECT_UNSPECIFIED}, "effect: it allows or it denies"),
        ({"application_id": "a", "labels": {"b": "c"}}, "not for both"),
    ],
)
def test_what_is_no_window_is_said(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_window(window(**fields))
    assert says in str(caught.value)


def test_a_window_on_leap_days_is_one() -> None:
    leap = window(24, start="2024-02-29T00:00:00", rule="FREQ=YEARLY")
    check_window(leap)

    assert denied(leap, now="2028-02-29T10:00").endswith("until 03-01 00:00")
    assert denied(leap, now="2027-03-01T10:00") == ""


def test_many_windows_that_never_end_are_asked_in_a_bounded_time() -> None:
    """Every change of one is a step of one walk: with all pairs of them this would not end."""
    always = [
        window(24, name=f"w{number}", start="2020-01-01T00:00:00", rule="FREQ=DAILY")
        for number in range(200)
    ]
    start = at("2026-03-05T10:00")

    denial = find_denial(always, application_id="app", labels={}, now=start)
    spans = list_spans(
        always, application_id="app", labels={}, start=start, end=start + timedelta(days=92)
    )

    assert denial is not None
    assert denial.until is None
    assert [span.reason for span in spans] == ["the window 'w0' denies deployments"]
