# SPDX-License-Identifier: Apache-2.0
"""Recurrence rules: as the field's library understands them, and never without end."""

from datetime import date, datetime, time, timedelta

import pytest
from dateutil.rrule import rrulestr

from pipecd_model.errors import ConfigError
from pipecd_model.recurrence import parse_rule

FIRST = date(2026, 11, 16)

# All of them match often: with a rule that seldom does, the library looks on to the year 9999.
CHOICES = {
    "DAILY": ["", "BYDAY=MO,FR", "BYMONTHDAY=1,-1", "BYMONTH=2,12", "BYDAY=SU;BYMONTH=3"],
    "WEEKLY": ["", "BYDAY=MO", "BYDAY=TU,SA,SU", "BYDAY=WE;BYMONTH=1,6", "BYMONTH=4"],
    "MONTHLY": [
        "",
        "BYDAY=MO",
        "BYDAY=1MO,-1FR",
        "BYDAY=FR;BYMONTHDAY=13",
        "BYDAY=2TU;BYMONTH=5",
        "BYMONTHDAY=1,15,-1",
        "BYMONTHDAY=31",
        "BYMONTHDAY=-3;BYMONTH=2,3",
    ],
    "YEARLY": [
        "",
        "BYMONTH=3,9",
        "BYMONTHDAY=10",
        "BYMONTH=2;BYMONTHDAY=29",
        "BYDAY=1MO,-1SU",
        "BYDAY=3WE;BYMONTH=8",
        "BYDAY=SA",
        "BYDAY=FR;BYMONTHDAY=13",
    ],
}
FURTHER = ["", "INTERVAL=2", "INTERVAL=3;WKST=SU", "COUNT=5", "INTERVAL=2;COUNT=7;WKST=TH"]
RULES = [
    ";".join(filter(None, (f"FREQ={frequency}", choice, further)))
    for frequency, choices in CHOICES.items()
    for choice in choices
    for further in FURTHER
]


@pytest.mark.parametrize("text", RULES)
def test_days_are_those_of_the_fields_library(text: str) -> None:
    rule = parse_rule(text)
    assert rule is not None
    for first in (FIRST, date(2023, 2, 28), date(2024, 2, 29), date(2026, 1, 31)):
        last = first + timedelta(days=1600)
        begin = datetime.combine(first, time())

        ours = list(rule.list_days(first, first, last))

        theirs = rrulestr(text, dtstart=begin).between(
            begin - timedelta(days=1), datetime.combine(last, time()), inc=True
        )
        assert ours == [each.date() for each in theirs]
        later = first + timedelta(days=300)
        assert list(rule.list_days(first, later, last)) == [day for day in ours if day >= later]


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;COUNT=10000;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;INTERVAL=1000;BYMONTH=2;BYMONTHDAY=31",
    ],
)
def test_a_rule_that_never_matches_ends(text: str) -> None:
    rule = parse_rule(text)
    assert rule is not None

    assert list(rule.list_days(FIRST, FIRST, FIRST + timedelta(days=5000))) == []


def test_a_leap_day_is_every_fourth_year() -> None:
    rule = parse_rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29")
    assert rule is not None

    assert list(rule.list_days(date(2023, 1, 1), date(2023, 1, 1), date(2033, 1, 1))) == [
        date(2024, 2, 29),
        date(2028, 2, 29),
        date(2032, 2, 29),
    ]


def test_until_is_the_last_day() -> None:
    for text in ("UNTIL=20261118", "UNTIL=20261118T090000", "UNTIL=20261118T090000Z"):
        rule = parse_rule(f"FREQ=DAILY;{text}")
        assert rule is not None
        days = list(rule.list_days(FIRST, FIRST, FIRST + timedelta(days=30)))
        assert days == [FIRST + timedelta(days=number) for number in range(3)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FREQ=HOURLY", "FREQ is none of"),
        ("BYDAY=MO", "FREQ is none of"),
        ("FREQ=DAILY;BYHOUR=9", "'BYHOUR' is not known here, or finer than a day"),
        ("FREQ=DAILY;BYSETPOS=1", "'BYSETPOS' is not known here"),
        ("FREQ=DAILY;FREQ=WEEKLY", "FREQ is there twice"),
        ("FREQ=WEEKLY;BYDAY=XX", "'XX' is no day"),
        ("FREQ=WEEKLY;BYDAY=", "never"),
        ("FREQ=WEEKLY;BYDAY=1MO", "only MONTHLY and YEARLY"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL: '0' is not between 1 and 1000"),
        ("FREQ=DAILY;COUNT=99999", "COUNT: '99999' is not between"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20261118", "exclude each other"),
        ("FREQ=DAILY;UNTIL=soon", "UNTIL: 'SOON' is no day"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY: '0' is not between"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,,2", "BYMONTHDAY: ''"),
        ("RRULE:FREQ=DAILY", "'RRULE:FREQ' is not known"),
        ("FREQ=DAILY;" + "X" * 600, "longer than 500"),
    ],
)
def test_what_is_no_rule_is_said(text: str, says: str) -> None:
    if says == "never":
        rule = parse_rule(text)
        assert rule is not None
        assert rule.weekdays == ()
        return
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert says in str(caught.value)


def test_an_empty_text_is_no_rule() -> None:
    assert parse_rule("") is None
