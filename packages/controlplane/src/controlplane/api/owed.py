# SPDX-License-Identifier: Apache-2.0
"""RPCs that are still owed: answered UNIMPLEMENTED. This list only shrinks.

The server does not start when an RPC has neither a handler nor a place here, or has both.
"""

from typing import Final

PIPED_SERVICE: Final = (
    # Live state
    "ReportApplicationLiveState",
    "ReportApplicationLiveStateEvents",
    # Events
    "GetLatestEvent",
    "ListEvents",
    "ReportEventStatuses",
    # Analysis of v0
    "GetLatestAnalysisResult",
    "PutLatestAnalysisResult",
    # Deployment chains
    "CreateDeploymentChain",
    "InChainDeploymentPlannable",
)

API_SERVICE: Final = (
    "RegisterEvent",
    "RequestPlanPreview",
    "GetPlanPreviewResults",
)

# All of it needs a person's session.
WEB_SERVICE: Final = (
    "RegisterPiped",
    "UpdatePiped",
    "RecreatePipedKey",
    "DeleteOldPipedKeys",
    "EnablePiped",
    "DisablePiped",
    "ListPipeds",
    "GetPiped",
    "UpdatePipedDesiredVersion",
    "RestartPiped",
    "ListReleasedVersions",
    "ListDeprecatedNotes",
    "AddApplication",
    "UpdateApplication",
    "EnableApplication",
    "DisableApplication",
    "DeleteApplication",
    "ListApplications",
    "SyncApplication",
    "GetApplication",
    "GenerateApplicationSealedSecret",
    "ListUnregisteredApplications",
    "ListDeployments",
    "GetDeployment",
    "GetStageLog",
    "CancelDeployment",
    "SkipStage",
    "ApproveStage",
    "ListDeploymentTraces",
    "GetApplicationLiveState",
    "GetProject",
    "UpdateProjectStaticAdmin",
    "EnableStaticAdmin",
    "DisableStaticAdmin",
    "UpdateProjectSSOConfig",
    "UpdateProjectRBACConfig",
    "GetMe",
    "AddProjectRBACRole",
    "UpdateProjectRBACRole",
    "DeleteProjectRBACRole",
    "AddProjectUserGroup",
    "DeleteProjectUserGroup",
    "GetCommand",
    "GenerateAPIKey",
    "DisableAPIKey",
    "ListAPIKeys",
    "GetInsightData",
    "GetInsightApplicationCount",
    "ListDeploymentChains",
    "GetDeploymentChain",
    "ListEvents",
)

OWN_DEPLOYMENT_SERVICE: Final = ("RetryStage", "RollBackDeployment")
OWN_APPLICATION_SERVICE: Final = ("ReleaseHold", "SetFreeze")
OWN_PIPED_SERVICE: Final = ("RestartPlugin",)
OWN_PROJECT_SERVICE: Final = ("ListAudit",)
