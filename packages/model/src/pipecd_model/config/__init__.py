# SPDX-License-Identifier: Apache-2.0
"""Loads the files people write: piped, application, control plane; reports all their faults.

Names are looked up when they are first used: a command line that only reads a duration, or a plugin
that only decodes its options, does not pay for the YAML parser and the documents.
"""

from typing import TYPE_CHECKING

from pipecd_model.lazy import export_lazily

if TYPE_CHECKING:
    from pipecd_model.config.amounts import Percentage as Percentage
    from pipecd_model.config.amounts import Replicas as Replicas
    from pipecd_model.config.amounts import Share as Share
    from pipecd_model.config.analysis import AnalysisTemplateConfig as AnalysisTemplateConfig
    from pipecd_model.config.application import ApplicationConfig as ApplicationConfig
    from pipecd_model.config.controlplane import ControlPlaneConfig as ControlPlaneConfig
    from pipecd_model.config.decoder import Finding as Finding
    from pipecd_model.config.decoder import Findings as Findings
    from pipecd_model.config.decoder import decode as decode
    from pipecd_model.config.document import application_for_plugins as application_for_plugins
    from pipecd_model.config.document import load_analysis_template as load_analysis_template
    from pipecd_model.config.document import load_application as load_application
    from pipecd_model.config.document import load_control_plane as load_control_plane
    from pipecd_model.config.document import load_event_watcher as load_event_watcher
    from pipecd_model.config.document import load_piped as load_piped
    from pipecd_model.config.events import EventWatcherDocument as EventWatcherDocument
    from pipecd_model.config.fault import ConfigFaultsError as ConfigFaultsError
    from pipecd_model.config.fault import Fault as Fault
    from pipecd_model.config.fault import Loaded as Loaded
    from pipecd_model.config.mask import to_masked_yaml as to_masked_yaml
    from pipecd_model.config.piped import AutoRegistrationConfig as AutoRegistrationConfig
    from pipecd_model.config.piped import DeployTargetConfig as DeployTargetConfig
    from pipecd_model.config.piped import GitConfig as GitConfig
    from pipecd_model.config.piped import PipedConfig as PipedConfig
    from pipecd_model.config.piped import PluginConfig as PluginConfig
    from pipecd_model.config.piped import RepositoryConfig as RepositoryConfig
    from pipecd_model.config.pipeline import PipelineConfig as PipelineConfig
    from pipecd_model.config.pipeline import SkipOnConfig as SkipOnConfig
    from pipecd_model.config.pipeline import StageConfig as StageConfig
    from pipecd_model.config.schema import ConfigModel as ConfigModel
    from pipecd_model.config.schema import Report as Report
    from pipecd_model.config.values import BadValueError as BadValueError
    from pipecd_model.config.values import Base64Secret as Base64Secret
    from pipecd_model.config.values import Duration as Duration
    from pipecd_model.config.values import Secret as Secret
else:
    __all__, __getattr__ = export_lazily(
        __name__,
        {
            ".amounts": "Percentage Replicas Share",
            ".analysis": "AnalysisTemplateConfig",
            ".application": "ApplicationConfig",
            ".controlplane": "ControlPlaneConfig",
            ".decoder": "Finding Findings decode",
            ".document": (
                "application_for_plugins load_analysis_template load_application "
                "load_control_plane load_event_watcher load_piped"
            ),
            ".events": "EventWatcherDocument",
            ".fault": "ConfigFaultsError Fault Loaded",
            ".mask": "to_masked_yaml",
            ".piped": (
                "AutoRegistrationConfig DeployTargetConfig GitConfig PipedConfig PluginConfig "
                "RepositoryConfig"
            ),
            ".pipeline": "PipelineConfig SkipOnConfig StageConfig",
            ".schema": "ConfigModel Report",
            ".values": "BadValueError Base64Secret Duration Secret",
        },
    )
