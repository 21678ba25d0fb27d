# SPDX-License-Identifier: Apache-2.0
"""The options of a deploy target on AWS."""

from typing import Any

import pytest

from pipecd_aws import AwsTarget
from pipecd_sdk import DeploymentPlugin
from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.testing import deploy_target


class Cloud(DeploymentPlugin):
    target_config = AwsTarget


def test_upstreams_spelling_is_read() -> None:
    read = deploy_target(
        Cloud,
        "aws",
        {"region": "us-east-1", "roleARN": "arn:aws:iam::123456789012:role/a", "tokenFile": "/t"},
    ).config

    assert (read.region, read.role_arn, read.token_file) == (
        "us-east-1",
        "arn:aws:iam::123456789012:role/a",
        "/t",
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "region"),
        ({"region": "Mars"}, "not a region"),
        ({"region": "us-east-1", "tokenFile": "/t"}, "needs roleARN"),
        ({"region": "us-east-1", "roleARN": "admin"}, "not the ARN of a role"),
        ({"region": "us-east-1", "endpointUrl": "host"}, "not a URL"),
    ],
)
def test_what_cannot_work_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(OptionFaultsError, match=sentence):
        deploy_target(Cloud, "aws", given)
