# SPDX-License-Identifier: Apache-2.0
"""The push of changes to agents, so that nothing waits for a poll."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from pipecd_controlplane.auth.caller import Agent
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases import deployments, events, push_commands, registration
from pipecd_controlplane.usecases.agent_watch import AgentWatch
from pipecd_controlplane.usecases.leases import Instance, Leases
from pipecd_controlplane.usecases.shared_state import Questions
from pipecd_model.errors import ConfigError
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import rpc

MOST_REPORTS: Final = 100
"""Reports that an agent may send in one call."""


class PushApi:
    """The watch of an agent, its lease, its answers; its reports that upstream does not know."""

    def __init__(
        self,
        stores: Stores,
        agents: AgentWatch,
        leases: Leases,
        questions: Questions,
        now: Now,
    ) -> None:
        self._stores = stores
        self._agents = agents
        self._leases = leases
        self._questions = questions
        self._now = now

    @rpc("Watch")
    async def watch(
        self, caller: Agent, request: pb.WatchRequest
    ) -> AsyncIterator[pb.WatchResponse]:
        instance = Instance(
            agent=caller, instance_id=request.instance_id, data_folder_id=request.data_folder_id
        )
        watched = self._agents.watch(instance, answers_questions=request.answers_questions)
        async with aclosing(watched) as messages:
            async for message in messages:
                yield message

    @rpc("RenewLease")
    async def renew_lease(
        self, caller: Agent, request: pb.RenewLeaseRequest
    ) -> pb.RenewLeaseResponse:
        lease = await self._leases.renew(caller, request.instance_id, request.epoch)
        return pb.RenewLeaseResponse(lease=lease)

    @rpc("ReleaseLease")
    async def release_lease(
        self, caller: Agent, request: pb.ReleaseLeaseRequest
    ) -> pb.ReleaseLeaseResponse:
        if await self._leases.release(caller, request.instance_id, request.epoch):
            # It stops on purpose: its last report must not make it look alive.
            await self._stores.piped_stats.remove(caller.project_id, caller.piped_id)
        return pb.ReleaseLeaseResponse()

    @rpc("ReportCommandHandled")
    async def report_command_handled(
        self, caller: Agent, request: pb.ReportCommandHandledRequest
    ) -> pb.ReportCommandHandledResponse:
        await push_commands.record_outcome(self._stores, caller, request)
        return pb.ReportCommandHandledResponse()

    @rpc("ReportPlugins")
    async def report_plugins(
        self, caller: Agent, request: pb.ReportPluginsRequest
    ) -> pb.ReportPluginsResponse:
        await self._stores.plugin_states.put(caller.project_id, caller.piped_id, request)
        return pb.ReportPluginsResponse()

    @rpc("ReportQueue")
    async def report_queue(
        self, caller: Agent, request: pb.ReportQueueRequest
    ) -> pb.ReportQueueResponse:
        await self._stores.queues.put(caller.project_id, caller.piped_id, request)
        return pb.ReportQueueResponse()

    @rpc("ReportProgress")
    async def report_progress(
        self, caller: Agent, request: pb.ReportProgressRequest
    ) -> pb.ReportProgressResponse:
        if len(request.reports) > MOST_REPORTS:
            raise ConfigError(
                f"invalid request: {len(request.reports)} reports, at most {MOST_REPORTS}"
            )
        await deployments.report(
            self._stores,
            caller,
            request.deployment_id,
            lambda kept: reports.apply_progress(kept, request.reports, self._now()),
            self._now,
        )
        return pb.ReportProgressResponse()

    @rpc("RegisterEvent")
    async def register_event(
        self, caller: Agent, request: pb.RegisterEventRequest
    ) -> pb.RegisterEventResponse:
        event_id = await events.register_of_deployment(self._stores, caller, request, self._now)
        return pb.RegisterEventResponse(event_id=event_id)

    @rpc("AnswerQuestion")
    async def answer_question(
        self, caller: Agent, request: pb.AnswerQuestionRequest
    ) -> pb.AnswerQuestionResponse:
        await self._questions.answer(caller, request)
        return pb.AnswerQuestionResponse()

    @rpc("RegisterApplications")
    async def register_applications(
        self, caller: Agent, request: pb.RegisterApplicationsRequest
    ) -> pb.RegisterApplicationsResponse:
        outcomes = await registration.register(
            self._stores, caller, request.applications, self._now
        )
        return pb.RegisterApplicationsResponse(outcomes=outcomes)
