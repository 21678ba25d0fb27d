# SPDX-License-Identifier: Apache-2.0
"""Ask an agent something that only it knows, and say why at once when it cannot answer."""

from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import NobodyAnswersError, Presence, Questions
from pipecd_model.errors import NotFoundError, PipecdError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.pipecd.push import push_pb2

LONGEST_SENTENCE: Final = 2000
"""Characters: it is sent among the headers of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestions:
    """Asks agents, and turns silence and refusals into sentences."""

    stores: Stores
    presence: Presence
    questions: Questions
    now: Now

    async def ask(
        self, agent: Agent, question: push_pb2.Question, *, seconds: float, purpose: str
    ) -> push_pb2.AnswerQuestionRequest:
        """Returns the answer. Raises PipecdError when the agent gives or can give none.

        `purpose` is what an agent that answers no questions cannot do: "show resources".
        """
        question.id = new_id()
        question.time.CopyFrom(Duration(seconds=int(seconds)))
        try:
            answer = await self.questions.ask(agent, question, seconds=seconds)
        except NobodyAnswersError:
            raise await self._explain_silence(agent, purpose) from None
        if answer.WhichOneof("answer") == "no_answer":
            raise _explain_refusal(answer.no_answer)
        return answer

    async def _explain_silence(self, agent: Agent, purpose: str) -> StateError:
        """Returns the error for a piped that cannot be asked: it says why at once."""
        piped = await self.stores.pipeds.find(agent.project_id, agent.piped_id)
        if piped is None:
            return StateError(
                "the piped of this application was deleted", hint="move it to another piped"
            )
        if piped.disabled:
            return StateError(f"the piped {piped.name!r} is disabled", hint="enable it first")
        online = await pipeds.find_online(self.stores, self.presence, agent.project_id, self.now)
        if agent.piped_id not in online:
            return StateError(
                f"the piped {piped.name!r} is not connected, and only it can {purpose}",
                hint="start it; its log says why it cannot connect",
            )
        return StateError(
            f"the piped {piped.name!r} cannot {purpose}",
            hint="it is one of upstream's or an older version, or waits for the lease of another"
            " instance",
        )


def unreadable_error() -> StateError:
    """Returns the error for an answer of a kind that was not asked for."""
    return StateError("the piped answered with something that this version cannot read")


def _explain_refusal(refusal: push_pb2.NoAnswer) -> PipecdError:
    kind = NotFoundError if refusal.not_found else StateError
    return kind(
        refusal.sentence[:LONGEST_SENTENCE] or "the piped gave no reason",
        hint=refusal.hint[:LONGEST_SENTENCE],
    )
