# SPDX-License-Identifier: Apache-2.0
"""What a plugin author installs: base classes, what a stage is given, and `serve`.

Everything in `__all__`, and `pipecd_sdk.testing`, is kept from release to release; the modules
behind it are not.
"""

from msgspec import field

from pipecd_model.config import BadValueError, Duration, Report, Secret
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
from pipecd_sdk.serving import serve
from pipecd_sdk.stage_log import Severity, StageLog
from pipecd_sdk.stages import StageDefinitionError, stage

__all__ = [
    "BadValueError",
    "Clock",
    "CommandKind",
    "Commit",
    "DeployTarget",
    "Deployment",
    "DeploymentPlugin",
    "Duration",
    "Exit",
    "Fault",
    "Metadata",
    "Operation",
    "Outcome",
    "PipedError",
    "PlanContext",
    "PlannedStage",
    "PluginConfig",
    "Report",
    "Secret",
    "Severity",
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
    "SyncStrategy",
    "TargetConfig",
    "Version",
    "WantedStage",
    "field",
    "serve",
    "stage",
]
