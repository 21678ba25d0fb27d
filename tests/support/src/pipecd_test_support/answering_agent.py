# SPDX-License-Identifier: Apache-2.0
"""An agent that is connected to a served control plane and answers its questions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from pipecd_test_support.controlplane_server import AgentClient
from pipecd_test_support.waiting import wait_soon
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import call, stream

Answer = Callable[[pb.Question], Awaitable[pb.AnswerQuestionRequest | None]]
"""Returns the answer to a question; None for one that is never answered."""


@asynccontextmanager
async def answering(
    agent: AgentClient, answer: Answer, *, instance_id: str = "instance"
) -> AsyncIterator[list[pb.Question]]:
    """Watch and answer while the block runs; yields the questions that have come so far."""
    request = pb.WatchRequest(
        instance_id=instance_id, data_folder_id="folder", answers_questions=True
    )
    asked: list[pb.Question] = []

    async def reply(question: pb.Question) -> None:
        answered = await answer(question)
        if answered is not None:
            answered.question_id = question.id
            await call(agent.push.AnswerQuestion, answered)

    async def follow(messages: AsyncIterator[pb.WatchResponse], tasks: asyncio.TaskGroup) -> None:
        async for message in messages:
            if message.WhichOneof("body") == "question":
                asked.append(message.question)
                tasks.create_task(reply(message.question))

    async with aclosing(stream(agent.push.Watch, request)) as messages:
        await wait_soon(anext(messages))
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow(messages, tasks))
            try:
                yield asked
            finally:
                following.cancel()
