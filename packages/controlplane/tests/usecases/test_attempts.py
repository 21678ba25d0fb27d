# SPDX-License-Identifier: Apache-2.0
"""A bucket of attempts that fills again with time."""

from pipecd_controlplane.usecases.attempts import MOST, InProcessAttemptLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_attempts_run_out_and_come_back_with_time() -> None:
    clock = Clock()
    attempts = InProcessAttemptLimiter(burst=3, seconds=10, clock=clock)
    assert [await attempts.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert await attempts.take("a") == 10.0

    clock.now = 4
    assert await attempts.take("a") == 6.0
    clock.now = 10
    assert await attempts.take("a") == 0.0
    assert await attempts.take("a") > 0


async def test_each_key_has_its_own_and_success_gives_all_back() -> None:
    attempts = InProcessAttemptLimiter(burst=1, seconds=10, clock=Clock())
    assert await attempts.take("a") == 0.0
    assert await attempts.take("b") == 0.0
    assert await attempts.take("a") > 0

    await attempts.forget("a")

    assert await attempts.take("a") == 0.0


async def test_an_attempt_that_was_good_is_given_back() -> None:
    attempts = InProcessAttemptLimiter(burst=2, seconds=10, clock=Clock())
    await attempts.take("a")
    await attempts.give_back("a")
    await attempts.give_back("unknown")

    assert [await attempts.take("a") > 0 for _ in range(3)] == [False, False, True]


async def test_the_number_of_buckets_has_a_limit() -> None:
    attempts = InProcessAttemptLimiter(burst=10, seconds=10, clock=Clock())
    for number in range(2 * MOST):
        assert await attempts.take(str(number)) == 0.0

    assert len(attempts._full_at) == MOST
    assert len(attempts._by_time) <= 4 * MOST


async def test_made_up_names_do_not_push_out_a_counter_that_has_run_out() -> None:
    clock = Clock()
    attempts = InProcessAttemptLimiter(burst=5, seconds=1000, clock=clock)
    for _ in range(5):
        await attempts.take("boss")
    for _ in range(3):
        await attempts.take("almost")

    for number in range(MOST + 50):
        clock.now += 0.001
        await attempts.take(f"made up {number}")

    assert await attempts.take("boss") > 0
    assert [await attempts.take("almost") > 0 for _ in range(3)] == [False, False, True]


async def test_a_counter_that_has_filled_again_goes_first() -> None:
    clock = Clock()
    attempts = InProcessAttemptLimiter(burst=2, seconds=10, clock=clock, most=3)
    await attempts.take("old")
    clock.now = 100
    for key in ("a", "a", "b"):
        await attempts.take(key)

    assert await attempts.take("c") == 0.0

    assert await attempts.take("a") > 0  # is still known
    await attempts.take("b")
    assert await attempts.take("b") > 0


async def test_when_all_counters_have_run_out_a_newcomer_waits_and_nobody_is_forgotten() -> None:
    clock = Clock()
    attempts = InProcessAttemptLimiter(burst=1, seconds=10, clock=clock, most=3)
    for key in ("a", "b", "c"):
        await attempts.take(key)
        clock.now += 1

    assert await attempts.take("newcomer") == 7.0  # when the first of them has one again
    assert [await attempts.take(key) > 0 for key in ("a", "b", "c")] == [True, True, True]

    clock.now = 10
    assert await attempts.take("newcomer") == 0.0
    assert len(attempts._full_at) == 3  # it has got the room of the first


async def test_what_is_noted_of_one_key_is_bounded_too() -> None:
    attempts = InProcessAttemptLimiter(burst=10, seconds=10, clock=Clock(), most=3)
    for _ in range(100):
        await attempts.take("a")
        await attempts.give_back("a")
        assert len(attempts._by_time) <= 4 * 3

    assert [await attempts.take("a") > 0 for _ in range(11)] == [False] * 10 + [True]


async def test_the_least_used_one_goes_first_also_after_the_notes_were_tidied_up() -> None:
    attempts = InProcessAttemptLimiter(burst=9, seconds=10, clock=Clock(), most=2)
    for _ in range(8):
        await attempts.take("often")
    await attempts.take("once")  # the ninth note is one more than four for each of two keys

    assert await attempts.take("newcomer") == 0.0

    assert [await attempts.take("often") > 0 for _ in range(2)] == [False, True]


async def test_names_of_any_length_cost_the_same_room() -> None:
    attempts = InProcessAttemptLimiter(burst=1, seconds=10, clock=Clock())
    await attempts.take("x" * 100_000)
    await attempts.take("\udcff")

    assert {len(name) for name in attempts._full_at} == {32}
    assert await attempts.take("x" * 100_000) > 0
