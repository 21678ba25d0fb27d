# SPDX-License-Identifier: Apache-2.0
"""Requests of programs that sign in: a flood of them costs its sender, and nobody else."""

from pipecd_controlplane.usecases.login_requests import InProcessLoginRequests
from pipecd_controlplane.usecases.shared_state import LoginRequest


def asked(number: int) -> LoginRequest:
    return LoginRequest(
        user_code=f"C{number}", device_hash=f"h{number}", client="pipectl", address="a"
    )


async def test_a_flood_pushes_out_its_own_requests() -> None:
    requests = InProcessLoginRequests(most=3)
    await requests.add(asked(0), network="ours", seconds=60)
    for number in range(1, 20):
        await requests.add(asked(number), network="flood", seconds=60)

    assert await requests.find_open("C0") == asked(0)
    assert [await requests.take(f"h{n}") is not None for n in (16, 17, 18, 19)] == [
        False,
        False,
        True,
        True,
    ]


async def test_a_request_is_forgotten_when_its_time_is_over() -> None:
    now = 0.0
    requests = InProcessLoginRequests(lambda: now)
    await requests.add(asked(0), network="ours", seconds=60)

    now = 59.9
    assert await requests.take("h0") == asked(0)
    now = 60.0
    assert await requests.take("h0") is None
    await requests.add(asked(0), network="ours", seconds=60)
    assert await requests.find_open("C0") == asked(0)


async def test_the_code_of_a_request_that_is_over_is_free_again() -> None:
    now = 0.0
    requests = InProcessLoginRequests(lambda: now)
    await requests.add(asked(0), network="ours", seconds=60)

    now = 60.0
    await requests.add(asked(0), network="ours", seconds=60)

    now = 119.0
    assert await requests.find_open("C0") == asked(0)
