# SPDX-License-Identifier: Apache-2.0
"""A bucket of attempts that fills again with time."""

from pipecd_controlplane.auth.attempts import MOST, AttemptLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_attempts_run_out_and_come_back_with_time() -> None:
    clock = Clock()
    attempts = AttemptLimiter(burst=3, seconds=10, clock=clock)
    assert [attempts.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert attempts.take("a") == 10.0

    clock.now = 4
    assert attempts.take("a") == 6.0
    clock.now = 10
    assert attempts.take("a") == 0.0
    assert attempts.take("a") > 0


def test_each_key_has_its_own_and_success_gives_all_back() -> None:
    attempts = AttemptLimiter(burst=1, seconds=10, clock=Clock())
    assert attempts.take("a") == 0.0
    assert attempts.take("b") == 0.0
    assert attempts.take("a") > 0

    attempts.forget("a")

    assert attempts.take("a") == 0.0


def test_an_attempt_that_was_good_is_given_back() -> None:
    attempts = AttemptLimiter(burst=2, seconds=10, clock=Clock())
    attempts.take("a")
    attempts.give_back("a")
    attempts.give_back("unknown")

    assert [attempts.take("a") > 0 for _ in range(3)] == [False, False, True]


def test_the_number_of_buckets_has_a_limit() -> None:
    attempts = AttemptLimiter(burst=10, seconds=10, clock=Clock())
    for number in range(2 * MOST):
        assert attempts.take(str(number)) == 0.0

    assert len(attempts._full_at) == MOST
    assert len(attempts._by_time) <= 4 * MOST


def test_made_up_names_do_not_push_out_a_counter_that_has_run_out() -> None:
    clock = Clock()
    attempts = AttemptLimiter(burst=5, seconds=1000, clock=clock)
    for _ in range(5):
        attempts.take("boss")
    for _ in range(3):
        attempts.take("almost")

    for number in range(MOST + 50):
        clock.now += 0.001
        attempts.take(f"made up {number}")

    assert attempts.take("boss") > 0
    assert [attempts.take("almost") > 0 for _ in range(3)] == [False, False, True]


def test_a_counter_that_has_filled_again_goes_first() -> None:
    clock = Clock()
    attempts = AttemptLimiter(burst=2, seconds=10, clock=clock, most=3)
    attempts.take("old")
    clock.now = 100
    for key in ("a", "a", "b"):
        attempts.take(key)

    assert attempts.take("c") == 0.0

    assert attempts.take("a") > 0  # is still known
    attempts.take("b")
    assert attempts.take("b") > 0


def test_when_all_counters_have_run_out_a_newcomer_waits_and_nobody_is_forgotten() -> None:
    clock = Clock()
    attempts = AttemptLimiter(burst=1, seconds=10, clock=clock, most=3)
    for key in ("a", "b", "c"):
        attempts.take(key)
        clock.now += 1

    assert attempts.take("newcomer") == 7.0  # when the first of them has one again
    assert [attempts.take(key) > 0 for key in ("a", "b", "c")] == [True, True, True]

    clock.now = 10
    assert attempts.take("newcomer") == 0.0


def test_names_of_any_length_cost_the_same_room() -> None:
    attempts = AttemptLimiter(burst=1, seconds=10, clock=Clock())
    attempts.take("x" * 100_000)
    attempts.take("\udcff")

    assert {len(name) for name in attempts._full_at} == {32}
    assert attempts.take("x" * 100_000) > 0
