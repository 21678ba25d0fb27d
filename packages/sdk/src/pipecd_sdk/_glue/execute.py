# SPDX-License-Identifier: Apache-2.0
"""ExecuteStage and WaitStage: a stage with its log, metadata and commands around the handler."""

import asyncio
import shlex
from collections.abc import Sequence

from pipecd_sdk._execution import execute
from pipecd_sdk._glue import messages, stage_log
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.piped import (
    ApplicationObjects,
    DeploymentMetadata,
    PipedClient,
    PipedTools,
    StageCommandStream,
    StageMetadata,
    StageSecrets,
    get_shared_metadata,
)
from pipecd_sdk._glue.running import StageRun, StageRuns
from pipecd_sdk._glue.stage_log import StageLogSender
from pipecd_sdk.clock import Clock
from pipecd_sdk.context import DeployTarget, StageContext
from pipecd_sdk.plugin import StagePlugin
from pipecd_sdk.results import StageResult
from pipecd_sdk.secrets import Secrets
from pipecd_sdk.stage_log import StageLog
from pipecd_wire.headers import CURRENT_METADATA_HEADER
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import Metadata, StatusError, rpc


class ExecuteApi:
    """The RPC that runs a stage."""

    def __init__(
        self,
        plugin: StagePlugin,
        setup: Setup,
        piped: PipedClient,
        running: StageRuns,
        clock: Clock,
    ) -> None:
        self._plugin = plugin
        self._setup = setup
        self._piped = piped
        self._running = running
        self._clock = clock
        self._reader = messages.Reader(plugin, setup.name)
        self._tools = PipedTools(piped)

    @rpc("ExecuteStage")
    async def execute_stage(
        self, headers: Metadata, request: api_pb2.ExecuteStageRequest
    ) -> api_pb2.ExecuteStageResponse:
        given = request.input
        current = self._find_metadata(headers, given.deployment)
        definition = self._plugin.stages.get(given.stage.name)
        if definition is None:
            raise StatusError("INVALID_ARGUMENT", f"this plugin has no stage {given.stage.name!r}")
        targets = targets_of(self._plugin, self._setup, given.deployment)

        async def work(run: StageRun) -> StageResult | None:
            sender, commands, ctx = self._prepare(given, targets, run, current)
            run.hurry = sender.hurry
            if self._running.reports_until is not None:
                sender.hurry(self._running.reports_until)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sender.run())
                result = None
                try:
                    result = await execute(self._plugin, definition, given.stage_config, ctx)
                except asyncio.CancelledError:
                    # Only `Run.cancel` does this, once: the rest of this block is not disturbed.
                    if not run.is_cancelled:
                        raise
                finally:
                    await commands.aclose()
                    # A stage that the next process continues has more to say: it stays open.
                    is_over = result is not None or not self._running.is_stopping
                    sender.finish(completed=is_over)
            return result

        result = await self._running.run(
            (given.deployment.id, given.stage.id),
            work,
            finishes_on_stop=definition.finishes_on_stop,
        )
        return api_pb2.ExecuteStageResponse(
            status=deployment_pb2.StageStatus.ValueType(result.status), message=result.reason
        )

    def _find_metadata(
        self, headers: Metadata, deployment: deployment_pb2.Deployment
    ) -> dict[str, str] | None:
        """Returns the metadata of this plugin that came with a call; None when it must be asked."""
        if CURRENT_METADATA_HEADER not in headers:
            return None
        return dict(deployment.metadata_v2.plugins[self._piped.plugin].keyValues)

    def _prepare(
        self,
        given: api_pb2.ExecutePluginInput,
        targets: list[DeployTarget],
        run: StageRun,
        metadata: dict[str, str] | None,
    ) -> tuple[StageLogSender, StageCommandStream, StageContext]:
        deployment_id, stage_id = given.deployment.id, given.stage.id
        sender = StageLogSender(
            self._piped.service,
            deployment_id=deployment_id,
            stage_id=stage_id,
            retried_count=given.stage.retried_count,
            pace=stage_log.OURS if self._piped.managed else stage_log.UPSTREAMS,
        )
        commands = StageCommandStream(self._piped, deployment_id, stage_id)
        ctx = StageContext(
            deployment=messages.deployment_of(given.deployment),
            stage=messages.stage_of(given.stage),
            source=self._reader.sources(given),
            targets=targets,
            log=StageLog(sender),
            metadata=StageMetadata(self._piped, deployment_id, stage_id),
            deployment_metadata=DeploymentMetadata(self._piped, deployment_id, metadata),
            commands=commands,
            clock=self._clock,
            tools=self._tools,
            shared=ApplicationObjects(self._piped, given.deployment.application_id),
            deployment_shared=lambda key: get_shared_metadata(self._piped, deployment_id, key),
            secrets=Secrets(StageSecrets(self._piped, deployment_id).open),
            quick_sync=not given.stage_config,
            is_handed_over=lambda: run.is_handed_over,
            is_ending=lambda: self._running.is_ending,
        )
        return sender, commands, ctx


def targets_of(
    plugin: StagePlugin, setup: Setup, deployment: deployment_pb2.Deployment
) -> list[DeployTarget]:
    """Returns the deploy targets of a deployment that are this plugin's. Raises StatusError."""
    by_plugin = deployment.deploy_targets_by_plugin
    names = by_plugin[setup.name].deploy_targets if setup.name in by_plugin else ()
    if not names and not plugin.needs_targets:
        return []
    return require_targets(
        setup, names, whose="the deployment", application=deployment.application_name
    )


def require_targets(
    setup: Setup, names: Sequence[str], *, whose: str, application: str
) -> list[DeployTarget]:
    """Returns the deploy targets of these names. Raises the StatusError of a Go plugin.

    Its message says how the application is given one.
    """
    if not names:
        raise StatusError(
            "INVALID_ARGUMENT",
            f"{whose} has no deploy target of the plugin {setup.name!r}"
            f" ({_suggest_targets(setup, application)})",
        )
    try:
        return setup.find_targets(names)
    except KeyError as unknown:
        raise StatusError(
            "INTERNAL",
            f"unknown deploy target {unknown} ({_suggest_targets(setup, application)})",
        ) from None


def _suggest_targets(setup: Setup, application: str) -> str:
    known = sorted(setup.targets)
    if not known:
        return f"the plugin {setup.name!r} has none in the piped's configuration: add one there"
    return (
        f"it has {', '.join(known)}; choose under deployTargets in the application file,"
        f" or with: pipectl application update {shlex.quote(application or 'APPLICATION')}"
        f" --deploy-target {setup.name}={known[0]}"
    )


class WaitApi:
    """The RPC that waits until the handler of a cancelled stage has ended."""

    def __init__(self, running: StageRuns) -> None:
        self._running = running

    @rpc("WaitStage")
    async def wait_stage(
        self, _caller: object, request: plugin_pb2.WaitStageRequest
    ) -> plugin_pb2.WaitStageResponse:
        await self._running.wait((request.deployment_id, request.stage_id))
        return plugin_pb2.WaitStageResponse()
