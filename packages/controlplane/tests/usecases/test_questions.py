# SPDX-License-Identifier: Apache-2.0
"""Questions to agents: who waits is answered, or told at once that nobody will."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipecd_controlplane.store.changes import piped_topic
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.questions import InProcessQuestions
from pipecd_model.errors import UnavailableError
from pipecd_test_support.waiting import Soon
from pipecd_wire.pipecd.push import push_pb2 as pb

AGENT = Agent(project_id="ours", piped_id="piped")
OTHER = Agent(project_id="ours", piped_id="other")
LONG_SECONDS = 600.0


@asynccontextmanager
async def asking(
    questions: InProcessQuestions, *ids: str, agent: Agent = AGENT
) -> AsyncIterator[dict[str, asyncio.Task[pb.AnswerQuestionRequest]]]:
    """Ask, and let the questions get as far as they go by themselves."""
    tasks = {
        each: asyncio.ensure_future(
            questions.ask(agent, pb.Question(id=each), seconds=LONG_SECONDS)
        )
        for each in ids
    }
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_more_than_the_limit_are_refused_and_the_others_go_on(soon: Soon) -> None:
    questions = InProcessQuestions(Bus(), of_piped=2, in_all=3)
    async with (
        questions.channel(AGENT),
        questions.channel(OTHER),
        asking(questions, "1", "2", "3") as of_piped,
        asking(questions, "4", "5", agent=OTHER) as of_other,
    ):
        for refused in (of_piped["3"], of_other["5"]):
            with pytest.raises(UnavailableError, match="too many"):
                await soon(refused)
        await questions.answer(AGENT, pb.AnswerQuestionRequest(question_id="1"))
        assert (await soon(of_piped["1"])).question_id == "1"
        async with asking(questions, "6") as again:
            assert not again["6"].done()


async def test_a_lost_connection_ends_only_what_it_had_taken(soon: Soon) -> None:
    """The other connection of the piped still answers what it has been sent, and what is new."""
    questions = InProcessQuestions(Bus())
    async with (
        questions.channel(AGENT) as take_here,
        asking(questions, "1") as first,
        asking(questions, "2") as second,
    ):
        async with questions.channel(AGENT) as take_there:
            assert [each.id for each in await take_there()] == ["1", "2"]
            async with asking(questions, "3") as third:
                assert [each.id for each in await take_here()] == ["3"]
                assert await take_there() == []
        for lost in (first["1"], second["2"]):
            with pytest.raises(UnavailableError, match="disconnected"):
                await soon(lost)
        assert third["3"].cancelled()
        async with asking(questions, "4") as fourth:
            async with questions.channel(AGENT):
                pass
            assert [each.id for each in await take_here()] == ["4"]
            assert not fourth["4"].done()


async def test_what_nobody_has_taken_ends_with_the_last_connection(soon: Soon) -> None:
    questions = InProcessQuestions(Bus())
    connection = questions.channel(AGENT)
    await connection.__aenter__()
    async with asking(questions, "1") as asked:
        await connection.__aexit__(None, None, None)

        with pytest.raises(UnavailableError, match="disconnected"):
            await soon(asked["1"])


async def test_an_asker_who_leaves_leaves_nothing_behind(soon: Soon) -> None:
    bus = Bus()
    questions = InProcessQuestions(bus, of_piped=1)
    async with questions.channel(AGENT) as take:
        for each in ("1", "2"):
            with bus.listen(piped_topic(AGENT.piped_id)) as listener:
                async with asking(questions, each):
                    assert [change.id for change in await soon(listener.wait_changes())] == [each]
        assert await take() == []
