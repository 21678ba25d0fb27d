# SPDX-License-Identifier: Apache-2.0
"""A plugin whose piped is dying leaves its scripts alone, however long that takes."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from pipecd_sdk.scripts.death_notice import is_ending, wait_death_notice

LIMIT_SECONDS = 0.4


@pytest.fixture
def ended() -> Iterator[int]:
    """A process that was killed and is still there: nobody has asked for its end yet."""
    process = subprocess.Popen(["sleep", "1000"])
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


def test_a_process_that_lives_is_not_ending() -> None:
    assert not is_ending(os.getpid())


def test_a_process_that_was_killed_is_ending_and_then_gone() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    was_ending = is_ending(process.pid)
    process.wait()

    assert (was_ending, is_ending(process.pid)) == (True, True)


async def test_nothing_goes_on_while_piped_is_ending(ended: int) -> None:
    """On a busy machine that took most of a second, in which scripts were ended."""
    began = time.monotonic()
    await wait_death_notice(ended, limit_seconds=LIMIT_SECONDS)
    assert time.monotonic() - began >= LIMIT_SECONDS


async def test_what_a_living_piped_has_cancelled_is_ended() -> None:
    async with asyncio.timeout(20):
        await wait_death_notice(os.getpid())
