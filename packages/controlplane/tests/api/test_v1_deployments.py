# SPDX-License-Identifier: Apache-2.0
"""Approve, skip, cancel, watch and follow, over the real wire."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.waiting import Soon
from pipecd_wire.model import command_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import DeploymentRecord, StageAction
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream


async def running(plane: ServedControlPlane, *stages: model.PipelineStage) -> AgentClient:
    """An agent with the running deployment `d1`."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1", *stages)
    return agent


def approval(build: MessageBuilder, stage_id: str = "wait", **fields: Any) -> model.PipelineStage:
    defaults = {
        "name": "WAIT_APPROVAL",
        "status": model.STAGE_RUNNING,
        "available_operation": model.MANUAL_OPERATION_APPROVE,
    }
    stage: model.PipelineStage = build.stage(stage_id, **{**defaults, **fields})
    return stage


async def commands_of(agent: AgentClient) -> list[command_pb2.Command]:
    answer = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    return list(answer.commands)


async def end(
    plane: ServedControlPlane,
    agent: AgentClient,
    status: model.DeploymentStatus.ValueType = model.DEPLOYMENT_SUCCESS,
) -> None:
    await call(
        agent.service.ReportDeploymentCompleted,
        pipedservice.ReportDeploymentCompletedRequest(
            deployment_id="d1",
            status=status,
            completed_at=plane.build.NOON,
        ),
    )


class TestApprove:
    async def test_an_approval_becomes_a_command_of_the_agent(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, approval(build))

        answer = await call(
            plane.admin.deployments.ApproveStage,
            pb.ApproveStageRequest(deployment_id="d1", stage_id="wait"),
        )

        (command,) = await commands_of(agent)
        assert (command.id, answer.stage_id) == (answer.command_id, "wait")
        assert command.type == command_pb2.Command.APPROVE_STAGE
        assert (command.commander, command.stage_id) == ("admin", "wait")
        assert command.approve_stage.stage_id == "wait"

    async def test_the_one_stage_that_waits_need_not_be_named(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(
            plane,
            approval(build, "later", status=model.STAGE_NOT_STARTED_YET),
            approval(build, "now"),
            build.stage("other", status=model.STAGE_RUNNING),
        )

        answer = await call(
            plane.admin.deployments.ApproveStage, pb.ApproveStageRequest(deployment_id="d1")
        )

        assert answer.stage_id == "now"

    async def test_when_none_or_several_wait_it_must_be_named(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        request = pb.ApproveStageRequest(deployment_id="d1")
        error = await call_refused(plane.admin.deployments.ApproveStage, request)
        assert error.status == "FAILED_PRECONDITION"
        assert "no stage of the deployment 'd1' waits for approval now" in error.message

        await call(
            agent.service.ReportDeploymentPlanned,
            build.planned("d1", approval(build, "one"), approval(build, "two")),
        )
        error = await call_refused(plane.admin.deployments.ApproveStage, request)
        assert error.status == "FAILED_PRECONDITION"
        assert "2 stages" in error.message
        assert "name one of one, two" in error.message

    async def test_only_an_approver_may_approve(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, approval(build, authorized_operators=["ann", "bob"]))
        request = pb.ApproveStageRequest(deployment_id="d1", stage_id="wait")

        error = await call_refused(plane.admin.deployments.ApproveStage, request)
        assert error.status == "PERMISSION_DENIED"
        assert "it waits for ann, bob" in error.message
        assert await commands_of(agent) == []

        ann = await plane.user(await plane.new_key("ann"))
        await call(ann.deployments.ApproveStage, request)
        assert [command.commander for command in await commands_of(agent)] == ["ann"]

    async def test_a_stage_of_another_kind_is_not_approved(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, build.stage("s1", status=model.STAGE_RUNNING))

        error = await call_refused(
            plane.admin.deployments.ApproveStage,
            pb.ApproveStageRequest(deployment_id="d1", stage_id="s1"),
        )

        assert error.status == "FAILED_PRECONDITION"

    async def test_a_completed_stage_is_not_approved(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, approval(build, status=model.STAGE_SUCCESS))

        error = await call_refused(
            plane.admin.deployments.ApproveStage,
            pb.ApproveStageRequest(deployment_id="d1", stage_id="wait"),
        )

        assert error.status == "FAILED_PRECONDITION"

    async def test_a_stage_that_is_not_there_is_not_found(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, approval(build))

        error = await call_refused(
            plane.admin.deployments.ApproveStage,
            pb.ApproveStageRequest(deployment_id="d1", stage_id="s9"),
        )

        assert error.status == "NOT_FOUND"

    async def test_a_repeated_approval_is_one_command(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        """Also when the stage has gone on meanwhile: the answer was lost, not the approval."""
        agent = await running(plane, approval(build))
        careful = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "once")])
        request = pb.ApproveStageRequest(deployment_id="d1")
        first = await call(careful.deployments.ApproveStage, request)
        await call(
            agent.service.ReportStageStatusChanged,
            build.stage_report("d1", "wait", model.STAGE_SUCCESS),
        )

        assert await call(careful.deployments.ApproveStage, request) == first
        assert len(await commands_of(agent)) == 1


