# SPDX-License-Identifier: Apache-2.0
"""What a plugin author installs: base classes, what a stage is given, and `serve`.

Everything in `__all__`, `pipecd_sdk.testing` and `pipecd_sdk.kit` is kept from release to release;
the modules behind it are not. A name is imported when it is first used: a plugin that only waits
does not pay for what platforms need.
"""

from typing import TYPE_CHECKING

from pipecd_model.lazy import export_lazily

if TYPE_CHECKING:
    from msgspec import field as field
    from msgspec.structs import replace as replace

    from pipecd_model.config import BadValueError as BadValueError
    from pipecd_model.config import Base64Secret as Base64Secret
    from pipecd_model.config import Duration as Duration
    from pipecd_model.config import Percentage as Percentage
    from pipecd_model.config import Replicas as Replicas
    from pipecd_model.config import Report as Report
    from pipecd_model.config import Secret as Secret
    from pipecd_model.config import Share as Share
    from pipecd_sdk.application import ApplicationConfig as ApplicationConfig
    from pipecd_sdk.clock import Clock as Clock
    from pipecd_sdk.config import Fault as Fault
    from pipecd_sdk.config import PluginConfig as PluginConfig
    from pipecd_sdk.config import StageConfig as StageConfig
    from pipecd_sdk.config import TargetConfig as TargetConfig
    from pipecd_sdk.context import CommandKind as CommandKind
    from pipecd_sdk.context import Commit as Commit
    from pipecd_sdk.context import Deployment as Deployment
    from pipecd_sdk.context import DeployTarget as DeployTarget
    from pipecd_sdk.context import PlanContext as PlanContext
    from pipecd_sdk.context import Source as Source
    from pipecd_sdk.context import Sources as Sources
    from pipecd_sdk.context import Stage as Stage
    from pipecd_sdk.context import StageCommand as StageCommand
    from pipecd_sdk.context import StageContext as StageContext
    from pipecd_sdk.details import ContainerLog as ContainerLog
    from pipecd_sdk.details import Details as Details
    from pipecd_sdk.details import DetailsContext as DetailsContext
    from pipecd_sdk.details import ResourceDetails as ResourceDetails
    from pipecd_sdk.details import ResourceEvent as ResourceEvent
    from pipecd_sdk.details import ResourceGoneError as ResourceGoneError
    from pipecd_sdk.livestate import Drift as Drift
    from pipecd_sdk.livestate import Health as Health
    from pipecd_sdk.livestate import LiveContext as LiveContext
    from pipecd_sdk.livestate import LiveSnapshot as LiveSnapshot
    from pipecd_sdk.livestate import LiveState as LiveState
    from pipecd_sdk.livestate import LiveWatch as LiveWatch
    from pipecd_sdk.livestate import Resource as Resource
    from pipecd_sdk.livestate import SyncState as SyncState
    from pipecd_sdk.livestate import SyncStatus as SyncStatus
    from pipecd_sdk.livestate import TargetError as TargetError
    from pipecd_sdk.livestate import WatchContext as WatchContext
    from pipecd_sdk.metadata import Metadata as Metadata
    from pipecd_sdk.plugin import DISPLAY_KEY as DISPLAY_KEY
    from pipecd_sdk.plugin import DeploymentPlugin as DeploymentPlugin
    from pipecd_sdk.plugin import Operation as Operation
    from pipecd_sdk.plugin import PlannedStage as PlannedStage
    from pipecd_sdk.plugin import RequestedStage as RequestedStage
    from pipecd_sdk.plugin import StagePlugin as StagePlugin
    from pipecd_sdk.plugin import Strategy as Strategy
    from pipecd_sdk.plugin import SyncStrategy as SyncStrategy
    from pipecd_sdk.plugin import Version as Version
    from pipecd_sdk.preview import PlanPreview as PlanPreview
    from pipecd_sdk.preview import Preview as Preview
    from pipecd_sdk.preview import PreviewContext as PreviewContext
    from pipecd_sdk.results import Exit as Exit
    from pipecd_sdk.results import InvalidFileError as InvalidFileError
    from pipecd_sdk.results import Outcome as Outcome
    from pipecd_sdk.results import PipedError as PipedError
    from pipecd_sdk.results import Skip as Skip
    from pipecd_sdk.results import StageFailedError as StageFailedError
    from pipecd_sdk.results import StageResult as StageResult
    from pipecd_sdk.results import StageStatus as StageStatus
    from pipecd_sdk.secrets import Secrets as Secrets
    from pipecd_sdk.serving import serve as serve
    from pipecd_sdk.shared import SharedObjects as SharedObjects
    from pipecd_sdk.stage_log import Severity as Severity
    from pipecd_sdk.stage_log import StageLog as StageLog
    from pipecd_sdk.stages import StageDefinitionError as StageDefinitionError
    from pipecd_sdk.stages import stage as stage
    from pipecd_sdk.targets import TargetResult as TargetResult
    from pipecd_sdk.targets import run_on_targets as run_on_targets
    from pipecd_sdk.tools import Tool as Tool
    from pipecd_sdk.tools import ToolError as ToolError
    from pipecd_sdk.tools import Tools as Tools

    __all__: list[str]
else:
    __all__, __getattr__ = export_lazily(
        __name__,
        {
            "msgspec": "field",
            "msgspec.structs": "replace",
            "pipecd_model.config": (
                "BadValueError Base64Secret Duration Percentage Replicas Report Secret Share"
            ),
            ".application": "ApplicationConfig",
            ".clock": "Clock",
            ".config": "Fault PluginConfig StageConfig TargetConfig",
            ".context": (
                "CommandKind Commit DeployTarget Deployment PlanContext Source "
                "Sources Stage StageCommand StageContext"
            ),
            ".details": (
                "ContainerLog Details DetailsContext ResourceDetails ResourceEvent "
                "ResourceGoneError"
            ),
            ".livestate": (
                "Drift Health LiveContext LiveSnapshot LiveState LiveWatch Resource SyncState "
                "SyncStatus TargetError WatchContext"
            ),
            ".metadata": "Metadata",
            ".plugin": (
                "DISPLAY_KEY DeploymentPlugin Operation PlannedStage RequestedStage StagePlugin "
                "Strategy SyncStrategy Version"
            ),
            ".preview": "PlanPreview Preview PreviewContext",
            ".results": (
                "Exit InvalidFileError Outcome PipedError Skip StageFailedError StageResult "
                "StageStatus"
            ),
            ".secrets": "Secrets",
            ".serving": "serve",
            ".shared": "SharedObjects",
            ".stage_log": "Severity StageLog",
            ".stages": "StageDefinitionError stage",
            ".targets": "TargetResult run_on_targets",
            ".tools": "Tool ToolError Tools",
        },
    )
