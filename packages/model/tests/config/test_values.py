# SPDX-License-Identifier: Apache-2.0
"""Durations and secrets: what is read, what is refused, what is shown."""

import pickle
from datetime import timedelta

import pytest

from pipecd_model.config import BadValueError, Base64Secret, Duration, Secret


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        (".5s", timedelta(milliseconds=500)),
        ("1.5s", timedelta(seconds=1, milliseconds=500)),
        ("1.s", timedelta(seconds=1)),
        ("+5m", timedelta(minutes=5)),
        ("-5m", timedelta(minutes=-5)),
        ("0", timedelta()),
        ("-0", timedelta()),
        ("0s", timedelta()),
        ("300ms", timedelta(milliseconds=300)),
        ("2us", timedelta(microseconds=2)),
        ("2µs", timedelta(microseconds=2)),
        ("2\u03bcs", timedelta(microseconds=2)),
        ("3000ns", timedelta(microseconds=3)),
        ("1h1h", timedelta(hours=2)),
        (60_000_000_000, timedelta(minutes=1)),
        (1500.9, timedelta(microseconds=1)),
        (0, timedelta()),
    ],
)
def test_a_duration_is_read(written: object, meant: timedelta) -> None:
    assert Duration.from_config(written) == meant


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("soon", "not a duration: 'soon'"),
        ("", "not a duration: ''"),
        ("-", "not a duration: '-'"),
        ("30", "not a duration: '30' has no unit"),
        ("1h30", "not a duration: '1h30' has no unit"),
        ("1d", "not a duration: '1d', unit 'd' is unknown"),
        ("10M", "not a duration: '10M', unit 'M' is unknown"),
        ("5 m", "not a duration: '5 m', unit ' m' is unknown"),
        ("1h-5m", "not a duration: '1h-5m'"),
        (".s", "not a duration: '.s'"),
        ("9" * 20 + "h", f"not a duration: '{'9' * 20}h' is out of range"),
        ("9" * 5000 + "h", "not a duration: the text is too long"),
        (True, "not a duration: True"),
        (["1h"], "not a duration: ['1h']"),
        (None, "the value is empty"),
    ],
)
def test_what_is_no_duration_is_refused(written: object, message: str) -> None:
    with pytest.raises(BadValueError) as refused:
        Duration.from_config(written)

    assert str(refused.value) == message
    assert refused.value.hint


def test_a_duration_too_short_to_hold_is_not_zero() -> None:
    """Zero would mean the default: thirty nanoseconds would become six hours."""
    assert Duration.from_config(30) > timedelta()
    assert Duration.from_config(-30) < timedelta()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Duration(), "0s"),
        (Duration(minutes=1), "1m0s"),
        (Duration(hours=6), "6h0m0s"),
        (Duration(seconds=1.5), "1.5s"),
        (Duration(milliseconds=500), "500ms"),
        (Duration(microseconds=100), "100µs"),
        (Duration(microseconds=1500), "1.5ms"),
        (Duration(days=1, seconds=1), "24h0m1s"),
        (Duration(minutes=-5), "-5m0s"),
    ],
)
def test_a_duration_is_shown_as_files_write_it(value: Duration, shown: str) -> None:
    assert str(value) == shown


def test_a_secret_never_prints() -> None:
    secret = Secret("hunter2")

    for shown in (str(secret), repr(secret), f"{secret}", f"{secret!r}", f"{[secret]}"):
        assert "hunter2" not in shown
    assert secret.reveal() == "hunter2"


def test_secrets_are_compared_by_what_they_hold() -> None:
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")


@pytest.mark.parametrize("kind", [Secret, Base64Secret])
def test_a_refused_secret_is_not_shown(kind: type[Secret]) -> None:
    with pytest.raises(BadValueError) as refused:
        kind.from_config(123456)

    assert "123456" not in f"{refused.value}{refused.value.hint}"


def test_base64_is_decoded_with_or_without_line_breaks() -> None:
    assert Base64Secret.from_config("c2Vj\ncmV0\n").decode() == b"secret"


@pytest.mark.parametrize("written", ["not base64!", "c2Vjcg", "c2Vj cmV0", "schlüssel"])
def test_what_is_not_base64_is_refused_unshown(written: str) -> None:
    with pytest.raises(BadValueError) as refused:
        Base64Secret.from_config(written)

    assert written not in str(refused.value)


def test_a_duration_is_made_from_what_a_file_would_say() -> None:
    assert Duration("30s") == timedelta(seconds=30)
    assert Duration("1h30m") == Duration(hours=1, minutes=30)
    assert Duration(1, 2, 3) == timedelta(1, 2, 3)
    assert isinstance(Duration("30s"), Duration)
    written = Duration("1m30s")
    assert eval(repr(written), {"Duration": Duration}) == written  # noqa: S307 - our own text
    assert pickle.loads(pickle.dumps(written)) == written  # noqa: S301 - our own bytes


@pytest.mark.parametrize("text", ["", "30", "soon", "1d"])
def test_a_text_that_is_no_duration_is_refused_as_in_a_file(text: str) -> None:
    with pytest.raises(BadValueError, match="not a duration"):
        Duration(text)
