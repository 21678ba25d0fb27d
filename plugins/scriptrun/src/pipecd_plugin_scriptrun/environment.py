# SPDX-License-Identifier: Apache-2.0
"""The variables of a script: the plugin's own without our secrets, then SR_*, then the author's."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pipecd_sdk import Deployment
from pipecd_sdk.scripts.shim_client import SCRIPT_ID

OURS: Final = "PIPECD_"
# Set by our wire package for its own process, and wrong for a program that forks on purpose.
LEFT_OUT: Final = frozenset({"GRPC_ENABLE_FORK_SUPPORT"})


def script_environment(
    inherited: Mapping[str, str],
    deployment: Deployment,
    given: Mapping[str, str],
    *,
    rollback: bool,
    script_id: str,
) -> dict[str, str]:
    """Returns the environment of a script; the author's own variables override the others."""
    base = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(OURS) and name not in LEFT_OUT
    }
    told = {
        name: value.replace("\0", "")
        for name, value in _describe_deployment(deployment, rollback).items()
    }
    return {**base, **told, **given, SCRIPT_ID: script_id}


def _describe_deployment(deployment: Deployment, rollback: bool) -> dict[str, str]:
    context: dict[str, Any] = {
        "deploymentID": deployment.id,
        "applicationID": deployment.application_id,
        "applicationName": deployment.application_name,
        "triggeredAt": int(deployment.created_at.timestamp()),
        "triggeredCommitHash": deployment.commit.hash,
        "triggeredCommander": deployment.commander,
        "repositoryURL": deployment.repository_url,
        "summary": deployment.summary,
        "labels": dict(sorted(deployment.labels.items())),
        "isRollback": rollback,
    }
    labels = {f"SR_LABELS_{_name(key)}": value for key, value in context["labels"].items()}
    return {
        "SR_DEPLOYMENT_ID": deployment.id,
        "SR_APPLICATION_ID": deployment.application_id,
        "SR_APPLICATION_NAME": deployment.application_name,
        "SR_TRIGGERED_AT": str(context["triggeredAt"]),
        "SR_TRIGGERED_COMMIT_HASH": deployment.commit.hash,
        "SR_TRIGGERED_COMMANDER": deployment.commander,
        "SR_REPOSITORY_URL": deployment.repository_url,
        "SR_SUMMARY": deployment.summary,
        "SR_IS_ROLLBACK": "true" if rollback else "false",
        **labels,
        "SR_CONTEXT_RAW": json.dumps(
            {key: value for key, value in context.items() if value},
            ensure_ascii=False,
            separators=(",", ":"),
        ),
    }


def _name(label: str) -> str:
    """Returns a label's key as a valid name of a shell variable."""
    return re.sub(r"[^A-Z0-9_]", "_", label.upper())
