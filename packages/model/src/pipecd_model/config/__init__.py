# SPDX-License-Identifier: Apache-2.0
"""The files people write: piped, application, control plane. Loaded, or all their faults told.

Names are looked up when they are first used: a command line that only reads a duration, or a plugin
that only decodes its options, does not pay for the YAML parser and the documents.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipecd_model.config.amounts import Percentage, Replicas
    from pipecd_model.config.analysis import AnalysisTemplateConfig
    from pipecd_model.config.application import ApplicationConfig
    from pipecd_model.config.controlplane import ControlPlaneConfig
    from pipecd_model.config.decoder import Finding, Findings, decode
    from pipecd_model.config.document import (
        application_for_plugins,
        load_analysis_template,
        load_application,
        load_control_plane,
        load_event_watcher,
        load_piped,
    )
    from pipecd_model.config.events import EventWatcherDocument
    from pipecd_model.config.fault import ConfigFaultsError, Fault, Loaded
    from pipecd_model.config.mask import to_masked_yaml
    from pipecd_model.config.piped import (
        DeployTargetConfig,
        GitConfig,
        PipedConfig,
        PluginConfig,
        RepositoryConfig,
    )
    from pipecd_model.config.pipeline import PipelineConfig, SkipOnConfig, StageConfig
    from pipecd_model.config.schema import ConfigModel, Report
    from pipecd_model.config.values import BadValueError, Base64Secret, Duration, Secret

__all__ = [
    "AnalysisTemplateConfig",
    "ApplicationConfig",
    "BadValueError",
    "Base64Secret",
    "ConfigFaultsError",
    "ConfigModel",
    "ControlPlaneConfig",
    "DeployTargetConfig",
    "Duration",
    "EventWatcherDocument",
    "Fault",
    "Finding",
    "Findings",
    "GitConfig",
    "Loaded",
    "Percentage",
    "PipedConfig",
    "PipelineConfig",
    "PluginConfig",
    "Replicas",
    "Report",
    "RepositoryConfig",
    "Secret",
    "SkipOnConfig",
    "StageConfig",
    "application_for_plugins",
    "decode",
    "load_analysis_template",
    "load_application",
    "load_control_plane",
    "load_event_watcher",
    "load_piped",
    "masked_yaml",
]

_HOME = {
    "application_for_plugins": "document",
    "AnalysisTemplateConfig": "analysis",
    "EventWatcherDocument": "events",
    "Percentage": "amounts",
    "Replicas": "amounts",
    "load_analysis_template": "document",
    "load_event_watcher": "document",
    "ApplicationConfig": "application",
    "BadValueError": "values",
    "Base64Secret": "values",
    "ConfigFaultsError": "fault",
    "ConfigModel": "schema",
    "ControlPlaneConfig": "controlplane",
    "DeployTargetConfig": "piped",
    "Duration": "values",
    "Fault": "fault",
    "Finding": "decoder",
    "Findings": "decoder",
    "GitConfig": "piped",
    "Loaded": "fault",
    "PipedConfig": "piped",
    "PipelineConfig": "pipeline",
    "PluginConfig": "piped",
    "Report": "schema",
    "RepositoryConfig": "piped",
    "Secret": "values",
    "SkipOnConfig": "pipeline",
    "StageConfig": "pipeline",
    "decode": "decoder",
    "load_application": "document",
    "load_control_plane": "document",
    "load_piped": "document",
    "masked_yaml": "mask",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
