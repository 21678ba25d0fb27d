# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: of the piped file, the application file and the pipeline."""

import re
from datetime import timedelta
from typing import ClassVar, Final
from urllib.parse import urlsplit

from pipecd_sdk import (
    ApplicationConfig,
    Duration,
    Percentage,
    Report,
    StageConfig,
    TargetConfig,
    field,
)
from pipecd_sdk.constraints import InRange, limit_share
from pipecd_sdk.repository import find_path_fault

READY_TIMEOUT: Final = timedelta(minutes=10)
PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{0,99}")
"""A project id, one of a domain (`example.com:shop`), or a project number."""
REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
TAG: Final = re.compile(r"[a-z]([a-z0-9-]{0,44}[a-z0-9])?")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class CloudRunTarget(TargetConfig):
    """The options of a deploy target."""

    project: str
    """The project's id."""
    region: str
    """The region, e.g. `asia-northeast1`."""
    credentials_file: str = ""
    """A key of a service account, or a file of workload identity federation; without it the application default credentials."""  # noqa: E501 - one sentence of the reference
    endpoint: str = ""
    """Another address of the Cloud Run API, e.g. a private one; https, or http on this machine."""

    def check(self, report: Report) -> None:
        for key, grammar in (("project", PROJECT), ("region", REGION)):
            value = getattr(self, key)
            if not report.is_broken(key) and not grammar.fullmatch(value):
                report.fault(key, message=f"not a {key}: {value!r}")
        if report.is_broken("endpoint") or not self.endpoint:
            return
        if not _is_safe_address(self.endpoint):
            report.fault(
                "endpoint",
                message=f"not an address of an API: {self.endpoint!r}",
                hint="https://HOST without path; http only for 127.0.0.1",
            )


def _is_safe_address(text: str) -> bool:
    """Returns whether a token may be sent to an address."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)


class CloudRunInput(ApplicationConfig):
    """What is deployed."""

    moved: ClassVar = {"autoRollback": "write spec.planner.autoRollback"}

    service_manifest_file: str = "service.yaml"
    """The manifest of the service (`serving.knative.dev/v1`) or job (`run.googleapis.com/v1`); a path from the application's folder."""  # noqa: E501 - one sentence of the reference

    def check(self, report: Report) -> None:
        fault = find_path_fault(self.service_manifest_file)
        if not report.is_broken("service_manifest_file") and fault:
            report.fault("service_manifest_file", message=fault)


class CloudRunQuickSync(ApplicationConfig):
    """The options of a sync without a pipeline: there are none."""


class CloudRunReadiness(ApplicationConfig):
    """How long a stage waits for what it has deployed."""

    constraints: ClassVar = (
        InRange(key="timeout", minimum=1, message="must be 1s or longer: {value}"),
    )

    timeout: Duration = field(
        default_factory=lambda: Duration(seconds=READY_TIMEOUT.total_seconds())
    )
    """A stage fails when a revision is not ready in this time."""


class CloudRunOptions(ApplicationConfig):
    """The options in an application file, under `spec.plugins.cloudrun`."""

    input: CloudRunInput = field(default_factory=CloudRunInput)
    """What is deployed."""
    quick_sync: CloudRunQuickSync = field(default_factory=CloudRunQuickSync)
    """The options of a sync without a pipeline."""
    readiness: CloudRunReadiness = field(default_factory=CloudRunReadiness)
    """How long a stage waits for what it has deployed."""


class CloudRunSyncConfig(StageConfig):
    """The options of CLOUDRUN_SYNC: there are none."""


class CloudRunPromoteConfig(StageConfig):
    """The options of CLOUDRUN_PROMOTE."""

    constraints: ClassVar = (limit_share("percent"),)

    percent: Percentage = Percentage(0)
    """The new revision's share of the traffic; what ran before shares the rest."""
    tag: str = ""
    """A name under which the new revision has an address of its own, whatever its share."""

    def check(self, report: Report) -> None:
        if not report.is_broken("tag") and self.tag and not TAG.fullmatch(self.tag):
            report.fault(
                "tag",
                message=f"not a tag: {self.tag!r}",
                hint="small letters, digits and -, at most 46 characters",
            )
