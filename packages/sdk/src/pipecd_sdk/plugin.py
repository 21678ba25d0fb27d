# SPDX-License-Identifier: Apache-2.0
"""The base classes of plugins, and the values with which they plan deployments."""

import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec

from pipecd_sdk.application import ApplicationConfig
from pipecd_sdk.config import Fault, PluginConfig, TargetConfig
from pipecd_sdk.context import PlanContext
from pipecd_sdk.stages import StageDefinition, StageDefinitionError, stages_of

DISPLAY_KEY: Final = "pipecd/stage-display-metadata"
"""Stage metadata that is shown beside a stage."""


class Operation(IntEnum):
    """What people can do to a running stage, with the numbers of the wire.

    Example:
        stage.to_planned(operation=Operation.APPROVE, operators=["alice"])
    """

    SKIP = 1
    APPROVE = 2
    NONE = 3


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of a planned deployment.

    Example:
        PlannedStage(name="FILES_SYNC", index=0, desc="Copy all files")
    """

    name: str
    index: int
    desc: str = ""
    rollback: bool = False
    operation: Operation = Operation.NONE
    operators: Sequence[str] = ()
    """Who may do that operation; empty means everybody who may deploy."""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)


class RequestedStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that the pipeline of an application names, to be planned.

    Example:
        def plan(self, requested: Sequence[RequestedStage], *, rollback: bool):
            return [stage.to_planned() for stage in requested]
    """

    name: str
    index: int
    desc: str = ""
    config: Any = None
    """Its options, decoded; None for a stage that takes none."""

    def to_planned(
        self,
        *,
        operation: Operation = Operation.NONE,
        operators: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> PlannedStage:
        """Returns the stage as planned, at the index where it was requested."""
        return PlannedStage(
            name=self.name,
            index=self.index,
            desc=self.desc,
            operation=operation,
            operators=operators,
            metadata=metadata or {},
        )

    def to_rollback(self, name: str, *, desc: str = "") -> PlannedStage:
        """Returns a rollback stage that belongs to this one and gets the same options."""
        return PlannedStage(name=name, index=self.index, desc=desc, rollback=True)


class SyncStrategy(IntEnum):
    """How a deployment is carried out, with the numbers of the wire.

    Example:
        Strategy(sync=SyncStrategy.QUICK_SYNC)
    """

    QUICK_SYNC = 1
    PIPELINE = 2


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """The strategy that a plugin chose for a change, and why.

    Example:
        Strategy(sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, only the scale changed")
    """

    sync: SyncStrategy = SyncStrategy.PIPELINE
    summary: str = ""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The version of an artifact that a deployment deploys, e.g. of an image.

    Example:
        Version(name="shop", version="1.4.0", url="https://registry.example.com/shop")
    """

    name: str
    version: str
    url: str = ""


class StagePlugin:
    """A plugin that adds stages to the pipelines of any platform.

    Declare `config: MyPluginConfig` to have the plugin's options from the piped file.

    Example:
        class Wait(StagePlugin):
            @stage("WAIT")
            async def wait(self, ctx: StageContext, config: WaitConfig) -> None: ...
    """

    needs_targets: ClassVar[bool] = False
    """Refuse to start, and to run a stage, without a deploy target."""
    takes_one_target: ClassVar[bool] = False
    """Refuse an application with several deploy targets, when its deployment is planned."""
    target_config: ClassVar[type[TargetConfig]] = TargetConfig
    """The type of a deploy target's options."""
    application_config: ClassVar[type[ApplicationConfig]] = ApplicationConfig
    """The type of the plugin's options in an application file, `spec.plugins.<name>`."""
    largest_message: ClassVar[int] = 10 * 1024 * 1024
    """Bytes of the largest answer that is sent; piped takes no larger ones, a Go agent 4 MiB."""

    @cached_property
    def stages(self) -> Mapping[str, StageDefinition]:
        """Returns the stages that the plugin offers, by name. Raises StageDefinitionError."""
        return stages_of(type(self))

    @classmethod
    def has_application_config(cls) -> bool:
        """Returns whether the plugin has options in application files."""
        return cls.application_config is not ApplicationConfig

    @classmethod
    def config_type(cls) -> type[PluginConfig] | None:
        """Returns the annotated type of `config`, None without one. Raises StageDefinitionError."""
        declared = typing.get_type_hints(cls).get("config")
        if declared is None or (isinstance(declared, type) and issubclass(declared, PluginConfig)):
            return declared
        raise StageDefinitionError(f"{cls.__name__}: annotate config with a PluginConfig")

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        """Returns the planned stages of a pipeline, by default each one that was requested.

        Override it for operators, metadata and rollback stages.
        """
        return [self._plan_stage(stage) for stage in requested]

    def describe_stage(self, requested: RequestedStage) -> str:
        """Returns what is shown beside a planned stage, e.g. its share of the traffic."""
        return ""

    def _plan_stage(self, requested: RequestedStage) -> PlannedStage:
        text = self.describe_stage(requested)
        return requested.to_planned(metadata={DISPLAY_KEY: text} if text else None)

    def find_faults(self, requested: RequestedStage) -> Iterable[Fault]:
        """Returns what is wrong in the options of a stage for this plugin's own configuration.

        Asked when a deployment is planned, beside the rules of the options themselves. Paths begin
        at the options, e.g. `metrics[0].provider`.
        """
        return ()


class DeploymentPlugin(StagePlugin):
    """A plugin for a platform: it also determines versions, strategy, quick sync and rollback.

    Of its stages one may be marked `rollback=True` and one `quick_sync=True`.

    Example:
        class Files(DeploymentPlugin):
            @stage("FILES_SYNC", quick_sync=True, desc="Copy all files")
            async def sync(self, ctx: StageContext) -> None: ...

            @stage("FILES_ROLLBACK", rollback=True)
            async def roll_back(self, ctx: StageContext) -> None: ...
    """

    needs_targets: ClassVar[bool] = True

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        """Returns the versions of the artifacts in the target commit, by default none."""
        return ()

    async def strategy(self, ctx: PlanContext) -> Strategy:
        """Returns the strategy of a deployment; called only when nothing else decides."""
        return Strategy()

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        """Returns the requested stages, and the rollback stage at the index of the first."""
        yield from (self._plan_stage(stage) for stage in requested)
        if rollback and requested:
            first = min(requested, key=lambda stage: stage.index)
            for definition in self._find_marked("rollback"):
                yield first.to_rollback(definition.name, desc=definition.desc)

    def quick_sync(self, *, rollback: bool) -> Iterable[PlannedStage]:
        """Returns the stages of a deployment that has no pipeline, or does not need it."""
        for definition in self._find_marked("quick_sync"):
            yield PlannedStage(name=definition.name, index=0, desc=definition.desc)
        if rollback:
            for definition in self._find_marked("rollback"):
                yield PlannedStage(
                    name=definition.name, index=0, desc=definition.desc, rollback=True
                )

    def _find_marked(self, mark: str) -> list[StageDefinition]:
        marked = [each for each in self.stages.values() if getattr(each, mark)]
        if len(marked) > 1:
            names = ", ".join(each.name for each in marked)
            raise StageDefinitionError(f"more than one stage is marked {mark}: {names}")
        return marked
