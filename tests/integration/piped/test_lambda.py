# SPDX-License-Identifier: Apache-2.0
"""The plugin `lambda` under a real piped: a canary that goes all the way, and one that is undone.

Its AWS is moto with what `lambda_plane` adds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.aws.lambda_lab import ROLE, make_role
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

pytestmark = pytest.mark.xdist_group("lambda")


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[AwsLab]:
    folder = tmp_path / "aws"
    folder.mkdir()
    with run_aws_lab(folder) as lab:
        make_role(lab)
        yield lab


def make_files(version: str, stages: list[dict[str, Any]], **spec: Any) -> dict[str, str]:
    """An application of the older kind, as upstream's repositories have it."""
    application = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "LambdaApp",
        "spec": {
            "name": "shop",
            "input": {"functionManifestFile": "function.yaml"},
            **({"pipeline": {"stages": stages}} if stages else {}),
        },
    }
    described = {"name": "shop", "role": ROLE, "image": f"shop:{version}", "memory": 128}
    function = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "LambdaFunction",
        "spec": {**described, "timeout": 5, **spec},
    }
    return {
        "shop/app.pipecd.yaml": json.dumps(application),
        "shop/function.yaml": json.dumps(function),
    }


async def test_a_canary_is_promoted_and_one_that_fails_is_undone(
    site: PipedSite, client: SiteClient, aws: AwsLab
) -> None:
    functions = aws.make_client("lambda")
    site.commit({"README": "an example"})
    target = {"name": "main", "config": aws.target}
    site.configure({"name": "lambda", "deployTargets": [target]}, "scriptrun")
    site.start()
    stages: list[dict[str, Any]] = [
        {"name": "LAMBDA_CANARY_ROLLOUT"},
        {"name": "LAMBDA_PROMOTE", "with": {"percent": 10}},
        {"name": "SCRIPT_RUN", "with": {"run": "true"}},
        {"name": "LAMBDA_PROMOTE", "with": {"percent": 100}},
    ]

    def read() -> tuple[Any, ...]:
        alias = functions.get_alias(FunctionName="shop", Name="Service")
        function = functions.get_function(FunctionName="shop")
        weights = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
        configuration = function["Configuration"]
        return (
            alias["FunctionVersion"],
            weights,
            function["Code"]["ImageUri"],
            configuration["Timeout"],
            function["Tags"]["pipecd-dev-commit-hash"],
        )

    first = site.commit(make_files("v1", []))
    application = await client.register_older("shop", "main")
    quick = await client.wait_deployed(application, first)
    second = site.commit(make_files("v2", stages))
    whole = await client.wait_deployed(application, second)
    promoted = read()
    stages[2]["with"] = {"run": "exit 1"}
    third = site.commit(make_files("v3", stages, timeout=30))
    failed = await client.wait_deployed(application, third)

    assert quick.status == pb.DEPLOYMENT_SUCCESS, quick.status_reason
    assert [stage.name for stage in quick.stages] == ["LAMBDA_SYNC", "LAMBDA_ROLLBACK"]
    assert whole.status == pb.DEPLOYMENT_SUCCESS, whole.status_reason
    assert promoted == ("2", {}, "shop:v2", 5, second)
    assert failed.status == pb.DEPLOYMENT_FAILURE
    rolled = {stage.name: stage.status for stage in failed.stages if stage.rollback}
    assert rolled["LAMBDA_ROLLBACK"] == pb.STAGE_SUCCESS
    assert read() == promoted
