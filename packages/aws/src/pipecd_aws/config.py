# SPDX-License-Identifier: Apache-2.0
"""The options of a deploy target on AWS: where it is, and how to sign in."""

import re
from typing import Final

from pipecd_sdk import Report, TargetConfig, field

_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")
_URL: Final = re.compile(r"https?://[^/\s]+")
_ROLE: Final = re.compile(r"arn:[a-z0-9-]+:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}")


class AwsTarget(TargetConfig):
    """The options of a deploy target: a region of an AWS account, and how to sign in.

    With the region alone, AWS's own order counts: environment, shared files, container, machine.
    """

    region: str
    """The region, e.g. `eu-central-1`."""
    profile: str = ""
    """The profile of the shared files; empty means `AWS_PROFILE`, or `default`."""
    credentials_file: str = ""
    """The shared credentials file; empty means AWS's own place."""
    role_arn: str = field(name="roleARN", default="")
    """The role to take on; with tokenFile by that token, without it by the other credentials."""
    token_file: str = ""
    """The file with a web identity token, e.g. that of a Kubernetes service account."""
    endpoint_url: str = field(name="endpointUrl", default="")
    """Where all calls go instead of AWS's own addresses: a private endpoint, or an emulator."""

    def check(self, report: Report) -> None:
        if not report.is_broken("region") and not _REGION.fullmatch(self.region):
            report.fault(
                "region", message=f"not a region: {self.region!r}", hint="e.g. eu-central-1"
            )
        if not report.is_broken("roleARN") and self.role_arn and not _ROLE.fullmatch(self.role_arn):
            report.fault(
                "roleARN",
                message=f"not the ARN of a role: {self.role_arn!r}",
                hint="e.g. arn:aws:iam::123456789012:role/piped",
            )
        if any(report.is_broken(key) for key in ("tokenFile", "roleARN", "endpointUrl")):
            return
        if self.token_file and not self.role_arn:
            report.fault("tokenFile", message="needs roleARN", hint="the token is for that role")
        if self.endpoint_url and not _URL.match(self.endpoint_url):
            report.fault("endpointUrl", message=f"not a URL: {self.endpoint_url!r}")
