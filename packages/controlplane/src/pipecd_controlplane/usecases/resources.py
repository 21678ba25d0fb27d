# SPDX-License-Identifier: Apache-2.0
"""Open a resource of an application's live state: its piped is asked, and nothing is stored."""

from typing import Final

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, limits, live_state
from pipecd_controlplane.usecases.asking import AgentQuestions, unreadable_error
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.errors import ConfigError, NotFoundError, StateError
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_live_state_pb2 import ResourceState
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.details import details_pb2
from pipecd_wire.pipecd.push import push_pb2

log = logger(__name__)

ANSWER_SECONDS: Final = 30.0
"""How long a piped may take. It asks the plugin, which asks the platform."""

DETAILS_BYTES: Final = 6 * 1024 * 1024


class ResourceQuestions:
    """Asks the pipeds of applications for the details of resources."""

    def __init__(
        self,
        stores: Stores,
        questions: AgentQuestions,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._stores = stores
        self._questions = questions
        self._seconds = seconds

    async def open(
        self, requester: Requester, request: api_pb2.OpenResourceRequest
    ) -> api_pb2.OpenResourceResponse:
        """Returns the details of a resource. Raises PipecdError with a sentence for the asker."""
        for field in ("resource_id", "plugin_name", "deploy_target", "container"):
            limits.text(field, getattr(request, field), limits.CONTEXT)
        application = await applications.get(self._stores, requester, request.application_id)
        resource = await self._find(requester, request)
        question = push_pb2.Question(
            open_resource=push_pb2.OpenResource(
                application_id=application.id,
                plugin_name=resource.plugin_name,
                deploy_target=resource.deploy_target,
                resource_id=resource.id,
                container=request.container,
                log_lines=request.log_lines,
            ),
        )
        # Who has looked at what is on record; what they saw is not.
        log.info(
            "resource.opened",
            project_id=requester.project_id,
            by=requester.name,
            application_id=application.id,
            resource_id=resource.id[:200],
        )
        agent = Agent(project_id=requester.project_id, piped_id=application.piped_id)
        answer = await self._questions.ask(
            agent, question, seconds=self._seconds, purpose="show resources"
        )
        return api_pb2.OpenResourceResponse(resource=resource, details=_read(answer))

    async def _find(
        self, requester: Requester, request: api_pb2.OpenResourceRequest
    ) -> ResourceState:
        """Returns the resource in the live state that was reported last."""
        snapshot = await live_state.read_snapshot(
            self._stores, requester.project_id, request.application_id
        )
        found = [
            each
            for each in snapshot.application_live_state.resources
            if each.id == request.resource_id
            and request.plugin_name in ("", each.plugin_name)
            and request.deploy_target in ("", each.deploy_target)
        ]
        if not found:
            raise NotFoundError(
                f"the application has no resource {request.resource_id[:200]!r}",
                hint="its live state lists all that can be opened",
            )
        if len(found) > 1:
            places = sorted(f"{each.plugin_name}/{each.deploy_target}" for each in found)
            raise ConfigError(
                f"the resource {request.resource_id[:200]!r} is in several deploy targets",
                hint=f"name one of {', '.join(places)}",
            )
        return found[0]


def _read(answer: push_pb2.AnswerQuestionRequest) -> details_pb2.ResourceDetails:
    """Returns the details in an answer."""
    match answer.WhichOneof("answer"):
        case "resource":
            if answer.resource.ByteSize() > DETAILS_BYTES:
                raise StateError(
                    "the piped answered with more than can be shown", hint="ask for fewer log lines"
                )
            return answer.resource
        case _:
            raise unreadable_error()
