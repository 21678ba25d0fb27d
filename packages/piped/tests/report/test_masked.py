# SPDX-License-Identifier: Apache-2.0
"""The door of stage logs: no secret gets through, in whichever pieces it comes."""

import asyncio
import base64
from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.errors import UnavailableError
from pipecd_model.secrets import Masker
from pipecd_piped.report.logs import StageKey
from pipecd_piped.report.masked import MaskedLogs, mask_blocks
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import Commit, Deployment, DeploymentTrigger
from pipecd_wire.model.logblock_pb2 import LogBlock

KEY = StageKey("d1", "s1")
SECRET = "correct horse battery"  # noqa: S105
PLACE = ApplicationGitPath(repo=ApplicationGitRepository(id="repo"), path="web")


class Taken:
    """What came through the door."""

    def __init__(self) -> None:
        self.blocks: list[LogBlock] = []
        self.completed = False
        self.refuses = 0
        self.news = asyncio.Condition()

    @asynccontextmanager
    async def open(self, *, drain: float) -> Any:
        yield self

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        if self.refuses:
            self.refuses -= 1
            raise UnavailableError("no room")
        async with self.news:
            self.blocks += blocks
            self.news.notify_all()

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        self.completed = completed
        await self.report(key, blocks)

    @property
    def lines(self) -> list[str]:
        return [block.log for block in self.blocks]


class Door:
    """The door, with a deployment behind it."""

    def __init__(self, *values: str) -> None:
        self.taken = Taken()
        self.known = KnownSecrets()
        self.logs = MaskedLogs(self.taken, self.known)  # type: ignore[arg-type]
        self._index = 0
        trigger = DeploymentTrigger(commit=Commit(hash="c1"))
        deployment = Deployment(id="d1", git_path=PLACE, trigger=trigger)
        with self.known.opened(deployment):
            self.learn(*values)

    def learn(self, *values: str, commit: str = "c1") -> None:
        opened = OpenedSecrets(values={str(number): each for number, each in enumerate(values)})
        self.known.learn(PLACE, commit, opened)

    def blocks(self, *lines: str) -> list[LogBlock]:
        made = [LogBlock(index=self._index + n, log=each) for n, each in enumerate(lines)]
        self._index += len(lines)
        return made

    async def say(self, *lines: str) -> None:
        await self.logs.report(KEY, self.blocks(*lines))

    async def end(self, *lines: str) -> None:
        await self.logs.checkpoint(KEY, self.blocks(*lines), completed=True)


async def test_a_value_is_masked_wherever_it_stands() -> None:
    door = Door(SECRET)

    await door.say("nothing here", f"it is <{SECRET}>, {SECRET}!", "")
    await door.end()

    assert door.taken.lines == ["nothing here", "it is <***>, ***!", ""]
    assert door.taken.completed


async def test_so_is_its_base64_and_each_line_of_a_longer_one() -> None:
    door = Door("-----BEGIN-----\nthe first line\nthe second line\n")

    coded = base64.b64encode(b"user:the first line").decode()
    await door.end("say the first line", "the second line", f"Basic {coded}")

    assert door.taken.lines[:2] == ["say ***", "***"]
    assert coded not in door.taken.lines[2]


async def test_a_value_cut_by_the_border_of_two_lines_is_masked_in_both() -> None:
    door = Door(SECRET)

    await door.end("it is correct ho", "rse battery, yes")

    assert door.taken.lines == ["it is ***", "***, yes"]


async def test_a_line_that_may_go_on_loses_its_end_and_waits_for_nothing() -> None:
    """A line that waited here would be lost with this process, although it was acknowledged."""
    door = Door(SECRET)

    await door.say("before", "it is correct ho")
    assert door.taken.lines == ["before", "it is ***"]

    await door.say("rse battery, yes")
    await door.end("after")
    assert door.taken.lines == ["before", "it is ***", "***, yes", "after"]
    assert [block.index for block in door.taken.blocks] == [0, 1, 2, 3]


async def test_what_follows_any_later_is_masked_too() -> None:
    door = Door(SECRET)

    await door.say("is that correct")
    await door.say(" horse battery?")
    await door.end()

    assert door.taken.lines == ["is that ***", "***?"]


async def test_one_or_two_letters_tell_nothing() -> None:
    door = Door(SECRET)

    await door.say("abc")

    assert door.taken.lines == ["abc"]


async def test_the_end_of_a_log_is_no_beginning_of_a_value() -> None:
    door = Door(SECRET)

    await door.end("that is correct")

    assert door.taken.lines == ["that is correct"]


async def test_lines_that_were_not_taken_come_again_and_are_masked_the_same() -> None:
    door = Door(SECRET)
    await door.say("that is correct")
    door.taken.refuses = 1
    again = door.blocks(" horse battery", "next")

    with pytest.raises(UnavailableError):
        await door.logs.report(KEY, again)
    await door.logs.report(KEY, again)

    assert door.taken.lines == ["that is ***", "***", "next"]


async def test_a_secret_that_becomes_known_later_is_masked_from_then_on() -> None:
    door = Door(SECRET)
    await door.say("hunter22")
    door.learn("hunter22", commit="c0")
    await door.say("hunter22")

    assert door.taken.lines == ["hunter22", "***"]


async def test_without_secrets_nothing_waits_and_nothing_changes() -> None:
    door = Door()

    await door.say("correct ho")
    await door.end("rse")

    assert door.taken.lines == ["correct ho", "rse"]


values = st.text(alphabet="abcd", min_size=6, max_size=12)


@given(
    secret=values,
    around=st.lists(st.text(alphabet="abcdxyz ", max_size=20), min_size=1, max_size=4),
    cuts=st.lists(st.integers(min_value=1, max_value=8), max_size=12),
)
def test_no_cut_lets_a_value_through(secret: str, around: list[str], cuts: list[int]) -> None:
    text = secret.join(around) + secret
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(text[at : at + cut])
        at += cut
    pieces.append(text[at:])
    blocks = [LogBlock(index=number, log=piece) for number, piece in enumerate(pieces)]

    shown = mask_blocks("", blocks, Masker([secret]), goes_on=False)

    assert secret not in "".join(block.log for block in shown).replace("*", "")
    assert [block.index for block in shown] == [block.index for block in blocks]