class TestSkipAndCancel:
    async def test_a_stage_that_offers_it_is_skipped(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(
            plane,
            build.stage("s1", available_operation=model.MANUAL_OPERATION_SKIP),
            build.stage("s2"),
        )

        answer = await call(
            plane.admin.deployments.SkipStage,
            pb.SkipStageRequest(deployment_id="d1", stage_id="s1"),
        )
        error = await call_refused(
            plane.admin.deployments.SkipStage,
            pb.SkipStageRequest(deployment_id="d1", stage_id="s2"),
        )

        (command,) = await commands_of(agent)
        assert (command.id, command.type) == (answer.command_id, command_pb2.Command.SKIP_STAGE)
        assert error.status == "FAILED_PRECONDITION"

    async def test_a_cancel_carries_what_to_do_about_rollback(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, build.stage("s1"))

        await call(
            plane.admin.deployments.CancelDeployment,
            pb.CancelDeploymentRequest(deployment_id="d1", force_no_rollback=True),
        )

        (command,) = await commands_of(agent)
        assert command.type == command_pb2.Command.CANCEL_DEPLOYMENT
        assert command.cancel_deployment.force_no_rollback
        assert not command.cancel_deployment.force_rollback

    async def test_a_cancel_cannot_want_both(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, build.stage("s1"))

        error = await call_refused(
            plane.admin.deployments.CancelDeployment,
            pb.CancelDeploymentRequest(
                deployment_id="d1", force_rollback=True, force_no_rollback=True
            ),
        )

        assert error.status == "INVALID_ARGUMENT"

    async def test_a_completed_deployment_is_not_cancelled(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        await end(plane, agent)

        error = await call_refused(
            plane.admin.deployments.CancelDeployment,
            pb.CancelDeploymentRequest(deployment_id="d1"),
        )

        assert error.status == "FAILED_PRECONDITION"


class TestWatch:
    async def test_each_change_is_seen_and_the_end_ends_it(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        request = pb.WatchDeploymentRequest(deployment_id="d1")
        async with aclosing(stream(plane.admin.deployments.WatchDeployment, request)) as seen:
            first = await soon(anext(seen))
            assert first.deployment == await plane.read_deployment()

            await call(
                agent.service.ReportStageStatusChanged,
                build.stage_report("d1", "s1", model.STAGE_RUNNING),
            )
            second = await soon(anext(seen))
            assert second.deployment.stages[0].status == model.STAGE_RUNNING

            await end(plane, agent)
            last = await soon(anext(seen))
            assert last.deployment.status == model.DEPLOYMENT_SUCCESS
            with pytest.raises(StopAsyncIteration):
                await soon(anext(seen))

    async def test_a_completed_deployment_is_seen_once(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        await end(plane, agent)

        request = pb.WatchDeploymentRequest(deployment_id="d1")
        seen = stream(plane.admin.deployments.WatchDeployment, request)

        assert (await soon(anext(seen))).deployment.status == model.DEPLOYMENT_SUCCESS
        with pytest.raises(StopAsyncIteration):
            await soon(anext(seen))


class TestFollow:
    def report(self, build: MessageBuilder, *indexes: int) -> pipedservice.ReportStageLogsRequest:
        return pipedservice.ReportStageLogsRequest(
            deployment_id="d1", stage_id="s1", blocks=build.blocks(*indexes)
        )

    def last_report(
        self, build: MessageBuilder, *indexes: int
    ) -> pipedservice.ReportStageLogsFromLastCheckpointRequest:
        return pipedservice.ReportStageLogsFromLastCheckpointRequest(
            deployment_id="d1", stage_id="s1", blocks=build.blocks(*indexes), completed=True
        )

    def follow(self, plane: ServedControlPlane, **fields: Any) -> Any:
        request = pb.FollowStageLogRequest(deployment_id="d1", stage_id="s1", **fields)
        return stream(plane.admin.deployments.FollowStageLog, request)

    async def test_a_log_is_followed_while_it_is_written(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING))
        await call(agent.service.ReportStageLogs, self.report(build, 1, 2))
        async with aclosing(self.follow(plane)) as parts:
            first = await soon(anext(parts))
            assert [block.index for block in first.blocks] == [1, 2]

            await call(agent.service.ReportStageLogs, self.report(build, 2, 3))
            second = await soon(anext(parts))
            assert [block.index for block in second.blocks] == [3]
            assert not second.completed

            await call(
                agent.service.ReportStageLogsFromLastCheckpoint, self.last_report(build, 3, 4)
            )
            third = await soon(anext(parts))
            assert ([block.index for block in third.blocks], third.completed) == ([4], False)

            await self.end_stage(agent, build)
            last = await soon(anext(parts))
            assert (list(last.blocks), last.completed) == ([], True)
            with pytest.raises(StopAsyncIteration):
                await soon(anext(parts))

    async def test_a_stage_without_a_log_yet_is_waited_for(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        async with aclosing(self.follow(plane)) as parts, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(soon(anext(parts)))
            await call(agent.service.ReportStageLogs, self.report(build, 1))

            part = await waiting
            assert [block.index for block in part.blocks] == [1]

    async def test_a_follower_goes_on_where_it_was_interrupted(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        await call(
            agent.service.ReportStageLogsFromLastCheckpoint, self.last_report(build, 1, 2, 3)
        )
        await self.end_stage(agent, build)

        part = await soon(anext(self.follow(plane, from_index=3)))

        assert ([block.index for block in part.blocks], part.completed) == ([3], True)

    async def test_a_log_that_will_never_be_sealed_ends_with_its_stage(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        """Its plugin died: nobody writes the seal."""
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING))
        await call(agent.service.ReportStageLogs, self.report(build, 1))
        async with aclosing(self.follow(plane)) as parts:
            await soon(anext(parts))
            await call(
                agent.service.ReportStageStatusChanged,
                build.stage_report("d1", "s1", model.STAGE_FAILURE),
            )

            last = await soon(anext(parts))
            assert last.completed
            with pytest.raises(StopAsyncIteration):
                await soon(anext(parts))

    async def test_a_stage_that_never_ran_ends_with_its_deployment(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1"))
        async with aclosing(self.follow(plane)) as parts, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(soon(anext(parts)))
            await end(plane, agent, model.DEPLOYMENT_CANCELLED)

            last = await waiting
            assert (list(last.blocks), last.completed) == ([], True)

    async def test_many_followers_each_see_everything_once(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING))

        async def read_all() -> list[int]:
            found: list[int] = []
            async with aclosing(self.follow(plane)) as parts:
                async for part in parts:
                    found += [block.index for block in part.blocks]
            return found

        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(soon(read_all())) for _ in range(5)]
            for index in range(30):
                await call(agent.service.ReportStageLogs, self.report(build, index))
            await call(agent.service.ReportStageLogsFromLastCheckpoint, self.last_report(build))
            await self.end_stage(agent, build)

        assert all(reader.result() == list(range(30)) for reader in readers)

    async def test_the_log_of_a_stage_that_runs_again_opens_again(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        """A plugin outlived its agent and sealed the log; the next agent runs the stage again."""
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING))
        report = agent.service.ReportStageLogsFromLastCheckpoint
        async with aclosing(self.follow(plane)) as parts:
            await call(report, self.last_report(build, 1))
            first = await soon(anext(parts))
            assert ([block.index for block in first.blocks], first.completed) == ([1], False)

            await call(agent.service.ReportStageLogs, self.report(build, 2))
            again = await soon(anext(parts))
            assert ([block.index for block in again.blocks], again.completed) == ([2], False)

            await call(report, self.last_report(build, 3))
            await self.end_stage(agent, build)
            rest = [part async for part in parts]
            assert [block.index for part in rest for block in part.blocks] == [3]
            assert rest[-1].completed

    async def test_the_log_of_an_earlier_attempt_stays_sealed(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING, retried_count=1))
        report = agent.service.ReportStageLogsFromLastCheckpoint
        await call(report, self.last_report(build, 1))

        error = await call_refused(agent.service.ReportStageLogs, self.report(build, 2))

        assert error.status == "FAILED_PRECONDITION"

    async def end_stage(self, agent: AgentClient, build: MessageBuilder) -> None:
        await call(
            agent.service.ReportStageStatusChanged,
            build.stage_report("d1", "s1", model.STAGE_SUCCESS),
        )

    async def test_a_sealed_log_of_a_stage_that_is_over_takes_no_more(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        agent = await running(plane, build.stage("s1", status=model.STAGE_RUNNING))
        report = agent.service.ReportStageLogsFromLastCheckpoint
        await call(report, self.last_report(build, 1))
        await call(report, self.last_report(build, 1))
        await self.end_stage(agent, build)

        error = await call_refused(agent.service.ReportStageLogs, self.report(build, 2))

        assert error.status == "FAILED_PRECONDITION"

    async def test_a_stage_that_is_not_there_is_not_found(
        self, plane: ServedControlPlane, build: MessageBuilder, soon: Soon
    ) -> None:
        await running(plane, build.stage("other"))

        with pytest.raises(CallError) as caught:
            await soon(anext(self.follow(plane)))
        assert caught.value.status == "NOT_FOUND"


class TestWhoDidWhat:
    async def record(self, plane: ServedControlPlane) -> DeploymentRecord:
        request = pb.GetDeploymentRecordRequest(deployment_id="d1")
        return (await call(plane.admin.deployments.GetDeploymentRecord, request)).record

    async def test_every_action_is_on_record_with_its_comment(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        skippable = build.stage(
            "skip", status=model.STAGE_RUNNING, available_operation=model.MANUAL_OPERATION_SKIP
        )
        await running(plane, approval(build), skippable)
        service = plane.admin.deployments
        assert not (await self.record(plane)).actions

        approved = await call(
            service.ApproveStage, pb.ApproveStageRequest(deployment_id="d1", comment="looks good")
        )
        skipped = await call(
            service.SkipStage,
            pb.SkipStageRequest(deployment_id="d1", stage_id="skip", comment="long enough"),
        )
        cancelled = await call(
            service.CancelDeployment,
            pb.CancelDeploymentRequest(deployment_id="d1", comment="wrong one"),
        )

        actions = (await self.record(plane)).actions
        assert [
            (each.kind, each.stage_id, each.by, each.comment, each.command_id) for each in actions
        ] == [
            (StageAction.APPROVED, "wait", "admin", "looks good", approved.command_id),
            (StageAction.SKIPPED, "skip", "admin", "long enough", skipped.command_id),
            (StageAction.CANCELLED, "", "admin", "wrong one", cancelled.command_id),
        ]
        assert all(each.at.seconds for each in actions)

    async def test_a_repeated_call_is_one_action(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, approval(build))
        user = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "k")])
        for _ in range(2):
            await call(user.deployments.ApproveStage, pb.ApproveStageRequest(deployment_id="d1"))

        assert len((await self.record(plane)).actions) == 1

    async def test_a_refused_action_leaves_nothing(
        self, plane: ServedControlPlane, build: MessageBuilder
    ) -> None:
        await running(plane, build.stage("s1"))
        request = pb.ApproveStageRequest(deployment_id="d1", stage_id="s1", comment="please")
        await call_refused(plane.admin.deployments.ApproveStage, request)
        too_long = pb.CancelDeploymentRequest(deployment_id="d1", comment="x" * 10_000)
        error = await call_refused(plane.admin.deployments.CancelDeployment, too_long)

        assert "comment" in error.message
        assert not (await self.record(plane)).actions
