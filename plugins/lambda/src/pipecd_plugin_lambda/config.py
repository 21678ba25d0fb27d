# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: in the piped file, in application files, for stages.

The function itself is described in a file of its own, see `manifest`.
"""

import re
from datetime import timedelta
from typing import ClassVar, Final

from pipecd_aws import AwsTarget
from pipecd_sdk import (
    ApplicationConfig,
    Duration,
    Percentage,
    PluginConfig,
    Report,
    StageConfig,
    field,
)
from pipecd_sdk.constraints import limit_share
from pipecd_sdk.repository import find_path_fault

_ALIAS: Final = re.compile(r"(?!\d+$)[A-Za-z0-9_-]{1,128}")


class LambdaPluginConfig(PluginConfig):
    """The options of the plugin."""

    allowed_hosts: tuple[str, ...] = ()
    """Hosts or networks with private addresses that sources of functions may be fetched from.

    Public hosts need no entry. A host is named as it is: `*.example.com` opens none of them.
    """


class LambdaTarget(AwsTarget):
    """The options of a deploy target: a region of an AWS account, and how to sign in."""

    aws_api_polling_interval: Duration = field(
        name="awsAPIPollingInterval", default=Duration(seconds=15)
    )
    """Read for compatibility; piped asks for live states at its own interval."""


class LambdaInput(ApplicationConfig):
    """Which function is deployed, and by which alias it is called."""

    moved: ClassVar = {"autoRollback": "write spec.planner.autoRollback"}

    function_manifest_file: str = "function.yaml"
    """The description of the function; a path from the application's folder."""
    alias: str = "Service"
    """The alias that callers use; its traffic is what stages shift."""
    update_timeout: Duration = Duration(minutes=10)
    """How long AWS may take to make a change ready, e.g. to fetch an image."""

    def check(self, report: Report) -> None:
        fault = find_path_fault(self.function_manifest_file)
        if not report.is_broken("functionManifestFile") and fault:
            report.fault("functionManifestFile", message=fault)
        if not report.is_broken("alias") and not _ALIAS.fullmatch(self.alias):
            report.fault(
                "alias",
                message=f"not the name of an alias: {self.alias!r}",
                hint="letters, digits, - and _; not a number",
            )
        if not report.is_broken("updateTimeout") and self.update_timeout <= timedelta():
            report.fault("updateTimeout", message="must be longer than 0s")


class FunctionQuickSync(ApplicationConfig):
    """The options of a deployment without a pipeline: there are none."""


class LambdaOptions(ApplicationConfig):
    """The options in an application file, under `spec.plugins.lambda`."""

    input: LambdaInput = LambdaInput()
    """Which function is deployed, and by which alias it is called."""
    quick_sync: FunctionQuickSync = FunctionQuickSync()
    """The options of a deployment without a pipeline."""
    ignore_drift: tuple[str, ...] = ()
    """Paths of fields that may differ from git, e.g. `Environment.Variables.LOG_LEVEL`."""


class FunctionSyncConfig(StageConfig):
    """The options of LAMBDA_SYNC: there are none."""


class FunctionRolloutConfig(StageConfig):
    """The options of LAMBDA_CANARY_ROLLOUT: there are none."""


class FunctionPromoteConfig(StageConfig):
    """The options of LAMBDA_PROMOTE."""

    constraints: ClassVar = (limit_share("percent"),)

    percent: Percentage = Percentage(0)
    """The new version's share of the traffic; what had it before keeps the rest."""
