# SPDX-License-Identifier: Apache-2.0
"""Lines of a plugin that begins anew after each restart keep their order and are all kept."""

from collections.abc import Iterable
from pathlib import Path

from pipecd_piped.report.numbering import MOST_LINES, LineNumbers, RenumberedLogs
from pipecd_piped.report.spool import StageKey
from pipecd_wire.model.logblock_pb2 import LogBlock

STAGE = StageKey("d1", "s1")


class Keeping:
    """Keeps lines as the control plane does: each number once, the first one stays."""

    def __init__(self) -> None:
        self.kept: dict[int, str] = {}

    async def report(self, _key: StageKey, blocks: Iterable[LogBlock]) -> None:
        for block in blocks:
            self.kept.setdefault(block.index, block.log)

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        await self.report(key, blocks)

    def lines(self) -> list[str]:
        return [self.kept[index] for index in sorted(self.kept)]


def blocks(first: int, *lines: str) -> list[LogBlock]:
    return [LogBlock(index=first + n, log=line, created_at=1) for n, line in enumerate(lines)]


def process(keeping: Keeping, numbers: LineNumbers) -> RenumberedLogs:
    """The logs as one process of a plugin has them."""
    return RenumberedLogs(keeping, numbers, lambda: True)


async def test_the_lines_of_a_second_run_come_after_those_of_the_first() -> None:
    """Both count from nearly the same second."""
    keeping, numbers = Keeping(), LineNumbers()

    await process(keeping, numbers).report(STAGE, blocks(1_700_000_000, "a", "b", "c"))
    await process(keeping, numbers).report(STAGE, blocks(1_700_000_001, "d", "e", "f"))

    assert keeping.lines() == ["a", "b", "c", "d", "e", "f"]


async def test_lines_that_one_run_sends_again_are_kept_once() -> None:
    keeping, numbers = Keeping(), LineNumbers()
    logs = process(keeping, numbers)

    await logs.report(STAGE, blocks(10, "a", "b"))
    await logs.report(STAGE, blocks(12, "c"))
    await logs.checkpoint(STAGE, blocks(10, "a", "b", "c", "d"), completed=True)

    assert keeping.lines() == ["a", "b", "c", "d"]


async def test_the_next_piped_goes_on_above_also_when_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    keeping = Keeping()

    await process(keeping, LineNumbers(tmp_path, lambda: 5_000)).report(STAGE, blocks(7, "a", "b"))
    await process(keeping, LineNumbers(tmp_path, lambda: 10)).report(STAGE, blocks(7, "c", "d"))

    assert keeping.lines() == ["a", "b", "c", "d"]
    assert max(keeping.kept) - min(keeping.kept) > MOST_LINES


def test_a_deployment_that_has_ended_leaves_nothing(tmp_path: Path) -> None:
    numbers = LineNumbers(tmp_path)
    numbers.begin(STAGE)
    assert len(list(tmp_path.iterdir())) == 1

    numbers.forget(STAGE.deployment_id)

    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_cannot_be_read_or_written_costs_no_line(tmp_path: Path) -> None:
    LineNumbers(tmp_path).begin(STAGE)
    damage(tmp_path)
    keeping = Keeping()

    await process(keeping, LineNumbers(tmp_path)).report(STAGE, blocks(7, "a"))
    (tmp_path / "file").touch()
    await process(keeping, LineNumbers(tmp_path / "file")).report(STAGE, blocks(7, "b"))

    assert keeping.lines() == ["a", "b"]


async def test_a_plugin_that_numbers_by_itself_keeps_its_numbers() -> None:
    keeping = Keeping()
    logs = RenumberedLogs(keeping, LineNumbers(), lambda: False)

    await logs.report(STAGE, blocks(7, "a", "b"))

    assert keeping.kept == {7: "a", 8: "b"}


def damage(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_text("[]")
