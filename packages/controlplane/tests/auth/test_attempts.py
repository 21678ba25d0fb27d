# SPDX-License-Identifier: Apache-2.0
"""A bucket of attempts that fills again with time."""

from controlplane.auth.attempts import MOST, Attempts


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_attempts_run_out_and_come_back_with_time() -> None:
    clock = Clock()
    attempts = Attempts(burst=3, seconds=10, clock=clock)
    assert [attempts.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert attempts.take("a") == 10.0

    clock.now = 4
    assert attempts.take("a") == 6.0
    clock.now = 10
    assert attempts.take("a") == 0.0
    assert attempts.take("a") > 0


def test_each_key_has_its_own_and_success_gives_all_back() -> None:
    attempts = Attempts(burst=1, seconds=10, clock=Clock())
    assert attempts.take("a") == 0.0
    assert attempts.take("b") == 0.0
    assert attempts.take("a") > 0

    attempts.forget("a")

    assert attempts.take("a") == 0.0


def test_the_number_of_buckets_has_a_limit() -> None:
    attempts = Attempts(burst=1, seconds=10, clock=Clock())
    for number in range(MOST + 5):
        attempts.take(str(number))

    assert attempts.take(str(MOST + 4)) > 0
    assert attempts.take("0") == 0.0
