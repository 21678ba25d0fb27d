# SPDX-License-Identifier: Apache-2.0
"""Questions to agents, and those who wait for the answers, in the memory of this process.

A question lives as long as its asker waits. Neither it nor its answer is written anywhere.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import ChangeBus, NobodyAnswersError, TakeQuestions
from pipecd_model.errors import NotFoundError, TimedOutError, UnavailableError
from pipecd_wire.pipecd.push import push_pb2

MOST_OF_PIPED: Final = 16
"""Questions to one piped at a time: each answer is a message of some MiB in memory."""

MOST_IN_ALL: Final = 128


@dataclass(slots=True, kw_only=True)
class _Asked:
    question: push_pb2.Question
    agent: Agent
    answer: asyncio.Future[push_pb2.AnswerQuestionRequest]
    taker: object | None = None
    """The connection that has sent it to the agent."""


class InProcessQuestions:
    """The questions that somebody waits for in this process; implements `Questions`."""

    def __init__(
        self, bus: ChangeBus, *, of_piped: int = MOST_OF_PIPED, in_all: int = MOST_IN_ALL
    ) -> None:
        self._bus = bus
        self._of_piped = of_piped
        self._in_all = in_all
        self._open: dict[str, _Asked] = {}
        self._connections: Counter[str] = Counter()

    @asynccontextmanager
    async def channel(self, agent: Agent) -> AsyncIterator[TakeQuestions]:
        connection = object()

        async def take() -> list[push_pb2.Question]:
            new = [each for each in self._list_of(agent.piped_id) if each.taker is None]
            for each in new:
                each.taker = connection
            return [each.question for each in new]

        self._connections[agent.piped_id] += 1
        try:
            yield take
        finally:
            self._connections[agent.piped_id] -= 1
            if not self._connections[agent.piped_id]:
                del self._connections[agent.piped_id]
            self._give_up(agent.piped_id, connection)

    async def ask(
        self, agent: Agent, question: push_pb2.Question, *, seconds: float
    ) -> push_pb2.AnswerQuestionRequest:
        if not self._connections[agent.piped_id]:
            raise NobodyAnswersError("the piped is not connected")
        if len(self._list_of(agent.piped_id)) >= self._of_piped or len(self._open) >= self._in_all:
            raise UnavailableError("too many ask at the same time", hint="ask again in a moment")
        asked = _Asked(
            question=question, agent=agent, answer=asyncio.get_running_loop().create_future()
        )
        self._open[question.id] = asked
        try:
            self._bus.publish(
                [
                    Change(
                        kind=ChangeKind.QUESTION,
                        id=question.id,
                        project_id=agent.project_id,
                        piped_id=agent.piped_id,
                    )
                ]
            )
            async with asyncio.timeout(seconds):
                return await asked.answer
        except TimeoutError:
            raise TimedOutError(
                f"the piped did not answer within {seconds:g}s", hint="its log may say why"
            ) from None
        finally:
            del self._open[question.id]

    async def answer(self, agent: Agent, answer: push_pb2.AnswerQuestionRequest) -> None:
        asked = self._open.get(answer.question_id)
        if asked is None or not _is_same(asked.agent, agent) or asked.answer.done():
            raise NotFoundError(f"nobody waits for an answer to {answer.question_id!r}")
        asked.answer.set_result(answer)

    def _list_of(self, piped_id: str) -> list[_Asked]:
        return [each for each in self._open.values() if each.agent.piped_id == piped_id]

    def _give_up(self, piped_id: str, connection: object) -> None:
        """End the questions that can no longer be answered: nobody waits for nothing."""
        is_last = not self._connections[piped_id]
        for each in self._list_of(piped_id):
            lost = each.taker is connection or (each.taker is None and is_last)
            if lost and not each.answer.done():
                each.answer.set_exception(
                    UnavailableError("the piped was disconnected", hint="ask again")
                )


def _is_same(one: Agent, other: Agent) -> bool:
    return (one.project_id, one.piped_id) == (other.project_id, other.piped_id)
