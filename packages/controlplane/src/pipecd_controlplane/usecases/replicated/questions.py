# SPDX-License-Identifier: Apache-2.0
"""Questions to agents that are connected to any control plane.

Whoever is asked sends the question to the control plane that has the agent's channel, which asks
as if somebody waited there, and sends back what it gets. The agent may answer at any of them: a
row says who waits for the answer, and the answer is passed on. Rows have ids only; questions and
answers are sealed messages.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from pipecd_controlplane.store.postgres.shared_tables import SharedTables
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.questions import InProcessQuestions
from pipecd_controlplane.usecases.replicated.channels import ChannelKind, Channels
from pipecd_controlplane.usecases.replicated.messages import Messages
from pipecd_controlplane.usecases.shared_state import NobodyAnswersError, TakeQuestions
from pipecd_model.errors import NotFoundError, PipecdError, TimedOutError, UnavailableError
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push import push_pb2

log = logger(__name__)

SLACK_SECONDS: Final = 2.0
"""How much longer than the other control plane its asker waits."""

EXPECT: Final = (
    "INSERT INTO pipecd_question (id, replica_id, project_id, piped_id, asked_at)"
    " VALUES ($1, $2, $3, $4, now())"
    " ON CONFLICT (id) DO UPDATE SET replica_id = excluded.replica_id"
)
FIND: Final = (
    "SELECT replica_id FROM pipecd_question WHERE id = $1 AND project_id = $2 AND piped_id = $3"
)
FORGET: Final = "DELETE FROM pipecd_question WHERE id = $1"


class AskMessage(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A question for an agent of the receiver."""

    project_id: str
    piped_id: str
    question: bytes
    seconds: float
    asker: str
    """The control plane that waits for the result."""


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What an agent has answered."""

    project_id: str
    piped_id: str
    answer: bytes


class ResultMessage(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """What became of a question: an answer or an error."""

    question_id: str
    answer: bytes = b""
    error: str = ""
    """The name of the error; empty when there is an answer."""
    sentence: str = ""
    hint: str = ""


class CancelMessage(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Nobody waits for the question any more."""

    question_id: str


QuestionMessage = AskMessage | AnswerMessage | ResultMessage | CancelMessage

ERRORS: Final[dict[str, type[PipecdError]]] = {
    "nobody": NobodyAnswersError,
    "timed-out": TimedOutError,
    "unavailable": UnavailableError,
}


