# SPDX-License-Identifier: Apache-2.0
"""The files people write: piped, application, control plane. Loaded, or all their faults told."""

from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.controlplane import ControlPlaneConfig
from pipecd_model.config.decode import decode
from pipecd_model.config.document import load_application, load_control_plane, load_piped
from pipecd_model.config.fault import ConfigFaultsError, Fault, Loaded
from pipecd_model.config.piped import (
    DeployTargetConfig,
    GitConfig,
    PipedConfig,
    PluginConfig,
    RepositoryConfig,
)
from pipecd_model.config.pipeline import PipelineConfig, SkipOnConfig, StageConfig
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.values import BadValueError, Base64Secret, Duration, Secret

__all__ = [
    "ApplicationConfig",
    "BadValueError",
    "Base64Secret",
    "ConfigFaultsError",
    "ConfigModel",
    "ControlPlaneConfig",
    "DeployTargetConfig",
    "Duration",
    "Fault",
    "GitConfig",
    "Loaded",
    "PipedConfig",
    "PipelineConfig",
    "PluginConfig",
    "RepositoryConfig",
    "Secret",
    "SkipOnConfig",
    "StageConfig",
    "decode",
    "load_application",
    "load_control_plane",
    "load_piped",
]
