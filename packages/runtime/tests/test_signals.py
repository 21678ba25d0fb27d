# SPDX-License-Identifier: Apache-2.0
"""Signal: wakes all who wait now, and nobody who comes later."""

import asyncio

from pipecd_runtime.signals import Signal


async def test_everybody_who_waits_is_woken() -> None:
    signal = Signal()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(signal.wait()) for _ in range(3)]
        await asyncio.sleep(0)

        signal.send()

    assert all(task.done() for task in waiting)


async def test_who_comes_later_waits_for_the_next_one() -> None:
    signal = Signal()
    signal.send()

    late = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    assert not late.done()

    signal.send()
    await late