class ReplicatedQuestions:
    """Implements `Questions`."""

    def __init__(
        self,
        local: InProcessQuestions,
        channels: Channels,
        tables: SharedTables,
        messages: Messages,
        replica_id: str,
    ) -> None:
        self._local = local
        self._channels = channels
        self._tables = tables
        self._messages = messages
        self._replica_id = replica_id
        self._awaited: dict[str, asyncio.Future[push_pb2.AnswerQuestionRequest]] = {}
        self._asked_for_others: dict[str, asyncio.Task[object]] = {}

    @asynccontextmanager
    async def channel(self, agent: Agent) -> AsyncIterator[TakeQuestions]:
        async with (
            self._local.channel(agent) as take,
            self._channels.opened(ChannelKind.QUESTIONS, agent),
        ):
            yield take

    async def ask(
        self, agent: Agent, question: push_pb2.Question, *, seconds: float
    ) -> push_pb2.AnswerQuestionRequest:
        found = await self._channels.find_replicas(ChannelKind.QUESTIONS, [agent.piped_id])
        replicas = found.get(agent.piped_id, [])
        if not replicas:
            raise NobodyAnswersError("the piped is not connected")
        if self._replica_id in replicas:
            return await self._ask_here(agent, question, seconds=seconds)
        return await self._ask_there(replicas[0], agent, question, seconds=seconds)

    async def answer(self, agent: Agent, answer: push_pb2.AnswerQuestionRequest) -> None:
        try:
            await self._local.answer(agent, answer)
        except NotFoundError:
            row = await self._tables.row(FIND, answer.question_id, agent.project_id, agent.piped_id)
            if row is None or row[0] == self._replica_id:
                raise
            passed_on = AnswerMessage(
                project_id=agent.project_id,
                piped_id=agent.piped_id,
                answer=answer.SerializeToString(),
            )
            await self._messages.send(row[0], msgspec.msgpack.encode(passed_on))

    async def receive(self, text: bytes) -> None:
        """Handles a message of another control plane."""
        message = msgspec.msgpack.decode(text, type=QuestionMessage)
        match message:
            case AskMessage():
                await self._ask_for_other(message)
            case AnswerMessage():
                answer = push_pb2.AnswerQuestionRequest.FromString(message.answer)
                agent = Agent(project_id=message.project_id, piped_id=message.piped_id)
                await self._local.answer(agent, answer)
            case ResultMessage():
                self._settle(message)
            case CancelMessage():
                if task := self._asked_for_others.get(message.question_id):
                    task.cancel()

    async def _ask_here(
        self, agent: Agent, question: push_pb2.Question, *, seconds: float
    ) -> push_pb2.AnswerQuestionRequest:
        await self._tables.run(
            EXPECT, question.id, self._replica_id, agent.project_id, agent.piped_id
        )
        try:
            return await self._local.ask(agent, question, seconds=seconds)
        finally:
            await self._tables.run(FORGET, question.id)

    async def _ask_there(
        self, replica_id: str, agent: Agent, question: push_pb2.Question, *, seconds: float
    ) -> push_pb2.AnswerQuestionRequest:
        future: asyncio.Future[push_pb2.AnswerQuestionRequest] = (
            asyncio.get_running_loop().create_future()
        )
        self._awaited[question.id] = future
        message = AskMessage(
            project_id=agent.project_id,
            piped_id=agent.piped_id,
            question=question.SerializeToString(),
            seconds=seconds,
            asker=self._replica_id,
        )
        try:
            try:
                await self._messages.send(replica_id, msgspec.msgpack.encode(message))
            except NotFoundError:
                raise NobodyAnswersError("the piped is not connected") from None
            async with asyncio.timeout(seconds + SLACK_SECONDS):
                return await future
        except TimeoutError:
            raise TimedOutError(
                f"the piped did not answer within {seconds:g}s", hint="its log may say why"
            ) from None
        except asyncio.CancelledError:
            await self._cancel_there(replica_id, question.id)
            raise
        finally:
            del self._awaited[question.id]

    async def _cancel_there(self, replica_id: str, question_id: str) -> None:
        try:
            await self._messages.send(
                replica_id, msgspec.msgpack.encode(CancelMessage(question_id=question_id))
            )
        except PipecdError as error:
            log.warning("replica.question_not_cancelled", error=str(error))

    async def _ask_for_other(self, message: AskMessage) -> None:
        """Asks an agent that is connected here, and sends what comes of it."""
        question = push_pb2.Question.FromString(message.question)
        agent = Agent(project_id=message.project_id, piped_id=message.piped_id)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a message is received in a task
        self._asked_for_others[question.id] = task
        try:
            answer = await self._ask_here(agent, question, seconds=message.seconds)
            result = ResultMessage(question_id=question.id, answer=answer.SerializeToString())
        except PipecdError as error:
            name = next((name for name, kind in ERRORS.items() if type(error) is kind), "")
            result = ResultMessage(
                question_id=question.id,
                error=name or "unavailable",
                sentence=str(error),
                hint=error.hint,
            )
        finally:
            del self._asked_for_others[question.id]
        await self._messages.send(message.asker, msgspec.msgpack.encode(result))

    def _settle(self, result: ResultMessage) -> None:
        future = self._awaited.get(result.question_id)
        if future is None or future.done():
            return
        if result.error:
            kind = ERRORS.get(result.error, UnavailableError)
            future.set_exception(kind(result.sentence, hint=result.hint))
        else:
            future.set_result(push_pb2.AnswerQuestionRequest.FromString(result.answer))
