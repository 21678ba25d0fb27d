# SPDX-License-Identifier: Apache-2.0
"""A followed log that cannot be read for a while goes on afterwards; it is tried now and then."""

import asyncio

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.followed_logs import LONGEST_RETRY_SECONDS, FollowedLogs
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import DeniedError, PipecdError, UnavailableError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.pipecd.api import api_pb2 as pb

KEY = LogKey(deployment_id="d1", stage_id="s1")
GROWN = Change(kind=ChangeKind.STAGE_LOG, id=str(KEY), project_id="ours")


class Reader:
    """Somebody who follows one log, by a clock and with troubles of the test's own."""

    def __init__(self, kept: Stores) -> None:
        self.kept = kept
        self.now = 1000.0
        self.trouble: PipecdError | None = None
        self.tries = 0
        wanted = [pb.FollowedLog(deployment_id="d1", stage_id="s1", first_line=1)]
        self.logs = self.follow(wanted)
        self.is_silent = False

    def follow(self, wanted: list[pb.FollowedLog], **more: float) -> FollowedLogs:
        return FollowedLogs(self.kept, "ours", wanted, self._find_grant, lambda: self.now, **more)

    async def _find_grant(self) -> Grant | None:
        self.tries += 1
        if self.is_silent:
            self.is_silent = False
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        return Grant()

    async def write(self, build: MessageBuilder, *indexes: int) -> None:
        await self.kept.stage_logs.append("ours", KEY, build.blocks(*indexes), completed=False)
        self.logs.notice([GROWN])

    async def read_when_due(self) -> list[pb.NewLines]:
        """Waits as a stream does when nothing changes, and reads."""
        seconds = self.logs.find_seconds_left()
        assert seconds is not None
        self.now += seconds
        return await self.logs.read_new()


async def start(kept: Stores, build: MessageBuilder) -> Reader:
    await kept.deployments.add(
        build.deployment(id="d1", project_id="ours", stages=[build.stage("s1")])
    )
    reader = Reader(kept)
    await reader.write(build, 1, 2)
    return reader


async def test_a_log_goes_on_after_the_database_took_too_long(
    kept: Stores, build: MessageBuilder
) -> None:
    reader = await start(kept, build)
    [first] = await reader.logs.read_new()
    await reader.write(build, 3)
    reader.trouble = UnavailableError("the database took too long")

    assert await reader.logs.read_new() == []
    assert not reader.logs.has_more(), "it rests"
    reader.trouble = None
    [then] = await reader.read_when_due()

    assert [block.index for block in (*first.blocks, *then.blocks)] == [1, 2, 3]
    assert (then.first_line, then.refusal) == (3, "")
    assert reader.logs.find_seconds_left() is None


async def test_a_log_that_stays_away_is_asked_for_less_and_less(
    kept: Stores, build: MessageBuilder
) -> None:
    reader = await start(kept, build)
    reader.trouble = UnavailableError("the bucket does not answer")
    await reader.logs.read_new()
    for _ in range(20):
        reader.logs.notice([GROWN])
        assert await reader.logs.read_new() == []
    assert reader.tries == 1, "a change is no reason to try it before its time"

    began = reader.now
    pauses = []
    for _ in range(10):
        before = reader.now
        assert await reader.read_when_due() == []
        pauses.append(reader.now - before)

    assert reader.tries == 11
    assert max(pauses) <= LONGEST_RETRY_SECONDS
    assert min(pauses[-3:]) >= LONGEST_RETRY_SECONDS / 2
    assert reader.now - began > 60


async def test_a_log_that_is_refused_is_not_asked_for_again(
    kept: Stores, build: MessageBuilder
) -> None:
    reader = await start(kept, build)
    reader.trouble = DeniedError("you may not see it")

    [told] = await reader.logs.read_new()

    assert told.refusal == "you may not see it"
    assert reader.logs.find_seconds_left() is None
    reader.logs.notice([GROWN])
    assert await reader.logs.read_new() == []


async def test_a_log_that_is_silent_delays_no_other_and_is_read_later(
    kept: Stores, build: MessageBuilder
) -> None:
    reader = await start(kept, build)
    wanted = pb.FollowedLog(deployment_id="d1", stage_id="s1", first_line=1)
    logs = reader.follow([wanted, wanted], read_seconds=1)
    reader.is_silent = True  # the first that asks

    [other] = await logs.read_new()
    seconds = logs.find_seconds_left()
    assert (other.place, len(other.blocks)) == (1, 2)
    assert seconds is not None
    reader.now += seconds
    [late] = await logs.read_new()

    assert (late.place, len(late.blocks)) == (0, 2)


async def test_a_stream_says_once_of_a_log_without_news_that_it_is_followed(
    kept: Stores, build: MessageBuilder
) -> None:
    """Whoever was refused it in the stream before knows by that."""
    reader = await start(kept, build)
    logs = reader.follow([pb.FollowedLog(deployment_id="d1", stage_id="s1", first_line=3)])

    [first] = await logs.read_new()
    logs.notice([GROWN])

    assert (list(first.blocks), first.first_line, first.total_lines) == ([], 3, 2)
    assert await logs.read_new() == []
