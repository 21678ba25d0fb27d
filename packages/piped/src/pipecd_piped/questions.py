# SPDX-License-Identifier: Apache-2.0
"""Answers the questions of the control plane, while somebody waits there for the answer.

Neither a question nor an answer is stored: what is not answered when piped ends is asked again by
whoever still wants to know.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff, RollBackPreview
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)

AT_ONCE: Final = 4
"""Questions that are answered concurrently: each costs a checkout."""

MOST_WAITING: Final = 64
"""The control plane asks fewer; the oldest of more are dropped."""

LONGEST_SECONDS: Final = 120.0
"""Seconds that an answer may take whatever the question says."""

OpenOne = Callable[[push.OpenResource], Awaitable[ResourceDetails]]
PreviewOne = Callable[[push.PreviewRollBack], Awaitable[RollBackPreview]]
CompareOne = Callable[[push.CompareDeployment], Awaitable[DeploymentDiff]]


class QuestionRunner:
    """Queues questions, and answers several at a time."""

    def __init__(
        self,
        control: ControlPlane,
        open_resource: OpenOne,
        preview_roll_back: PreviewOne,
        compare_deployment: CompareOne,
        mask: Callable[[str], str] = str,
    ) -> None:
        """The calls raise PipecdError; `mask` replaces known secrets in its message."""
        self._control = control
        self._open_resource = open_resource
        self._preview_roll_back = preview_roll_back
        self._compare_deployment = compare_deployment
        self._mask = mask
        self._waiting: deque[tuple[float, push.Question]] = deque(maxlen=MOST_WAITING)
        """With the time until which somebody waits for the answer."""
        self._came = asyncio.Event()

    def take(self, question: push.Question) -> None:
        """Queue a question."""
        seconds = min(float(question.time.seconds) or LONGEST_SECONDS, LONGEST_SECONDS)
        self._waiting.append((asyncio.get_running_loop().time() + seconds, question))
        self._came.set()

    async def run(self) -> None:
        """Answer questions until cancelled."""
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await places.acquire()
                while not self._waiting:
                    self._came.clear()
                    await self._came.wait()
                until, question = self._waiting.popleft()
                task = tasks.create_task(self._answer(question, until), name="question")
                task.add_done_callback(lambda _: places.release())

    async def _answer(self, question: push.Question, until: float) -> None:
        answer = push.AnswerQuestionRequest(question_id=question.id)
        try:
            async with asyncio.timeout_at(until):
                await self._fill(question, answer)
        except TimeoutError:
            answer.no_answer.sentence = "the piped did not have it in time"
        except PipecdError as error:
            answer.no_answer.sentence = self._mask(str(error))
            answer.no_answer.hint = self._mask(error.hint)
            answer.no_answer.not_found = isinstance(error, NotFoundError)
        except Exception:  # noqa: BLE001 - the one who asked waits for an answer
            log.bug("question.bug", question=question.id)
            answer.no_answer.sentence = "piped has a bug there; its log has the details"
        try:
            await self._control.call(self._control.push.AnswerQuestion, answer)
        except PipecdError as error:
            log.info("question.answer_not_delivered", question=question.id, reason=str(error))

    async def _fill(self, question: push.Question, answer: push.AnswerQuestionRequest) -> None:
        match question.WhichOneof("body"):
            case "open_resource":
                wanted = question.open_resource
                log.info(
                    "question.open_resource",
                    application_id=wanted.application_id,
                    resource_id=wanted.resource_id[:200],
                )
                answer.resource.CopyFrom(await self._open_resource(wanted))
            case "preview_roll_back":
                answer.roll_back.CopyFrom(await self._preview_roll_back(question.preview_roll_back))
            case "compare_deployment":
                compared = await self._compare_deployment(question.compare_deployment)
                answer.deployment.CopyFrom(compared)
            case _:
                answer.no_answer.sentence = "this piped does not know the question"
                answer.no_answer.hint = "it is older than the control plane"
