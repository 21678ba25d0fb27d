# SPDX-License-Identifier: Apache-2.0
"""What a plugin says, however much and whatever it is."""

import asyncio
import logging
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from piped.plugins.output import CHUNK, KEPT, LONGEST_LINE, Output

LIMIT = 60


async def said(chunks: Iterable[bytes]) -> Output:
    """Follow what is said, through a pipe of a bounded size."""
    output, reader = Output("odd"), asyncio.StreamReader()
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(output.follow(reader))
        for chunk in chunks:
            reader.feed_data(chunk)
            await asyncio.sleep(0)
        reader.feed_eof()
        await following
    return output


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """What has got into piped's log: the lines, and how many were dropped."""
    caplog.set_level(logging.INFO)

    def read() -> tuple[list[str], int]:
        written, dropped = [], 0
        for record in caplog.records:
            fields: dict[str, Any] = vars(record)["fields"]
            assert fields["plugin"] == "odd"
            if record.message == "plugin.output":
                written.append(fields["line"])
            else:
                assert record.message == "plugin.output_dropped"
                dropped += fields["lines"]
        return written, dropped

    return read


async def test_lines_are_kept_and_written_however_they_come(lines: Any) -> None:
    output = await said([b"one\ntw", b"o\r\n\n", b"three"])

    assert output.last() == ("one", "two", "three")
    assert lines() == (["one", "two", "three"], 0)


async def test_a_very_long_line_is_one_line_cut_off(lines: Any) -> None:
    output = await said([b"before\n", *[b"x" * CHUNK] * 100, b"\nafter\n"])

    assert output.last() == ("before", "x" * LONGEST_LINE, "after")
    assert lines() == (["before", "x" * LONGEST_LINE, "after"], 0)


async def test_every_line_of_a_flood_is_written_or_counted(lines: Any) -> None:
    numbers = b"".join(b"%d\n" % number for number in range(100_000))

    output = await said(numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK))

    assert output.last() == tuple(str(number) for number in range(100_000 - KEPT, 100_000))
    written, dropped = lines()
    assert len(written) + dropped == 100_000
    assert len(written) < 1000


async def test_garbage_becomes_text_that_moves_no_cursor(lines: Any) -> None:
    await said([bytes(range(256)), b"\n\x1b[31mred\x1b[0m\x1b[2J\tx\n"])

    written, _ = lines()
    assert all(text.replace("\t", "").isprintable() for text in written)
    assert written[-1] == "red\ufffd[2J\tx"


@pytest.mark.parametrize("chunk", [b"x" * CHUNK, b"x\n" * (CHUNK // 2), bytes(CHUNK)])
async def test_memory_does_not_grow_with_what_is_said(chunk: bytes) -> None:
    tracemalloc.start()
    try:
        await said([chunk] * 10)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        await said([chunk] * 200)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak - before < 4 * 1024 * 1024
