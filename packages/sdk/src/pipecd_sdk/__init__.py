# SPDX-License-Identifier: Apache-2.0
"""What a plugin author installs: base classes, what a stage is given, and `serve`.

Everything in `__all__`, `pipecd_sdk.testing` and `pipecd_sdk.kit` is kept from release to release;
the modules behind it are not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import field

from pipecd_model.config import BadValueError, Duration, Percentage, Report, Secret
from pipecd_sdk.application import ApplicationConfig
from pipecd_sdk.clock import Clock
from pipecd_sdk.config import Fault, PluginConfig, StageConfig, TargetConfig
from pipecd_sdk.context import (
    CommandKind,
    Commit,
    Deployment,
    DeployTarget,
    PlanContext,
    Source,
    Sources,
    Stage,
    StageCommand,
    StageContext,
)
from pipecd_sdk.metadata import Metadata
from pipecd_sdk.plugin import (
    DeploymentPlugin,
    Operation,
    PlannedStage,
    StagePlugin,
    Strategy,
    SyncStrategy,
    Version,
    WantedStage,
)
from pipecd_sdk.results import (
    Exit,
    Outcome,
    PipedError,
    Skip,
    StageFailedError,
    StageResult,
    StageStatus,
)
from pipecd_sdk.secrets import Secrets
from pipecd_sdk.serving import serve
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.stage_log import Severity, StageLog
from pipecd_sdk.stages import StageDefinitionError, stage
from pipecd_sdk.tools import Tool, ToolError, Tools

if TYPE_CHECKING:
    from pipecd_sdk.livestate import (
        Drift,
        Health,
        Live,
        LiveContext,
        LiveState,
        Resource,
        SyncState,
        SyncStatus,
        TargetError,
    )
    from pipecd_sdk.preview import PlanPreview, Preview, PreviewContext
    from pipecd_sdk.targets import TargetResult, on_targets

__all__ = [
    "ApplicationConfig",
    "BadValueError",
    "Clock",
    "CommandKind",
    "Commit",
    "DeployTarget",
    "Deployment",
    "DeploymentPlugin",
    "Drift",
    "Duration",
    "Exit",
    "Fault",
    "Health",
    "Live",
    "LiveContext",
    "LiveState",
    "Metadata",
    "Operation",
    "Outcome",
    "Percentage",
    "PipedError",
    "PlanContext",
    "PlanPreview",
    "PlannedStage",
    "PluginConfig",
    "Preview",
    "PreviewContext",
    "Report",
    "Resource",
    "Secret",
    "Secrets",
    "Severity",
    "SharedObjects",
    "Skip",
    "Source",
    "Sources",
    "Stage",
    "StageCommand",
    "StageConfig",
    "StageContext",
    "StageDefinitionError",
    "StageFailedError",
    "StageLog",
    "StagePlugin",
    "StageResult",
    "StageStatus",
    "Strategy",
    "SyncState",
    "SyncStatus",
    "SyncStrategy",
    "TargetConfig",
    "TargetError",
    "TargetResult",
    "Tool",
    "ToolError",
    "Tools",
    "Version",
    "WantedStage",
    "field",
    "on_targets",
    "serve",
    "stage",
]

# Of platforms alone: a plugin that only waits shall not pay for them at each start.
_LATER: Final = {
    "Drift": "livestate",
    "Health": "livestate",
    "Live": "livestate",
    "LiveContext": "livestate",
    "LiveState": "livestate",
    "Resource": "livestate",
    "SyncState": "livestate",
    "SyncStatus": "livestate",
    "TargetError": "livestate",
    "PlanPreview": "preview",
    "Preview": "preview",
    "PreviewContext": "preview",
    "TargetResult": "targets",
    "on_targets": "targets",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
