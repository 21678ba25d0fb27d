# SPDX-License-Identifier: Apache-2.0
"""Backoff: pauses double up to the longest one, spread by their jitter, until a reset."""

import pytest

from pipecd_runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest_one() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5, jitter=0)

    assert [backoff.next_pause_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_a_reset_begins_with_the_first_pause_again() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=60, jitter=0)
    backoff.next_pause_seconds()
    backoff.next_pause_seconds()

    backoff.reset()

    assert backoff.failures == 0
    assert backoff.next_pause_seconds() == 1


@pytest.mark.parametrize(("jitter", "shortest"), [(0.5, 4), (1, 0)])
def test_jitter_takes_away_no_more_than_its_share(jitter: float, shortest: float) -> None:
    backoff = Backoff(first_seconds=8, longest_seconds=8, jitter=jitter)

    pauses = [backoff.next_pause_seconds() for _ in range(200)]

    assert min(pauses) >= shortest
    assert max(pauses) <= 8
    assert len(set(pauses)) > 1


def test_a_pause_can_be_asked_for_without_counting() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=60, jitter=0)

    assert backoff.pause_seconds_after(4) == 8
    assert backoff.failures == 0


def test_very_many_failures_are_no_number_too_large() -> None:
    backoff = Backoff(first_seconds=0.1, longest_seconds=60, jitter=0)

    assert backoff.pause_seconds_after(10_000) == 60
